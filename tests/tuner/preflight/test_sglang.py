"""`validate`, dry runs and sweeps check configurations with SGLang before any launch.

By a package of its name that has arguments only; the real one is asked in
`tests/search_spaces/rules/test_rules_against_sglang.py` and `tests/sglang/test_validate.py`.
"""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path

import pytest
from jsonschema import validate

from runners import registry
from runners.process.environment import Preflight
from runners.process.gpu_locks import DeviceLocks
from runners.registry import has_preflight, make_runner, runner_names
from runners.sglang.runner import SGLangRunner
from search_spaces.study_file.load import parse_study
from tuner.cli.app import run
from tuner.preflight.sglang import apply_preflight
from tuner.studies import assembly

from ...sglang_arguments import write_sglang

pytestmark = pytest.mark.slow

SCHEMAS = Path(__file__).parents[3] / "docs" / "schemas"
STUDY = """\
study: s
model: {{path: {model}, draft: org/draft, family: other}}
server: {{flags: {{device: cpu, {fixed}}}}}
space:
  speculation:
    - algorithm: none
    - {{algorithm: EAGLE3, num_steps: [1, 2], topk: {topk}, num_draft_tokens: [4]}}
  flags: {{{flags}}}
  env: {{NCCL_PROTO: [null, LL]}}
workload: {{prompts: {{chat: 1}}, output_tokens: 8}}
budget: {{launches: 9}}
{more}
"""


def text_of(*, model="org/model", fixed="", topk="[1]", flags="", more=""):
    return STUDY.format(model=model, fixed=fixed, topk=topk, flags=flags, more=more)


@pytest.fixture
def installed(tmp_path, monkeypatch):
    """Install a stand-in for SGLang 9.8.7 in the tuner's interpreter."""

    def install(version="9.8.7", **how):
        folder = write_sglang(tmp_path / "site", version, **how)
        before = os.environ.get("PYTHONPATH")
        monkeypatch.setenv("PYTHONPATH", f"{folder}:{before}" if before else str(folder))
        monkeypatch.setenv("TUNER_SGLANG_PYTHON", sys.executable)
        monkeypatch.setenv("TUNER_LOCKS", str(tmp_path / "locks"))

    return install


@pytest.fixture
def validated(tuner, call):
    def run(text, *more, code=0):
        (tuner.folder / "s.yaml").write_text(text)
        return call("validate", "--study", "./s.yaml", *more, code=code)

    return run


@pytest.fixture
def planned(tuner, call):
    def run(text, *more, code=0):
        (tuner.folder / "s.yaml").write_text(text)
        return call("sweep", "--study", "./s.yaml", "--dry-run", *more, code=code)

    return run


def test_validate_prints_acceptance_and_sglangs_own_choices(installed, validated):
    installed()
    printed, _ = validated(text_of(topk="[1, 2]"))
    assert "SGLang 9.8.7 accepts all of " in printed
    assert "NCCL variables" in printed
    assert (
        "--attention-backend is not set, SGLang chooses: fa3 at topk not set or "
        "1, flashinfer at topk 2" in printed
    )
    assert (
        "--max-running-requests is not set, SGLang chooses: not set at algorithm "
        "none, 48 at algorithm EAGLE3" in printed
    )
    assert "this machine has no GPU" not in printed


def test_validate_prints_refusals_and_changed_values(installed, validated):
    installed()
    printed, _ = validated(text_of(topk="[1, 8]", flags="page-size: [1, 3]"))
    assert " refuses " in printed
    assert "EAGLE3 steps " in printed
    assert "would not start: ValueError: topk 8 is not to its taste" in printed
    assert "would run with --page-size 4 instead of 3" in printed


def test_validate_json_matches_its_schema(installed, validated):
    installed()
    out, _ = validated(text_of(topk="[1, 8]", flags="page-size: [1, 3]"), "--json")
    found = json.loads(out)
    validate(found, json.loads((SCHEMAS / "validate.schema.json").read_text()))
    assert found["ok"] is True
    summary = found["sglang"]
    assert summary["version"] == "9.8.7"
    assert summary["as_if_on"] is None
    assert {r["configuration"]["speculation"]["topk"] for r in summary["refused"]} == {8}
    [rewritten] = [r for r in summary["rewritten"] if r["flag"] == "page-size"]
    assert (rewritten["asked"], rewritten["runs"]) == (3, 4)
    assert summary["unanswered"] == []
    assert "attention-backend" not in {c["flag"] for c in summary["sets_itself"]}  # no tree runs


def test_a_missing_gpu_is_simulated(installed, validated, monkeypatch):
    installed()
    text = text_of().replace("device: cpu, ", "")
    printed, _ = validated(text, "--gpu", "b200")
    # The stand-in needs PyTorch to simulate a GPU; without PyTorch the check is skipped.
    assert "study s is valid" in printed
    assert "SGLang cannot be imported: ModuleNotFoundError: No module named 'torch'" in printed


def test_an_unknown_gpu_is_an_error(installed, validated):
    installed()
    _, printed = validated(text_of(), "--gpu", "tpu", code=2)
    assert "--gpu tpu is unknown; use one of H100, H200, B200" in printed


def test_a_study_that_sglang_refuses_is_an_error(installed, validated, planned):
    installed()
    text = text_of(fixed="schedule-conservativeness: 0.5, of-another-world: 1")
    _, printed = validated(text, code=2)
    assert (
        "refuses every configuration of the study: unrecognized arguments: --of-another" in printed
    )
    assert "No known SGLang version has this flag" in printed
    out, _ = validated(text, "--json", code=2)
    found = json.loads(out)
    assert found["ok"] is False
    assert "of-another-world" in found["errors"][0]["message"]
    _, printed = planned(text, code=2)
    assert "refuses every configuration" in printed
    assert "Correct the study" in printed


def test_a_study_without_accepted_points_is_an_error(installed, validated, planned):
    installed()
    text = text_of(topk="[8]").replace("    - algorithm: none\n", "")
    for printed in (validated(text, code=2)[1], planned(text, code=2)[1]):
        assert "refuses every configuration of the study: ValueError: topk 8 is not" in printed


def test_a_flag_of_another_version_gets_a_hint(installed, validated):
    installed("0.5.23")
    _, printed = validated(text_of(fixed="cuda-graph-max-bs: 8, chunked-prefil-size: 64"), code=2)
    assert "server.flags: --cuda-graph-max-bs; write `--cuda-graph-max-bs-decode`" in printed
    assert "--chunked-prefil-size; did you mean `--chunked-prefill-size`?" in printed


def test_refused_points_are_not_planned(installed, planned):
    installed()
    out, _ = planned(text_of(topk="[1, 8]"), "--json")
    plan = json.loads(out)
    assert plan["legal_points"] == 6  # no speculation and two chains, with two NCCL settings
    assert any("topk 8 is not to its taste" in note for note in plan["notes"])
    assert plan["baselines"].keys() == {"none", "default"}


def test_refused_points_are_not_launched(installed, tmp_path):
    installed(resolves_at_once=True)
    study = parse_study(text_of(topk="[1, 8]"), "s.yaml")
    servers = SGLangRunner(study, seed=0, log_dir=tmp_path)
    posed = assembly.build_problem(study, servers, hot_switch=True)
    assert any(point.speculation.topk == 8 for point in posed.space)
    problem = apply_preflight(posed, servers)
    assert problem.space.digest == posed.space.digest  # a study can be resumed
    assert {point.speculation.topk for point in problem.space} == {None, 1}
    assert len(problem.space) == len(problem.space.points) == 6
    needed = problem.launches.needed(problem.space).launches
    assert needed < posed.launches.needed(posed.space).launches


def test_a_refused_production_command_is_an_error(installed, planned):
    installed()
    command = "python -m sglang.launch_server --model-path org/model --schedule-conservativeness"
    good = f"production: {{command: {command} 2 --device cpu}}"
    out, _ = planned(text_of(more=good), "--json")
    assert "production" in json.loads(out)["baselines"]
    bad = good.replace("conservativeness 2", "conservativeness 2 --random-seed many")
    _, printed = planned(text_of(more=bad), code=2)
    assert "refuses the baseline 'production': argument --random-seed: invalid int value" in printed


def test_a_missing_model_is_not_a_refusal(installed, planned):
    installed()
    out, _ = planned(text_of(model="elsewhere/model"), "--json")
    [note] = [n for n in json.loads(out)["notes"] if "not checked" in n]
    assert "OSError: not here" in note


def test_a_missing_model_configuration_has_a_download_command(installed, validated):
    installed()
    printed, _ = validated(text_of(model="hub/model"))
    assert "this machine has no config.json of hub/model or org/draft" in printed
    assert "`hf download NAME config.json`" in printed
    assert "https://hub" not in printed


def test_unchecked_configurations_are_listed_with_the_reason(installed, validated):
    installed()
    text = text_of().replace("env: {NCCL_PROTO", "env: {SGLANG_MOOD: [null, dying], NCCL_PROTO")
    printed, _ = validated(text)
    assert "not checked: the check ended with exit code 7: it hurts" in printed
    text = text_of().replace("server: {", "server: {env: {SGLANG_MOOD: dying}, ")
    printed, _ = validated(text)
    assert "the configurations were not checked with SGLang" in printed
    assert "ended with exit code 7: it hurts" in printed


def test_the_check_is_skipped_during_a_measurement(installed, validated, tmp_path):
    installed()
    with DeviceLocks(("cpu",), "another"):
        printed, _ = validated(text_of())
    assert "the configurations were not checked with SGLang" in printed
    assert "cpu is in use by a tuner" in printed
    printed, _ = validated(text_of(), "--no-sglang")
    assert "SGLang" not in printed


def test_simulated_studies_are_not_checked(installed, validated, planned):
    installed()
    text = text_of(fixed="of-another-world: 1", more="runner: simulated")
    printed, _ = validated(text)
    assert "SGLang 9.8.7" not in printed
    planned(text)


@pytest.mark.parametrize("name", runner_names())
def test_the_registry_knows_the_runners_with_preflight(name, tmp_path):
    servers = make_runner(name, parse_study(text_of(), "s.yaml"), seed=0, log_dir=tmp_path)
    assert has_preflight(name) == isinstance(servers, Preflight)


@pytest.mark.parametrize("checked", [True, False])
def test_validate_checks_the_studies_of_every_runner_with_preflight(
    installed, tmp_path, monkeypatch, capsys, checked
):
    installed()
    monkeypatch.setattr(registry, "_CLASSES", dict(registry._CLASSES))
    monkeypatch.setattr(registry, "_WITH_PREFLIGHT", set(registry._WITH_PREFLIGHT))
    kind = "SGLangRunner" if checked else "Runner"
    registry.register("other", f"runners.sglang.runner:{kind}", preflight=checked)
    (tmp_path / "s.yaml").write_text(text_of(more="runner: other"))
    assert run(["validate", "--study", str(tmp_path / "s.yaml")]) == 0
    assert ("SGLang 9.8.7 accepts all of " in capsys.readouterr().out) == checked


def test_doctor_reports_whether_the_check_can_run(installed, call, tmp_path):
    installed()
    out, _ = call("doctor", "--json")
    checks = {check["name"]: check for check in json.loads(out)["checks"]}
    assert checks["sglang's arguments"]["ok"] is True
    (tmp_path / "site" / "sglang" / "srt" / "server_args.py").write_text("import of_nowhere\n")
    out, _ = call("doctor", "--json")
    checks = {check["name"]: check for check in json.loads(out)["checks"]}
    assert checks["sglang"]["ok"] is True
    assert checks["sglang's arguments"]["ok"] is False
    assert "of_nowhere" in checks["sglang's arguments"]["found"]
