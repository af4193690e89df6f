"""Check and canonicalize the environment variables of NCCL and SGLang."""

from __future__ import annotations

from typing import TYPE_CHECKING

from search_spaces import sglang_variables
from search_spaces.nccl import values as nccl
from search_spaces.nccl.values import shadowed

if TYPE_CHECKING:
    from collections.abc import Mapping


def value_problem(name: str, value: str | None) -> str | None:
    """Return why NCCL or SGLang does not accept a value as written; `None` for a good value."""
    return nccl.value_problem(name, value) or sglang_variables.value_problem(name, value)


def unknown_variable(name: str) -> str | None:
    """Return a warning about a variable that NCCL and SGLang do not read, else `None`."""
    return nccl.unknown_variable(name) or sglang_variables.unknown_variable(name)


def canonical_value(name: str, value: str) -> str:
    """Return the canonical spelling of a value; invalid values stay unchanged."""
    return sglang_variables.canonical_value(name, nccl.canonical_value(name, value))


def canonical_env(
    env: Mapping[str, str | None], fixed: Mapping[str, str | None]
) -> dict[str, str | None]:
    """Bring the variables of a configuration to canonical form; idempotent.

    Values get their canonical spelling. A variable becomes `None` if NCCL ignores it because
    another one is set. Names stay the same.

    Args:
        env: Variables of a configuration; `None` is not set.
        fixed: Variables of every launch.
    """
    out = {
        name: None if value is None else canonical_value(name, value) for name, value in env.items()
    }
    whole = {name: value for name, value in {**fixed, **out}.items() if value is not None}
    for loser, _ in shadowed(whole):
        if loser in out:
            out[loser] = None
    return out
