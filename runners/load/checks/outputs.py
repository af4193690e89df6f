"""Check of the answers' content: repetition that broken decoding produces."""

from __future__ import annotations

import operator
from itertools import pairwise
from typing import TYPE_CHECKING

from runners.load.checks.registry import warns

if TYPE_CHECKING:
    from collections.abc import Sequence

    from runners.load.checks.evidence import Evidence
    from runners.load.http.endpoint import Answer

_REPEATED = 0.95
"""Share of tokens that equal the token one period earlier, above which an answer is a loop."""
_LONGEST_PERIOD = 4
_FEWEST_TOKENS = 8
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
        return f"{repeated} of {len(contents)} answers repeat one to {_LONGEST_PERIOD} tokens"
    equal = _count_equal(contents)
    if equal == len(contents) > 1 or (equal >= _FEWEST_EQUAL and 2 * equal >= len(contents)):
        return f"{equal} of {len(contents)} answers to different prompts equal another answer"
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
    return content if len(content) >= _FEWEST_TOKENS else None
