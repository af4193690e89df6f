"""The example in docs/init.md is real output of `tuner init`.

After a change of the output, run `python tests/tuner/init/test_init_document.py`.
"""

from __future__ import annotations

import html
import re
import shlex
import subprocess
import sys
import tempfile
from inspect import signature
from pathlib import Path

import pytest

from tuner.cli.init import init

pytestmark = pytest.mark.slow

ROOT = Path(__file__).parents[3]
PAGE = ROOT / "docs" / "init.md"
COMMAND = """\
tuner init --gpus "8x RTX PRO 6000" --concurrency 1 --output kimi.yaml --from-command "
  python -m sglang.launch_server --model-path moonshotai/Kimi-K2.5 --tp 8 --trust-remote-code
  --speculative-algorithm EAGLE3 --speculative-draft-model-path lightseekorg/kimi-k2.5-eagle3
  --speculative-num-steps 5 --speculative-eagle-topk 1 --speculative-num-draft-tokens 6
  --api-key sk-my-secret --port 8000"
"""


def page_with_example(text: str) -> str:
    """Return the page with the current output."""
    with tempfile.TemporaryDirectory() as folder:
        done = subprocess.run(
            [sys.executable, "-m", *shlex.split(COMMAND)],
            cwd=folder,
            env={"PYTHONPATH": str(ROOT), "PATH": folder},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            check=True,
        )
        study = (Path(folder) / "kimi.yaml").read_text()
    blocks = [
        "".join(f"    {line}\n" for line in COMMAND.splitlines()),
        f"```yaml\n{study}```\n",
        f"```text\n{done.stdout}```\n",
    ]
    head, rest = text.split("test_init_document.py. -->\n\n")
    _, tail = rest.split("\n## Options")
    said = "\nand prints a summary, its assumptions, and the next commands:\n\n"
    between = ("\nwrites\n\n", said, "")
    example = "".join(a + b for a, b in zip(blocks, between, strict=True))
    return f"{head}test_init_document.py. -->\n\n{example}\n## Options{tail}"


def test_the_example_is_current():
    text = PAGE.read_text()
    assert page_with_example(text) == text


def test_the_picture_is_current():
    picture = html.unescape((ROOT / "docs" / "pictures" / "init.svg").read_text())
    shown = re.sub(r"<[^>]*>", "", picture).replace("\xa0", " ")
    said = PAGE.read_text().split("```text\n")[1].split("```")[0]
    for line in said.splitlines()[1:]:
        if not line.startswith("  tuner "):  # the picture has another file name
            assert line in shown


def test_every_option_is_in_the_table():
    explained = re.findall(r"^\| `(--[a-z-]+)` \|", PAGE.read_text(), re.MULTILINE)
    names = [name.strip("_").removeprefix("as_").replace("_", "-") for name in
             signature(init).parameters]  # fmt: skip
    assert explained == [f"--{name}" for name in names]


if __name__ == "__main__":
    PAGE.write_text(page_with_example(PAGE.read_text()))
