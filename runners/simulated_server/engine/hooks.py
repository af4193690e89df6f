"""Hooks that let a misbehaving server change its replies. The base class changes nothing."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from runners.simulated_server.engine.request import Request
    from runners.simulated_server.engine.tokens import Answer


class ConnectionCutError(Exception):
    """Raised by a hook to reset the client's connection at once."""


class ReplyHooks:
    """Called for every reply. Subclasses override what they need."""

    def admit(self) -> None:
        """Called when a request arrives, before its body is read.

        Raises:
            ApiError: The request is refused with this error.
        """

    def answer(self, answer: Answer) -> Answer:
        """The answer to send in place of the model's answer."""
        return answer

    def chunk(self, request: Request) -> None:
        """Called before a chunk of a stream is sent.

        Raises:
            ConnectionCutError: The stream ends here.
        """

    def meta_info(self, request: Request, meta: dict[str, Any]) -> None:
        """Change the `meta_info` of a finished request in place.

        The usage of the OpenAI endpoints is derived from it.
        """

    def metrics(self, values: dict[str, float]) -> None:
        """Change the gauges of `/metrics` in place; keys have no prefix."""

    def health(self) -> int | None:
        """HTTP status for `/health`; `None`: the real health check."""
        return None
