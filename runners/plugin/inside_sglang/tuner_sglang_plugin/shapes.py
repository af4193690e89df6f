"""Shape of the draft that is switched, at the launch's width (`topk`)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterable


class Shape(NamedTuple):
    """Steps and tokens to verify, of a chain or (`topk` > 1) a tree.

    Attributes:
        steps: Draft steps.
        draft_tokens: Tokens per verify, including the last known token.
    """

    steps: int
    draft_tokens: int

    @classmethod
    def read(cls, word: str) -> Shape:
        """Parse `5` (a chain) or `3/6`.

        Raises:
            ValueError: The text is neither.
        """
        steps, slash, draft_tokens = word.partition("/")
        if not all(part.isascii() and part.isdigit() for part in (steps, draft_tokens or "0")):
            raise ValueError(word)
        return cls(int(steps), int(draft_tokens) if slash else int(steps) + 1)

    def __str__(self) -> str:
        return str(self.steps) if self.is_chain else f"{self.steps}/{self.draft_tokens}"

    @property
    def is_chain(self) -> bool:
        """Whether every token follows the previous one."""
        return self.draft_tokens == self.steps + 1

    def fits_in(self, other: Shape) -> bool:
        """Whether buffers sized for the other are large enough."""
        return self.steps <= other.steps and self.draft_tokens <= other.draft_tokens


def shape_of(holder: Any) -> Shape:
    """Shape of a worker or of a state."""
    return Shape(holder.speculative_num_steps, holder.speculative_num_draft_tokens)


def listed(shapes: Iterable[Shape]) -> str:
    """Format as in the variable and the ready line."""
    return ",".join(map(str, sorted(shapes)))
