"""Points, warnings and errors of `space.conditions`."""

from __future__ import annotations

import pytest
import yaml

from search_spaces.configuration import Configuration, Speculation
from search_spaces.problems import StudyFileError
from search_spaces.rules.legality import canonical, violations
from search_spaces.space.baselines import baselines
from search_spaces.space.space import Space
from search_spaces.study_file.load import parse_study
from search_spaces.study_file.warnings import warnings

from ..conftest import broken_conditions, study_dict

CHAINS = [
    {"algorithm": "none"},
    {"algorithm": "EAGLE3", "num_steps": {"from": 1, "to": 4}, "topk": 1},
    {"algorithm": "NGRAM", "num_draft_tokens": [4, 8]},
]


def spaced(make_study, *conditions):
    space = {
        "speculation": CHAINS,
        "draft_tp": [1, 8],
        "flags": {"page-size": [None, 64], "enable-x": [None, True]},
        "env": {"NCCL_PROTO": [None, "LL", "Simple"], "A": ["0", "1"]},
        "conditions": list(conditions),
    }
    # One branch: NGRAM then runs on pages too.
    fixed = {"tp-size": 8, "device": "cuda", "speculative-ngram-max-bfs-breadth": 1}
    return make_study(space=space, server={"flags": fixed})


def kept(study, keep):
    """The points of the same study without conditions that a function keeps, in their order."""
    without = study.model_copy(update={"space": study.space.model_copy(update={"conditions": ()})})
    return [point for point in Space(without) if keep(point)]


def flag(point, name):
    return dict(point.flags)[name]


def env(point, name):
    return dict(point.env)[name]


HELD = {
    "of speculation": (
        {"when": {"algorithm": "eagle3"}, "then": {"num_steps": [1, 2]}},
        lambda p: p.speculation.algorithm != "EAGLE3" or p.speculation.num_steps in {1, 2},
    ),
    "of flags": (
        {"when": {"flags": {"page_size": 64}}, "then": {"flags": {"enable-x": True}}},
        lambda p: flag(p, "page-size") != 64 or flag(p, "enable-x") is True,
    ),
    "of a flag that is not given": (
        {"when": {"flags": {"page-size": None}}, "then": {"flags": {"enable-x": False}}},
        lambda p: flag(p, "page-size") is not None or flag(p, "enable-x") is None,
    ),
    "of variables": (
        {"when": {"env": {"NCCL_PROTO": ["LL", "Simple"]}}, "then": {"env": {"A": "1"}}},
        lambda p: env(p, "NCCL_PROTO") is None or env(p, "A") == "1",
    ),
    "of both": (
        {"when": {"num_steps": {"from": 3, "to": 9}}, "then": {"env": {"NCCL_PROTO": "LL"}}},
        lambda p: (p.speculation.num_steps or 0) < 3 or env(p, "NCCL_PROTO") == "LL",
    ),
    "of both, the other way": (
        {"when": {"env": {"A": "1", "NCCL_PROTO": None}}, "then": {"algorithm": ["none", "NGRAM"]}},
        lambda p: (
            env(p, "A") != "1"
            or env(p, "NCCL_PROTO") is not None
            or p.speculation.algorithm in {"none", "NGRAM"}
        ),
    ),
    "of two sides each": (
        {
            "when": {"algorithm": "EAGLE3", "env": {"A": "1"}},
            "then": {"draft_tp": 1, "env": {"NCCL_PROTO": ["LL", None]}},
        },
        lambda p: (
            not (p.speculation.algorithm == "EAGLE3" and env(p, "A") == "1")
            or (p.draft_tp == 1 and env(p, "NCCL_PROTO") != "Simple")
        ),
    ),
    "always": (
        {"when": {}, "then": {"env": {"A": "1"}}},
        lambda p: env(p, "A") == "1",
    ),
    "numbers that a configuration does not have": (
        {"when": {"env": {"A": "1"}}, "then": {"num_steps": 1, "draft_tp": 1}},
        lambda p: (
            env(p, "A") != "1"
            or p.speculation.algorithm != "EAGLE3"
            or (p.speculation.num_steps == 1 and p.draft_tp == 1)
        ),
    ),
    "also in when": (
        {"when": {"num_steps": {"from": 1, "to": 99}}, "then": {"env": {"A": "1"}}},
        lambda p: p.speculation.algorithm != "EAGLE3" or env(p, "A") == "1",
    ),
    "what the study fixes": (
        {"when": {"flags": {"tp": 8, "device": "cuda"}}, "then": {"flags": {"page-size": 64}}},
        lambda p: flag(p, "page-size") == 64,
    ),
    "a variable in NCCL's other spelling": (
        {"when": {"env": {"NCCL_PROTO": "simple"}}, "then": {"env": {"A": "0"}}},
        lambda p: env(p, "NCCL_PROTO") != "Simple" or env(p, "A") == "0",
    ),
}


@pytest.mark.parametrize(("condition", "keep"), HELD.values(), ids=HELD.keys())
def test_points_satisfy_a_condition(make_study, condition, keep):
    study = spaced(make_study, condition)
    space = Space(study)
    expected = kept(study, keep)
    assert 0 < len(expected) < len(kept(study, lambda _: True))
    assert list(space.points) == expected
    assert len(space) == len(expected)
    assert not space.is_empty
    points = {*expected}
    for point in kept(study, lambda _: True):
        assert (point in space) == (point in points)
        broken = broken_conditions(point, study)
        assert [(v.rule, v.source) for v in broken] == (
            [] if point in points else [("condition", "space.conditions[0]")]
        )
        assert violations(point, study) == ()


def test_points_satisfy_all_conditions(make_study):
    study = spaced(make_study, *(condition for condition, _ in HELD.values()))
    expected = kept(study, lambda p: all(keep(p) for _, keep in HELD.values()))
    assert list(Space(study).points) == expected
    assert 0 < len(expected) < 100


def test_a_broken_condition_is_named_with_its_place(make_study):
    study = spaced(
        make_study,
        {"when": {"algorithm": "NGRAM"}, "then": {"flags": {"enable-x": None}}},
        {"when": {"env": {"NCCL_PROTO": "LL"}, "num_steps": [3, 4]}, "then": {"draft_tp": [1]}},
    )
    point = canonical(
        Configuration.of(Speculation("EAGLE3", 4, 1), draft_tp=8, env={"NCCL_PROTO": "LL"}), study
    )
    (violation,) = broken_conditions(point, study)
    assert str(violation) == (
        "draft_tp must be 1, not 8, where num_steps is 3 or 4 and NCCL_PROTO is LL "
        "[condition; space.conditions[1]]"
    )


def test_a_baseline_may_break_a_condition(make_study):
    study = spaced(make_study, {"when": {}, "then": {"algorithm": "EAGLE3", "env": {"A": "1"}}})
    found = baselines(study)
    assert set(found) == {"none", "default"}
    assert not any(baseline in Space(study) for baseline in found.values())


def test_sampling_skips_a_sub_space_that_conditions_empty(make_study):
    study = spaced(
        make_study,
        {"when": {"algorithm": "NGRAM"}, "then": {"env": {"A": "1"}}},
        {"when": {"algorithm": "NGRAM", "env": {"A": "1"}}, "then": {"flags": {"page-size": 64}}},
        {"when": {"algorithm": "NGRAM"}, "then": {"flags": {"page-size": None}}},
    )
    space = Space(study)
    algorithm = space.parameters_of(space.points[0])[0]
    assert algorithm.choices == ("none", "EAGLE3")
    assert {p.speculation.algorithm for p in space} == {"none", "EAGLE3"}


MIXED = {"when": {"num_steps": [7, 8]}, "then": {"env": {"V": [str(n) for n in range(9)]}}}


def test_a_condition_on_server_and_environment_in_a_large_space(make_study):
    part = {
        "algorithm": "EAGLE3",
        "num_steps": {"from": 1, "to": 8},
        "topk": [1, 2, 4, 8],
        "num_draft_tokens": [2, 4, 8, 16, 32],
    }
    space = {
        "speculation": [{"algorithm": "none"}, part],
        "env": {"V": [str(n) for n in range(60)]},
        "conditions": [MIXED],
    }
    study = make_study(space=space)
    grid = Space(study)
    deep = sum(s.num_steps in {7, 8} for s in grid.speculations)
    assert len(grid) == len(grid.points) == 108 * 60 - deep * 51


def study_text(conditions: str) -> str:
    """A study whose conditions stand in its last lines."""
    data = study_dict(
        server={"flags": {"tp-size": 8}, "env": {"NCCL_DEBUG": "WARN"}},
        space={
            "speculation": [
                *CHAINS,
                {"algorithm": "EAGLE3", "num_steps": 3, "topk": 1, "flags": {"own": ["a", "b"]}},
            ],
            "flags": {"page-size": [None, 64], "speculative-attention-mode": ["prefill"]},
            "env": {"NCCL_PROTO": [None, "LL"], "A": ["08", "1"]},
        },
    )
    space = data.pop("space")
    return (
        yaml.safe_dump(data | {"space": space}, sort_keys=False) + f"  conditions:\n{conditions}\n"
    )


MISTAKES = {
    "an unknown flag": (
        "when: {flags: {page_sise: 64}}, then: {topk: 1}",
        "when.flags.page_sise",
        "does not set it; did you mean `page-size`?",
    ),
    "an unknown variable": (
        "when: {topk: 1}, then: {env: {NCCL_PROT: LL}}",
        "then.env.NCCL_PROT",
        "did you mean `NCCL_PROTO`? (to search it, write its choices under `space.env`)",
    ),
    "an algorithm of another study": (
        "when: {algorithm: DFLASH}, then: {topk: 1}",
        "when.algorithm",
        "DFLASH is not an algorithm of this study; use none, EAGLE3, NGRAM",
    ),
    "no algorithm at all": (
        "when: {algorithm: EAGEL3}, then: {topk: 1}",
        "when.algorithm[0]",
        "did you mean `EAGLE3`?",
    ),
    "a value that is no choice": (
        "when: {topk: 1}, then: {flags: {page-size: [64, 32]}}",
        "then.flags.page-size",
        "Is never 32 in this study; use null, 64",
    ),
    "a variable's value that is no choice": (
        "when: {env: {NCCL_PROTO: Simple}}, then: {topk: 1}",
        "when.env.NCCL_PROTO",
        "Is never Simple in this study; use null, LL",
    ),
    "another value than the fixed one": (
        "when: {flags: {tp-size: 4}}, then: {topk: 1}",
        "when.flags.tp-size",
        "Is never 4 in this study; use 8",
    ),
    "what has a key of its own": (
        "when: {flags: {speculative-num-steps: 4}}, then: {topk: 1}",
        "when.flags.speculative-num-steps",
        "Write `num_steps` next to `flags`",
    ),
    "an unknown key": (
        "when: {steps: 4}, then: {topk: 1}",
        "when.steps",
        "Unknown key; did you mean `num_steps`?",
    ),
    "no then": ("when: {topk: 1}", "then", "Missing"),
    "an empty then": ("when: {topk: 1}, then: {}", "then", "Requires nothing"),
    "an empty list": ("when: {topk: []}, then: {topk: 1}", "when.topk", "empty"),
    "a boolean variable": (
        "when: {env: {A: yes}}, then: {topk: 1}",
        "when.env.A[0]",
        "put the variable's text in quotes",
    ),
    "what leaves nothing": (
        "when: {}, then: {num_steps: 9, algorithm: EAGLE3}",
        "",
        "Excludes every configuration",
    ),
}


@pytest.mark.parametrize(("condition", "key", "message"), MISTAKES.values(), ids=MISTAKES.keys())
def test_a_mistake_is_told_with_its_line(condition, key, message):
    first = "    - {when: {topk: 1}, then: {num_steps: [1, 2, 3]}}\n"
    text = study_text(f"{first}    - {{{condition}}}")
    with pytest.raises(StudyFileError) as raised:
        parse_study(text, "mine.yaml")
    (problem,) = raised.value.problems
    assert problem.key == ".".join(filter(None, ["space.conditions[1]", key]))
    assert problem.line == text.rstrip("\n").count("\n") + 1
    assert message in problem.message


def test_conditions_that_together_exclude_everything_are_refused():
    both = (
        "    - {when: {}, then: {algorithm: EAGLE3}}\n"
        "    - {when: {algorithm: EAGLE3}, then: {algorithm: none}}"
    )
    with pytest.raises(
        StudyFileError, match=r"space\.conditions: Together they exclude every configuration"
    ):
        parse_study(study_text(both), "mine.yaml")


def test_an_empty_space_without_conditions_names_the_rule(make_study):
    part = {"algorithm": "EAGLE3", "num_steps": 1, "topk": 2, "num_draft_tokens": 16}
    space = {"speculation": [part], "conditions": [{"when": {"topk": 1}, "then": {"num_steps": 1}}]}
    with pytest.raises(StudyFileError, match="tree_capacity") as raised:
        make_study(space=space)
    assert [problem.key for problem in raised.value.problems] == ["space"]


@pytest.mark.parametrize(
    "values",
    [
        "env: {A: 08}",  # a number as it is written
        "flags: {own: null}",  # not given in the other sub-spaces
        "flags: {speculative-attention-mode: null}",  # not without an algorithm
        "env: {NCCL_DEBUG: WARN}",  # what the study fixes
        "env: {NCCL_PROTO: ll}",  # in NCCL's other spelling
    ],
)
def test_conditions_accept_every_possible_value(values):
    study = parse_study(
        study_text(f"    - {{when: {{{values}}}, then: {{flags: {{page-size: 64}}}}}}"), "m"
    )
    assert 0 < len(Space(study)) < len(kept(study, lambda _: True))


@pytest.mark.parametrize(
    ("condition", "warning"),
    [
        (
            {"when": {"num_steps": 9}, "then": {"env": {"A": "1"}}},
            "[0] never applies: no configuration matches `when` (num_steps is 9)",
        ),
        (
            {"when": {"algorithm": "NGRAM", "topk": 1}, "then": {"env": {"A": "1"}}},
            "never applies",
        ),
        (
            {"when": {"algorithm": "EAGLE3"}, "then": {"topk": 1}},
            "space.conditions[0] excludes nothing: every match of `when` (algorithm is EAGLE3)",
        ),
    ],
)
def test_a_condition_without_effect_is_warned_about(make_study, condition, warning):
    study = spaced(make_study, condition)
    (found,) = [w for w in warnings(study) if "space.conditions" in w]
    assert warning in found


def test_a_condition_with_effect_is_not_warned_about(make_study):
    for condition, _ in HELD.values():
        study = spaced(make_study, condition)
        assert not [w for w in warnings(study) if "space.conditions" in w]


def test_conditions_are_part_of_the_digest(make_study):
    first, second = (condition for condition, _ in list(HELD.values())[:2])
    digests = {
        Space(spaced(make_study, *conditions)).digest
        for conditions in ((), (first,), (second,), (first, second))
    }
    assert len(digests) == 4
    assert Space(spaced(make_study, second, first)).digest in digests


def test_conditions_that_together_empty_a_space_are_named(make_study):
    part = {"algorithm": "EAGLE3", "num_steps": 2, "topk": 2, "num_draft_tokens": [4, 32]}
    conditions = [
        {"when": {"algorithm": "EAGLE3"}, "then": {"env": {"X": "1"}}},
        {"when": {"num_steps": 2}, "then": {"env": {"X": "2"}}},
    ]
    space = {"speculation": [part], "env": {"X": ["1", "2"]}}
    with pytest.raises(StudyFileError) as caught:
        make_study(space=space | {"conditions": conditions})
    (problem,) = caught.value.problems
    assert problem.key == "space.conditions"
    assert "[condition; space.conditions[1]]" in problem.message
    assert "tree_capacity" not in problem.message
