from __future__ import annotations

import random

import pytest

from search_spaces.configuration import Configuration, Speculation
from search_spaces.rules.legality import canonical, violations
from search_spaces.space.space import NotInSpaceError, Space, SpaceTooLargeError
from search_spaces.study_file.load import load_study


def chooser(seed):
    rng = random.Random(seed)
    return lambda parameter: rng.choice(parameter.choices)


@pytest.mark.parametrize(
    "change",
    [
        ("model", {"path": "org/other", "draft": "org/draft"}),
        ("server", {"flags": {"tp-size": 4}}),
        ("server", {"flags": {"tp-size": 8}, "env": {"A": "1"}}),
        ("space", {"speculation": [{"algorithm": "none"}], "env": {"A": [None, "1"]}}),
        ("space", {"speculation": [{"algorithm": "none"}], "env": {"A": [None, "2"]}}),
        ("space", {"speculation": [{"algorithm": "none"}], "flags": {"a": [1, 2]}}),
    ],
)
def test_model_server_and_space_change_the_digest(make_study, change):
    digests = [Space(make_study()).digest, Space(make_study(**dict([change]))).digest]
    digests.append(Space(make_study(space={"speculation": [{"algorithm": "none"}]})).digest)
    assert len(set(digests)) == 3


def test_a_digest_is_stable_across_versions():
    # Stored with every study: changing how it is made orphans studies that are under way.
    assert Space(load_study("kimi-demo")).digest == "ff88fa694a7e9dd1"


KIMI_TREES = {
    "speculation": [
        {"algorithm": "none"},
        {
            "algorithm": "EAGLE3",
            "num_steps": {"from": 1, "to": 10},
            "topk": [1, 2, 4],
            "num_draft_tokens": [4, 8, 16],
        },
    ],
    "draft_tp": [8],
    "env": {"NCCL_PROTO": [None, "LL", "LL128", "Simple"]},
}


def test_the_count_of_chains_and_trees(make_study):
    # Chains: 10. Trees of topk 2: 0+1+2+2 and three at each of 5..10 steps; topk 4: 1 and 9 x 3.
    space = Space(make_study(space=KIMI_TREES))
    assert len(space) == 4 * (1 + 10 + 23 + 28)
    assert space.points[0] == Configuration.of(env={"NCCL_PROTO": None})
    assert Counter(space) == {None: 4, 1: 40, 2: 92, 4: 112}


def Counter(space):  # noqa: N802 - topk of every point
    out: dict[int | None, int] = {}
    for point in space:
        out[point.speculation.topk] = out.get(point.speculation.topk, 0) + 1
    return out


def test_a_plausible_grid_of_160_has_107_points(make_study):
    part = {
        "algorithm": "EAGLE3",
        "num_steps": {"from": 1, "to": 8},
        "topk": [1, 2, 4, 8],
        "num_draft_tokens": [2, 4, 8, 16, 32],
    }
    assert len(Space(make_study(space={"speculation": [part]}))) == 107


def test_the_space_of_the_demo():
    space = Space(load_study("kimi-demo"))
    assert len(space) == 24
    assert {(p.speculation.num_steps, p.speculation.num_draft_tokens) for p in space} == {
        (None, None),
        *((s, s + 1) for s in range(1, 6)),
    }


def test_an_illegal_sample_names_its_rule(make_study):
    space = Space(make_study(space=KIMI_TREES))
    wanted = {
        "algorithm": "EAGLE3",
        "EAGLE3.num_steps": 1,
        "EAGLE3.topk": 2,
        "EAGLE3.num_draft_tokens": 16,
        "draft_tp": 8,
        "env.NCCL_PROTO": None,
    }
    sample = space.sample(lambda parameter: wanted[parameter.name])
    assert sample not in space
    assert [v.rule for v in violations(sample, space.study)] == ["tree_capacity"]
    assert space.assignments(sample) == wanted


def test_only_canonical_forms_are_in_the_space():
    study = load_study("kimi-demo")
    spelled = Configuration.of(Speculation("eagle3", 2, 1, 16))
    assert spelled not in Space(study)
    assert canonical(spelled, study) in Space(study)
    assert "EAGLE3" not in Space(study)


def test_two_sub_spaces_of_one_algorithm(make_study):
    parts = [
        {"algorithm": "EAGLE3", "num_steps": [1, 2], "topk": 1},
        {"algorithm": "EAGLE3", "num_steps": [2, 3], "topk": [1, 2], "num_draft_tokens": 4},
    ]
    space = Space(make_study(space={"speculation": parts}))
    shapes = [(p.speculation.topk, p.speculation.num_steps) for p in space]
    assert shapes == [(1, 1), (1, 2), (1, 3), (2, 2), (2, 3)]
    chain, _, deep, tree, _ = space.points
    assert space.assignments(chain) == {
        "algorithm": "EAGLE3",
        "EAGLE3.num_steps": 1,
        "EAGLE3.topk": 1,
    }
    assert space.assignments(deep)["algorithm"] == "EAGLE3-2"
    assert space.assignments(tree)["EAGLE3-2.num_draft_tokens"] == 4


def test_sampling_skips_a_sub_space_without_legal_points(make_study):
    parts = [
        {"algorithm": "none"},
        {"algorithm": "EAGLE3", "num_steps": 1, "topk": 2, "num_draft_tokens": 16},
    ]
    space = Space(make_study(space={"speculation": parts}))
    (parameter,) = space.parameters_of(space.points[0])
    assert parameter.choices == ("none",)


def test_draft_sizes_that_the_runner_cannot_place_are_left_out(make_study):
    parts = [{"algorithm": "none"}, {"algorithm": "EAGLE3", "num_steps": 1, "topk": 1}]
    study = make_study(space={"speculation": parts, "draft_tp": [8, 1, 2]})
    assert [p.draft_tp for p in Space(study)] == [None, 8, 1, 2]
    only_targets = Space(study, lambda size: size == 8)
    assert [p.draft_tp for p in only_targets] == [None, 8]
    assert only_targets.parameters_of(only_targets.points[1])[-1].choices == (8,)
    assert [p.draft_tp for p in Space(study, lambda _size: False)] == [None]


def test_an_empty_space(make_study):
    study = make_study(space={"speculation": [{"algorithm": "EAGLE3"}]})
    space = Space(study, lambda _size: False)
    assert (len(space), space.points, space.is_empty) == (0, (), True)
    with pytest.raises(NotInSpaceError, match="empty"):
        space.sample(chooser(0))


def test_a_configuration_outside_the_space_has_no_assignments():
    space = Space(load_study("kimi-demo"))
    with pytest.raises(NotInSpaceError, match="EAGLE3"):
        space.assignments(Configuration.of(Speculation("EAGLE3", 9, 1, 10)))
    with pytest.raises(NotInSpaceError, match="Tree"):
        space.assignments(Configuration.of(env={"NCCL_PROTO": "Tree"}))


def test_a_baseline_outside_of_the_choices_has_no_assignments(make_study):
    space = Space(make_study(space={"speculation": [{"algorithm": "none"}], "env": {"A": ["1"]}}))
    with pytest.raises(NotInSpaceError):
        space.assignments(Configuration.of(env={"A": None}))


def test_too_many_servers_environments_or_points_are_refused(make_study):
    study = make_study()
    none = study.space.model_copy(update={"speculation": study.space.speculation[:1]})
    for change in (
        {"flags": {"a": tuple(range(301)), "b": tuple(range(301))}},
        {"env": {"A": tuple(map(str, range(301))), "B": tuple(map(str, range(301)))}},
        {"flags": {"a": tuple(range(301))}, "env": {"B": tuple(map(str, range(301)))}},
    ):
        space = none.model_copy(update=change)
        with pytest.raises(SpaceTooLargeError, match=r"90,601 .* 50,000; search fewer"):
            Space(study.model_copy(update={"space": space}))


def test_excluded_points_change_neither_digest_nor_parameters(make_study):
    study = make_study()
    whole = Space(study)
    space = Space(study, excluded=lambda point: point.speculation.topk == 2)
    trees = [point for point in whole if point.speculation.topk == 2]
    assert trees
    assert space.points == tuple(point for point in whole if point not in trees)
    assert not any(tree in space for tree in trees)
    assert space.digest == whole.digest
    for point in space:
        assert space.parameters_of(point) == whole.parameters_of(point)
    with pytest.raises(NotInSpaceError):
        Space(study, excluded=lambda _: True).sample(chooser(0))
