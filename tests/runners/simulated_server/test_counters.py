"""Gauges and counters of two different windows."""

from __future__ import annotations

import pytest

from runners.simulated_server.engine.counters import Counters, Window


def test_gauges_show_the_last_window_and_the_average_all_windows():
    counters = Counters()
    counters.window = Window(iterations=40, tokens=80, accepted=80, correct=40, verify_calls=40)
    counters.tick(1.0, num_steps=3, num_draft_tokens=4, proposed=3)
    assert (counters.accept_length, counters.average_accept_length) == (2.0, 2.0)
    counters.window = Window(iterations=40, tokens=120, accepted=120, correct=80, verify_calls=40)
    counters.tick(3.0, num_steps=3, num_draft_tokens=4, proposed=3)
    assert counters.accept_length == 3.0
    assert counters.accept_rate == pytest.approx(80 / 120)
    assert counters.gen_throughput == pytest.approx(60)
    assert counters.average_accept_length == 2.5
    # A window without a verify does not change the accept length.
    counters.tick(4.0, num_steps=3, num_draft_tokens=4, proposed=3)
    assert (counters.accept_length, counters.average_accept_length) == (3.0, 2.5)
    counters.flushed()
    assert (counters.accept_length, counters.average_accept_length) == (3.0, None)
