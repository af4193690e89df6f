"""Which points SGLang is asked about."""

from __future__ import annotations

import pytest
import yaml

from runners.sglang.preflight.sample import MOST_LISTED, points_to_ask, traits
from search_spaces.nccl.knobs import without_nccl
from search_spaces.space.baselines import baselines
from search_spaces.space.space import Space
from search_spaces.study_file.load import load_study, parse_study


@pytest.fixture(scope="module")
def kimi():
    return load_study("kimi")


def test_those_that_differ_in_nccl_alone_are_asked_once(kimi):
    space, known = Space(kimi), baselines(kimi)
    asked = points_to_ask(space, known.values(), most=10_000)
    assert len({without_nccl(point) for point in asked}) == len(asked) < len(space)
    assert {without_nccl(point) for point in space} <= {without_nccl(point) for point in asked}
    assert set(known.values()) <= set(asked)


def test_a_sample_has_every_choice_and_is_always_the_same(kimi):
    space = Space(kimi)
    whole = points_to_ask(space, (), most=10_000)
    asked = points_to_ask(space, (), most=12)
    assert len(asked) == 12
    assert asked == points_to_ask(Space(kimi), (), most=12)
    pairs = {pair for point in whole for pair in traits(point).items()}
    # NCCL's values are not told apart, all others are.
    of_servers = {pair for pair in pairs if not pair[0].startswith("NCCL_")}
    assert of_servers <= {pair for point in asked for pair in traits(point).items()}


def test_a_huge_space_is_drawn_from():
    data = yaml.safe_load(load_study("kimi").text)
    data["space"]["flags"] = {f"knob-{n}": [None, 1, 2, 3] for n in range(3)}
    study = parse_study(yaml.safe_dump(data), "huge.yaml")
    space = Space(study)
    assert len(space) > MOST_LISTED
    asked = points_to_ask(space, baselines(study).values(), most=50)
    assert 40 <= len(asked) <= 60
    assert all(point in space for point in asked[len(baselines(study)) :])
