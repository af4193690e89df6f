"""Names, counts and comments of the shipped studies."""

from __future__ import annotations

import hashlib
import re
from pathlib import Path

import pytest
import yaml

import search_spaces
from runners.simulated_server.engine.profile import load_profile
from search_spaces.space.baselines import baselines
from search_spaces.space.space import Space
from search_spaces.study_file.load import load_study, shipped
from search_spaces.study_file.warnings import warnings

NAMES = [name for name, _ in shipped()]
COUNTED = ["deepseek", "kimi", "llama-8b", "qwen"]
"""Their header says how many configurations they hold, and every choice has a comment."""


def shipped_file(name):
    return Path(search_spaces.__file__).parent / "studies" / f"{name}.yaml"


def test_shipped_studies_have_names_and_descriptions():
    assert NAMES == ["deepseek", "kimi", "kimi-demo", "llama-8b", "qwen", "tiny"]
    assert all(20 < len(line) < 110 and not line.startswith("#") for _, line in shipped())


@pytest.mark.parametrize("name", NAMES)
def test_a_shipped_study_is_named_like_its_file(name):
    study = load_study(name)
    assert study.name == name
    assert study.source == "shipped"
    assert study.text == shipped_file(name).read_text()
    assert study.digest == hashlib.sha256(shipped_file(name).read_bytes()).hexdigest()


@pytest.mark.parametrize("name", NAMES)
def test_shipped_studies_have_no_warnings(name, monkeypatch):
    monkeypatch.chdir(Path(__file__).parents[3])  # `tiny` has its models there
    expected = {
        # Said in the file's own words as well: it is there to be seen, with one launch.
        "tiny": ["STANDALONE: 1 pair of num_draft_tokens and num_steps"],
    }.get(name, [])
    found = warnings(load_study(name))
    assert [f for f in found if not any(f.startswith(e) for e in expected)] == []
    assert len(found) == len(expected)


@pytest.mark.parametrize("name", COUNTED)
def test_headers_state_the_number_of_configurations(name):
    header = shipped_file(name).read_text().split("\nstudy:")[0]
    (said,) = re.findall(r"^# (\d+) legal configurations", header, re.MULTILINE)
    assert int(said) == len(Space(load_study(name)))


def leaves(node):
    """Every scalar of a YAML node that is a value, with its line; a condition as a whole."""
    if isinstance(node, yaml.MappingNode):
        for key, value in node.value:
            if key.value == "conditions":
                yield from (("condition", each.start_mark.line) for each in value.value)
            else:
                yield from leaves(value)
    elif isinstance(node, yaml.SequenceNode):
        for value in node.value:
            yield from leaves(value)
    else:
        yield node.value, node.start_mark.line


def at(node, key):
    return next(value for name, value in node.value if name.value == key)


@pytest.mark.parametrize("name", COUNTED)
def test_every_choice_has_a_comment(name):
    text = shipped_file(name).read_text()
    lines = text.splitlines()
    root = yaml.compose(text)
    bare = []
    for section in (at(at(root, "server"), "flags"), at(root, "space")):
        for value, line in leaves(section):
            # On its own line, or on the one above it.
            if "#" not in lines[line] and not lines[line - 1].strip().startswith("#"):
                bare.append((line + 1, value))
    assert bare == []


@pytest.mark.parametrize("name", COUNTED)
def test_shipped_studies_search_none_and_adaptive(name):
    study = load_study(name)
    algorithms = {point.speculation.algorithm for point in Space(study)}
    assert "none" in algorithms
    assert len(algorithms) > 1
    adaptive = [p for p in Space(study) if dict(p.flags).get("speculative-adaptive")]
    assert adaptive
    assert {p.speculation.num_steps for p in adaptive} <= {3, 7}
    assert {*baselines(study)} == {"none", "default"}


def test_nccl_is_searched_only_where_it_carries_decode():
    space = Space(load_study("kimi"))
    ipc = [p for p in space if dict(p.env)["SGLANG_ENABLE_PCIE_IPC_ALLREDUCE"]]
    nccl = ("NCCL_PROTO", "NCCL_P2P_LEVEL", "NCCL_MIN_NCHANNELS")
    assert {tuple(dict(p.env)[name] for name in nccl) for p in ipc} == {(None, None, None)}
    assert len(ipc) == 9
    assert len(space) == 9 * (5 * 3 * 3) + len(ipc)
    for name in ("deepseek", "llama-8b", "qwen"):
        assert not load_study(name).space.env, "no NCCL without NCCL in decode"


def test_deepseek_has_no_adaptive_with_data_parallel_attention():
    points = [dict(p.flags) for p in Space(load_study("deepseek"))]
    assert {f["attn-dp-size"] for f in points if f.get("speculative-adaptive")} == {None}
    assert {f["attn-dp-size"] for f in points} == {None, 8}


@pytest.mark.parametrize("name", NAMES)
def test_simulated_profiles_exist(name):
    assert load_profile(load_study(name).simulated.profile).name


def test_the_demo_has_24_points():
    assert len(Space(load_study("kimi-demo"))) == 24
