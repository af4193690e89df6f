"""The contract detects drifts between two otherwise equal simulated servers.

`tests/sglang/test_contract.py` compares the simulated server with the real one.
"""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from .drifts import DRIFTS
from .exchanges import exchanges
from .meanings import Depth
from .observation import breaches, observe
from .simulated import simulated

pytestmark = pytest.mark.slow

FLAGS = (
    *("--model-path", "models/tiny", "--device", "cpu", "--context-length", "2048"),
    *("--enable-metrics", "--max-total-tokens", "20000", "--max-running-requests", "16"),
    *("--speculative-algorithm", "STANDALONE", "--speculative-draft-model-path", "models/draft"),
    *("--speculative-num-steps", "3", "--speculative-eagle-topk", "1"),
    *("--speculative-num-draft-tokens", "4"),
)
DEPTH = Depth(deepest=3, width=4)


def observed(folder, program=("-m", "runners.simulated_server")):
    with simulated(FLAGS, folder, program=program) as server:
        server.wait_ready()
        return observe(server.url, lambda: server.log, DEPTH, exchanges(every=False))


@pytest.fixture(scope="module")
def real(tmp_path_factory):
    """A simulated server in place of the real one."""
    return observed(tmp_path_factory.mktemp("real"))


@pytest.fixture(scope="module")
def same(tmp_path_factory):
    return observed(tmp_path_factory.mktemp("same"))


def test_two_starts_of_one_server_keep_the_contract(real, same):
    assert breaches(real, same) == []


@pytest.mark.parametrize("drift", DRIFTS, ids=lambda drift: drift.name)
def test_a_drift_is_caught(real, same, drift):
    found = breaches(real, same.changed(drift.change))
    assert any(re.search(drift.caught, breach) for breach in found), found


@pytest.mark.parametrize(
    ("before", "after", "caught"),
    [
        ("Load weight begin.", "Loading weights.", "never says 'Load weight begin. "),
        ("Load weight begin.", "Loading weights.", "phases"),
        ("Memory pool end.", "Memory pool ends.", "says 'Memory pool ends. "),
        ("accept len: ", "accept length: ", "batches"),
    ],
)
def test_a_changed_line_of_the_log_is_caught(real, same, before, after, caught):
    drifted = same.with_log(lambda log: log.replace(before, after))
    assert any(caught in breach for breach in breaches(real, drifted))


def test_a_drift_in_the_server_itself_is_caught(real, tmp_path):
    program = (str(Path(__file__).with_name("drifting_server.py")),)
    found = breaches(real, observed(tmp_path, program))
    assert found
    assert all("simulated: " in breach for breach in found), found
    assert any("verify calls in the histogram" in breach for breach in found)
