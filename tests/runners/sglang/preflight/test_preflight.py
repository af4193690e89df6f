"""Points that the preflight checks."""

from __future__ import annotations

import pytest

from runners.sglang.preflight.preflight import points_to_ask, traits
from search_spaces.nccl.all_reduce import without_nccl
from search_spaces.space.baselines import baselines
from search_spaces.space.space import Space
from search_spaces.study_file.load import load_study


@pytest.fixture(scope="module")
def kimi():
    return load_study("kimi")


def test_points_that_differ_only_in_nccl_are_checked_once(kimi):
    space, known = Space(kimi), baselines(kimi)
    asked = points_to_ask(space, known.values(), most=10_000)
    assert len({without_nccl(point) for point in asked}) == len(asked) < len(space)
    assert {without_nccl(point) for point in space} <= {without_nccl(point) for point in asked}
    assert set(known.values()) <= set(asked)


def test_sample_has_every_value_and_is_reproducible(kimi):
    space = Space(kimi)
    whole = points_to_ask(space, (), most=10_000)
    asked = points_to_ask(space, (), most=12)
    assert len(asked) == 12
    assert asked == points_to_ask(Space(kimi), (), most=12)
    pairs = {pair for point in whole for pair in traits(point).items()}
    # NCCL's values are not told apart, all others are.
    of_servers = {pair for pair in pairs if not pair[0].startswith("NCCL_")}
    assert of_servers <= {pair for point in asked for pair in traits(point).items()}
