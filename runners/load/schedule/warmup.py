"""Warm-up: passes over a few prompts until the server's pace no longer changes.

A server is slow after its start: kernels are compiled for new shapes, clocks rise, caches fill. The
warm-up measures how long this phase takes.
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

    from runners.load.http.in_flight import InFlightRequest
    from runners.load.prompts.prompts import Prompt

MOST_PASSES = 4
LONGEST_ANSWER = 64
"""Most tokens of a warm-up answer: the warm-up needs cycles, not long answers."""

_TOLERANCE = 0.05
_NONCE_BYTES = 4
_NONCE_IDS = 8


@dataclass(frozen=True, slots=True)
class WarmupResult:
    """Measurements of one warm-up pass in real seconds; `None` where unknown.

    Attributes:
        pace_s: Time per verify, or per output token without speculation.
        request_s: Expected time of a request of the window.
        cpu_share: CPU seconds of the client per second.
        decode_s: Time per verify, or per output token, without interruption by prefills: the
            median gap of each request, then the 10th percentile of the requests.
    """

    pace_s: float | None = None
    request_s: float | None = None
    cpu_share: float = 0.0
    decode_s: float | None = None

    def agrees_with(self, pace_s: float | None) -> bool:
        """Whether the pace is within 5 % of an earlier pass."""
        if self.pace_s is None or pace_s is None:
            return False
        return abs(self.pace_s - pace_s) <= _TOLERANCE * max(self.pace_s, pace_s)


def with_nonces(prompts: Sequence[Prompt]) -> list[Prompt]:
    """Change each prompt into a new prompt that no cache knows.

    Caches that know the original prompts are proxies, or the prefix cache after an earlier pass.
    The nonce follows the beginning that all prompts share. So a chat template stays whole, and a
    shared prefix is cached as in the window.
    """
    ids = [prompt.input_ids for prompt in prompts if prompt.input_ids is not None]
    texts = [prompt.turns[0][1] for prompt in prompts if prompt.input_ids is None]
    shared = _common_length(ids or texts) if not (ids and texts) else 0
    known = sorted({token for prompt in ids for token in prompt})
    return [_with_nonce(prompt, shared, known) for prompt in prompts]


def _common_length(contents: Sequence[Any]) -> int:
    """Length of the beginning that all contents share; 0 for a single content."""
    # All contents lie between the smallest and the largest one.
    pairs = zip(min(contents), max(contents), strict=False)
    same = sum(1 for _ in itertools.takewhile(lambda pair: pair[0] == pair[1], pairs))
    return same if len(contents) > 1 else 0


def _with_nonce(prompt: Prompt, shared: int, known: Sequence[int]) -> Prompt:
    if prompt.input_ids is not None:
        ids = list(prompt.input_ids)
        # The first id may be the begin-of-sequence token. The length, and so the prefill's cost,
        # does not change.
        first = max(1, min(shared, len(ids) - _NONCE_IDS))
        for n in range(first, min(first + _NONCE_IDS, len(ids))):
            ids[n] = secrets.choice(known)
        return replace(prompt, input_ids=tuple(ids))
    (role, text), *others = prompt.turns
    text = f"{text[:shared]} {secrets.token_hex(_NONCE_BYTES)} {text[shared:]}"
    if prompt.messages is None:
        return replace(prompt, text=text)
    return replace(prompt, text=None, messages=((role, text), *others))


def result_of(
    flights: Sequence[InFlightRequest], output_tokens: int, cpu_share: float
) -> WarmupResult:
    """Evaluate one pass.

    Args:
        flights: Requests of the pass.
        output_tokens: Expected tokens of an answer in the window.
        cpu_share: CPU seconds of the client per second.
    """
    good = [flight for flight in flights if flight.answer is not None and flight.tokens > 1]
    if not good:
        return WarmupResult(cpu_share=cpu_share)
    decoding = sum(flight.last - flight.first for flight in good)
    per_token = decoding / sum(flight.tokens - 1 for flight in good)
    # Per verify, because acceptance depends on the prompts, not on the server's state.
    verify_calls = sum(flight.answer.verify_calls for flight in good if flight.answer)
    ttft_s = statistics.fmean(flight.ttft_s for flight in good)
    return WarmupResult(
        pace_s=decoding / verify_calls if verify_calls else per_token,
        request_s=ttft_s + per_token * (output_tokens - 1),
        cpu_share=cpu_share,
        # Prefills of other requests may interrupt the requests that are prefilled first.
        decode_s=sorted(map(_decode_s, good))[len(good) // 10],
    )


def _decode_s(flight: InFlightRequest) -> float:
    """Median seconds between chunks, divided by the verifies (tokens) per chunk."""
    gaps = flight.gaps()
    verify_calls = flight.answer.verify_calls if flight.answer else 0
    steps = verify_calls or flight.tokens - 1
    return statistics.median(gaps) * len(gaps) / steps if gaps else 0.0


def check(flights: Sequence[InFlightRequest], base_url: str) -> None:
    """Stop before a window that can only fail.

    A single time-out does not stop the measurement: the window shows whether it was an exception.

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
