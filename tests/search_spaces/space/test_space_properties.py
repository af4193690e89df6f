"""Properties of the spaces of generated studies."""

from __future__ import annotations

import itertools
import math
import random
from typing import TYPE_CHECKING

import yaml
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st

from search_spaces.configuration import Configuration
from search_spaces.rules.legality import canonical, violations
from search_spaces.space.space import Space
from search_spaces.study_file.load import parse_study

from ...examples import examples
from ..conftest import broken_conditions
from ..drawn_studies import studies

if TYPE_CHECKING:
    from search_spaces.space.parameters import Parameter

usual = settings(
    deadline=None, suppress_health_check=[HealthCheck.filter_too_much, HealthCheck.too_slow]
)
seeds = st.integers(0, 10**6)


def chooser(seed):
    rng = random.Random(seed)
    return lambda parameter: rng.choice(parameter.choices)


def excluded(configuration, study):
    return violations(configuration, study) + broken_conditions(configuration, study)


@settings(usual, max_examples=examples(30))
@given(studies())
def test_points_are_legal_canonical_and_distinct(study):
    space = Space(study)
    points = space.points
    assert len(points) == len(space) == len(set(points)) == len({p.key for p in points})
    assert not space.is_empty
    for point in points[:300]:
        assert excluded(point, study) == ()
        assert canonical(point, study) == point
        assert point in space


@settings(usual, max_examples=examples(30))
@given(studies(), seeds)
def test_samples_are_canonical_and_in_the_space_if_legal(study, seed):
    space = Space(study)
    sample = space.sample(chooser(seed))
    assert canonical(sample, study) == sample
    broken = excluded(sample, study)
    assert (sample in space) == (broken == ())
    assert (sample in space) == (sample in space.points)
    if broken:
        assert all(v.rule and v.source and v.message for v in broken)


def every_sample(space: Space):
    """What every way through the tree of choices gives, in order."""
    pending: list[tuple[int, ...]] = [()]
    while pending:
        taken = pending.pop()
        asked: list[int] = []

        def choose(parameter, taken=taken, asked=asked):
            at = taken[len(asked)] if len(asked) < len(taken) else 0
            if len(asked) >= len(taken):
                here = (*taken, *asked[len(taken) :])
                pending.extend((*here, other) for other in range(1, len(parameter.choices)))
            asked.append(at)
            return parameter.choices[at]

        yield space.sample(choose)


@settings(usual, max_examples=examples(20))
@given(studies())
def test_the_points_are_all_that_can_be_sampled_and_is_legal(study):
    space = Space(study)
    most = sum(
        math.prod(len(part.model_dump()[k] or (0,)) for k in ("num_steps", "topk")) * 9
        for part in study.space.speculation
    ) * math.prod(len(c) for c in (*study.space.flags.values(), *study.space.env.values()))
    assume(most < 2500)
    found = {sample for sample in every_sample(space) if not excluded(sample, study)}
    assert found == set(space.points)


@settings(usual, max_examples=examples(30))
@given(studies(), seeds)
def test_assignments_lead_back(study, seed):
    space = Space(study)
    for configuration in (space.sample(chooser(seed)), random.Random(seed).choice(space.points)):
        assignments = space.assignments(configuration)
        asked: list[Parameter] = []

        def replay(parameter, assignments=assignments, asked=asked):
            asked.append(parameter)
            value = assignments[parameter.name]
            assert value in parameter.choices
            return value

        assert space.sample(replay) == configuration
        assert tuple(asked) == space.parameters_of(configuration)
        assert [p.name for p in asked] == list(assignments)


@settings(usual, max_examples=examples(20))
@given(studies())
def test_a_parameter_always_has_the_same_choices(study):
    space = Space(study)
    seen: dict[str, Parameter] = {}
    for seed in range(30):
        rng = random.Random(seed)

        def choose(parameter, rng=rng):
            assert seen.setdefault(parameter.name, parameter) == parameter
            assert len(set(parameter.choices)) == len(parameter.choices)
            if parameter.ordered:
                assert list(parameter.choices) == sorted(parameter.choices)
            return rng.choice(parameter.choices)

        space.sample(choose)


def shuffled(value, rng):
    out = list(value)
    rng.shuffle(out)
    return out


def respelled(pattern, rng):
    """A side of a condition, said otherwise."""
    out = dict(shuffled(pattern.items(), rng))
    for name in ("num_steps", "topk", "num_draft_tokens", "draft_tp"):
        if isinstance(out.get(name), list):
            out[name] = shuffled(out[name], rng)
        elif isinstance(out.get(name), int):
            out[name] = [out[name]]
    if "algorithm" in out:
        out["algorithm"] = [out["algorithm"].lower()]
    for section in ("flags", "env"):
        if section in out:
            values = {n: shuffled(c, rng) for n, c in shuffled(out[section].items(), rng)}
            out[section] = values
    return out


@settings(usual, max_examples=examples(20))
@given(studies(), st.randoms(use_true_random=False))
def test_order_and_spelling_do_not_change_the_digest(study, rng):
    data = yaml.safe_load(study.text)
    space = data["space"]
    rng.shuffle(space["speculation"])
    for part in space["speculation"]:
        part["algorithm"] = part["algorithm"].lower()
        for name in ("num_steps", "topk", "num_draft_tokens"):
            if isinstance(part.get(name), list):
                rng.shuffle(part[name])
        if "flags" in part:
            part["flags"] = {
                "--" + n.replace("-", "_"): shuffled(c, rng)
                for n, c in reversed(part["flags"].items())
            }
    for choices in [*space["flags"].values(), *space["env"].values()]:
        rng.shuffle(choices)
    space["flags"] = {
        "--" + name.replace("-", "_"): choices for name, choices in reversed(space["flags"].items())
    }
    space["env"] = dict(reversed(space["env"].items()))
    conditions = [
        {side: respelled(pattern, rng) for side, pattern in condition.items()}
        for condition in space.get("conditions", ())
    ]
    if conditions:
        space["conditions"] = shuffled(conditions, rng)
    data["study"], data["budget"] = "another", {"launches": 99}
    other = Space(parse_study(yaml.safe_dump(data, sort_keys=False), "other.yaml"))
    assert other.digest == Space(study).digest
    assert set(other.points) == set(Space(study).points)


@settings(usual, max_examples=examples(30))
@given(studies(), seeds)
def test_two_spellings_of_a_server_are_one_point(study, seed):
    """What SGLang and NCCL read as the same is one configuration, with one key."""
    rng = random.Random(seed)
    point = rng.choice(Space(study).points)
    speculation = point.speculation
    data = point.to_dict()
    data["speculation"]["algorithm"] = rng.choice(
        [speculation.algorithm.lower(), speculation.algorithm.title()]
    )
    if speculation.topk == 1 and speculation.algorithm != "DFLASH":
        data["speculation"]["num_draft_tokens"] = rng.choice([None, 2, 99])
    data["flags"] = {
        rng.choice(["--", ""]) + name.replace("-", rng.choice("-_")): rng.choice(
            [value, str(value) if type(value) is int else value, False if value is None else value]
        )
        for name, value in shuffled(data["flags"].items(), rng)
    }
    for name in [n for n, value in data["flags"].items() if not value and rng.random() < 0.5]:
        del data["flags"][name]
    # What the study fixes, said once more, and what is not given anyway.
    data["flags"] |= dict(study.server.flags) | {"no-such-flag": None, "enable-y": False}
    data["env"] = dict(shuffled(data["env"].items(), rng))
    if data["env"].get("NCCL_P2P_DISABLE") == "1" and "NCCL_P2P_LEVEL" in data["env"]:
        data["env"]["NCCL_P2P_LEVEL"] = "PHB"
    for name in ("NCCL_MIN_NCHANNELS", "NCCL_MAX_NCHANNELS"):
        if data["env"].get(name) == "8":
            data["env"][name] = "0x8"
    spelled = Configuration.from_dict(data)
    assert canonical(spelled, study) == point
    assert canonical(spelled, study).key == point.key


def test_the_grid_of_108_points(make_study):
    """Steps 1 to 8, topk 1, 2, 4, 8, draft tokens 2 to 32, and `none`: counted by hand.

    A chain's tokens follow from its steps: 8. A tree of topk k and s steps holds
    `k + (s-1) k^2` drafted tokens: 107 with `none` left out.
    """
    part = {
        "algorithm": "EAGLE3",
        "num_steps": {"from": 1, "to": 8},
        "topk": [1, 2, 4, 8],
        "num_draft_tokens": [2, 4, 8, 16, 32],
    }
    grid = [{"algorithm": "none"}, part]
    space = Space(make_study(space={"speculation": grid}))
    by_hand = {(None, None, None)} | {(s, 1, s + 1) for s in range(1, 9)}
    for s, k, tokens in itertools.product(range(1, 9), (2, 4, 8), (2, 4, 8, 16, 32)):
        if tokens - 1 <= k + (s - 1) * k**2:
            by_hand.add((s, k, tokens))
    points = {
        (p.speculation.num_steps, p.speculation.topk, p.speculation.num_draft_tokens) for p in space
    }
    assert points == by_hand
    assert len(space) == len(space.points) == 108
