"""Warm-up: passes over a few prompts until the server's pace no longer changes.

A server that has just started is slow at first: kernels are compiled for shapes that it has not
met, clocks rise, caches fill. How long that takes is seen, not guessed.
"""

from __future__ import annotations

import itertools
import secrets
import statistics
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from runners.load.http.client import load_error

if TYPE_CHECKING:
    from collections.abc import Sequence

    from runners.load.prompts.prompts import Prompt
    from runners.load.window.in_flight import InFlightRequest

MOST_PASSES = 4
LONGEST_ANSWER = 64
"""Tokens of a warm-up's answers at most: what is warmed up is a cycle, not an answer."""

_AGREE = 0.05
_NONCE_BYTES = 4
_NONCE_IDS = 8


@dataclass(frozen=True, slots=True)
class Warmth:
    """What a warm-up has shown; in real seconds, `None` where it showed nothing.

    Attributes:
        pace_s: Time per verify, or per output token without speculation.
        request_s: How long a request of the window will take.
        cpu_share: CPU seconds of the client per second.
        decode_s: Time per verify, or per output token, where no prefill interrupts a stream: the
            median gap of a request, and the 10th percentile of the requests.
    """

    pace_s: float | None = None
    request_s: float | None = None
    cpu_share: float = 0.0
    decode_s: float | None = None


def with_nonces(prompts: Sequence[Prompt]) -> list[Prompt]:
    """Changes every prompt into a prompt that nobody has ever sent.

    A cache that knows the prompts (a proxy's, or the prefix cache after an earlier pass) does not
    know the new prompts. The nonce follows the beginning that all prompts share: a chat template
    stays whole, and a shared prefix is cached as in the window.
    """
    ids = [prompt.input_ids for prompt in prompts if prompt.input_ids is not None]
    texts = [prompt.turns[0][1] for prompt in prompts if prompt.input_ids is None]
    shared = _shared(ids or texts) if not (ids and texts) else 0
    known = sorted({token for prompt in ids for token in prompt})
    return [_with_nonce(prompt, shared, known) for prompt in prompts]


def _shared(contents: Sequence[Any]) -> int:
    """Length of the beginning that all of several contents share."""
    # All sorted contents lie between the first and the last.
    pairs = zip(min(contents), max(contents), strict=False)
    same = sum(1 for _ in itertools.takewhile(lambda pair: pair[0] == pair[1], pairs))
    return same if len(contents) > 1 else 0


def _with_nonce(prompt: Prompt, shared: int, known: Sequence[int]) -> Prompt:
    if prompt.input_ids is not None:
        ids = list(prompt.input_ids)
        # The first id may begin the sequence. The length stays, and so does what a prefill costs.
        first = max(1, min(shared, len(ids) - _NONCE_IDS))
        for n in range(first, min(first + _NONCE_IDS, len(ids))):
            ids[n] = secrets.choice(known)
        return replace(prompt, input_ids=tuple(ids))
    (role, text), *others = prompt.turns
    text = f"{text[:shared]} {secrets.token_hex(_NONCE_BYTES)} {text[shared:]}"
    if prompt.messages is None:
        return replace(prompt, text=text)
    return replace(prompt, text=None, messages=((role, text), *others))


def warmth_of(flights: Sequence[InFlightRequest], output_tokens: int, cpu_share: float) -> Warmth:
    """Reads one pass.

    Args:
        flights: Its requests.
        output_tokens: Tokens that a window's answers are expected to have.
        cpu_share: CPU that the client took.
    """
    good = [flight for flight in flights if flight.answer is not None and flight.tokens > 1]
    if not good:
        return Warmth(cpu_share=cpu_share)
    decoding = sum(flight.last - flight.first for flight in good)
    per_token = decoding / sum(flight.tokens - 1 for flight in good)
    # Per verify: how well drafts are accepted is the prompts' affair, not the server's warmth.
    verify_calls = sum(flight.answer.verify_calls for flight in good if flight.answer)
    first = statistics.fmean(flight.first - flight.sent for flight in good)
    return Warmth(
        pace_s=decoding / verify_calls if verify_calls else per_token,
        request_s=first + per_token * (output_tokens - 1),
        cpu_share=cpu_share,
        # A request that is prefilled first may be interrupted by other prefills all the time.
        decode_s=sorted(map(_decode_s, good))[len(good) // 10],
    )


def _decode_s(flight: InFlightRequest) -> float:
    """Median seconds between two chunks, over the verifies (tokens) that a chunk carries."""
    gaps = [later - earlier for earlier, later in itertools.pairwise(flight.chunk_times)]
    verify_calls = flight.answer.verify_calls if flight.answer else 0
    steps = verify_calls or flight.tokens - 1
    return statistics.median(gaps) * len(gaps) / steps if gaps else 0.0


def agree(earlier: float | None, later: float | None) -> bool:
    """Whether two paces are the same, as far as a warm-up cares."""
    if earlier is None or later is None:
        return False
    return abs(earlier - later) <= _AGREE * max(earlier, later)


def check(flights: Sequence[InFlightRequest], base_url: str) -> None:
    """Stops before the window where it could only fail.

    One request that timed out does not: the window will show whether it was the only one.

    Raises:
        RunnerError: Requests were refused, or all of them timed out.
    """
    refused = [f for f in flights if f.error is not None and not f.timed_out]
    late = [f for f in flights if f.timed_out]
    if not refused and len(late) < len(flights):
        return
    failed = refused or late
    message = (
        f"{len(failed)} of {len(flights)} warm-up requests failed at {base_url}; "
        f"{failed[0].prompt}: {failed[0].error}"
    )
    raise load_error("request_failed" if refused else "stall", "configuration", message)
