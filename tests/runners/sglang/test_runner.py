"""The SGLang runner without SGLang: checks and commands."""

from __future__ import annotations

import re
import sys
from typing import TYPE_CHECKING

import pytest

from results.records import Resolved
from runners.load.prompts.prompts import Prompt
from runners.plugin.package import FOLDER
from runners.registry import make_runner
from runners.sglang.runner import SGLangRunner
from search_spaces.study_file.load import parse_study

from ..conftest import eagle3

if TYPE_CHECKING:
    from pathlib import Path


def fake_python(folder: Path, *, version: str | None, gpus: int = 0) -> str:
    """An interpreter that answers like one with SGLang and GPUs."""
    script = folder / "python"
    facts = {"sglang": version, "gpus": gpus}
    body = (
        f"#!{sys.executable}\nimport json, os, sys\n"
        "missing = [p for p in sys.argv[3:] if not os.path.exists(p)]\n"
        f"print(json.dumps({facts!r} | {{'missing': missing}}))\n"
    )
    script.write_text(body)
    script.chmod(0o755)
    return str(script)


def study_of(folder: Path, *, flags: str = "{}", model: str = "org/model"):
    return parse_study(
        f"study: s\nmodel: {{path: {model}}}\n"
        f"server: {{python: {folder / 'python'}, flags: {flags}}}\n"
        "space: {speculation: [{algorithm: none}]}\n"
        "workload: {prompts: {chat: 1}, output_tokens: 8}\nbudget: {launches: 1}\n",
        "s",
    )


@pytest.mark.parametrize(
    ("found", "flags", "model", "said"),
    [
        ((None, 8), "{}", "org/model", "SGLang is not installed"),
        (("0.5.23", 0), "{}", "org/model", "needs 1 GPU"),
        (("0.5.23", 4), "{tp-size: 8}", "org/model", "needs 8 GPU.s., but 4 were found"),
        (("0.5.23", 8), "{tp-size: 8, pp-size: 2}", "org/model", "needs 16"),
        (("0.5.23", 0), "{device: cpu}", "./no/such/model", "model.path ./no/such/model"),
        (("0.5.9", 8), "{tp-size: 8}", "org/model", None),
        (("0.5.9", 1), "{cuda-graph-max-bs: 8}", "org/model", None),
        (("0.5.23", 8), "{tp-size: 8}", "org/model", None),
        (("0.5.23", 8), "{tp-size: 16, nnodes: 2}", "org/model", None),
        (("0.5.23", 0), "{device: cpu}", "org/model", None),
    ],
)
def test_check_names_what_is_missing(tmp_path, found, flags, model, said):
    version, gpus = found
    fake_python(tmp_path, version=version, gpus=gpus)
    study = study_of(tmp_path, flags=flags, model=model)
    message = SGLangRunner(study, seed=0, log_dir=tmp_path).check()
    if said is None:
        assert message is None
    else:
        assert re.search(said, message or "")
        assert "--runner simulated" in message


def test_unsupported_flag_is_reported_before_a_launch(tmp_path):
    fake_python(tmp_path, version="0.5.23", gpus=1)
    study = study_of(tmp_path, flags="{cuda-graph-max-bs: 8}")
    message = SGLangRunner(study, seed=0, log_dir=tmp_path).check()
    assert message is not None
    assert "server.flags: --cuda-graph-max-bs; write `--cuda-graph-max-bs-decode`" in message


def test_check_reports_a_missing_interpreter(tmp_path):
    message = SGLangRunner(study_of(tmp_path), seed=0, log_dir=tmp_path).check()
    assert message is not None
    assert "--runner simulated" in message


def test_without_sglang_no_configurations_share_a_launch(study, tmp_path):
    runner = SGLangRunner(study, seed=0, log_dir=tmp_path)
    assert runner.can_switch(eagle3(2), eagle3(2))
    assert not runner.can_switch(eagle3(2), eagle3(1))
    switch, clock = runner.remarks()
    assert switch.startswith("every number of draft steps needs a launch: no SGLang")
    assert clock.startswith("the plugin's cycle clock is off: no SGLang")


OURS = {"PYTHONPATH", "TUNER_SWITCHABLE_STEPS", "TUNER_CYCLE_CLOCK"}


def test_server_without_plugin_parts_has_no_plugin(
    study, tmp_path, intent, with_sglang, monkeypatch
):
    with_sglang("0.5.23")
    monkeypatch.setenv("TUNER_CYCLE_CLOCK", "0")
    runner = SGLangRunner(study, seed=0, log_dir=tmp_path)
    launched = runner.launch_command(intent(eagle3(2)), host="127.0.0.1", port=20010)
    env = dict(launched.env)
    assert "TUNER_SWITCHABLE_STEPS" not in env
    assert "TUNER_CYCLE_CLOCK" not in env
    assert "PYTHONPATH" not in env
    assert {"TUNER_SWITCHABLE_STEPS", "TUNER_CYCLE_CLOCK"} <= set(launched.unset)
    [remark] = runner.remarks()
    assert remark.endswith("cycle clock is off: TUNER_CYCLE_CLOCK=0 is set")


def test_exported_and_launched_commands_differ_only_in_the_port(
    study, tmp_path, intent, with_sglang
):
    with_sglang("0.5.23")
    runner = SGLangRunner(study, seed=0, log_dir=tmp_path)
    assert runner.remarks() == ()
    assert runner.can_switch(eagle3(2), eagle3(1))
    exported = runner.command(eagle3(2))
    for steps, word in (((), None), ((1, 2), "1,2")):
        one = intent(eagle3(2 if not steps else 1), *steps)
        launched = runner.launch_command(one, host="127.0.0.1", port=20010)
        assert launched.argv[:-2] == exported.argv[:-2], "it starts at the most steps"
        assert (exported.argv[-1], launched.argv[-1]) == ("30000", "20010")
        # Only the launch has the plugin, in its environment.
        ours = {name: value for name, value in launched.env if name in OURS}
        assert ours.pop("PYTHONPATH").startswith(str(FOLDER))
        asked = {"TUNER_CYCLE_CLOCK": "1"} | ({"TUNER_SWITCHABLE_STEPS": word} if word else {})
        assert ours == asked
        assert {n: v for n, v in launched.env if n not in OURS} == dict(exported.env)
        assert set(launched.unset) - OURS == set(exported.unset)
    assert not OURS & (dict(exported.env).keys() | set(exported.unset))


def test_unusable_plugin_is_not_launched(study, tmp_path, intent, with_sglang):
    with_sglang("0.5.9")
    runner = SGLangRunner(study, seed=0, log_dir=tmp_path)
    launched = runner.launch_command(intent(eagle3(2)), host="127.0.0.1", port=20010)
    assert launched.env == runner.command(eagle3(2)).env
    assert set(launched.unset) >= {"TUNER_SWITCHABLE_STEPS", "TUNER_CYCLE_CLOCK"}


@pytest.mark.parametrize("prefix", ["[]", "[nice]"])
def test_chat_template_is_rendered_with_the_server_variables(tmp_path, monkeypatch, prefix):
    (tmp_path / "transformers.py").write_text(
        "import os\n"
        "class AutoTokenizer:\n"
        "    chat_template = None\n"
        "    def from_pretrained(path, trust_remote_code): return AutoTokenizer()\n"
        "    def encode(self, text): return [int(os.environ['HF_HOME']), 'T_GONE' in os.environ]\n"
    )
    monkeypatch.setenv("HF_HOME", "1")
    monkeypatch.setenv("T_GONE", "1")
    study = parse_study(
        "study: s\nmodel: {path: org/model}\n"
        f"server: {{python: {sys.executable}, prefix: {prefix}, "
        f"env: {{HF_HOME: 7, T_GONE: null, PYTHONPATH: {tmp_path}}}}}\n"
        "space: {speculation: [{algorithm: none}]}\n"
        "workload: {prompts: {chat: 1}, output_tokens: 8}\nbudget: {launches: 1}\n",
        "s",
    )
    runner = SGLangRunner(study, seed=0, log_dir=tmp_path)
    [rendered] = runner.renderer().render((Prompt("a", "Hello"),))
    assert rendered.input_ids == (7, False)


def test_make_runner(study, tmp_path):
    for kind in ("sglang", "simulated"):
        assert make_runner(kind, study, seed=0, log_dir=tmp_path).name == kind
    with pytest.raises(ValueError, match="unknown runner 'gpu'"):
        make_runner("gpu", study, seed=0, log_dir=tmp_path)


@pytest.mark.parametrize(
    ("version", "simulated", "noticed"),
    [("0.6.1", False, True), ("0.5.17", False, False), ("0.6.1", True, False)],
)
def test_unknown_version_is_remarked_once(study, tmp_path, version, simulated, noticed):
    runner = SGLangRunner(study, seed=0, log_dir=tmp_path)
    for _ in range(2):
        runner.notice_version(Resolved(eagle3(2), version, simulated=simulated))
    notes = [remark for remark in runner.remarks() if remark.startswith(f"SGLang {version}: ")]
    assert len(notes) == noticed
