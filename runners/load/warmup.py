"""Warm-up: the same few prompts, pass after pass, until the server's pace no longer changes.

A server that has just started is slow at first: kernels are compiled for shapes that it has not
met, clocks rise, caches fill. How long that takes is seen, not guessed.
"""

from __future__ import annotations

import statistics
from dataclasses import dataclass
from typing import TYPE_CHECKING

from runners.load.client import load_error

if TYPE_CHECKING:
    from collections.abc import Sequence

    from runners.load.flight import Flight

MOST_PASSES = 4
LONGEST_ANSWER = 64
"""Tokens of a warm-up's answers at most: what is warmed up is a cycle, not an answer."""

_AGREE = 0.05


@dataclass(frozen=True, slots=True)
class Warmth:
    """What a warm-up has shown; in real seconds, `None` where it showed nothing.

    Attributes:
        pace_s: Time per verify, or per output token without speculation.
        request_s: How long a request of the window will take.
        cpu_share: CPU seconds of the client per second.
    """

    pace_s: float | None = None
    request_s: float | None = None
    cpu_share: float = 0.0


def warmth_of(flights: Sequence[Flight], output_tokens: int, cpu_share: float) -> Warmth:
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
    )


def agree(earlier: float | None, later: float | None) -> bool:
    """Whether two paces are the same, as far as a warm-up cares."""
    if earlier is None or later is None:
        return False
    return abs(earlier - later) <= _AGREE * max(earlier, later)


def check(flights: Sequence[Flight], base_url: str) -> None:
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
