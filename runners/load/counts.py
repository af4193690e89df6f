"""Counts in what a server sends, which need not be numbers."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from runners.load.endpoint import MalformedStreamError

if TYPE_CHECKING:
    from collections.abc import Mapping

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
