"""The examples of `docs/export.md` are what their tools take, all of them of one server."""

from __future__ import annotations

import json
import re
import subprocess
from pathlib import Path

import kubernetes_validate
import pytest
import yaml

from tuner.exports import FORMATS

from .exported_servers import TOOLS, caller_environment
from .systemd_reader import lines_of, words_of
from .test_export_documents import config_words

DOCS = Path(__file__).parents[3] / "docs"
DOCUMENT = (DOCS / "export.md").read_text()
EXAMPLE = json.loads((DOCS / "schemas" / "examples" / "export.json").read_text())
FLAGS = EXAMPLE["argv"][3:]
IN_A_CONTAINER = ["0.0.0.0" if word == "127.0.0.1" else word for word in FLAGS]


def masked(text):
    """`text` without its percentages: every run of the demo has its own simulated noise."""
    return re.sub(r"[+-]?\d+\.\d+%", "N%", text)


def example(heading):
    section = DOCUMENT.split(f"\n## {heading}\n")[1].split("\n## ")[0]
    return re.search(r"```\w+\n(.*?)```", section, re.DOTALL)[1]


def test_the_script():
    script = example("shell")
    subprocess.run([TOOLS / "shellcheck", "--shell=sh", "-"], input=script, text=True, check=True)
    stub = script.replace("  python -m", "  printf '%s\\n' python -m")
    done = subprocess.run(
        ["/bin/sh", "-c", stub],
        env=caller_environment(),
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout.splitlines() == EXAMPLE["argv"]
    assert "# SIMULATED: measured on a simulated server, not on a GPU." in script
    head = [line for line in script.splitlines() if line.startswith("#")]
    assert [masked(f"#   {change['text']}") for change in EXAMPLE["changes"]] == [
        masked(line) for line in head if line.startswith("#   ")
    ]


def test_json_and_yaml():
    part = yaml.safe_load(example("json and yaml"))
    assert part == {name: EXAMPLE[name] for name in part}
    assert part["simulated"] is True


def test_the_config_file():
    text = example("sglang-config")
    assert config_words(text) == FLAGS
    assert "env NCCL_PROTO=LL,LL128,Simple python -m sglang.launch_server --config" in text


def test_the_compose_file():
    done = subprocess.run(
        [TOOLS / "docker-compose", "--file", "-", "config", "--format", "json"],
        input=example("compose"),
        env=caller_environment(),
        capture_output=True,
        text=True,
        check=True,
    )
    service = json.loads(done.stdout)["services"]["sglang"]
    assert service["command"] == IN_A_CONTAINER
    assert service["environment"] == EXAMPLE["env"]


def test_the_manifest():
    documents = list(yaml.safe_load_all(example("k8s")))
    for document in documents:
        kubernetes_validate.validate(document, "1.37", strict=True)
        assert document["metadata"]["annotations"]["simulated"] == "true"
    [deployment] = [d for d in documents if d["kind"] == "Deployment"]
    assert deployment["spec"]["template"]["spec"]["containers"][0]["args"] == IN_A_CONTAINER


def test_the_unit():
    values = {key: value for _, key, value in lines_of(example("systemd"))}
    assert words_of(values["ExecStart"]) == ["/usr/bin/env", *EXAMPLE["argv"]]
    assert "SIMULATED" in values["Description"]


def test_the_difference():
    shown = DOCUMENT.split("```text\n")[1].split("```")[0]
    assert "every figure simulated" in shown
    for change in EXAMPLE["changes"]:
        assert f" (trial {change['trials'][0]}" in shown


@pytest.mark.parametrize("name", FORMATS)
def test_every_format_is_explained(name):
    assert f"| `{name}` |" in DOCUMENT
