"""What is switched: the shape of the draft, at the width (`topk`) of the launch."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterable


class Shape(NamedTuple):
    """Steps, and tokens to verify: of a chain, or at `topk` > 1 of a tree.

    Attributes:
        steps: Draft steps.
        draft_tokens: Tokens that one verify looks at, the one known before among them.
    """

    steps: int
    draft_tokens: int

    @classmethod
    def read(cls, word: str) -> Shape:
        """Reads `5` (a chain) or `3/6`.

        Raises:
            ValueError: It is neither.
        """
        steps, slash, draft_tokens = word.partition("/")
        if not all(part.isascii() and part.isdigit() for part in (steps, draft_tokens or "0")):
            raise ValueError(word)
        return cls(int(steps), int(draft_tokens) if slash else int(steps) + 1)

    def __str__(self) -> str:
        return str(self.steps) if self.is_chain else f"{self.steps}/{self.draft_tokens}"

    @property
    def is_chain(self) -> bool:
        """Whether every token follows the one before."""
        return self.draft_tokens == self.steps + 1

    def fits_in(self, other: Shape) -> bool:
        """Whether what is sized for the other is large enough."""
        return self.steps <= other.steps and self.draft_tokens <= other.draft_tokens


def shape_of(holder: Any) -> Shape:
    """Of a worker, or of a state of one."""
    return Shape(holder.speculative_num_steps, holder.speculative_num_draft_tokens)


def listed(shapes: Iterable[Shape]) -> str:
    """As the variable and the ready line have them."""
    return ",".join(map(str, sorted(shapes)))
