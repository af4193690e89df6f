"""`tuner init` at a terminal: questions, answers, and leaving."""

from __future__ import annotations

import os
import pty
import select
import subprocess
import sys
import time

import pytest

from search_spaces.study_file.load import load_study

from .init_machines import fake_nvidia_smi, topology

pytestmark = pytest.mark.slow

PATIENCE_S = 120
# Ctrl-C reaches the session that the terminal belongs to.
_AT_A_TERMINAL = """
import fcntl, sys, termios
fcntl.ioctl(0, termios.TIOCSCTTY, 0)
from tuner.cli.app import run
sys.exit(run(sys.argv[1:]))
"""
LLAMA = "python3 -m sglang.launch_server --model-path meta-llama/Llama-3.1-8B-Instruct"


class Terminal:
    """A person at a terminal: waits for text, types, and presses Ctrl-C."""

    def __init__(self, arguments, folder, env) -> None:
        self.screen, inside = pty.openpty()
        self.process = subprocess.Popen(
            [sys.executable, "-c", _AT_A_TERMINAL, "init", *arguments],
            cwd=folder,
            env=env,
            stdin=inside,
            stdout=inside,
            stderr=inside,
            start_new_session=True,
        )
        os.close(inside)
        self.seen = ""
        self.at = 0

    def reads(self, text: str) -> None:
        """Waits until it is on the screen, after what was read before."""
        deadline = time.monotonic() + PATIENCE_S
        while (found := self.seen.find(text, self.at)) < 0:
            assert time.monotonic() < deadline, f"no {text!r} in {self.seen[self.at :]!r}"
            ready, _, _ = select.select([self.screen], [], [], 1)
            if not ready:
                continue
            try:
                more = os.read(self.screen, 65536).decode()
            except OSError:  # the other side has closed
                more = ""
            assert more, f"it ended without {text!r}: {self.seen[self.at :]!r}"
            self.seen += more.replace("\r\n", "\n")
        self.at = found + len(text)

    def types(self, answer: str) -> None:
        os.write(self.screen, f"{answer}\n".encode())

    def ends(self) -> int:
        while True:
            try:
                more = os.read(self.screen, 65536).decode()
            except OSError:
                more = ""
            if not more:
                break
            self.seen += more.replace("\r\n", "\n")
        os.close(self.screen)
        return self.process.wait(PATIENCE_S)


@pytest.fixture
def terminal(tuner, tmp_path):
    machine = fake_nvidia_smi(tmp_path / "bin", "NVIDIA L40S", 4, topology(4, "NODE"))
    tuner.env["PATH"] = f"{machine}:{tuner.env['PATH']}"
    tuner.env["TERM"] = "dumb"
    folder = tmp_path / "here"
    folder.mkdir()
    opened = []

    def start(*arguments):
        opened.append(Terminal(arguments, folder, tuner.env))
        return opened[-1]

    start.folder = folder
    yield start
    for person in opened:
        if person.process.poll() is None:
            person.process.kill()
            person.process.wait()


def test_a_study_from_answers_alone(terminal):
    person = terminal()
    person.reads("Which model do you serve")
    person.types("")
    person.reads("a model is needed; write a name like")
    person.types("32")
    person.reads("'32' is not a model")
    person.types("Qwen/Qwen3-32B")
    person.reads("Which GPUs does the server run on, like 8x RTX PRO 6000 [4x NVIDIA L40S]: ")
    person.types("Qwen3-32B")
    person.reads("'Qwen3-32B' does not name GPUs; write number and name, like 8x RTX PRO 6000")
    person.types("")
    person.reads("Draft model, if you have one")
    person.types("four")
    person.reads("'four' is not a model; write a name with its organization")
    person.types("org/qwen3-32b-eagle3")
    person.reads("Algorithm of the draft")
    person.reads("[EAGLE3]: ")
    person.types("")
    person.reads("How many GPUs does one server use (tp-size) [4]: ")
    person.types("two")
    person.reads("'two' is not a number of GPUs; write a whole number above 0, like 4")
    person.types("2")
    person.reads("How many requests does your server handle at the same time")
    person.reads("[1]: ")
    person.types("a few")
    person.reads("'a' is not a number of requests; write 1 or 1,8,64")
    person.types("1,16")
    person.reads("Kind of prompts")
    person.reads("[chat,code]: ")
    person.types("cat")
    person.reads("chat")
    person.types("code")
    person.reads("How many tokens does an answer have on average [256]: ")
    person.types("")
    person.reads("Maximum time to first token")
    person.types("2000")
    person.reads("Maximum number of server launches [24]: ")
    person.types("")
    person.reads("number of hours")
    person.types("")
    person.reads("wrote qwen3-32b.yaml")
    person.reads("tuner sweep --study ./qwen3-32b.yaml --dry-run")
    assert person.ends() == 0
    assert "\x1b[" not in person.seen
    study = load_study(terminal.folder / "qwen3-32b.yaml")
    assert study.production is None
    assert study.server.flags["tp-size"] == 2
    assert [part.algorithm for part in study.space.speculation][1] == "EAGLE3"
    assert study.space.flags == {"disable-custom-all-reduce": (None, True)}
    assert [point.concurrency for point in study.to_workload().points] == [1, 16]
    assert study.objective.subject_to == {"ttft_p95_ms": 2000}


def test_only_facts_that_the_command_lacks_are_asked(terminal):
    person = terminal("--from-command", 'python -m sglang.launch_server --model-path "$MODEL"')
    person.reads("What is $MODEL")
    person.types("Qwen/Qwen3-8B")
    person.reads("How many requests")
    assert "Which model" not in person.seen
    assert "Which GPUs" not in person.seen
    for question in ("Kind of prompts", "How many tokens", "Maximum time", "launches", "hours"):
        person.types("")
        person.reads(question)
    person.types("")
    person.reads("wrote qwen3-8b.yaml")
    assert person.ends() == 0


def test_flags_answer_their_questions(terminal):
    person = terminal(
        "--from-command", LLAMA, "--concurrency", "8", "--prompts", "code", "--ttft-ms", "900",
        "--launches", "9", "--hours", "2", "--output-tokens", "64",
    )  # fmt: skip
    person.reads("wrote llama-3.1-8b.yaml")
    assert person.ends() == 0
    assert "[" not in person.seen.replace("[]", "")


def test_yes_asks_nothing(terminal):
    person = terminal("--from-command", LLAMA, "--yes")
    person.reads("wrote llama-3.1-8b.yaml")
    assert person.ends() == 0


@pytest.mark.parametrize("key", ["\x03", "\x04"], ids=["ctrl-c", "ctrl-d"])
def test_leaving_writes_nothing(terminal, key):
    person = terminal("--model", "a/b")
    person.reads("Which GPUs")
    person.types("")
    person.reads("Draft model")
    os.write(person.screen, key.encode())
    person.reads("stopped; nothing was written")
    assert person.ends() == 130
    assert "Traceback" not in person.seen
    assert list(terminal.folder.iterdir()) == []


def test_an_existing_file_is_refused_before_the_first_question(terminal):
    (terminal.folder / "mine.yaml").write_text("study: mine\n")
    person = terminal("--output", "mine.yaml")
    person.reads("--force")
    assert person.ends() == 2
    assert "Which" not in person.seen
