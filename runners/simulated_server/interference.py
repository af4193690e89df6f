"""What may disturb the engine from outside: every method is called at one point, and does nothing.

`misbehaviour` says what goes wrong; whoever builds the engine hands it one of these.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, NoReturn

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from runners.simulated_server.engine import Engine
    from runners.simulated_server.misbehaviour import Misbehaviour
    from runners.simulated_server.request import Request


class Interference:
    """An undisturbed engine; subclasses override what they need."""

    async def before_forward(self, engine: Engine, batch: Sequence[Request]) -> None:
        """Before a forward of these requests: may end the process, or never return."""

    def factor(self, engine: Engine) -> float:  # noqa: ARG002 - for those who override it
        """On the next forward's time."""
        return 1.0

    def cached_tokens(self, request: Request) -> int:
        """What a request says of its cached tokens, once its prefill begins."""
        return request.cached_tokens

    def correct_drafts(self, request: Request, correct: int) -> int:  # noqa: ARG002
        """How many drafts of a request's next verify are correct, instead of `correct`."""
        return correct

    def finished(self, engine: Engine, request: Request) -> None:
        """A request has ended, and is counted."""


class ServingTrouble(Interference):
    """Ends, or hangs, once so many requests have been served.

    Args:
        trouble: What, and after how many.
        crash: Ends the server as a crash of the scheduler does.
    """

    def __init__(self, trouble: Misbehaviour, crash: Callable[[], NoReturn]) -> None:
        self._trouble = trouble
        self._crash = crash

    async def before_forward(self, engine: Engine, batch: Sequence[Request]) -> None:
        """Strikes in the middle of a request that counts."""
        trouble = self._trouble
        if engine.served < trouble.after_requests or not any(r.counted for r in batch):
            return
        if trouble.kind == "exit":
            self._crash()
        if trouble.kind == "hang":
            await asyncio.Event().wait()
