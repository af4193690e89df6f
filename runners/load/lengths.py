"""The length of each answer, and of the first answer in each lane of a closed loop.

Where all answers are equally long, lanes that once end together stay together: their prompts share
one prefill, and their answers end together again. Lengths that differ by prompt keep lanes apart.
"""

from __future__ import annotations

import random
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

    from search_spaces.workload import Workload


def answer_lengths(workload: Workload, count: int, seed: int) -> tuple[int, ...]:
    """Draw the output tokens of each prompt of a window.

    The lengths divide `output_tokens * (1 +- output_spread)` evenly, in an order that the seed
    decides. So every seed gives the same lengths. Their mean is `output_tokens`, or a little more
    where it is so small that lengths would fall below 1.

    Args:
        workload: Mean length and spread.
        count: Prompts of the window.
        seed: The study's seed: every configuration gets the same lengths.
    """
    mean, half = workload.output_tokens, workload.output_tokens * workload.output_spread
    lengths = [max(1, round(mean + half * ((2 * n + 1) / count - 1))) for n in range(count)]
    random.Random(f"lengths/{seed}").shuffle(lengths)  # noqa: S311 - reproducible, no secret
    return tuple(lengths)


def ramp_lengths(lengths: Sequence[int], lanes: int) -> tuple[int, ...]:
    """Cut the first answer of each lane, so that the load is steady from its start.

    Seen at a random moment of a steady load, a lane has some part of an answer left: `r` tokens
    with a probability in proportion to the answers longer than `r` (equilibrium distribution of a
    renewal process; Cox, Renewal Theory, 1962, chapter 5). Lanes that all start together with such
    lengths end spread over the time of a request, whatever that time is.

    Args:
        lengths: Output tokens of the window's answers.
        lanes: Requests in flight.

    Returns:
        One length for each lane, evenly spaced quantiles of that distribution, ascending.
    """
    ordered = sorted(lengths)
    total, longer = sum(ordered), len(ordered)
    below = passed = 0
    found: list[int] = []
    for length in ordered:
        # Between `below` and `length` tokens, `longer` answers go on.
        tokens = (length - below) * longer
        while len(found) < lanes and (2 * len(found) + 1) * total <= 2 * lanes * (passed + tokens):
            wanted = (2 * len(found) + 1) * total / (2 * lanes)
            found.append(max(1, round(below + (wanted - passed) / longer)))
        passed += tokens
        below, longer = length, longer - 1
    return tuple(found)
