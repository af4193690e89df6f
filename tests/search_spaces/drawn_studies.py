"""Studies for property tests: any flags, variables, sub-spaces and conditions."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import yaml
from hypothesis import reject
from hypothesis import strategies as st

from search_spaces.problems import StudyFileError
from search_spaces.study_file.load import parse_study

from .conftest import study_dict

if TYPE_CHECKING:
    from search_spaces.study_file.study import Study

TREES = ("EAGLE", "EAGLE3", "STANDALONE", "NEXTN", "eagle3")
ADAPTIVE = {"speculative-adaptive": [True]}
numbers = st.lists(st.integers(1, 6), min_size=1, max_size=3)
own_flags = st.fixed_dictionaries(
    {},
    optional={
        "speculative-adaptive": st.just([True]),
        "own-x": st.sampled_from([["a"], ["a", "b"], [None, "b"]]),
        "enable_two_batch_overlap": st.just([None, True]),
    },
)
trees = st.fixed_dictionaries(
    {
        "algorithm": st.sampled_from(TREES),
        "num_steps": numbers,
        "topk": numbers,
        "num_draft_tokens": st.lists(st.integers(2, 40), min_size=1, max_size=3),
    },
    optional={"flags": own_flags},
)
others = st.sampled_from(
    [
        {"algorithm": "none"},
        {"algorithm": "EAGLE3"},
        {
            "algorithm": "EAGLE3",
            "num_steps": 3,
            "topk": 1,
            "flags": {"speculative-adaptive": [True]},
        },
        {"algorithm": "ngram", "num_draft_tokens": [4, 8]},
        {"algorithm": "DFLASH", "num_steps": [1, 2], "num_draft_tokens": 8},
    ]
)
flag_choices = st.fixed_dictionaries(
    {},
    optional={
        "page-size": st.just([1, 64]),
        "attention_backend": st.just([None, "fa3", "trtllm_mha"]),
        "speculative-adaptive": st.sampled_from([[False, True], [True]]),
        "enable-x": st.just([False, None, True]),
        "tp-size": st.just([2, 4]),
        "x-size": st.just([3, "3", 0.5]),
    },
)
env_choices = st.fixed_dictionaries(
    {},
    optional={
        "A": st.sampled_from([[None, "1"], ["LL", None], ["1", "LL"]]),
        "NCCL_P2P_DISABLE": st.sampled_from([[None, "1"], ["0", "1"]]),
        "NCCL_P2P_LEVEL": st.sampled_from([[None, "SYS"], ["PIX", "SYS"]]),
        "NCCL_MIN_NCHANNELS": st.just([None, "4", "8"]),
        "NCCL_MAX_NCHANNELS": st.just([None, "4"]),
    },
)


@st.composite
def patterns(draw: st.DrawFn, space: dict[str, Any], *, least: int) -> dict[str, Any]:
    """A side of a condition, about what the space has."""
    algorithms = [part["algorithm"] for part in space["speculation"]]
    keys: dict[str, st.SearchStrategy[Any]] = {
        "algorithm": st.sampled_from(algorithms),
        "num_steps": numbers,
        "topk": st.sampled_from([1, [1, 2], {"from": 2, "to": 6}]),
        "num_draft_tokens": st.just({"from": 2, "to": 9}),
        "draft_tp": st.just([1, 2]),
    }
    own = {n: c for part in space["speculation"] for n, c in part.get("flags", {}).items()}
    for section, choices in (("flags", space["flags"] | own), ("env", space["env"])):
        for name, values in choices.items():
            some = st.lists(st.sampled_from(values), min_size=1, max_size=2)
            keys[f"{section}.{name}"] = some
    chosen = draw(st.lists(st.sampled_from(sorted(keys)), min_size=least, max_size=2, unique=True))
    out: dict[str, Any] = {}
    for key in chosen:
        section, _, name = key.partition(".")
        if name:
            out.setdefault(section, {})[name] = draw(keys[key])
        else:
            out[section] = draw(keys[key])
    return out


@st.composite
def studies(draw: st.DrawFn) -> Study:
    flags = draw(flag_choices)
    parts = draw(st.lists(st.one_of(trees, others), min_size=1, max_size=3))
    for part in parts:
        kept = {n: c for n, c in part.get("flags", {}).items() if n not in flags}
        part.pop("flags", None)
        if kept:
            part["flags"] = kept
    parts.append({"algorithm": "none"})
    space = {"speculation": parts, "flags": flags, "env": draw(env_choices)}
    if draw(st.booleans()):
        space["draft_tp"] = draw(st.sampled_from([[1], [2, 1], [2]]))
    if draw(st.booleans()):
        both = st.fixed_dictionaries(
            {"when": patterns(space, least=0), "then": patterns(space, least=1)}
        )
        space["conditions"] = draw(st.lists(both, min_size=1, max_size=2))
    server = {} if "tp-size" in flags else {"flags": {"tp-size": 4}}
    data = study_dict(space=space, server=server)
    try:
        return parse_study(yaml.safe_dump(data, sort_keys=False), "drawn.yaml")
    except StudyFileError as error:
        # A drawn condition may leave nothing, or name a choice that is always another.
        if all("condition" in problem.key for problem in error.problems):
            reject()
        raise
