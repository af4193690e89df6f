"""Time per start-up phase, and its limits."""

from __future__ import annotations

from runners.sglang.server_log import FIRST
from runners.sglang.startup import PhaseClock, StartTimeouts


def test_repeated_phase_adds_up():
    clock = PhaseClock(10.0)
    assert clock.enter("weights", 15.0)
    assert clock.enter("kv_cache", 18.0)
    assert clock.enter("weights", 19.0)
    assert not clock.enter("weights", 19.5)
    assert clock.in_current(20.0) == 1.0
    assert clock.finish(21.0) == ((FIRST, 5.0), ("weights", 5.0), ("kv_cache", 1.0))


def test_timeouts_scale_with_time_down_to_a_floor():
    timeouts = StartTimeouts((("weights", 100.0),), floor_s=5.0)
    assert timeouts.real_seconds("weights", 1.0) == 100.0
    assert timeouts.real_seconds("weights", 10.0) == 10.0
    assert timeouts.real_seconds("weights", 1000.0) == 5.0
    assert timeouts.real_seconds("unheard of", 1.0) > 0
