"""Checks of the requests: enough requests, few failures, no queue at the server."""

from __future__ import annotations

import statistics
from typing import TYPE_CHECKING

from runners.load.checks.evidence import invalidates, warns

if TYPE_CHECKING:
    from runners.load.checks.evidence import Evidence


_LEAST_SUCCESSES = 0.99
"""Smallest share of requests that must succeed."""
_FEW_REQUESTS = 8


def _describe_failures(evidence: Evidence) -> str:
    sent, failed = evidence.sent, evidence.failed
    return f"{len(failed)} of {len(sent)} requests failed; {failed[0].prompt}: {failed[0].error}"


def _too_many_failed(evidence: Evidence) -> bool:
    sent, failed = len(evidence.sent), len(evidence.failed)
    return failed > 0 and sent - failed < _LEAST_SUCCESSES * sent


@invalidates
def failed_requests(evidence: Evidence) -> str | None:
    """Too many requests failed: their latencies are missing, and they may be the slow requests."""
    return _describe_failures(evidence) if _too_many_failed(evidence) else None


@warns
def some_failed(evidence: Evidence) -> str | None:
    """Some requests failed, but few enough."""
    if not evidence.failed or _too_many_failed(evidence):
        return None
    return _describe_failures(evidence)


@invalidates
def timed_out(evidence: Evidence) -> str | None:
    """At least one request exceeded the client's time-out."""
    late = [flight for flight in evidence.sent if flight.timed_out]
    if not late:
        return None
    return (
        f"{len(late)} of {len(evidence.sent)} requests exceeded the client's time-out; "
        f"{late[0].prompt} had {late[0].tokens} tokens: raise the time-out, or find out why the "
        "server stands still"
    )


@invalidates
def too_few_requests(evidence: Evidence) -> str | None:
    """Too few requests for the concurrency, or none with its whole life in the window."""
    concurrency = evidence.point.concurrency or 1
    if len(evidence.samples) < concurrency:
        return (
            f"{len(evidence.samples)} requests cannot keep {concurrency} in flight: "
            "raise the requests per window"
        )
    if concurrency == 1 or evidence.whole_lives or not evidence.good:
        return None
    return (
        f"none of {len(evidence.samples)} requests began and ended while {concurrency} were in "
        "flight, so all latencies are from the drain: raise the requests per window to "
        f"{4 * concurrency}"
    )


@invalidates
def empty_window(evidence: Evidence) -> str | None:
    """No token arrived, or no time passed."""
    if evidence.window_tokens <= 0:
        return "no token arrived in the window: raise the requests per window"
    if evidence.closed <= evidence.opened:
        return "the window has no length: raise the requests per window"
    return None


@warns
def few_requests(evidence: Evidence) -> str | None:
    """Too few answers for percentiles, and for a stable acceptance."""
    wanted = max(_FEW_REQUESTS, 2 * (evidence.point.concurrency or 1))
    if len(evidence.good) >= wanted:
        return None
    return (
        f"{len(evidence.good)} answers; with fewer than {wanted} the high percentiles are single "
        "requests and acceptance is mostly chance: raise the requests per window"
    )


@warns
def queued(evidence: Evidence) -> str | None:
    """More requests are in flight than the server runs at once, so requests wait in its queue.

    With speculation SGLang's default limit is 48 (0.5.9 to 0.5.23); without it, the limit is in the
    thousands. So the two settings would not run under the same load.
    """
    limit, in_flight = evidence.running_limit, evidence.most_in_flight
    if limit is None or in_flight <= limit:
        return None
    return (
        f"{in_flight} requests in flight, but the server runs at most {limit} at once "
        "(max_running_requests): the other requests wait, and TTFT includes the queue; raise "
        "--max-running-requests, also for the baselines, or lower the load"
    )


@warns
def retracted(evidence: Evidence) -> str | None:
    """The server retracted requests because its KV cache was full."""
    if not evidence.retractions:
        return None
    return (
        f"the server retracted {len(evidence.retractions)} of {len(evidence.flights)} requests "
        "because the KV cache was full, and prefilled them again: lower the concurrency, or give "
        "the KV cache more memory"
    )


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
