"""What the next decode cycle of a batch does: drafts, accepts, and takes how long.

Shared by the engine, which paces it, and by `walk`, which does so without a clock.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from runners.simulated_server.engine.acceptance import draw, thresholds
from runners.simulated_server.engine.algorithms import repetition
from search_spaces.configuration import Setting

if TYPE_CHECKING:
    from collections.abc import Sequence

    from runners.simulated_server.engine.adaptive import AdaptiveSteps
    from runners.simulated_server.engine.cost import CostModel, CycleTime
    from runners.simulated_server.engine.request import Request


@dataclass(frozen=True, slots=True)
class Cycle:
    """One cycle of a batch.

    Attributes:
        time: How long it takes, noise aside.
        correct: Correct drafts of each request; empty without speculation.
    """

    time: CycleTime
    correct: tuple[int, ...]


class Cycles:
    """The decode cycles of one server.

    Args:
        cost: Times at the start-up's steps.
        num_steps: Draft steps.
        topk: Branches per step.
        num_draft_tokens: Tokens per verify.
        adaptive: What chooses the steps, where they are not fixed.
    """

    def __init__(
        self,
        cost: CostModel,
        num_steps: int,
        topk: int,
        num_draft_tokens: int,
        adaptive: AdaptiveSteps | None = None,
    ) -> None:
        self.cost = cost
        self.num_steps = num_steps
        self.num_draft_tokens = num_draft_tokens
        self._topk = topk
        self._adaptive = adaptive
        self._known = {(num_steps, num_draft_tokens): cost}
        self._chosen: tuple[float, ...] = ()
        self._renew()

    @property
    def speculating(self) -> bool:
        """Whether cycles draft and verify."""
        return self.cost.drafting is not None

    def switch(self, setting: Setting) -> None:
        """Takes on another setting; the profile's conditions are looked at anew."""
        key = setting.size
        if key == (self.num_steps, self.num_draft_tokens):
            return
        self.num_steps, self.num_draft_tokens = key
        if key not in self._known:
            self._known[key] = self.cost.at_steps(*key)
        self.cost = self._known[key]
        self._renew()

    def next(self, batch: Sequence[Request]) -> Cycle:
        """The next cycle of these requests; what it yields is not yet given to them."""
        size = len(batch)
        if not self.speculating:
            return Cycle(self.cost.decode(size), ())
        if self._adaptive is not None:
            self.switch(Setting(self._adaptive.steps(size)))
        drafts = self.cost.drafting
        if drafts is not None and drafts.looks_at_prompts:
            correct = [draw(r.offset, r.verify_calls, self._of(r)) for r in batch]
        else:
            chosen = self._chosen
            correct = [draw(r.offset, r.verify_calls, chosen) for r in batch]
        yielded = [
            min(c + 1, r.last - r.completion_tokens) for r, c in zip(batch, correct, strict=True)
        ]
        time = self.cost.speculate(
            size, self.num_steps, self._topk, self.num_draft_tokens, sum(yielded) / size
        )
        return Cycle(time, tuple(correct))

    def verified(self, cycle: Cycle) -> None:
        """The cycle is over."""
        if self._adaptive is not None and cycle.correct:
            self._adaptive.verified(len(cycle.correct), cycle.correct)

    def _renew(self) -> None:
        drafts = self.cost.drafting
        if drafts is None:
            return
        if drafts.pauses(self.num_steps):
            self._chosen = ()
            return
        chances = drafts.chances(self.num_steps, self._topk, self.num_draft_tokens)
        self._chosen = thresholds(chances)

    def _of(self, request: Request) -> tuple[float, ...]:
        if not request.thresholds and self.cost.drafting is not None:
            chances = self.cost.drafting.chances(
                self.num_steps, self._topk, self.num_draft_tokens, repetition(request.packed)
            )
            request.thresholds = thresholds(chances)
        return request.thresholds
