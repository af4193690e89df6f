"""Selection of prompts, and lengths of their answers and of the ramp's answers.

With equal answer lengths, lanes that end together stay together: their prompts share one prefill,
and their answers end together again. Different lengths keep the lanes apart.
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
    """Return the output tokens of each prompt of a window.

    The lengths are spaced evenly over `output_tokens * (1 +- output_spread)`. The seed only selects
    their order. Their mean is `output_tokens`, or a little more if lengths below 1 are raised to 1.

    Args:
        workload: Defines mean length and spread.
        count: Number of prompts.
        seed: Seed of the study; every configuration gets the same lengths.
    """
    mean, half = workload.output_tokens, workload.output_tokens * workload.output_spread
    lengths = [max(1, round(mean + half * ((2 * n + 1) / count - 1))) for n in range(count)]
    random.Random(f"lengths/{seed}").shuffle(lengths)  # noqa: S311 - reproducible, no secret
    return tuple(lengths)


def ramp_lengths(lengths: Sequence[int], lanes: int) -> tuple[int, ...]:
    """Return the shortened length of each lane's first answer, so that the load is steady at once.

    At a random moment of a steady load, a lane has `r` tokens of its answer left, with a
    probability proportional to the number of answers longer than `r` (equilibrium distribution of a
    renewal process; Cox, Renewal Theory, 1962, chapter 5). Lanes that start together with such
    lengths end spread over the time of one request.

    Args:
        lengths: Output tokens of the window's answers.
        lanes: Requests in flight.

    Returns:
        One length per lane: evenly spaced quantiles of this distribution, ascending.
    """
    ordered = sorted(lengths)
    total, longer = sum(ordered), len(ordered)
    below = passed = 0
    found: list[int] = []
    for length in ordered:
        # Between `below` and `length` tokens, `longer` answers continue.
        tokens = (length - below) * longer
        while len(found) < lanes and (2 * len(found) + 1) * total <= 2 * lanes * (passed + tokens):
            wanted = (2 * len(found) + 1) * total / (2 * lanes)
            found.append(max(1, round(below + (wanted - passed) / longer)))
        passed += tokens
        below, longer = length, longer - 1
    return tuple(found)


@dataclass(frozen=True, slots=True)
class Selection:
    """Rendered prompts of one measurement.

    Attributes:
        window: Prompts of the window with their answer lengths.
        ramp: First prompt of each lane of a closed loop with its shortened answer length; empty for
            one lane, or without a ramp.
        warmup: Prompts of one warm-up pass. The ramp uses the same prompts: the warm-up changes
            them, and the server's cache is emptied after it.
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
        workload: Defines the numbers of prompts and the answer lengths.
        point: Operating point.
        source: Source of the prompts.
        renderer: Applies the chat template.
        seed: Selects the prompts and the order of the answer lengths.
        ramp: Whether the lanes of a closed loop start with shortened answers.

    Raises:
        NotEnoughPromptsError: The prompt source is too small for the point.
        PromptFileError: The file of the source cannot be used.
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
    """Set the answer lengths of prompts."""
    return tuple(
        dataclasses.replace(prompt, output_tokens=length)
        for prompt, length in zip(prompts, lengths, strict=True)
    )
