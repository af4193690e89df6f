"""Checks of the requests: enough requests, few failures, no queue at the server."""

from __future__ import annotations

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
