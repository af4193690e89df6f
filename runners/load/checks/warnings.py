"""What deserves a look in a window that is believed all the same."""

from __future__ import annotations

import operator
from itertools import pairwise
from typing import TYPE_CHECKING

from runners.load.checks.drift import drift, uneven
from runners.load.checks.steadiness import stalled
from runners.load.checks.validity import LEAST_SUCCESSES, SATURATED, late_share, shared_prefixes
from runners.load.window.evidence import reports

if TYPE_CHECKING:
    from collections.abc import Sequence

    from runners.load.http.answer import Answer
    from runners.load.window.evidence import Check, Evidence

BUSY = 0.7
"""Client CPU per second from which on its own pace may show in the figures."""

_DELAYED = 0.02
"""Share of TTFT or of the decode time. With client and server on separate cores no median moved by
more than 3 % below a share of 5 %."""

_LOW_ACCEPT_LENGTH = 1.05
_PERFECT = 0.98
_FEW_REQUESTS = 8
_LOOPS = 0.95
"""Share of the tokens that equal the token one period before."""
_LONGEST_LOOP = 4
_JUDGED_TOKENS = 8
"""Shorter answers are not judged as degenerate: `"No."` three times is no fault."""
_EQUAL = 4
"""Fewer equal answers are no sign of degenerate output, unless all answers are equal."""


def warnings_about(evidence: Evidence) -> tuple[str, ...]:
    """Every warning, as `"code: what was seen"`; empty where nothing is odd."""
    return reports(WARNINGS, evidence)


def low_acceptance(evidence: Evidence) -> str | None:
    """Speculation that never accepts: a wiring fault looks like this, and is fast enough."""
    length = evidence.accept_length
    if not evidence.speculation.enabled or length is None or length > _LOW_ACCEPT_LENGTH:
        return None
    return (
        f"accept length {length:.3f}: the drafts are hardly ever accepted; check that the draft "
        "belongs to this target"
    )


def perfect_acceptance(evidence: Evidence) -> str | None:
    """Drafts that are always accepted: real ones are not, on real texts."""
    length, largest = evidence.accept_length, evidence.largest_accept_length
    if not evidence.speculation.enabled or length is None or largest is None or largest < 2:
        return None
    if (length - 1) / (largest - 1) < _PERFECT:
        return None
    return f"accept length {length:.3f} of at most {largest}: suspiciously perfect; read an answer"


def few_requests(evidence: Evidence) -> str | None:
    """Too few answers for percentiles, and for the noise of acceptance."""
    wanted = max(_FEW_REQUESTS, 2 * (evidence.point.concurrency or 1))
    if len(evidence.good) >= wanted:
        return None
    return (
        f"{len(evidence.good)} answers; with fewer than {wanted} the tails are single requests and "
        "acceptance is mostly chance: raise the requests per window"
    )


def some_failed(evidence: Evidence) -> str | None:
    """Requests that failed, though few enough."""
    sent, failed = evidence.sent, evidence.failed
    if not failed or len(sent) - len(failed) < LEAST_SUCCESSES * len(sent):
        return None
    return f"{len(failed)} of {len(sent)} requests failed; {failed[0].prompt}: {failed[0].error}"


def client_busy(evidence: Evidence) -> str | None:
    """A client that has little time to spare."""
    share = evidence.client_cpu_share
    if share is None or not BUSY < share <= SATURATED:
        return None
    return f"the busiest client process used {share:.0%} of a core"


def client_delayed(evidence: Evidence) -> str | None:
    """A client that noticed tokens late: TTFT and TPOT are too long, tok/s hardly is too low."""
    share = late_share(evidence)
    if share <= _DELAYED:
        return None
    pauses = evidence.client_pauses
    return (
        f"the client noticed tokens {1000 * pauses.mean_late_s():.2f} ms late on average (real "
        f"time), {share:.0%} of TTFT or of the decode time: compare tok/s only; likely cause: "
        f"{pauses.cause()}"
    )


def prefix_not_cached(evidence: Evidence) -> str | None:
    """A prefix that the workload shares on purpose and the server computes again each time."""
    sharing = evidence.workload.shared_prefix
    if sharing is None or sharing.groups >= len(evidence.prompts) or not evidence.good:
        return None  # with a group for each, no two of them share anything on purpose
    shared = shared_prefixes(evidence.prompts)
    if any(prompt.text is not None for prompt in evidence.prompts):
        shared = {prompt: min(sharing.tokens, common) for prompt, common in shared.items()}
    allowed = sum(shared.get(sample.prompt, 0) for sample in evidence.good)
    cached = sum(sample.cached_tokens for sample in evidence.good)
    if 2 * cached >= allowed:
        return None
    return (
        f"{cached} prompt tokens came from the cache where the prompts share {allowed}: is the "
        "prefix cache on?"
    )


def retracted(evidence: Evidence) -> str | None:
    """Answers that the server took back and began to read again: its KV cache is too small."""
    if not evidence.retractions:
        return None
    return (
        f"{len(evidence.retractions)} of {len(evidence.flights)} answers were retracted for want "
        "of KV cache, and their prompts read again"
    )


def queued(evidence: Evidence) -> str | None:
    """More requests in flight than the server runs at once: the rest wait in its queue.

    SGLang's own limit with speculation is 48 where none is given (0.5.9 to 0.5.23), and thousands
    without: the two are then not under the same load.
    """
    limit, in_flight = evidence.running_limit, evidence.most_in_flight
    if limit is None or in_flight <= limit:
        return None
    return (
        f"{in_flight} requests in flight where the server runs at most {limit} at once "
        "(max_running_requests): the others wait, and TTFT is the queue's; raise "
        "--max-running-requests, also of the baselines, or lower the load"
    )


def not_streamed(evidence: Evidence) -> str | None:
    """Long answers that came in one piece: their TTFT and TPOT mean nothing."""
    streamed = [s for s in evidence.good if s.completion_tokens >= 2 * _FEW_REQUESTS]
    whole = [sample for sample in streamed if sample.chunks == 1]
    if 2 * len(whole) <= len(streamed):
        return None
    return (
        f"{len(whole)} of {len(streamed)} answers arrived in one piece: something between holds "
        "the stream back, or the client is too slow to see its chunks"
    )


def degenerate_output(evidence: Evidence) -> str | None:
    """Garbage that can be seen for free: one token over and over, or one answer to many prompts.

    A fast configuration with broken collectives answers so (`!!!!` in 60 of 60 tokens). Prompts of
    a window differ (`duplicate_prompts`).
    """
    answers = [
        flight.answer
        for flight in evidence.flights
        if flight.error is None and flight.answer is not None
    ]
    contents = [content for answer in answers if (content := _content(answer)) is not None]
    if not contents:
        return None
    repeated = sum(map(_loops, contents))
    if 2 * repeated > len(contents):
        return f"{repeated} of {len(contents)} answers are one token, or a few, over and over"
    equal = _equal(contents)
    if equal == len(contents) > 1 or (equal >= _EQUAL and 2 * equal >= len(contents)):
        return f"{equal} of {len(contents)} answers to different prompts equal another answer"
    return None


def _loops(content: Sequence[object]) -> bool:
    """Whether an answer repeats one to four tokens from its first quarter on."""
    tail = content[len(content) // 4 :]
    return any(
        sum(map(operator.eq, tail, tail[period:])) >= _LOOPS * (len(tail) - period)
        for period in range(1, min(_LONGEST_LOOP, len(tail) // 2) + 1)
    )


def _equal(contents: Sequence[tuple[object, ...]]) -> int:
    """Answers that are the beginning of another one, or begin as it is: lengths differ."""
    # In sorted order a beginning stands right before what it begins.
    ordered = sorted(contents, key=lambda content: [str(item) for item in content])
    pairs = [n for n, (a, b) in enumerate(pairwise(ordered)) if b[: len(a)] == a]
    return len({*pairs, *(n + 1 for n in pairs)})


def _content(answer: Answer) -> tuple[object, ...] | None:
    """Tokens of an answer, or its characters; `None` where there are too few to judge."""
    content: tuple[object, ...] = answer.output_ids or tuple("".join(answer.text.split()))
    return content if len(content) >= _JUDGED_TOKENS else None


WARNINGS: dict[str, Check] = {
    "low_acceptance": low_acceptance,
    "perfect_acceptance": perfect_acceptance,
    "few_requests": few_requests,
    "some_failed": some_failed,
    "client_busy": client_busy,
    "client_delayed": client_delayed,
    "prefix_not_cached": prefix_not_cached,
    "retracted": retracted,
    "queued": queued,
    "not_streamed": not_streamed,
    "drift": drift,
    "uneven": uneven,
    "stalled": stalled,
    "degenerate_output": degenerate_output,
}
