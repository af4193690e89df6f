"""Flags of a single sub-space."""

from __future__ import annotations

import pytest
import yaml

from search_spaces.configuration import Configuration, Speculation
from search_spaces.problems import StudyFileError
from search_spaces.rules.legality import canonical
from search_spaces.space.baselines import baselines
from search_spaces.space.space import NotInSpaceError, Space
from search_spaces.study_file.load import parse_study

from ..conftest import study_dict

ADAPTIVE = {
    "algorithm": "EAGLE3",
    "num_steps": 3,
    "topk": 1,
    "flags": {"speculative_adaptive": [True], "own": ["a", "b"]},
}
PARTS = [
    {"algorithm": "none"},
    {"algorithm": "EAGLE3", "num_steps": [2, 3], "topk": 1},
    ADAPTIVE,
]


@pytest.fixture
def space(make_study):
    flags = {"page-size": [None, 64]}
    return Space(make_study(space={"speculation": PARTS, "flags": flags}))


def point(steps, page_size=None, adaptive=None, own=None):
    speculation = Speculation("EAGLE3", steps, 1, steps + 1) if steps else None
    flags = {"page-size": page_size, "speculative-adaptive": adaptive, "own": own}
    return Configuration.of(speculation, draft_tp=8 if steps else None, flags=flags)


def test_sub_space_flags_are_unset_in_other_sub_spaces(space):
    assert space.points == (
        *(point(None, size) for size in (None, 64)),
        *(point(steps, size) for steps in (2, 3) for size in (None, 64)),
        *(point(3, size, True, own) for size in (None, 64) for own in ("a", "b")),
    )
    assert point(2, None, True, "a") not in space
    assert all(baseline in space for baseline in baselines(space.study).values())


def test_sub_space_flags_have_parameters_with_the_label(space):
    assert space.assignments(point(3, 64, True, "b")) == {
        "algorithm": "EAGLE3-2",
        "EAGLE3-2.num_steps": 3,
        "EAGLE3-2.topk": 1,
        "flag.page-size": 64,
        "EAGLE3-2.flag.speculative-adaptive": True,
        "EAGLE3-2.flag.own": "b",
    }
    assert space.assignments(point(3, 64))["algorithm"] == "EAGLE3"
    last = space.parameters_of(point(3, 64, True, "b"))[-1]
    assert (last.name, last.choices) == ("EAGLE3-2.flag.own", ("a", "b"))


@pytest.mark.parametrize(
    "configuration",
    [
        point(2, None, True, "a"),
        point(3, None, True, "c"),
        Configuration.of(Speculation(), flags={"page-size": None, "other": None}),
        Configuration.of(Speculation(), env={"A": None}),
    ],
)
def test_a_configuration_outside_the_choices_has_no_assignments(space, configuration):
    with pytest.raises(NotInSpaceError):
        space.assignments(configuration)


def test_adaptive_is_dropped_for_trees(make_study):
    """Adaptive speculation takes chains only (0.5.23): a tree beside it is a tree without it."""
    part = {**ADAPTIVE, "topk": [1, 2], "num_draft_tokens": 4}
    space = Space(make_study(space={"speculation": [part]}))
    tree = Configuration.of(
        Speculation("EAGLE3", 3, 2, 4), draft_tp=8, flags={"speculative-adaptive": None, "own": "a"}
    )
    assert tree in space
    assert len(space) == 4
    assert space.assignments(tree)["EAGLE3.flag.speculative-adaptive"] is True


def test_rules_check_sub_space_flags(make_study):
    parts = [
        {"algorithm": "EAGLE3", "num_steps": [2, 3], "topk": [1, 2], "num_draft_tokens": 4}
        | {"flags": {"attention-backend": ["trtllm_mha", "fa3"]}},
    ]
    space = Space(make_study(space={"speculation": parts}))
    trees = [p for p in space if p.speculation.topk == 2]
    assert {dict(p.flags)["attention-backend"] for p in trees} == {"fa3"}


def test_sub_space_flags_change_the_digest(make_study):
    def digest(*parts):
        return Space(make_study(space={"speculation": [*parts]})).digest

    plain = {key: value for key, value in ADAPTIVE.items() if key != "flags"}
    respelled = {**plain, "flags": {"own": ["b", "a"], "--speculative-adaptive": [True]}}
    other = {**plain, "flags": {"speculative-adaptive": [True], "own": ["a"]}}
    none = {"algorithm": "none"}
    assert digest(none, ADAPTIVE) == digest(respelled, none)
    assert len({digest(none, part) for part in (plain, ADAPTIVE, other)}) == 3
    assert digest(none, plain, ADAPTIVE) != digest(none, ADAPTIVE)


@pytest.mark.parametrize(
    ("changes", "key", "message"),
    [
        (
            {"space": {"speculation": PARTS, "flags": {"own": ["a", "c"]}}},
            "space.speculation[2].flags.own",
            "Also under `space.flags`",
        ),
        (
            {"space": {"speculation": PARTS}, "server": {"flags": {"own": "a", "tp-size": 8}}},
            "space.speculation[2].flags.own",
            "Also under `server.flags`",
        ),
        (
            {
                "space": {
                    "speculation": [
                        {"algorithm": "none", "flags": {"speculative_adaptive": [True]}}
                    ]
                }
            },
            "space.speculation[0].flags.speculative_adaptive",
            "SGLang ignores it without an algorithm",
        ),
        (
            {"space": {"speculation": [{**ADAPTIVE, "flags": {"port": [1, 2]}}]}},
            "space.speculation[0].flags.port",
            "Cannot be searched",
        ),
        (
            {"space": {"speculation": [{**ADAPTIVE, "flags": {"speculative-num-steps": [1, 2]}}]}},
            "space.speculation[0].flags.speculative-num-steps",
            "write `num_steps` in a sub-space",
        ),
        (
            {"space": {"speculation": [{**ADAPTIVE, "flags": {"own": "a"}}]}},
            "space.speculation[0].flags.own",
            "Must be a list of choices",
        ),
    ],
)
def test_mistakes(changes, key, message):
    with pytest.raises(StudyFileError) as raised:
        parse_study(yaml.safe_dump(study_dict(**changes), sort_keys=False), "mine.yaml")
    (problem,) = raised.value.problems
    assert problem.key == key
    assert message in problem.message


def test_a_searched_tp_size_of_one_sub_space_places_its_draft(make_study):
    part = {"algorithm": "EAGLE3", "num_steps": 1, "topk": 1, "flags": {"tp": [2, 4]}}
    study = make_study(server={}, space={"speculation": [{"algorithm": "none"}, part]})
    assert [p.draft_tp for p in Space(study)] == [None, 2, 4]
    given = Configuration.of(Speculation("EAGLE3", 1, 1), flags={"tensor-parallel-size": "4"})
    assert canonical(given, study).draft_tp == 4
