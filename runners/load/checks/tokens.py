"""Checks of tokens: counts of answers, prompts and chunks, the prefix cache, and repetition."""

from __future__ import annotations

import itertools
import operator
import statistics
from collections import Counter
from itertools import pairwise
from typing import TYPE_CHECKING, TypeVar

from runners.load.checks.evidence import invalidates, warns

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from runners.load.checks.evidence import Evidence
    from runners.load.http.endpoint import Answer
    from runners.load.http.in_flight import InFlightRequest
    from runners.load.prompts.prompts import Prompt


_Content = TypeVar("_Content", bytes, tuple[int, ...])

_SPECIAL_TOKENS = 8
"""Most tokens that a tokenizer adds at the begin and end of a text."""

_FASTER = 4.0
"""A server never decodes part of an answer this many times faster than the other chunks show."""
_FEWEST_TOKENS = 32
_FEWEST_VERIFIES = 4
"""Smaller claims prove nothing: a few verifies may accept all drafts."""
_BURST = 0.1
"""A chunk that follows within this share of a token's time belongs to the same burst."""
_CLOCK_S = 0.02
"""Real seconds by which a busy client may read late."""

_STREAMED_TOKENS = 16
"""Answers of at least this many tokens should arrive in several chunks."""


@invalidates
def completion_tokens(evidence: Evidence) -> str | None:
    """An answer has not the requested length; with natural length, it is empty or too long."""
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
        f"{first.completion_tokens} tokens ({first.finish_reason}), expected "
        f"{'1 to ' if natural else ''}{asked.get(first.prompt, mean)}: check ignore_eos, stop "
        "strings and the server's context length"
    )


@invalidates
def token_totals(evidence: Evidence) -> str | None:
    """The streamed tokens differ from the server's own count, or the server reports no count."""
    flights, total = evidence.good_flights, len(evidence.flights)
    uncounted = [f for f in flights if f.answer is None or f.answer.completion_tokens is None]
    if uncounted:
        return (
            f"the server reported no token count for {len(uncounted)} of {total} answers; first "
            f"{uncounted[0].prompt}"
        )
    answers = [flight.answer for flight in flights if flight.answer is not None]
    differ = [a for a in answers if a.output_ids and len(a.output_ids) != a.completion_tokens]
    if differ:
        return (
            f"{len(differ)} of {total} answers have a different number of token ids than tokens; "
            f"the first has {len(differ[0].output_ids)} ids and {differ[0].completion_tokens} "
            "tokens"
        )
    counted = sum(sample.completion_tokens for sample in evidence.good)
    streamed = sum(flight.tokens for flight in flights)
    if streamed != counted:
        return f"{streamed} tokens were streamed, but the server counted {counted}"
    arrived = sum(flight.tokens for flight in evidence.sent)
    if evidence.window_tokens > arrived:
        return f"{evidence.window_tokens} tokens in the window, but only {arrived} arrived in all"
    return None


@invalidates
def chunk_tokens(evidence: Evidence) -> str | None:
    """Chunks claim more tokens than the server can have decoded since the previous chunk.

    A late client or a proxy merges chunks too, but then the time of the merged tokens has passed.
    Most answers must be affected: a single one may be an accident of the network.
    """
    least = max(_FEWEST_TOKENS, _FEWEST_VERIFIES * (evidence.largest_accept_length or 1))
    # Evenly spread tokens are not the server's claim.
    judged = [flight for flight in evidence.good_flights if not flight.evenly]
    wrong = [(f, claim) for f in judged if (claim := _impossible_claim(f, least)) is not None]
    if not wrong or 2 * len(wrong) <= len(judged):
        return None
    flight, (tokens, waited, pace) = wrong[0]
    scale = 1000 * evidence.time_scale
    return (
        f"{len(wrong)} of {len(judged)} answers have a chunk that claims too many tokens; "
        f"{flight.prompt}: {tokens} tokens after {scale * waited:.3g} ms, although a token of the "
        f"other chunks takes {scale * pace:.3g} ms: look for a proxy that changes streams"
    )


def _impossible_claim(flight: InFlightRequest, least: int) -> tuple[int, float, float] | None:
    """Return tokens of the first impossible claim, seconds before it, and seconds per token."""
    times = itertools.pairwise((flight.sent, *flight.chunk_times))
    counts = itertools.pairwise((0, *flight.chunk_tokens))
    chunks = [(b - a, n - m) for (a, b), (m, n) in zip(times, counts, strict=True)]
    paces = [gap / tokens for gap, tokens in chunks[1:] if tokens > 0]
    if not paces:
        return None
    # The median, because one wrong claim also changes the gap of a neighbouring chunk.
    pace = statistics.median(paces)
    waited, claimed = 0.0, 0
    for gap, tokens in chunks:
        if gap >= _BURST * pace:
            waited, claimed = 0.0, 0
        waited, claimed = waited + gap, claimed + tokens
        if claimed >= least and claimed * pace / _FASTER > waited + _CLOCK_S:
            return claimed, waited, pace
    return None


@invalidates
def prompt_tokens(evidence: Evidence) -> str | None:
    """The server read another number of prompt tokens than the client sent.

    For token ids the exact number is known. For text there is only an upper bound, because a token
    has at least one byte. The bound finds neither a cut text nor a template that was applied twice
    to a long text.
    """
    bounds = {prompt.id: _prompt_bounds(prompt) for prompt in evidence.prompts}
    wrong = [
        (flight.prompt, counted, *bounds[flight.prompt])
        for flight in evidence.good_flights
        if flight.answer is not None
        and (counted := flight.answer.prompt_tokens) is not None
        and flight.prompt in bounds
        and not bounds[flight.prompt][0] <= counted <= bounds[flight.prompt][1]
    ]
    if not wrong:
        return None
    prompt, counted, least, most = wrong[0]
    expected = f"{least}" if least == most else f"{least} to {most}"
    return (
        f"the server read {len(wrong)} of {len(evidence.good)} prompts with a wrong number of "
        f"tokens; {prompt} has {counted} tokens, expected {expected}: compare tokenizer and chat "
        "template with the server's"
    )


def _prompt_bounds(prompt: Prompt) -> tuple[int, int]:
    """Smallest and largest possible number of tokens of a prompt."""
    if prompt.input_ids is not None:
        return len(prompt.input_ids), len(prompt.input_ids)
    template = len(prompt.turns) * prompt.turn_tokens + _SPECIAL_TOKENS
    return 1, len((prompt.text or "").encode()) + template


@invalidates
def cached_tokens(evidence: Evidence) -> str | None:
    """More prompt tokens came from the prefix cache than the window's prompts share."""
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
        f"{cached} of {total} prompt tokens came from the cache, more than the prompts share; "
        f"{first.prompt} has {first.cached_tokens} cached tokens, but shares at most "
        f"{allowed.get(first.prompt, 0)}: stop other clients, and check that /flush_cache works"
    )


@invalidates
def duplicate_prompts(evidence: Evidence) -> str | None:
    """A prompt occurs twice: the cache serves the second one."""
    contents = Counter(prompt.content for prompt in evidence.prompts)
    twice = sum(count > 1 for count in contents.values())
    ids = Counter(sample.prompt for sample in evidence.samples)
    again = next((prompt for prompt, count in ids.items() if count > 1), None)
    if not twice and again is None:
        return None
    named = f"; {again} was sent {ids[again]} times" if again is not None else ""
    return (
        f"{max(twice, 1)} prompts occur more than once in the window{named}: remove duplicate "
        "lines from the prompt file"
    )


@warns
def prefix_not_cached(evidence: Evidence) -> str | None:
    """The server computes a shared prefix again for each request."""
    sharing = evidence.workload.shared_prefix
    if sharing is None or sharing.groups >= len(evidence.prompts) or not evidence.good:
        return None  # if each prompt has its own group, no prefix is shared
    shared = shared_prefixes(evidence.prompts)
    if any(prompt.text is not None for prompt in evidence.prompts):
        shared = {prompt: min(sharing.tokens, common) for prompt, common in shared.items()}
    allowed = sum(shared.get(sample.prompt, 0) for sample in evidence.good)
    cached = sum(sample.cached_tokens for sample in evidence.good)
    if 2 * cached >= allowed:
        return None
    return (
        f"{cached} prompt tokens came from the cache, although the prompts share {allowed}: check "
        "whether the prefix cache is on"
    )


@warns
def not_streamed(evidence: Evidence) -> str | None:
    """Long answers arrived in one chunk, so TTFT and TPOT mean nothing."""
    long = [s for s in evidence.good if s.completion_tokens >= _STREAMED_TOKENS]
    whole = [sample for sample in long if sample.chunks == 1]
    if 2 * len(whole) <= len(long):
        return None
    return (
        f"{len(whole)} of {len(long)} answers arrived in one chunk: a proxy buffers the stream, or "
        "the client is too slow"
    )


def shared_prefixes(prompts: Sequence[Prompt]) -> dict[str, int]:
    """Return how many tokens of each prompt may come from the prefix cache, by prompt id.

    Prompts share the beginning of a chat template, a begin-of-sequence token, or even a first word
    (SGLang 0.5.23 reported 5 to 7 cached tokens per prompt). The number is exact for token ids. For
    text it is an upper bound: one token per byte, and one for the begin of the sequence. Tokens of
    the server's own chat template are added.
    """
    as_ids = {prompt.id: prompt.input_ids for prompt in prompts if prompt.input_ids is not None}
    as_text = {prompt.id: prompt.text.encode() for prompt in prompts if prompt.text is not None}
    with_begin = {prompt_id: 1 + count for prompt_id, count in _shared_lengths(as_text).items()}
    shared = _shared_lengths(as_ids) | with_begin
    return {prompt.id: prompt.template_tokens + shared[prompt.id] for prompt in prompts}


def _shared_lengths(contents: Mapping[str, _Content]) -> dict[str, int]:
    """Length of the longest beginning that each content shares with any other."""
    # In sorted order a neighbour shares the longest beginning.
    ordered = sorted(contents.items(), key=lambda item: item[1])
    shared = dict.fromkeys(contents, 0)
    for (left, a), (right, b) in itertools.pairwise(ordered):
        common = _common_length(a, b)
        shared[left] = max(shared[left], common)
        shared[right] = max(shared[right], common)
    return shared


def _common_length(a: _Content, b: _Content) -> int:
    """Length of the common beginning, by bisection: documents may have megabytes."""
    low, high = 0, min(len(a), len(b))
    while low < high:
        middle = (low + high + 1) // 2
        if a[low:middle] == b[low:middle]:
            low = middle
        else:
            high = middle - 1
    return low


_REPEATED = 0.95
"""Share of tokens that equal the token one period earlier, above which an answer is a loop."""
_LONGEST_PERIOD = 4
_FEWEST_CONTENT = 8
"""Shorter answers are skipped: `"No."` three times is correct."""
_FEWEST_EQUAL = 4
"""Fewer equal answers are normal, unless all answers are equal."""


@warns
def degenerate_output(evidence: Evidence) -> str | None:
    """Most answers repeat a few tokens, or different prompts get the same answer.

    Broken collectives of a fast configuration look like this (`!!!!` in 60 of 60 tokens). All
    prompts of a window differ (`duplicate_prompts`).
    """
    answers = [flight.answer for flight in evidence.good_flights if flight.answer is not None]
    contents = [content for answer in answers if (content := _content(answer)) is not None]
    if not contents:
        return None
    repeated = sum(map(_is_loop, contents))
    if 2 * repeated > len(contents):
        return (
            f"{repeated} of {len(contents)} answers repeat one to {_LONGEST_PERIOD} tokens: "
            "compare the text with the baseline's"
        )
    equal = _count_equal(contents)
    if equal == len(contents) > 1 or (equal >= _FEWEST_EQUAL and 2 * equal >= len(contents)):
        return (
            f"{equal} of {len(contents)} answers to different prompts equal another answer: "
            "compare the text with the baseline's"
        )
    return None


def _is_loop(content: Sequence[object]) -> bool:
    """Whether an answer repeats one to four tokens from its first quarter on."""
    tail = content[len(content) // 4 :]
    return any(
        sum(map(operator.eq, tail, tail[period:])) >= _REPEATED * (len(tail) - period)
        for period in range(1, min(_LONGEST_PERIOD, len(tail) // 2) + 1)
    )


def _count_equal(contents: Sequence[tuple[object, ...]]) -> int:
    """Count the answers that equal another answer up to the end of the shorter one."""
    # In sorted order an answer precedes the answers that begin with it.
    ordered = sorted(contents, key=lambda content: [str(item) for item in content])
    pairs = [n for n, (a, b) in enumerate(pairwise(ordered)) if b[: len(a)] == a]
    return len({*pairs, *(n + 1 for n in pairs)})


def _content(answer: Answer) -> tuple[object, ...] | None:
    """Tokens of an answer, or its characters; `None` for a short answer."""
    content: tuple[object, ...] = answer.output_ids or tuple("".join(answer.text.split()))
    return content if len(content) >= _FEWEST_CONTENT else None
