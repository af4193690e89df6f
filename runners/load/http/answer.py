"""What a server says of a finished request, whatever endpoint it was sent to."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from runners.load.http.endpoint import MalformedStreamError

if TYPE_CHECKING:
    from collections.abc import Mapping


@dataclass(frozen=True, slots=True)
class Answer:
    """The accounts of one request; a figure that the server does not give is `None`.

    Attributes:
        completion_tokens: Tokens of the answer, by the server's own count.
        prompt_tokens: Tokens of the prompt.
        cached_tokens: Those that came from the prefix cache.
        finish_reason: Why it ended: `"length"`, `"stop"`, `"abort"`.
        verify_calls: Verify forwards; 0 without speculation.
        correct_drafts: Accepted draft tokens, bonus tokens excluded.
        proposed_drafts: Draft tokens that were proposed.
        histogram: `histogram[k]` verify calls accepted exactly k drafts.
        retractions: How often the server took it back for want of KV cache (`num_retractions`;
            `total_retractions` in 0.5.9): each time its prompt and answer so far are read again,
            which gives a token without a verify. `None` where the endpoint does not say (OpenAI's).
        output_ids: Token ids of the answer, for checks of its content.
        text: The answer.
        error: Why it is not a good answer; `None` for a good one.
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


_LARGEST = 2**63 - 1
"""What a database column holds."""


def count_of(value: object, name: str) -> int | None:
    """A count; `None` where there is none.

    Args:
        value: Decoded JSON.
        name: How the server calls it.

    Raises:
        MalformedStreamError: It is no whole number of 0 or more.
    """
    if value is None:
        return None
    if isinstance(value, float) and value.is_integer():
        value = int(value)
    if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value <= _LARGEST:
        raise MalformedStreamError(f"the server's {name} is {value!r:.60}, which is no count")
    return value


def first_of(meta_info: Mapping[str, Any], names: tuple[str, ...]) -> Any:  # noqa: ANN401 - JSON
    """The first of `names` that has a value; versions call one figure by different names."""
    return next((meta_info[name] for name in names if meta_info.get(name) is not None), None)


def counts_of(value: object, name: str) -> tuple[int, ...]:
    """A list of counts; empty where there is none.

    Raises:
        MalformedStreamError: It is no list of whole numbers of 0 or more.
    """
    if value is None:
        return ()
    if not isinstance(value, list | tuple):
        raise MalformedStreamError(f"the server's {name} is {value!r:.60}, which is no list")
    return tuple(count_of(item, name) or 0 for item in value)
