"""What the real server says of acceptance beside the answers: `/metrics`, `/server_info`, its log.

None of them is what a window of ours needs, and each has its own span: the gauge is of the last
40 decode iterations and is never reset; `/server_info` averages all of them since the cache was
emptied; only the counter is exact, once a request has ended.
"""

from __future__ import annotations

import re

import pytest

from runners.load.http.acceptance import acceptance_of
from runners.load.prompts.selection import ramp_lengths
from search_spaces.workload import OperatingPoint

from .servers import TOKENS, metric, of_kinds, speculating

pytestmark = [pytest.mark.sglang, pytest.mark.timeout(600)]

TICK = 40
"""Decode iterations between two lines of the log (`--decode-log-interval`)."""


def lifetime(server) -> float | None:
    """Accept length since the cache was emptied; absent before 40 iterations are full."""
    (state,) = server.info()["internal_states"]
    return state.get("avg_spec_accept_length")


def logged(server, begin: int) -> list[float]:
    """The accept lengths that the log has from this byte on, one of each 40 iterations."""
    text = server.log.read_bytes()[begin:].decode(errors="replace")
    return [float(length) for length in re.findall(r"accept len: ([\d.]+)", text)]


@pytest.mark.kind("standalone")
def test_metrics_is_a_window_and_server_info_a_lifetime(server):
    server.flush()
    begin = server.log.stat().st_size
    assert lifetime(server) is None, "absent after a flush"
    texts = ["def f(x):\n    return", "Once upon a time"]
    counts = [acceptance_of(server.generate(text, 240)["meta_info"]) for text in texts]
    windows = logged(server, begin)
    assert len(windows) == sum(c.verify_calls for c in counts) // TICK >= 3
    assert len(set(windows)) > 1, "else the last one and the mean of all are the same"
    # One request at a time: each window is of as many verifies. The log has two decimals.
    assert lifetime(server) == pytest.approx(sum(windows) / len(windows), abs=0.006)
    gauge = metric(server, "spec_accept_length")
    assert gauge == pytest.approx(windows[-1], abs=0.006)
    # All of it, the iterations since the last line included: only the answers know that.
    exact = 1 + sum(c.correct_drafts for c in counts) / sum(c.verify_calls for c in counts)
    assert exact == pytest.approx(lifetime(server), abs=0.5)
    server.flush()
    assert lifetime(server) is None
    assert metric(server, "spec_accept_length") == gauge, "of a server that does nothing now"


@of_kinds("eagle3", "standalone")
def test_the_counter_of_verifies_is_that_of_the_answers(server):
    """Exact, but counted when a request ends: right between windows, not within one."""
    before = metric(server, "spec_verify_calls_total"), metric(server, "generation_tokens_total")
    measurement = server.session.measure(OperatingPoint(4, requests=8))
    after = metric(server, "spec_verify_calls_total"), metric(server, "generation_tokens_total")
    verify = sum(sample.verify_calls for sample in measurement.samples)
    tokens = sum(sample.completion_tokens for sample in measurement.samples)
    # What is more is the ramp's, and the warm-up's: whole answers of the same length, 4 to a pass.
    more_tokens = after[1] - before[1] - tokens - sum(ramp_lengths([TOKENS] * 8, 4))
    assert more_tokens % (4 * TOKENS) == 0
    assert more_tokens <= 4 * 4 * TOKENS
    assert after[0] - before[0] >= verify
    if server.kind == "eagle3":  # a verify per token, whatever the prompt
        assert after[0] - before[0] == pytest.approx(
            (after[1] - before[1]) * (TOKENS - 1) / TOKENS, rel=0.05
        )


@speculating
def test_steps_in_force_are_told_three_times(server):
    """Top level, scheduler, and a gauge that is 0 until the first 40 iterations are full."""
    server.generate("def f(x):\n", 200)
    info = server.info()
    (state,) = info["internal_states"]
    resolved = server.session.resolved.configuration.speculation
    for told in (info, state):
        assert told["speculative_num_draft_tokens"] == resolved.num_draft_tokens
        if resolved.num_steps is not None:
            assert told["speculative_num_steps"] == resolved.num_steps
    assert metric(server, "spec_num_draft_tokens") == resolved.num_draft_tokens
    assert metric(server, "spec_num_steps") == info["speculative_num_steps"]
