"""The one form of a server's environment variables."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping

CANONICAL_ENV: frozenset[str] = frozenset()
"""Variables that `canonical_env` looks at or changes; all others it leaves as they are."""


def canonical_env(
    env: Mapping[str, str | None],
    fixed: Mapping[str, str | None],  # noqa: ARG001 - the seam
) -> dict[str, str | None]:
    """A configuration's variables, where several spellings make one server.

    Idempotent; it may change a value or make it `None`, and neither adds nor drops a name.

    Args:
        env: What a configuration sets: text, or `None` for a variable that is not set.
        fixed: What the study sets in every launch, under `env`.
    """
    return dict(env)
