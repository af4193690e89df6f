"""Why a window is not believed: checks that need nothing but the window itself.

`docs/validity.md` has the table of all of them. What is seen beside the window, in the server's log
and in its identity, is found by the watches (`runners.load.window.watches`).
"""

from __future__ import annotations

import itertools
import statistics
from collections import Counter
from typing import TYPE_CHECKING, TypeVar

from runners.load.checks.acceptance_checks import ACCEPTANCE
from runners.load.checks.chunks import chunk_tokens
from runners.load.checks.lock_step import lock_step
from runners.load.checks.steadiness import STEADINESS
from runners.load.window.evidence import reports

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from results.records import RequestSample
    from runners.load.prompts.prompts import Prompt
    from runners.load.window.evidence import Check, Evidence

_Content = TypeVar("_Content", bytes, tuple[int, ...])

LEAST_SUCCESSES = 0.99
"""Share of requests that must succeed."""

SATURATED = 0.9
"""Client CPU per second from which on the figures are the client's and not the server's."""

_TOO_FAST = 5.0
"""A server never becomes this many times faster than its warm-up. Beside other work, one setting
took 3.1 times as long as without. An answer from a cache is 20 times faster or more."""

_FAST_SHARE = 0.1
"""Share of the answers that may be too fast: fewer do not rule the figures."""

_SHORTEST_STEPS = 2
"""An answer of fewer verifies shows no pace."""
_SPECIAL_TOKENS = 8
"""Tokens at the begin and the end of a text that a tokenizer adds, at most."""

_LOST = 0.03
"""Share of the lanes' time that pauses of the client may have taken."""
_LOST_S = 0.05
"""Real seconds that every machine takes from a client now and then: 3 % of a window of 1.7 s."""
_LATE = 0.25
"""Mean delay of the client as a share of TTFT or of the decode time, from which on these mean
nothing. Beside a real server on the same two cores a few per cent are normal (`client_delayed`)."""
_LATE_S = 0.00025
"""Mean delay in real seconds below which beats tell nothing."""
_PAUSED = 0.05
"""Share of the window in which the client did not run: below it, medians hold."""
_LATE_GAPS = 0.5
_LATE_TTFT = 0.1


def reasons_against(evidence: Evidence, noted: Sequence[str] = ()) -> tuple[str, ...]:
    """Every reason not to believe a window, as `"code: what was seen"`; empty for a good one.

    Args:
        evidence: The window.
        noted: What watches have found, in the same form.
    """
    return (*noted, *reports(CHECKS, evidence))


def shared_prefixes(prompts: Sequence[Prompt]) -> dict[str, int]:
    """Tokens of each prompt that the prefix cache may give it, because another begins alike.

    A chat template's head, a begin-of-sequence token, even a common first word are shared and so
    are cached once a window has begun (0.5.23 was seen to report 5 to 7 tokens a prompt). Exact
    for token ids; for text an upper bound: no token is shorter than a byte, and one more for the
    begin of the sequence. What the server's own chat template puts before all of them is added.
    """
    as_ids = {prompt.id: prompt.input_ids for prompt in prompts if prompt.input_ids is not None}
    as_text = {prompt.id: prompt.text.encode() for prompt in prompts if prompt.text is not None}
    with_begin = {prompt_id: 1 + count for prompt_id, count in _common(as_text).items()}
    common = _common(as_ids) | with_begin
    return {prompt.id: prompt.template_tokens + common[prompt.id] for prompt in prompts}


def _common(contents: Mapping[str, _Content]) -> dict[str, int]:
    """Length of the longest beginning that each item shares with any other."""
    # In sorted order that is the one with a neighbour.
    ordered = sorted(contents.items(), key=lambda item: item[1])
    shared = dict.fromkeys(contents, 0)
    for (left, a), (right, b) in itertools.pairwise(ordered):
        common = _alike(a, b)
        shared[left] = max(shared[left], common)
        shared[right] = max(shared[right], common)
    return shared


def _alike(a: _Content, b: _Content) -> int:
    """Length of the common beginning, by halving: documents of megabytes are compared whole."""
    low, high = 0, min(len(a), len(b))
    while low < high:
        middle = (low + high + 1) // 2
        if a[low:middle] == b[low:middle]:
            low = middle
        else:
            high = middle - 1
    return low


def failed_requests(evidence: Evidence) -> str | None:
    """Too few successes: what failed is not in the figures, and it may have been the slow ones."""
    sent, failed = evidence.sent, evidence.failed
    if not failed or len(sent) - len(failed) >= LEAST_SUCCESSES * len(sent):
        return None
    return f"{len(failed)} of {len(sent)} requests failed; {failed[0].prompt}: {failed[0].error}"


def timed_out(evidence: Evidence) -> str | None:
    """Requests that outlived the client's time-out; one is enough."""
    sent = evidence.sent
    late = [flight for flight in sent if flight.timed_out]
    if not late:
        return None
    return (
        f"{len(late)} of {len(sent)} requests outlived the client's time-out; "
        f"{late[0].prompt} had {late[0].tokens} tokens"
    )


def too_few_requests(evidence: Evidence) -> str | None:
    """Fewer requests than were to be in flight."""
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
        "flight, so latencies are those of the drain: raise the requests per window to "
        f"{4 * concurrency}"
    )


def empty_window(evidence: Evidence) -> str | None:
    """Nothing arrived, or no time passed."""
    if evidence.window_tokens <= 0:
        return "no token arrived inside the window: more requests make it longer"
    if evidence.closed <= evidence.opened:
        return "the window has no length"
    return None


def completion_tokens(evidence: Evidence) -> str | None:
    """Answers that are not as long as was asked for; with natural length, longer or empty ones."""
    natural, mean = evidence.workload.natural_length, evidence.workload.output_tokens
    asked = {prompt.id: prompt.output_tokens or mean for prompt in evidence.prompts}
    wrong = [
        sample
        for sample in evidence.good
        if not (1 if natural else asked.get(sample.prompt, mean))
        <= sample.completion_tokens
        <= asked.get(sample.prompt, mean)
    ]
    if not wrong:
        return None
    first = wrong[0]
    return (
        f"{len(wrong)} of {len(evidence.good)} answers have a wrong length; {first.prompt} has "
        f"{first.completion_tokens} tokens ({first.finish_reason}) in place of "
        f"{'1 to ' if natural else ''}{asked.get(first.prompt, mean)}"
    )


def token_totals(evidence: Evidence) -> str | None:
    """Totals that differ between what streamed and what the server accounts for."""
    uncounted = [
        flight
        for flight in evidence.flights
        if flight.error is None
        and (flight.answer is None or flight.answer.completion_tokens is None)
    ]
    if uncounted:
        return (
            f"{len(uncounted)} of {len(evidence.flights)} answers carry no count of their tokens "
            f"by the server; first {uncounted[0].prompt}"
        )
    unlike = [
        answer
        for flight in evidence.flights
        if flight.error is None
        and (answer := flight.answer) is not None
        and answer.output_ids
        and len(answer.output_ids) != answer.completion_tokens
    ]
    if unlike:
        return (
            f"{len(unlike)} of {len(evidence.flights)} answers have another number of token ids "
            f"than of tokens; the first has {len(unlike[0].output_ids)} ids, and accounts for "
            f"{unlike[0].completion_tokens} tokens"
        )
    accounted = sum(sample.completion_tokens for sample in evidence.good)
    streamed = sum(flight.tokens for flight in evidence.flights if flight.error is None)
    if streamed != accounted:
        return f"{streamed} tokens streamed, but the server accounts for {accounted}"
    arrived = sum(flight.tokens for flight in evidence.sent)
    if evidence.window_tokens > arrived:
        return f"{evidence.window_tokens} tokens in the window, but only {arrived} arrived in all"
    return None


def prompt_tokens(evidence: Evidence) -> str | None:
    """Prompts that the server read otherwise than they were sent.

    The number of token ids is known. A text has an upper bound, for no token is shorter than a
    byte. This bound finds neither a cut text nor a template that was applied twice to a long text.
    """
    bounds = {prompt.id: _prompt_bounds(prompt) for prompt in evidence.prompts}
    wrong = [
        (flight.prompt, counted, *bounds[flight.prompt])
        for flight in evidence.flights
        if flight.error is None
        and flight.answer is not None
        and (counted := flight.answer.prompt_tokens) is not None
        and flight.prompt in bounds
        and not bounds[flight.prompt][0] <= counted <= bounds[flight.prompt][1]
    ]
    if not wrong:
        return None
    prompt, counted, least, most = wrong[0]
    asked = f"{least}" if least == most else f"{least} to {most}"
    return (
        f"{len(wrong)} of {len(evidence.good)} prompts were read otherwise than sent; "
        f"{prompt} has {counted} tokens, not {asked}"
    )


def _prompt_bounds(prompt: Prompt) -> tuple[int, int]:
    """The fewest and the most tokens that a server can read of a prompt."""
    if prompt.input_ids is not None:
        return len(prompt.input_ids), len(prompt.input_ids)
    template = len(prompt.turns) * prompt.turn_tokens + _SPECIAL_TOKENS
    return 1, len((prompt.text or "").encode()) + template


def cached_tokens(evidence: Evidence) -> str | None:
    """Prompt tokens from the cache that the prompts of the window do not share."""
    allowed = shared_prefixes((*evidence.prompts, *evidence.ramp_prompts))
    # A retracted request finds its own prompt in the cache.
    judged = [s for s in evidence.good if s.prompt not in evidence.retractions]
    over = [s for s in judged if s.cached_tokens > allowed.get(s.prompt, 0)]
    if not over:
        return None
    cached = sum(sample.cached_tokens for sample in evidence.good)
    total = sum(sample.prompt_tokens for sample in evidence.good)
    first = over[0]
    return (
        f"{cached} of {total} prompt tokens came from the cache, more than the prompts have in "
        f"common; {first.prompt} has {first.cached_tokens} where "
        f"{allowed.get(first.prompt, 0)} are shared"
    )


def duplicate_prompts(evidence: Evidence) -> str | None:
    """A prompt twice in a window: the second one is answered from the cache."""
    contents = Counter(prompt.content for prompt in evidence.prompts)
    twice = sum(count > 1 for count in contents.values())
    ids = Counter(sample.prompt for sample in evidence.samples)
    again = next((prompt for prompt, count in ids.items() if count > 1), None)
    if not twice and again is None:
        return None
    named = f"; {again} was sent {ids[again]} times" if again is not None else ""
    return f"{max(twice, 1)} prompts occur more than once in the window{named}"


def too_fast(evidence: Evidence) -> str | None:
    """Answers that came far faster than the warm-up decoded: something had them already.

    An answer's whole time, its prefill included, is compared with the warm-up's time of decoding
    alone. So a short prefill or a smaller batch makes no answer look too fast. A quick TTFT alone
    is no evidence: in the warm-up all lanes begin at once, and their prefills wait for each other.
    """
    if not evidence.decode_s or evidence.adaptive_steps:
        return None  # the steps of an adaptive server, and the time of its verifies, change
    judged = [s for s in evidence.good if _steps(s) >= _SHORTEST_STEPS]
    paces = [(s.e2e_s / _steps(s), s.prompt) for s in judged]
    usual = evidence.decode_s * evidence.time_scale
    fast = [(pace, prompt) for pace, prompt in paces if _TOO_FAST * pace < usual]
    if len(fast) <= _FAST_SHARE * len(judged):
        return None
    pace, prompt = min(fast)
    unit = "verify" if evidence.speculation.enabled else "token"
    return (
        f"{len(fast)} of {len(judged)} answers came more than {_TOO_FAST:g} times as fast as those "
        f"of the warm-up; {prompt} took {1000 * pace:.3g} ms per {unit}, the warm-up "
        f"{1000 * usual:.3g} ms: a cache probably answered"
    )


def _steps(sample: RequestSample) -> int:
    """Verifies, or tokens without speculation, after the prefill."""
    return sample.verify_calls or sample.completion_tokens - 1


def client_saturated(evidence: Evidence) -> str | None:
    """A client that could not keep up: the figures are its own."""
    share = evidence.client_cpu_share
    if share is None or share <= SATURATED:
        return None
    return (
        f"the busiest client process used {share:.0%} of a core: the figures are the client's; "
        "give the load generator more processes"
    )


def client_late(evidence: Evidence) -> str | None:
    """Open loop: requests that were sent so late that their arrivals are not those asked for."""
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
        f"the 95th percentile of the delay between a request's time and its sending is "
        f"{1000 * late:.1f} ms, at a mean gap of {1000 * gap:.1f} ms and a TTFT of "
        f"{1000 * ttft:.1f} ms: the client cannot send at {evidence.point.name}"
    )


def client_paused(evidence: Evidence) -> str | None:
    """A client that did not run for so long that its figures may be wrong."""
    pauses = evidence.client_pauses
    lives = [f.last - f.sent for f in evidence.flights if f.error is None and f.chunk_times]
    if not lives:
        return None
    lost = 0.0 if evidence.point.is_open else pauses.lost_share(statistics.median(lives))
    length = evidence.closed - evidence.opened
    if lost * length <= max(_LOST * length, _LOST_S) and late_share(evidence) <= _LATE:
        return None
    longest = max(pause.ran - pause.due for pause in pauses.pauses)
    return (
        f"the client did not run for {pauses.paused_share():.0%} of the window (longest pause "
        f"{1000 * longest:.0f} ms, real time); lanes lost up to {lost:.1%} of their time and "
        f"tokens were noticed {1000 * pauses.mean_late_s():.2f} ms late on average; likely cause: "
        f"{pauses.cause()}"
    )


def late_share(evidence: Evidence) -> float:
    """By how much the client noticed tokens late, as a share of TTFT or of the decode time.

    0 where the client ran for nearly all of the window: a median does not move then.
    """
    pauses = evidence.client_pauses
    good = [f for f in evidence.flights if f.error is None and f.chunk_times]
    late_s = pauses.mean_late_s()
    if not good or late_s <= _LATE_S or pauses.paused_share() <= _PAUSED:
        return 0.0
    # The shorter part of a request; an answer in one piece has no second one.
    waits = [statistics.median(f.first - f.sent for f in good)]
    waits.append(statistics.median(f.last - f.first for f in good) or waits[0])
    return late_s / min(waits) if min(waits) > 0 else 0.0


CHECKS: dict[str, Check] = {
    "failed_requests": failed_requests,
    "timed_out": timed_out,
    "too_few_requests": too_few_requests,
    "empty_window": empty_window,
    "completion_tokens": completion_tokens,
    "token_totals": token_totals,
    "chunk_tokens": chunk_tokens,
    "prompt_tokens": prompt_tokens,
    "cached_tokens": cached_tokens,
    "duplicate_prompts": duplicate_prompts,
    "too_fast": too_fast,
    "client_saturated": client_saturated,
    "client_late": client_late,
    "lock_step": lock_step,
    "client_paused": client_paused,
    **STEADINESS,
    **ACCEPTANCE,
}
"""Every check of a window by its code, in the order in which reasons are listed."""
