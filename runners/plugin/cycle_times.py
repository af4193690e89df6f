"""Cycle times of a window: the difference of two readings of a running server.

Counters run from the server's start and are read while the server is idle: after the flush before a
window's ramp, and after its drain. So warm-up is excluded, and ramp and drain are included; their
batches are mostly smaller. With data parallelism the readings are those of the first replica.
"""

from __future__ import annotations

import abc
from collections import Counter
from typing import TYPE_CHECKING, Any

from results.records import PARTS, BatchCycles, CycleTimes, PartTime
from runners.base import RunnerError
from runners.load.window.watches import WindowWatch
from runners.plugin.protocol import CYCLE, bucket_seconds
from runners.plugin.status import described, status_of
from runners.server_info import read_server_info

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from results.records import Measurement
    from runners.plugin.status import PluginStatus
    from search_spaces.configuration import Setting

    Clock = Mapping[str, Mapping[str, Mapping[str, Any]]]

_SLOWER = 1.2
"""Allowed ratio of stream time to the server's clock. A delayed client once lost 25 % of tok/s."""

_FEWEST_CYCLES = 20
_CLIENT_S = 0.02
"""Allowed delay of a busy client per answer, in real seconds."""

_FORWARDS = ("draft", "draft_extend", "verify")
"""Parts that may run as CUDA graphs."""


class CycleWatch(WindowWatch):
    """Measures the cycle times of a window."""

    @abc.abstractmethod
    def cycle_of(self, measurement: Measurement) -> CycleTimes | None:
        """Cycle times of the last window, whose measurement is given."""


class NoClock(CycleWatch):
    """No cycle times."""

    def begin(self) -> None:
        """See `WindowWatch.begin`."""

    def end(self) -> tuple[str, ...]:
        return ()

    def cycle_of(self, measurement: Measurement) -> None:
        """See `CycleWatch.cycle_of`."""


class PluginWatch(CycleWatch):
    """Reads the plugin's clock around a window, and checks that the setting did not change.

    Args:
        base_url: `http://host:port`.
        in_force: Expected setting; `None` for a server that is not switched.
        time_scale: Simulated seconds per real second.
        on_failed: Called with the reason if the clock stopped permanently.
    """

    def __init__(
        self,
        base_url: str,
        in_force: Callable[[], Setting | None],
        *,
        time_scale: float,
        on_failed: Callable[[str], None] = lambda _: None,
    ) -> None:
        self._base_url = base_url
        self._in_force = in_force
        self._time_scale = time_scale
        self._on_failed = on_failed
        self._before: PluginStatus | None = None
        self._cycle: CycleTimes | None = None

    def begin(self) -> None:
        self._cycle = None
        self._before = self._read()

    def end(self) -> tuple[str, ...]:
        before, after = self._before, self._read()
        if before is not None and after is not None:
            self._cycle = cycle_times(before.clock, after.clock, time_scale=self._time_scale)
            if after.clock_failed is not None:
                self._on_failed(after.clock_failed)
        reason = not_in_force(self._in_force(), before, after)
        return () if reason is None else (f"setting_not_in_force: {reason}",)

    def cycle_of(self, measurement: Measurement) -> CycleTimes | None:
        del measurement  # the plugin counts cycles
        return self._cycle

    def _read(self) -> PluginStatus | None:
        try:
            return status_of(read_server_info(self._base_url))
        except RunnerError:
            return None  # `ServerIdentityWatch` reports this


def not_in_force(
    asked: Setting | None, before: PluginStatus | None, after: PluginStatus | None
) -> str | None:
    """Why the requested setting was not in force during the window; `None` if it was.

    Args:
        asked: The setting; `None` for a server that is not switched.
        before: Status before the window.
        after: Status after the window.
    """
    if asked is None:
        return None
    if before is None or after is None:
        return (
            f"{described(asked)} were requested, but the plugin does not report the active setting"
        )
    if before.in_force != asked or after.in_force != asked:
        return (
            f"{described(asked)} were requested; {before.in_force} were active before the "
            f"window, and {after.in_force} after it"
        )
    if before.switches != after.switches:
        count = after.switches - before.switches
        return f"the draft steps were switched {count} times inside the window"
    return None


def cycle_times(
    before: Clock | None, after: Clock | None, *, time_scale: float
) -> CycleTimes | None:
    """Cycle times between two readings; `None` without a clock or a cycle.

    Args:
        before: First reading, by batch size and part.
        after: Second reading.
        time_scale: Simulated seconds per real second.
    """
    if before is None or after is None:
        return None
    batches = []
    for size in sorted(after, key=int):
        earlier = before.get(size, {})
        parts = {
            name: part
            for name in (*PARTS, CYCLE)
            if (part := _between(name, earlier.get(name), after[size].get(name), time_scale))
        }
        if not parts:
            continue
        cycle = parts.pop(CYCLE, PartTime(0, 0.0))
        batches.append(BatchCycles(int(size), cycle, parts))
    return CycleTimes("plugin", tuple(batches)) if batches else None


def slower_than_clock(measurement: Measurement, time_scale: float) -> str | None:
    """Reason against a window whose streams are slower than the server's own clock.

    At concurrency 1 no other request runs between two cycles, so a stream takes as long as its
    cycles. Additional time was spent in the client, the network or the host.

    Args:
        measurement: The window with its cycles.
        time_scale: Simulated seconds per real second.
    """
    times = measurement.cycle
    # SGLang's device timer excludes gaps between forwards.
    if times is None or times.source != "plugin" or measurement.point.concurrency != 1:
        return None
    cycle = next((batch.cycle for batch in times.batches if batch.size == 1), None)
    answers = [s for s in measurement.samples if s.error is None and s.completion_tokens > 1]
    steps = sum(s.verify_calls or s.completion_tokens - 1 for s in answers)
    if cycle is None or cycle.count < _FEWEST_CYCLES or not steps:
        return None
    clock = cycle.total_s / cycle.count
    seen = sum(s.e2e_s - s.ttft_s for s in answers) / steps
    late_s = (seen - clock) * steps / len(answers) / time_scale
    if seen <= _SLOWER * clock or late_s <= _CLIENT_S:
        return None
    return (
        f"slower_than_clock: a cycle takes {1000 * seen:.3g} ms in the client's streams and "
        f"{1000 * clock:.3g} ms by the server's clock: something held the streams up"
    )


def _between(
    name: str,
    before: Mapping[str, Any] | None,
    after: Mapping[str, Any] | None,
    time_scale: float,
) -> PartTime | None:
    before = before or {"count": 0, "total_s": 0.0, "graphs": 0, "buckets": {}}
    if after is None or (count := after["count"] - before["count"]) <= 0:
        return None
    buckets = Counter({int(bucket): n for bucket, n in after["buckets"].items()})
    buckets.subtract({int(bucket): n for bucket, n in before["buckets"].items()})
    return PartTime(
        count,
        (after["total_s"] - before["total_s"]) * time_scale,
        median_s=_quantile(buckets, 0.5) * time_scale,
        p05_s=_quantile(buckets, 0.05) * time_scale,
        p95_s=_quantile(buckets, 0.95) * time_scale,
        graph_share=(after["graphs"] - before["graphs"]) / count if name in _FORWARDS else None,
    )


def _quantile(buckets: Mapping[int, int], share: float) -> float:
    """Seconds below which at least this share of the durations lies, with an error of up to 1 %."""
    wanted, seen = share * sum(buckets.values()), 0
    for bucket in sorted(buckets):
        seen += buckets[bucket]
        if seen >= wanted and buckets[bucket]:
            return bucket_seconds(bucket)
    return 0.0
