"""Checks of the client: enough CPU, requests sent on time, no pauses."""

from __future__ import annotations

import statistics
from typing import TYPE_CHECKING

from runners.load.checks.evidence import invalidates, warns

if TYPE_CHECKING:
    from runners.load.checks.evidence import Evidence

_SATURATED = 0.9
"""CPU share above which the figures show the client, not the server."""
_BUSY = 0.7
"""CPU share above which the client may influence the figures."""

_LATE_GAPS = 0.5
_LATE_TTFT = 0.1
"""Largest delay of sending, as a share of the mean gap between arrivals, and of TTFT."""

_LOST = 0.03
"""Largest share of the lanes' time that pauses may take."""
_LOST_S = 0.05
"""Real seconds that any machine takes from a client occasionally: 3 % of a window of 1.7 s."""
_LATE = 0.25
"""Mean delay, as a share of TTFT or of the decode time, above which both mean nothing. A few per
cent are normal with a real server on the same two cores (`client_delayed`)."""
_DELAYED = 0.02
"""Mean delay, as a share of TTFT or of the decode time, that is worth a warning. With client and
server on separate cores no median moved by more than 3 % at a share below 5 %."""
_LATE_S = 0.00025
"""Smallest mean delay that beats can show, in real seconds."""
_PAUSED = 0.05
"""Share of the window without the client, below which medians stay right."""


@invalidates
def client_saturated(evidence: Evidence) -> str | None:
    """The client used a whole core, so the figures show the client."""
    share = evidence.client_cpu_share
    if share is None or share <= _SATURATED:
        return None
    return (
        f"the busiest client process used {share:.0%} of a core, so the figures show the client: "
        "use more client processes"
    )


@warns
def client_busy(evidence: Evidence) -> str | None:
    """The client has little spare CPU time."""
    share = evidence.client_cpu_share
    if share is None or not _BUSY < share <= _SATURATED:
        return None
    return f"the busiest client process used {share:.0%} of a core: use more client processes"


@invalidates
def client_late(evidence: Evidence) -> str | None:
    """Open loop: the client sent requests so late that the arrivals are wrong."""
    if not evidence.point.is_open or len(evidence.samples) < 2:
        return None
    *_, late = statistics.quantiles(  # the last of the 20-quantiles is the 95th percentile
        (s.late_s for s in evidence.samples), n=20, method="inclusive"
    )
    due = [s.sent_s - s.late_s for s in evidence.samples]
    gap = (max(due) - min(due)) / (len(due) - 1)
    ttft = statistics.median(s.ttft_s for s in evidence.good) if evidence.good else 0.0
    if late <= _LATE_GAPS * gap or late <= _LATE_TTFT * ttft:
        return None
    return (
        f"the client sent requests late: by {1000 * late:.1f} ms at the 95th percentile, with a "
        f"mean gap of {1000 * gap:.1f} ms and a TTFT of {1000 * ttft:.1f} ms; the client cannot "
        f"send at {evidence.point.name}: lower the rate, or give the client more cores"
    )


@invalidates
def client_paused(evidence: Evidence) -> str | None:
    """The client did not run for so long that the figures may be wrong."""
    pauses = evidence.client_pauses
    lives = [flight.last - flight.sent for flight in evidence.streamed]
    if not lives:
        return None
    lost = 0.0 if evidence.point.is_open else pauses.lost_share(statistics.median(lives))
    length = evidence.length_s
    if lost * length <= max(_LOST * length, _LOST_S) and _late_share(evidence) <= _LATE:
        return None
    longest = max(pause.ran - pause.due for pause in pauses.pauses)
    return (
        f"the client did not run for {pauses.paused_share():.0%} of the window (longest pause "
        f"{1000 * longest:.0f} ms, real time); lanes lost up to {lost:.1%} of their time, and "
        f"tokens were noticed {1000 * pauses.mean_late_s():.2f} ms late on average: give the "
        f"client a separate core; likely cause: {pauses.cause()}"
    )


@warns
def client_delayed(evidence: Evidence) -> str | None:
    """The client noticed tokens late: TTFT and TPOT are too long, tok/s is hardly affected."""
    share = _late_share(evidence)
    if share <= _DELAYED:
        return None
    pauses = evidence.client_pauses
    return (
        f"the client noticed tokens {1000 * pauses.mean_late_s():.2f} ms late on average (real "
        f"time), {share:.0%} of TTFT or of the decode time: compare tok/s only; likely cause: "
        f"{pauses.cause()}"
    )


def _late_share(evidence: Evidence) -> float:
    """Return the client's mean delay as a share of TTFT or of the decode time.

    0 if the client ran for nearly all of the window, because a median does not move then.
    """
    pauses, streamed = evidence.client_pauses, evidence.streamed
    late_s = pauses.mean_late_s()
    if not streamed or late_s <= _LATE_S or pauses.paused_share() <= _PAUSED:
        return 0.0
    # An answer in one chunk has no decode time.
    ttft_s = statistics.median(flight.ttft_s for flight in streamed)
    decode_s = statistics.median(flight.last - flight.first for flight in streamed) or ttft_s
    shorter = min(ttft_s, decode_s)
    return late_s / shorter if shorter > 0 else 0.0
