"""Where a misbehaving server takes hold of its engine and its answers; these do nothing.

`misbehaviour` says what goes wrong; whoever builds the server hands it subclasses of these.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Sequence

    from runners.simulated_server.engine.engine import Engine
    from runners.simulated_server.engine.request import Request
    from runners.simulated_server.engine.tokens import Answer


class EngineHooks:
    """Every method is called at one point of the engine, and does nothing; subclasses override."""

    async def before_forward(self, engine: Engine, batch: Sequence[Request]) -> None:
        """Before a forward of these requests: may end the process, or never return."""

    def factor(self, engine: Engine) -> float:  # noqa: ARG002 - for those who override it
        """On the next forward's time."""
        return 1.0

    def finished(self, engine: Engine, request: Request) -> None:
        """A request has ended, and is counted."""


class ConnectionCutError(Exception):
    """Raise it from a hook: the client's connection is reset, whatever has been sent of it."""


class ReplyHooks:
    """What is asked on the way of every answer; subclasses override what they need."""

    def admit(self) -> None:
        """Called when a request for an answer arrives, before it is read.

        Raises:
            ApiError: It is refused so, with status 500 say.
        """

    def answer(self, answer: Answer) -> Answer:
        """What the model says instead; garbage, say."""
        return answer

    def chunk(self, request: Request) -> None:
        """Called before a chunk of a stream is written.

        Raises:
            ConnectionCutError: The stream ends here.
        """

    def meta_info(self, request: Request, meta: dict[str, Any]) -> None:
        """Changes the `meta_info` of a finished request, in place.

        The OpenAI endpoints take their usage from it too.
        """

    def metrics(self, values: dict[str, float]) -> None:
        """Changes the gauges of `/metrics` by their names without the prefix, in place.

        One that is taken out is not on the page.
        """

    def health(self) -> int | None:
        """The status that `/health` answers at once; `None`: it is looked into."""
        return None
