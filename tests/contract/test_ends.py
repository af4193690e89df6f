"""Ends of the simulated server equal those of the real one."""

from __future__ import annotations

import json
import signal
import threading
import time

import pytest

from . import ends
from .exchange import ask
from .meanings import generation
from .simulated import simulated

pytestmark = pytest.mark.slow

FLAGS = ("--model-path", "models/tiny", "--device", "cpu", "--enable-metrics")
TREE = (
    *("--speculative-algorithm", "EAGLE3", "--speculative-draft-model-path", "models/eagle3"),
    *("--speculative-num-steps", "3", "--speculative-eagle-topk", "2"),
    *("--speculative-num-draft-tokens", "6"),
)
WAIT_S = 120


def died(flags, folder, *, env=None, port=None, program=None):
    """Return exit status and log of a server that ends without a signal."""
    more = {} if program is None else {"program": program}
    with simulated((*FLAGS, *flags), folder, env, port, **more) as server:
        return server.process.wait(WAIT_S), server.log


def misbehaviour(**trouble):
    return {"TUNER_SIM_MISBEHAVE": json.dumps([{"kind": "exit", **trouble}])}


@pytest.mark.parametrize(
    ("end", "flags"),
    [
        (ends.UNKNOWN_FLAG, ("--nosuch-flag", "2")),
        (ends.REFUSED_FLAGS, (*TREE, "--page-size", "16")),
        (ends.SCHEDULER_DIES_STARTING, ("--speculative-algorithm", "EAGLE3")),
    ],
    ids=["unknown flag", "refused flags", "no draft"],
)
def test_flags_that_end_the_start(end, flags, tmp_path):
    assert end.breaches(*died(flags, tmp_path)) == []


def test_a_taken_port(tmp_path):
    with simulated(FLAGS, tmp_path) as first:
        first.wait_ready()
        other = tmp_path / "other"
        other.mkdir()
        assert ends.PORT_TAKEN.breaches(*died((), other, port=first.port)) == []


@pytest.mark.parametrize("busy", [False, True], ids=["idle", "busy"])
def test_sigterm(tmp_path, busy):
    with simulated(FLAGS, tmp_path) as server:
        server.wait_ready()
        answers = []
        request = generation(0, 900, stream=True)
        thread = threading.Thread(target=lambda: answers.append(ask(server.url, request)))
        if busy:
            thread.start()
            deadline = time.monotonic() + WAIT_S
            while "Prefill batch" not in server.log:
                assert time.monotonic() < deadline
                time.sleep(0.01)
        server.process.send_signal(signal.SIGTERM)
        assert ends.SIGTERM_RECEIVED.breaches(server.process.wait(WAIT_S), server.log) == []
        if busy:
            thread.join()
            (answer,) = answers
            reason = answer.events()[-1]["meta_info"]["finish_reason"]
            assert reason == {"type": "length", "length": 900}


def test_a_scheduler_killed_while_serving(tmp_path):
    env = misbehaviour(phase="serving", cause="killed", after_requests=1)
    with simulated(FLAGS, tmp_path, env) as server:
        server.wait_ready()
        assert ask(server.url, generation(0, 8)).status == 200
        with pytest.raises(ConnectionError, match=r"no HTTP answer|reset"):
            ask(server.url, generation(1, 8))
        status = server.process.wait(WAIT_S)
        assert ends.SCHEDULER_KILLED.breaches(status, server.log) == []


def test_another_exit_status_is_caught(tmp_path):
    program = (
        "import subprocess, sys; server = [sys.executable, '-m', 'runners.simulated_server'];"
        "sys.exit(subprocess.run(server + sys.argv[1:]).returncode + 62)"
    )
    drifted = ("-c", program)
    status, log = died(("--nosuch-flag", "2"), tmp_path, program=drifted)
    assert ends.UNKNOWN_FLAG.breaches(status, log) == ["exit status 64, not 2"]


def test_a_missing_log_line_is_caught():
    log = "error while attempting to bind on address"
    assert ends.PORT_TAKEN.breaches(3, log) == ["never says 'fired up and ready to roll'"]
