"""Environment variables, whoever reads them: NCCL's and SGLang's own."""

from __future__ import annotations

from typing import TYPE_CHECKING

from search_spaces import sglang_variables
from search_spaces.nccl import values as nccl
from search_spaces.nccl.pairs import shadowed

if TYPE_CHECKING:
    from collections.abc import Mapping


def value_problem(name: str, value: str | None) -> str | None:
    """What its reader would refuse, ignore or take for another value; `None` if nothing."""
    return nccl.value_problem(name, value) or sglang_variables.value_problem(name, value)


def unknown_variable(name: str) -> str | None:
    """What to know of a variable that nobody reads; `None` if it is read, or nobody can tell."""
    return nccl.unknown_variable(name) or sglang_variables.unknown_variable(name)


def canonical_value(name: str, value: str) -> str:
    """The one spelling of a value; what is wrong stays as it is."""
    return sglang_variables.canonical_value(name, nccl.canonical_value(name, value))


def canonical_env(
    env: Mapping[str, str | None], fixed: Mapping[str, str | None]
) -> dict[str, str | None]:
    """A configuration's variables, where several spellings make one server.

    Idempotent; it may change a value or make it `None`, and neither adds nor drops a name. A value
    gets its one spelling; a variable that NCCL does not look at beside another is not set.

    Args:
        env: What a configuration sets: text, or `None` for a variable that is not set.
        fixed: What the study sets in every launch, under `env`.
    """
    out = {
        name: None if value is None else canonical_value(name, value) for name, value in env.items()
    }
    whole = {name: value for name, value in {**fixed, **out}.items() if value is not None}
    for loser, _ in shadowed(whole):
        if loser in out:
            out[loser] = None
    return out
