"""The seam between the load generator and the API that a server speaks.

An endpoint says what is sent and reads what streams back. `GenerateEndpoint` is SGLang's own
`/generate`, the only one whose stream accounts for acceptance per request (0.5.9 to 0.5.23), and
the one that studies use; the OpenAI ones are for `tuner bench` against any server.
"""

from __future__ import annotations

import abc
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from runners.load.http.answer import Answer
    from runners.load.prompts.prompts import Prompt
    from search_spaces.workload import Workload


class MalformedStreamError(ValueError):
    """The server sent something that is not a stream of the endpoint."""


class StreamReader(abc.ABC):
    """Takes the pieces of one response body as they arrive, cut anywhere, at a small cost."""

    @abc.abstractmethod
    def feed(self, raw: bytes) -> int | None:
        """Takes a piece of the body.

        Returns:
            Tokens of the answer so far, where this piece says it or lets it be counted; `None`
            where it carries none. An endpoint whose chunks carry no counts returns the chunks so
            far: the client then spreads the answer's own count over them.
        """

    @property
    def counts_tokens(self) -> bool:
        """Whether `feed` returns tokens rather than chunks."""
        return True

    @abc.abstractmethod
    def answer(self) -> Answer:
        """The server's accounts, once the body has ended.

        Raises:
            MalformedStreamError: It was no stream of this endpoint.
        """


class Endpoint(abc.ABC):
    """One API of a server."""

    name: str
    """`"generate"`, `"completions"` or `"chat"`."""
    path: str
    """`"/generate"`, `"/v1/completions"` or `"/v1/chat/completions"`."""
    has_controls: bool = True
    """Whether the server knows SGLang's `/flush_cache` and `/abort_request`; the client leaves
    both out where it does not."""

    @abc.abstractmethod
    def body(self, prompt: Prompt, workload: Workload) -> bytes:
        """The request for `prompt`, streaming, with the workload's sampling and length.

        Raises:
            RunnerError: The endpoint does not take such a prompt (a fault of the study).
        """

    @abc.abstractmethod
    def reader(self) -> StreamReader:
        """A reader of one response."""
