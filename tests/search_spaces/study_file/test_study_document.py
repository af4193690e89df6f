"""The examples in `docs/study-files.md` load, and its tables are complete."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
import yaml

from search_spaces.space.space import Space
from search_spaces.study_file.load import load_study, parse_study, shipped
from search_spaces.study_file.study import SpaceSpec, Study, SubSpace, WorkloadSpec

TEXT = (Path(__file__).parents[3] / "docs" / "study-files.md").read_text()
EXAMPLES = re.findall(r"```yaml\n(.*?)```", TEXT, re.DOTALL)

REST = """\
study: example
model: {path: moonshotai/Kimi-K2.5, draft: lightseekorg/kimi-k2.5-eagle3}
server: {flags: {tp-size: 8, disable-custom-all-reduce: true}}
space: {speculation: [{algorithm: none}, {algorithm: EAGLE3, num_steps: {from: 1, to: 8}, topk: [1, 2], num_draft_tokens: 16}]}
workload: {prompts: {chat: 1}, output_tokens: 64}
objective: {maximize: output_tok_s}
budget: {launches: 4}
"""  # noqa: E501 - a line a section


def merged(example):
    """An example in a study: it holds sections, or keys of the space or of the workload."""
    data = yaml.safe_load(REST)
    for key, value in yaml.safe_load(example).items():
        section = next(
            (s for s, part in (("space", SpaceSpec), ("workload", WorkloadSpec))
             if key in part.model_fields),
            None,
        )  # fmt: skip
        if section is None:
            data[key] = {**data.get(key, {}), **value} if isinstance(value, dict) else value
        else:
            data[section][key] = value
    points = data["workload"].get("points", [])
    if any("concurrency" not in point for point in points):
        data["workload"].setdefault("goodput", {"ttft_ms": 500})
        data["objective"] = {"maximize": "goodput_request_s"}
    return yaml.safe_dump(data, sort_keys=False)


def test_there_are_examples():
    assert len(EXAMPLES) >= 7


@pytest.mark.parametrize("example", EXAMPLES, ids=lambda text: text.split(":")[0])
def test_an_example_is_a_good_study(example):
    study = parse_study(merged(example), "study-files.md")
    assert not Space(study).is_empty


def test_the_example_of_conditions_excludes_points():
    (example,) = (e for e in EXAMPLES if "conditions:" in e)
    points = list(Space(parse_study(merged(example), "x")))
    ipc = [dict(p.env) for p in points if dict(p.env)["SGLANG_ENABLE_PCIE_IPC_ALLREDUCE"] == "1"]
    assert {env["NCCL_PROTO"] for env in ipc} == {None}
    deep = [p.speculation for p in points if (p.speculation.num_steps or 0) >= 6]
    assert {s.topk for s in deep} == {1}
    assert {p.speculation.topk for p in points} == {None, 1, 2}


def test_the_table_of_shipped_studies_is_right():
    rows = re.findall(r"^\| `([a-z0-9-]+)` \|.*\| (\d+) \|$", TEXT, re.MULTILINE)
    assert {name: int(count) for name, count in rows} == {
        name: len(Space(load_study(name))) for name, _ in shipped()
    }


def test_every_key_is_documented():
    keys = {alias if (alias := field.alias) else name for name, field in Study.model_fields.items()}
    parts = {"space": SpaceSpec, "workload": WorkloadSpec}
    for section, part in parts.items():
        keys |= {f"{section}.{name}" for name in part.model_fields}
        keys.discard(section)
    keys |= {f"space.speculation[].{name}" for name in {"flags"} & {*SubSpace.model_fields}}
    explained = set()
    for cell in re.findall(r"^\| (`.+?) \|", TEXT, re.MULTILINE):
        explained |= set(re.findall(r"`([^`]+)`", cell))
    sections = {name.split(".")[0] for name in explained if "." in name}
    assert {key for key in keys if key not in explained | sections} == set()
