"""Interface between the load generator and the API of a server.

An endpoint encodes requests and parses streamed responses. `GenerateEndpoint` is SGLang's own
`/generate`. Studies use this endpoint: only its stream reports acceptance per request in all
supported versions (0.5.9 to 0.5.23). `tuner bench` also measures the OpenAI endpoints of any
server.
"""

from __future__ import annotations

import abc
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Mapping

    from runners.load.prompts.prompts import Prompt
    from search_spaces.workload import Workload

_LARGEST_COUNT = 2**63 - 1
"""Largest integer that a database column holds."""


class MalformedStreamError(ValueError):
    """The server sent a response that the endpoint does not define."""


@dataclass(frozen=True, slots=True)
class Answer:
    """Final report of a server about one request; `None` where the server reports no value.

    Attributes:
        completion_tokens: Tokens of the answer, counted by the server.
        prompt_tokens: Tokens of the prompt.
        cached_tokens: Prompt tokens from the prefix cache.
        finish_reason: `"length"`, `"stop"` or `"abort"`.
        verify_calls: Verify forwards; 0 without speculation.
        correct_drafts: Accepted draft tokens, without bonus tokens.
        proposed_drafts: Proposed draft tokens.
        histogram: `histogram[k]` verify calls accepted exactly k drafts.
        retractions: Times that the server retracted the request because the KV cache was full
            (`num_retractions`; `total_retractions` in 0.5.9). The server then prefills prompt and
            answer again, which yields a token without a verify. `None` for OpenAI endpoints.
        output_ids: Token ids of the answer.
        text: Text of the answer.
        error: Reason of a failure; `None` for a complete answer.
    """

    completion_tokens: int | None = None
    prompt_tokens: int | None = None
    cached_tokens: int | None = None
    finish_reason: str | None = None
    verify_calls: int = 0
    correct_drafts: int = 0
    proposed_drafts: int = 0
    histogram: tuple[int, ...] = ()
    retractions: int | None = None
    output_ids: tuple[int, ...] = ()
    text: str = ""
    error: str | None = None


class StreamReader(abc.ABC):
    """Parse one response body from pieces of any size, at a small cost per piece."""

    @abc.abstractmethod
    def feed(self, raw: bytes) -> int | None:
        """Parse one piece of the body.

        Returns:
            Tokens of the answer so far; `None` if the piece carries no new count. If chunks carry
            no token counts, the number of chunks so far: the client then spreads the final token
            count over the chunks.
        """

    @property
    def counts_tokens(self) -> bool:
        """Whether `feed` returns tokens, not chunks."""
        return True

    @abc.abstractmethod
    def answer(self) -> Answer:
        """Return the server's report after the end of the body.

        Raises:
            MalformedStreamError: The body is not a stream of this endpoint.
        """


class Endpoint(abc.ABC):
    """One API of a server."""

    name: str
    """`"generate"`, `"completions"` or `"chat"`."""
    path: str
    """`"/generate"`, `"/v1/completions"` or `"/v1/chat/completions"`."""
    has_controls: bool = True
    """Whether the server has SGLang's `/flush_cache` and `/abort_request`. If not, the client does
    not call them."""

    @abc.abstractmethod
    def body(self, prompt: Prompt, workload: Workload) -> bytes:
        """Encode a streaming request with the workload's sampling and answer length.

        Raises:
            RunnerError: The endpoint does not support this kind of prompt (a fault of the study).
        """

    @abc.abstractmethod
    def reader(self) -> StreamReader:
        """Return a reader for one response."""


def count_of(value: object, name: str) -> int | None:
    """Validate a count from decoded JSON; `None` stays `None`.

    Args:
        value: The value.
        name: The server's name for the count.

    Raises:
        MalformedStreamError: The value is not a whole number of 0 or more.
    """
    if value is None:
        return None
    if isinstance(value, float) and value.is_integer():
        value = int(value)
    if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value <= _LARGEST_COUNT:
        raise MalformedStreamError(f"the server's {name} is {value!r:.60}, which is not a count")
    return value


def counts_of(value: object, name: str) -> tuple[int, ...]:
    """Validate a list of counts; empty for `None`.

    Raises:
        MalformedStreamError: The value is not a list of whole numbers of 0 or more.
    """
    if value is None:
        return ()
    if not isinstance(value, list | tuple):
        raise MalformedStreamError(f"the server's {name} is {value!r:.60}, which is not a list")
    return tuple(count_of(item, name) or 0 for item in value)


def first_value(meta_info: Mapping[str, Any], names: tuple[str, ...]) -> Any:  # noqa: ANN401 - JSON
    """Return the first value that is set; SGLang versions use different names for one count."""
    return next((meta_info[name] for name in names if meta_info.get(name) is not None), None)
