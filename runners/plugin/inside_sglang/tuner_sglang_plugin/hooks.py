"""Hooks with a check that they are in place.

SGLang's registry logs the exception of a hook that cannot be applied and continues, and it skips a
target that another plugin patched. So each function is compared with the verified signature, and
checked again after patching.
"""

from __future__ import annotations

import contextlib
import inspect
import pkgutil
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

from .log import refuse

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

Kind = Literal["after", "around"]


@dataclass(frozen=True)
class Point:
    """A function of SGLang that a capability hooks or calls.

    Attributes:
        target: Dotted path.
        signature: Signature in the format of `shape`, in the verified version.
        kind: Kind of the hook.
        hook: The hook; `None` if the function is only called.
    """

    target: str
    signature: str
    kind: Kind = "around"
    hook: Callable[..., Any] | None = None


def shape(function: Callable[..., Any]) -> str:
    """Format names and kinds of parameters and whether they have defaults, without annotations.

    >>> shape(lambda self, batch, *, deep=False: None)
    '(self, batch, *, deep=)'
    """
    parts: list[str] = []
    starred = False
    for one in inspect.signature(function).parameters.values():
        if one.kind is one.VAR_POSITIONAL:
            starred = True
            parts.append(f"*{one.name}")
            continue
        if one.kind is one.VAR_KEYWORD:
            parts.append(f"**{one.name}")
            continue
        if one.kind is one.KEYWORD_ONLY and not starred:
            starred = True
            parts.append("*")
        parts.append(one.name + ("" if one.default is one.empty else "="))
    return f"({', '.join(parts)})"


def apply(capability: str, points: Sequence[Point]) -> None:
    """Check all points, hook them, and verify the hooks; refuse if one fails."""
    originals = {point.target: _verified(capability, point) for point in points}
    registry = pkgutil.resolve_name("sglang.srt.plugins.hook_registry:HookRegistry")
    kinds = pkgutil.resolve_name("sglang.srt.plugins.hook_registry:HookType")
    for point in points:
        if point.hook is not None:
            registry.register(point.target, point.hook, kinds(point.kind))
    registry.apply_hooks()
    for point in points:
        if point.hook is not None and not _is_in_place(point, originals[point.target]):
            refuse(capability, f"the hook on {point.target} did not take effect")


def _verified(capability: str, point: Point) -> Callable[..., Any]:
    try:
        function: Callable[..., Any] = pkgutil.resolve_name(point.target)
    except Exception as error:  # noqa: BLE001 - whatever an import of SGLang raises
        refuse(capability, f"{point.target} cannot be found: {type(error).__name__}: {error}")
    found = shape(function)
    if found != point.signature:
        refuse(
            capability,
            f"{point.target} is {found}, and it was verified as {point.signature}",
        )
    return function


def _is_in_place(point: Point, original: Callable[..., Any]) -> bool:
    chain = list(_wrappers(pkgutil.resolve_name(point.target)))
    reached = any(one is original for one in chain)
    return reached and any(_closes_over(one, point.hook) for one in chain)


def _wrappers(function: Any) -> Iterator[Any]:
    while function is not None:
        yield function
        function = getattr(function, "__wrapped__", None)


def _closes_over(function: Any, hook: Any) -> bool:
    """Whether the function is the registry's wrapper of the hook: its closure contains the hook."""
    with contextlib.suppress(ValueError):  # an empty cell
        return any(
            cell.cell_contents is hook for cell in getattr(function, "__closure__", ()) or ()
        )
    return False
