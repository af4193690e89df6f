"""The real server under load at several concurrencies, measured by the runner's session."""

from __future__ import annotations

import pytest

from search_spaces.workload import OperatingPoint

from .servers import THROUGHOUT, TOKENS

pytestmark = [pytest.mark.sglang, pytest.mark.timeout(600)]

LARGEST = {"eagle3": 4, "standalone": 4, "ngram": 8, "simulated_acceptance": 5}
"""Maximal accept length: steps and the bonus token; NGRAM verifies the whole block."""

OF_THE_MACHINE = ("unsteady:", "silent:", "client_saturated:", "client_paused:", "lock_step:")
"""Allowed reasons: other tests use the cores, and answers of equal length fall into lock-step."""

EMPTY = "empty_window:"
"""On a busy machine the first lane can end before the load is steady; measured again."""

LOADS = {kind: [(1, 4), (4, 16)] for kind in THROUGHOUT}
"""Concurrency and requests, by kind."""
LOADS["plain"] = [(1, 4), (4, 16), (16, 48)]
LOADS["standalone"] = [(1, 16), (4, 16)]  # the same prompts at both


@pytest.fixture(scope="module")
def window():
    """Measurement of a server at a load; tests of the same server share it."""
    found = {}

    def measure(server, concurrency: int, requests: int):
        key = (server.identity.mark, concurrency, requests)
        for _ in range(0 if key in found else 3):
            found[key] = server.session.measure(OperatingPoint(concurrency, requests=requests))
            if not any(why.startswith(EMPTY) for why in found[key].invalid):
                break
        return found[key]

    return measure


@pytest.mark.parametrize(
    ("server", "concurrency", "requests"),
    [
        pytest.param(kind, *load, marks=pytest.mark.kind(kind))
        for kind in THROUGHOUT
        for load in LOADS[kind]
    ],
    indirect=["server"],
)
def test_window_is_valid_and_adds_up(server, window, concurrency, requests):
    measurement = window(server, concurrency, requests)
    assert [why for why in measurement.invalid if not why.startswith(OF_THE_MACHINE)] == []
    samples = measurement.samples
    assert len(samples) == measurement.requests == requests
    assert not [sample.error for sample in samples if sample.error]
    assert {sample.completion_tokens for sample in samples} == {TOKENS}
    assert measurement.output_tok_s == pytest.approx(
        measurement.output_tokens / measurement.window_s
    )
    verify = sum(sample.verify_calls for sample in samples)
    correct = sum(sample.correct_drafts for sample in samples)
    if server.kind == "plain":
        assert measurement.accept_length is None
        assert verify == correct == 0
        return
    assert measurement.accept_length == pytest.approx(1 + correct / verify)
    assert 1 <= measurement.accept_length <= LARGEST[server.kind]
    assert sum(measurement.histogram) == verify
    assert sum(k * n for k, n in enumerate(measurement.histogram)) == correct
    assert len(measurement.histogram) <= LARGEST[server.kind]


@pytest.mark.kind("plain")
def test_sequential_requests_fill_the_window(server, window):
    measurement = window(server, 1, 4)
    assert measurement.output_tokens == 4 * TOKENS
    last = measurement.samples[-1]
    assert sum(sample.e2e_s for sample in measurement.samples) <= measurement.window_s
    assert measurement.window_s == pytest.approx(last.sent_s + last.e2e_s, rel=0.02)


@pytest.mark.kind("standalone")
def test_acceptance_does_not_depend_on_the_batch(server, window):
    """Greedy answers to the same prompts: acceptance depends on the draft, not on the load."""
    one, four = (window(server, concurrency, 16) for concurrency in (1, 4))
    assert 1.5 < one.accept_length < 4, "partial acceptance"
    assert four.accept_length == pytest.approx(one.accept_length, rel=0.1)
    assert one.workload_fingerprint == four.workload_fingerprint


@pytest.mark.kind("eagle3")
def test_low_acceptance_warning(server, window):
    measurement = window(server, 1, 4)
    assert measurement.accept_length < 1.05
    assert [w for w in measurement.warnings if w.startswith("low_acceptance")]


@pytest.mark.kind("simulated_acceptance")
def test_degenerate_output_warning_with_simulated_acceptance(server, window):
    """The window is valid, but its text is one repeated token."""
    measurement = window(server, 1, 4)
    assert measurement.accept_length == pytest.approx(3.3, abs=0.4)
    assert [w for w in measurement.warnings if w.startswith("degenerate_output")]
