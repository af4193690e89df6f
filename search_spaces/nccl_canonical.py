"""The one form of a server's environment variables."""

from __future__ import annotations

from typing import TYPE_CHECKING

from search_spaces.nccl import shadowed
from search_spaces.nccl_variables import VARIABLES
from search_spaces.sglang_variables import kinds
from search_spaces.variables import canonical_value

if TYPE_CHECKING:
    from collections.abc import Mapping

CANONICAL_ENV: frozenset[str] = frozenset(
    (
        *(name for name, variable in VARIABLES.items() if variable.kind != "text"),
        *(name for name, kind in kinds().items() if kind == "bool"),
    )
)
"""Variables that `canonical_env` looks at or changes; all others it leaves as they are."""


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
