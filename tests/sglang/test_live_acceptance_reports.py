"""Acceptance in `/metrics`, `/server_info` and the log of the real server.

Their spans differ, and none fits a window of the tuner. The gauge covers the last 40 decode
iterations and is never reset. `/server_info` averages all iterations since the last flush. Only the
counter is exact, once a request has ended.
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
    """Accept length since the last flush; absent before 40 iterations."""
    (state,) = server.info()["internal_states"]
    return state.get("avg_spec_accept_length")


def logged(server, begin: int) -> list[float]:
    """Accept lengths in the log from this byte on, one per 40 iterations."""
    text = server.log.read_bytes()[begin:].decode(errors="replace")
    return [float(length) for length in re.findall(r"accept len: ([\d.]+)", text)]


@pytest.mark.kind("standalone")
def test_metrics_cover_a_window_and_server_info_a_lifetime(server):
    server.flush()
    begin = server.log.stat().st_size
    assert lifetime(server) is None, "absent after a flush"
    texts = ["def f(x):\n    return", "Once upon a time"]
    counts = [acceptance_of(server.generate(text, 240)["meta_info"]) for text in texts]
    windows = logged(server, begin)
    assert len(windows) == sum(c.verify_calls for c in counts) // TICK >= 3
    assert len(set(windows)) > 1, "otherwise the last equals the mean"
    # One request at a time: windows have equal numbers of verifies. The log has two decimals.
    assert lifetime(server) == pytest.approx(sum(windows) / len(windows), abs=0.006)
    gauge = metric(server, "spec_accept_length")
    assert gauge == pytest.approx(windows[-1], abs=0.006)
    # Only the answers include the iterations since the last log line.
    exact = 1 + sum(c.correct_drafts for c in counts) / sum(c.verify_calls for c in counts)
    assert exact == pytest.approx(lifetime(server), abs=0.5)
    server.flush()
    assert lifetime(server) is None
    assert metric(server, "spec_accept_length") == gauge, "the gauge of an idle server stays"


@of_kinds("eagle3", "standalone")
def test_verify_counter_equals_the_answers(server):
    """The counter grows when a request ends, so it is right between windows only."""
    before = metric(server, "spec_verify_calls_total"), metric(server, "generation_tokens_total")
    measurement = server.session.measure(OperatingPoint(4, requests=8))
    after = metric(server, "spec_verify_calls_total"), metric(server, "generation_tokens_total")
    verify = sum(sample.verify_calls for sample in measurement.samples)
    tokens = sum(sample.completion_tokens for sample in measurement.samples)
    # The ramp and the warm-up add whole answers of the same length, 4 per pass.
    more_tokens = after[1] - before[1] - tokens - sum(ramp_lengths([TOKENS] * 8, 4))
    assert more_tokens % (4 * TOKENS) == 0
    assert more_tokens <= 4 * 4 * TOKENS
    assert after[0] - before[0] >= verify
    if server.kind == "eagle3":  # a verify per token, whatever the prompt
        assert after[0] - before[0] == pytest.approx(
            (after[1] - before[1]) * (TOKENS - 1) / TOKENS, rel=0.05
        )


@speculating
def test_active_steps_are_reported_in_three_places(server):
    """Top level, scheduler, and a gauge that is 0 during the first 40 iterations."""
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
