"""Whether an answer's chunks can carry the tokens that they claim."""

from __future__ import annotations

import itertools
import statistics
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from runners.load.window.evidence import Evidence
    from runners.load.window.in_flight import InFlightRequest

_FASTER = 4.0
"""A server never decodes an answer this many times faster than its other chunks show."""

_FEWEST_TOKENS = 32
_FEWEST_VERIFIES = 4
"""A smaller claim is no evidence: a few verifies may all be accepted whole."""

_BURST = 0.1
"""A chunk that follows after less than this share of a token's time arrived in one burst with the
chunk before."""

_CLOCK_S = 0.02
"""Real seconds that a busy client may read late."""


def chunk_tokens(evidence: Evidence) -> str | None:
    """Chunks that claim more tokens than the server can have decoded since the chunk before.

    A late client or a proxy merges chunks too, but then the time of the merged tokens has passed.
    Most answers must be affected: a single one may be an accident of the network.
    """
    least = max(_FEWEST_TOKENS, _FEWEST_VERIFIES * (evidence.largest_accept_length or 1))
    # Tokens that were spread evenly over the chunks are no claim of the server.
    judged = [f for f in evidence.flights if f.error is None and not f.evenly]
    wrong = [(f, claim) for f in judged if (claim := _impossible_claim(f, least)) is not None]
    if not wrong or 2 * len(wrong) <= len(judged):
        return None
    flight, (tokens, waited, pace) = wrong[0]
    scale = 1000 * evidence.time_scale
    return (
        f"{len(wrong)} of {len(judged)} answers have a chunk that claims too many tokens; "
        f"{flight.prompt}: {tokens} tokens after {scale * waited:.3g} ms, where a token of the "
        f"other chunks takes {scale * pace:.3g} ms"
    )


def _impossible_claim(flight: InFlightRequest, least: int) -> tuple[int, float, float] | None:
    """Tokens of the first such claim, the seconds before it, and the seconds per token."""
    times = itertools.pairwise((flight.sent, *flight.chunk_times))
    counts = itertools.pairwise((0, *flight.chunk_tokens))
    chunks = [(b - a, n - m) for (a, b), (m, n) in zip(times, counts, strict=True)]
    paces = [gap / tokens for gap, tokens in chunks[1:] if tokens > 0]
    if not paces:
        return None
    # The median: one wrong claim moves the time of another chunk, and no more.
    pace = statistics.median(paces)
    waited, claimed = 0.0, 0
    for gap, tokens in chunks:
        if gap >= _BURST * pace:
            waited, claimed = 0.0, 0
        waited, claimed = waited + gap, claimed + tokens
        if claimed >= least and claimed * pace / _FASTER > waited + _CLOCK_S:
            return claimed, waited, pace
    return None
