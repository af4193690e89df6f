from __future__ import annotations

from pathlib import Path

import pytest

from runners.load.prompts.prompts import __file__ as prompts_module
from search_spaces.prompt_names import BUILT_IN_SETS
from search_spaces.space.space import Space
from search_spaces.study_file.load import load_study, parse_study
from search_spaces.workload import OperatingPoint, Workload

ISSUE = """\
study: kimi
model: {path: moonshotai/Kimi-K2.5, draft: lightseekorg/kimi-k2.5-eagle3}
server:                                   # in every launch, baselines included
  flags: {tp-size: 8, trust-remote-code: true, max-running-requests: 64, disable-custom-all-reduce: true}
  env: {}
space:
  speculation:
    - algorithm: none
    - algorithm: EAGLE3
      num_steps: {from: 1, to: 10}        # or a list
      topk: [1, 2, 4]
      num_draft_tokens: [4, 8, 16]        # used where topk > 1
  draft_tp: [8]
  flags: {}
  env: {NCCL_PROTO: [null, "LL,LL128,Simple", LL128, Simple]}      # null: not set
workload:
  prompts: {chat: 0.5, code: 0.5}
  output_tokens: 256
  points: [{concurrency: 1}]
objective: {maximize: output_tok_s, subject_to: {ttft_p95_ms: 2000}}
budget: {launches: 24, hours: 6}
runner: sglang
"""  # noqa: E501 - as it was written


def test_a_study_by_path(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Path("mine.yaml").write_text(ISSUE)
    Path("mine").write_text(ISSUE)
    for given in ("mine.yaml", "./mine.yaml", tmp_path / "mine.yaml", "mine"):
        study = load_study(given)
        assert (study.name, study.source) == ("kimi", str(given))
    assert load_study("mine.yaml").digest == load_study("mine").digest


def test_a_shipped_name_is_not_taken_from_the_working_directory(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Path("kimi").write_text("not a study")
    assert load_study("kimi").source == "shipped"


def test_the_digest_follows_the_text(tmp_path):
    a, b = parse_study(ISSUE, "x"), parse_study(ISSUE + "# more\n", "x")
    assert a.digest != b.digest
    assert Space(a).digest == Space(b).digest


def test_a_byte_order_mark_is_accepted(tmp_path):
    file = tmp_path / "bom.yaml"
    file.write_bytes(b"\xef\xbb\xbf" + ISSUE.encode())
    assert load_study(file).name == "kimi"


def test_a_study_is_frozen(make_study):
    study = make_study()
    with pytest.raises(ValueError, match="frozen"):
        study.name = "other"


def test_optional_sections_have_defaults(make_study):
    study = make_study(server={})
    assert study.server.flags == {}
    assert study.server.env == {}
    assert (study.server.python, study.server.prefix) == (None, ())
    assert (study.objective.maximize, study.objective.subject_to) == ("output_tok_s", {})
    assert (study.budget.launches, study.budget.hours) == (4, None)
    assert (study.runner, study.simulated.profile, study.simulated.time_scale) == (
        "sglang",
        "kimi",
        10.0,
    )


def test_server_environment(make_study):
    study = make_study(server={"python": "/opt/py", "prefix": ["docker", "exec", "sglang"]})
    assert study.server.python == "/opt/py"
    assert study.server.prefix == ("docker", "exec", "sglang")


@pytest.mark.parametrize(
    ("written", "meant"),
    [
        (3, (3,)),
        ([4, 2, 4], (4, 2)),
        ({"from": 2, "to": 4}, (2, 3, 4)),
        ({"from": 1, "to": 8, "step": 3}, (1, 4, 7)),
    ],
)
def test_numbers_lists_and_ranges(make_study, written, meant):
    part = {"algorithm": "eagle3", "num_steps": written, "topk": 1}
    (sub_space,) = make_study(space={"speculation": [part]}).space.speculation
    assert sub_space.num_steps == meant
    assert (sub_space.algorithm, sub_space.topk) == ("EAGLE3", (1,))


@pytest.mark.parametrize("name", ["nextn", "NEXTN"])
def test_nextn_needs_no_draft_and_is_eagle(make_study, name):
    part = {"algorithm": name, "num_steps": [1], "topk": 1}
    study = make_study(model={"path": "deepseek"}, space={"speculation": [part]})
    assert [c.speculation.algorithm for c in Space(study)] == ["EAGLE"]


def test_flags_in_any_spelling(make_study):
    flags = {"--tensor-parallel-size": "8", "trust_remote_code": True, "x": False, "y": None}
    study = make_study(server={"flags": flags})
    assert study.server.flags == {"tp-size": 8, "trust-remote-code": True, "x": None, "y": None}


def test_flags_of_several_words_and_of_json(make_study):
    flags = {"cuda-graph-bs-decode": [1, 2, 4], "json-model-override-args": {"a": {"b": 1}}}
    study = make_study(server={"flags": flags})
    assert study.server.flags["cuda-graph-bs-decode"] == (1, 2, 4)
    assert study.server.flags["json-model-override-args"] == '{"a":{"b":1}}'
    assert len(Space(study).digest) == 16


def test_an_unknown_flag_is_accepted(make_study):
    study = make_study(server={"flags": {"a-flag-of-next-year": 0.5}})
    assert study.server.flags["a-flag-of-next-year"] == 0.5


def test_variables_are_text_as_it_was_written():
    env = (
        "env: {A: 1.50, B: 007, C: 1_000, D: 12:30, E: 1e3, F: null, "
        'G: "no", H: 2024-01-01, I: 0x10}'
    )
    study = parse_study(ISSUE.replace("env: {}\nspace", env + "\nspace"), "x")
    assert study.server.env == {
        "A": "1.50",
        "B": "007",
        "C": "1_000",
        "D": "12:30",
        "E": "1e3",
        "F": None,
        "G": "no",
        "H": "2024-01-01",
        "I": "0x10",
    }


def test_searched_variables_are_text_too():
    text = ISSUE.replace(
        'NCCL_PROTO: [null, "LL,LL128,Simple", LL128, Simple]', "N: [null, 4, 08, 4]"
    )
    study = parse_study(text, "x")
    assert study.space.env == {"N": (None, "4", "08")}


def test_numbers_with_an_exponent_are_numbers():
    study = parse_study(ISSUE.replace("hours: 6", "hours: 5e-1"), "x")
    assert study.budget.hours == 0.5


def test_workload_as_a_value(make_study):
    study = make_study(
        workload={
            "prompts": {"code": 3, "chat": 1},
            "output_tokens": 64,
            "points": [{"concurrency": 1}, {"concurrency": 8, "weight": 2, "requests": 40}],
            "temperature": 0.5,
            "requests": 12,
            "warmup_requests": 0,
        }
    )
    assert study.workload.to_workload() == Workload(
        prompts=(("chat", 0.25), ("code", 0.75)),
        output_tokens=64,
        output_spread=0.5,
        points=(OperatingPoint(1), OperatingPoint(8, 2.0, 40)),
        temperature=0.5,
        requests=12,
        warmup_requests=0,
    )


def test_prompt_sets_are_those_of_the_load_generator():
    files = Path(prompts_module).parents[1].rglob("prompt_sets/*.txt")
    composed = {"summary", "retrieval"}  # from the library of passages
    written = {file.stem for file in files}
    assert set(BUILT_IN_SETS) - composed == written - {"passages"}
    assert composed < set(BUILT_IN_SETS)
