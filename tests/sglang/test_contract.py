"""The simulated server must behave like the real one.

Both start with the same flags and get the same requests in the same order. Bodies, streams,
headers, refusals, `/metrics`, `/server_info` and the log are compared, and numbers must follow the
same rules (`tests/contract/`, which also lists the allowed differences with their reasons). Failing
starts and ends of servers are in `tests/contract/ends.py`.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import pytest

from runners.plugin.protocol import CLOCK_VARIABLE

from ..contract.drifts import DRIFTS
from ..contract.exchanges import exchanges
from ..contract.meanings import Depth
from ..contract.observation import Observation, breaches, observe
from ..contract.simulated import simulated
from .servers import KINDS, of_kinds

if TYPE_CHECKING:
    from pathlib import Path

    from .servers import LiveServer

pytestmark = [pytest.mark.sglang, pytest.mark.timeout(900)]

EVERYTHING = "standalone"
"""Kind with all requests; others get the requests whose answers can differ."""

Pair = tuple[Observation, Observation]


def depth_of(server: LiveServer) -> Depth | None:
    speculation = server.speculation
    width = speculation.num_draft_tokens
    if width is None:
        return None
    return Depth(deepest=speculation.num_steps or width - 1, width=width)


def observed(server: LiveServer, folder: Path) -> Pair:
    """Observe both servers, one after the other."""
    argv = server.command.argv
    flags = argv[argv.index("sglang.launch_server") + 1 :]
    asked = exchanges(every=server.kind == EVERYTHING)
    depth = depth_of(server)
    real = observe(server.url, server.log.read_text, depth, asked)
    # The simulated server does not read the context length from the model's files.
    flags = (*flags, "--context-length", "2048")
    # Both record cycle times, like every server that the tuner measures.
    clock = {CLOCK_VARIABLE: dict(server.command.env)[CLOCK_VARIABLE]}
    with simulated(flags, folder, KINDS[server.kind].env | clock) as other:
        other.wait_ready()
        return real, observe(other.url, lambda: other.log, depth, asked)


@pytest.fixture(scope="module")
def pairs(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Pair]:
    """Observations so far, by kind."""
    return {}


@of_kinds("plain", "standalone", "ngram")
def test_simulated_server_answers_and_counts_like_the_real_one(server, pairs, tmp_path):
    pairs[server.kind] = observed(server, tmp_path)
    assert breaches(*pairs[server.kind]) == []


@pytest.mark.sglang_long
@of_kinds("eagle3", "simulated_acceptance")
def test_simulated_server_answers_like_the_real_one_with_other_drafts(server, tmp_path):
    assert breaches(*observed(server, tmp_path)) == []


@pytest.mark.kind(EVERYTHING)
def test_planted_drifts_are_found(server, pairs, tmp_path):
    real, same = pairs.get(EVERYTHING) or observed(server, tmp_path)
    for drift in DRIFTS:
        found = breaches(real, same.changed(drift.change))
        assert any(re.search(drift.caught, breach) for breach in found), (drift.name, found)
