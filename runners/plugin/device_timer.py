"""SGLang's device timer, for servers without the plugin's clock: GPU time per kind of forward.

`SGLANG_ENABLE_METRICS_DEVICE_TIMER=1 --enable-metrics` adds the counter
`sglang:forward_execution_seconds_total{category=...}` (0.5.17, 0.5.23). The counter has only
totals, does not separate batch sizes, and excludes time between forwards. On a CPU the timer ends
the server. Its effect on time to first token is unknown (`docs/plugin.md`), so launches use it only
with `TUNER_DEVICE_TIMER=1`.
"""

from __future__ import annotations

import re
from collections import Counter
from typing import TYPE_CHECKING, Final

import httpx

from results.records import BatchCycles, CycleTimes, PartTime
from runners.plugin.cycle_times import CycleWatch
from runners.server_info import http_client, is_between

if TYPE_CHECKING:
    from collections.abc import Mapping

    from results.records import Measurement

ASKED: Final = "TUNER_DEVICE_TIMER"
"""Variable of the tuner's environment; `1` enables the timer."""

VARIABLE: Final = "SGLANG_ENABLE_METRICS_DEVICE_TIMER"
FLAG: Final = "--enable-metrics"
_VERSIONS: Final = ("0.5.17", "0.5.23")
"""Oldest and newest version whose source has the timer."""

_COUNTER = re.compile(r"^sglang:forward_execution_seconds_total\{(.*)\} (\S+)$", re.MULTILINE)
_LABEL = re.compile(r'(\w+)="([^"]*)"')

_PARTS: Final = {
    "eagle_draft": "draft",
    "eagle_draft_extend": "draft_extend",
    "target_verify": "verify",
    "decode": "verify",
}
"""Parts by category of the runner that executes the forward (0.5.17, 0.5.23). A draft that runs
without a graph counts as `extend` or `decode` and cannot be separated."""

_TIMEOUT_S = 30.0


def has_timer(version: str, device: object) -> bool:
    """Whether a server of this version has the timer on this device (`--device`)."""
    return device in {None, "cuda"} and is_between(version, *_VERSIONS)


class DeviceTimerWatch(CycleWatch):
    """Reads the counter around a window.

    Args:
        base_url: `http://host:port`.
        time_scale: Simulated seconds per real second.
    """

    def __init__(self, base_url: str, *, time_scale: float) -> None:
        self._url = f"{base_url}/metrics"
        self._time_scale = time_scale
        self._before: Mapping[str, float] | None = None
        self._after: Mapping[str, float] | None = None

    def begin(self) -> None:
        self._before, self._after = self._read(), None

    def end(self) -> tuple[str, ...]:
        """See `WindowWatch.end`. An unreadable counter is no reason against a window."""
        self._after = self._read()
        return ()

    def cycle_of(self, measurement: Measurement) -> CycleTimes | None:
        """See `CycleWatch.cycle_of`.

        The count is the number of verifies of all requests, or of tokens without speculation, so a
        batch counts once per request.
        """
        before, after = self._before, self._after
        if before is None or after is None:
            return None
        samples = measurement.samples
        count = sum(s.verify_calls for s in samples) or sum(s.completion_tokens for s in samples)
        seconds = Counter({part: self._time_scale * after[part] for part in after})
        seconds.subtract({part: self._time_scale * before[part] for part in before})
        parts = {part: PartTime(count, s) for part, s in sorted(seconds.items()) if s > 0.0}
        if not parts or not count:
            return None
        whole = PartTime(count, sum(part.total_s for part in parts.values()))
        return CycleTimes("device_timer", (BatchCycles(0, whole, parts),))

    def _read(self) -> Mapping[str, float] | None:
        """Seconds by part since the start; `None` if unreadable."""
        try:
            with http_client(timeout=_TIMEOUT_S) as client:
                page = client.get(self._url).raise_for_status().text
            return seconds_by_part(page)
        except (httpx.HTTPError, ValueError):
            return None


def seconds_by_part(page: str) -> dict[str, float]:
    """Sum the counter on a page of `/metrics`, for the first rank.

    Raises:
        ValueError: The page is not a metrics page.
    """
    found: dict[str, float] = {}
    for labels, value in _COUNTER.findall(page):
        known = dict(_LABEL.findall(labels))
        part = _PARTS.get(known.get("category", ""))
        if part is not None and known.get("tp_rank", "0") == "0":
            found[part] = found.get(part, 0.0) + float(value)
    return found
