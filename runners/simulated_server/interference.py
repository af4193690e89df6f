"""What may disturb the engine from outside: every method is called at one point, and does nothing.

`misbehaviour` says what goes wrong; whoever builds the engine hands it one of these.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

    from runners.simulated_server.engine import Engine
    from runners.simulated_server.request import Request


class Interference:
    """An undisturbed engine; subclasses override what they need."""

    async def before_forward(self, engine: Engine, batch: Sequence[Request]) -> None:
        """Before a forward of these requests: may end the process, or never return."""

    def factor(self, engine: Engine) -> float:  # noqa: ARG002 - for those who override it
        """On the next forward's time."""
        return 1.0

    def correct_drafts(self, request: Request, correct: int) -> int:  # noqa: ARG002
        """How many drafts of a request's next verify are correct, instead of `correct`."""
        return correct

    def finished(self, engine: Engine, request: Request) -> None:
        """A request has ended, and is counted."""
