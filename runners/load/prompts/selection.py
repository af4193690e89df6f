"""The length of each answer, and of the first answer in each lane of a closed loop.

Where all answers are equally long, lanes that once end together stay together: their prompts share
one prefill, and their answers end together again. Lengths that differ by prompt keep lanes apart.
"""

from __future__ import annotations

import dataclasses
import random
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

    from runners.load.prompts.prompts import Prompt, PromptSource
    from runners.load.prompts.rendering import Renderer
    from search_spaces.workload import OperatingPoint, Workload


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


@dataclass(frozen=True, slots=True)
class Selection:
    """The rendered prompts of one measurement.

    Attributes:
        window: Prompts of the window, each with the length of its answer.
        ramp: First prompt of each lane of a closed loop, each with the length of its cut answer;
            empty where the loop has one lane, or has no ramp.
        warmup: Prompts of one pass of the warm-up. The ramp takes the same prompts: the warm-up
            changes them, and the server's cache is emptied after it.
    """

    window: tuple[Prompt, ...]
    ramp: tuple[Prompt, ...]
    warmup: tuple[Prompt, ...]


def select_prompts(
    workload: Workload,
    point: OperatingPoint,
    source: PromptSource,
    renderer: Renderer,
    seed: int,
    *,
    ramp: bool = True,
) -> Selection:
    """Select and render the prompts of one measurement.

    Args:
        workload: Numbers of prompts, and lengths of answers.
        point: The operating point.
        source: Where prompts come from.
        renderer: Applies the chat template.
        seed: Selects the prompts and orders the lengths of their answers.
        ramp: Whether the lanes of a closed loop begin with cut answers.

    Raises:
        NotEnoughPromptsError: The prompt source is too small for the point.
        PromptFileError: The file of a prompt source cannot be used.
        RunnerError: The prompts cannot be rendered.
    """
    count, warmup = workload.requests_at(point), workload.warmup_at(point)
    lengths = answer_lengths(workload, count, seed)
    lanes = workload.ramp_at(point) if ramp else 0
    cut = ramp_lengths(lengths, lanes)
    rendered = renderer.render(source.select(count + max(lanes, warmup), seed))
    return Selection(
        window=_with_lengths(rendered[:count], lengths),
        ramp=_with_lengths(rendered[count : count + lanes], cut),
        warmup=rendered[count : count + warmup],
    )


def _with_lengths(prompts: Sequence[Prompt], lengths: Sequence[int]) -> tuple[Prompt, ...]:
    """The prompts, with the lengths of their answers."""
    return tuple(
        dataclasses.replace(prompt, output_tokens=length)
        for prompt, length in zip(prompts, lengths, strict=True)
    )
