"""Today's command has flags that no study varies; SGLang makes of them what it makes today."""

from __future__ import annotations

from runners.base import differences
from runners.sglang.readback import resolved_of
from search_spaces.configuration import Configuration
from search_spaces.study_file.load import parse_study

STUDY = """\
study: small
model: {path: org/target}
space:
  speculation: [{algorithm: none}]
  flags: {page-size: [1, 64]}
  env: {A: ["1", "2"]}
workload: {prompts: {chat: 1.0}, output_tokens: 16}
budget: {launches: 4}
"""
TODAY = 'production: {command: "python -m sglang.launch_server --model-path org/target"}\n'
INFO = {"page_size": 1, "context_length": 131072, "cuda_graph_bs": [1, 2], "version": "0.5.23"}
ASKED = Configuration.of(
    flags={"page-size": 64, "context-length": "128k", "cuda-graph-bs": (1, 2)},
    env={"A": "1", "B": "1"},
)


def found(text: str, environ: dict[str, str]) -> tuple[str, ...]:
    study = parse_study(text, "small.yaml")
    return differences(ASKED, resolved_of(ASKED, study, INFO, environ).configuration)


def test_only_what_the_study_varies_can_be_ignored():
    assert found(STUDY + TODAY, {"A": "2"}) == (
        "page-size: asked 64, runs 1",
        "A: asked '1', runs '2'",
    )


def test_without_a_command_of_today_everything_counts():
    assert len(found(STUDY, {"A": "1"})) == 4
