"""The prompts of one measurement: of its window, of the lanes' first requests, of its warm-up."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from typing import TYPE_CHECKING

from runners.load.lengths import answer_lengths, ramp_lengths

if TYPE_CHECKING:
    from collections.abc import Sequence

    from runners.load.prompts import Prompt, PromptSource
    from runners.load.rendering import Renderer
    from search_spaces.workload import OperatingPoint, Workload


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
