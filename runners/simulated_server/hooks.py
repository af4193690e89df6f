"""Where a misbehaving server takes hold of its answers. A good server has these as they are."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from runners.simulated_server.request import Request
    from runners.simulated_server.tokens import Answer


class ConnectionCutError(Exception):
    """Raise it from a hook: the client's connection is reset, whatever has been sent of it."""


class Hooks:
    """What is asked on the way of every request; a subclass changes what it wants to."""

    def admit(self, path: str) -> None:
        """Called when a request for an answer arrives, before it is read.

        Raises:
            ApiError: It is refused so, with status 500 say.
            ConnectionCutError: It gets no answer at all.
        """

    def answer(self, prompt: str, answer: Answer) -> Answer:
        """What the model says to a prompt (its fingerprint); garbage, say."""
        del prompt
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

    def server_info(self, info: dict[str, Any]) -> None:
        """Changes the body of `/server_info`, in place."""

    def metrics(self, values: dict[str, float]) -> None:
        """Changes the gauges of `/metrics` by their names without the prefix, in place.

        One that is taken out is not on the page.
        """

    def health(self) -> int | None:
        """The status that `/health` answers at once; `None`: it is looked into."""
        return None
