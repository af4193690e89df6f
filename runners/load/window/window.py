"""The window of a load: what counts as load, and what does not.

A load is ramp, window and drain. The window opens when the load is steady: three quarters of the
lanes of a closed loop have ended their shortened first answer (`ramp_lengths`), or the ramp of an
open loop is over. A load without a ramp opens the window with its first request. The window closes
when a lane finds no more work, after the current forward (`end_of_burst`), or when the last request
of an open loop has been sent. The drain follows.

* Tokens, finished requests and chunks count if they arrived inside the window. This includes
  requests that were sent before it.
* Latencies count if the whole life of the request lies inside the window (`counted`), because
  requests of ramp and drain met a lighter load. At concurrency 1 all requests count.
* Acceptance, token totals and success count over all requests except the ramp's. They do not depend
  on the load, and results are paired by prompt.

A whole run has no ramp, and its window ends with the last token (`Window.whole_run`). Other load
generators report such figures.
"""

from __future__ import annotations

import math
import time
from bisect import bisect_right
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import TYPE_CHECKING

from runners.load.http.client import clock

if TYPE_CHECKING:
    from collections.abc import Sequence

    from runners.load.http.in_flight import InFlightRequest
    from runners.load.schedule.loops import LoopReport, Plan
    from runners.load.schedule.pauses import ClientPauses


@dataclass(frozen=True, slots=True)
class Window:
    """Requests of a load and the limits of its window, in real time.

    Attributes:
        started_at: Seconds since the epoch at the start of the window.
        opened: Clock reading at the start of the window.
        closed: Clock reading at the end of the window.
        flights: All requests except the ramp's, in the order of sending.
        client_cpu_share: CPU seconds of the busiest client process per second.
        ramp: Ramp requests of a closed loop.
        client_pauses: Pauses of each client process, from the start of the load to its end.
    """

    started_at: float
    opened: float
    closed: float
    flights: tuple[InFlightRequest, ...]
    client_cpu_share: float = 0.0
    ramp: tuple[InFlightRequest, ...] = ()
    client_pauses: tuple[ClientPauses, ...] = ()

    @property
    def begun(self) -> float:
        """Time of the load's first request."""
        sent = (flight.sent for flight in (*self.ramp, *self.flights) if flight.sent)
        return min(sent, default=self.opened)

    @property
    def seconds(self) -> float:
        """Length of the window in real seconds."""
        return max(0.0, self.closed - self.opened)

    @property
    def tokens(self) -> int:
        """Output tokens that arrived in the window."""
        arriving = (*self.ramp, *self.flights)
        return sum(f.tokens_at(self.closed) - f.tokens_at(self.opened) for f in arriving)

    def whole_run(self) -> Window:
        """Return the window from the first send to the last token of a load without a ramp.

        All tokens and requests count, as in `sglang.bench_serving` (0.5.9 to 0.5.23). Tokens of
        failed requests count here, but not there.
        """
        opened = min(flight.sent for flight in self.flights)
        return replace(
            self,
            started_at=self.started_at - (self.opened - opened),
            opened=opened,
            closed=max(flight.last for flight in self.flights),
        )

    def counted(self) -> list[InFlightRequest]:
        """Return the successful requests whose latencies count.

        These are the requests with their whole life in the window (`whole_lives`). If there are
        none, the requests that were sent in the window; if there are none, all requests.
        """
        return self.whole_lives() or self._sent_inside() or self._good()

    def whole_lives(self) -> list[InFlightRequest]:
        """Return the successful requests before the first one that ended after the window.

        The cut is by the order of sending. A cut by the end of the requests would prefer short
        answers.
        """
        inside = self._sent_inside()
        cut = min((f.sent for f in inside if f.last > self.closed), default=float("inf"))
        return [f for f in inside if f.sent < cut]

    def finished(self) -> list[InFlightRequest]:
        """Return the successful requests whose last token arrived in the window."""
        return [f for f in self._good() if self.opened <= f.last <= self.closed]

    def chunk_gaps(self) -> list[float]:
        """Return the real seconds between consecutive chunks of a stream inside the window."""
        return [
            later - earlier
            for flight in self._good()
            for earlier, later in pairwise(flight.chunk_times)
            if earlier >= self.opened and later <= self.closed
        ]

    def _good(self) -> list[InFlightRequest]:
        return [flight for flight in self.flights if flight.error is None]

    def _sent_inside(self) -> list[InFlightRequest]:
        return [f for f in self._good() if self.opened <= f.sent <= self.closed]


def window_of(
    plan: Plan, flights: Sequence[InFlightRequest], reports: Sequence[LoopReport]
) -> Window:
    """Determine the start, the end and the ramp of a window.

    Args:
        plan: Plan of the load.
        flights: Its requests after the load.
        reports: Report of each client process.
    """
    ramp: tuple[InFlightRequest, ...]
    counted: Sequence[InFlightRequest]
    if plan.is_open:
        # The window opens with the first arrival after the ramp and closes with the last one.
        sent = sorted(flight.sent for flight in flights)
        opened, closed = sent[plan.ramp], sent[-1]
        ramp, counted = (), flights
    else:
        ramp, counted = tuple(flights[: plan.ramp]), flights[plan.ramp :]
        if ramp:
            # After the whole forward in which the last of three quarters of the lanes ended.
            opened = end_of_burst(flights, sorted(f.last for f in ramp)[-1 - len(ramp) // 4])
        else:
            opened = min(flight.sent for flight in flights[: len(plan.offsets)])
        idle = max(opened, min(report.idle for report in reports))
        closed = end_of_burst(flights, idle)
    return Window(
        started_at=time.time() - (clock() - opened),
        opened=opened,
        closed=closed,
        flights=tuple(counted),
        ramp=ramp,
        client_cpu_share=max(report.cpu_share for report in reports),
        client_pauses=tuple(report.pauses for report in reports),
    )


def end_of_burst(flights: Sequence[InFlightRequest], instant: float) -> float:
    """Return when the last chunk of the burst at `instant` arrived.

    A forward ends for all requests of a batch at once, and their chunks arrive one after the other.
    A lane finds no more work while other chunks still arrive. To close the window at this moment
    would count the forward's whole time without some of its tokens. A burst ends after half of a
    short gap between two chunks of a stream (the 10th percentile).
    """
    gaps = [gap for flight in flights for gap in flight.gaps()]
    if not gaps:
        return instant
    limit = instant + percentile(gaps, 10) / 2
    arrived = ((f.chunk_times, bisect_right(f.chunk_times, limit)) for f in flights)
    return max(
        (times[n - 1] for times, n in arrived if n and times[n - 1] > instant), default=instant
    )


def percentile(values: Sequence[float], percent: float) -> float:
    """Return a percentile with linear interpolation between order statistics; NaN for no values."""
    if not values:
        return math.nan
    ordered = sorted(values)
    position = (len(ordered) - 1) * percent / 100
    below = int(position)
    above = min(below + 1, len(ordered) - 1)
    return ordered[below] + (ordered[above] - ordered[below]) * (position - below)
