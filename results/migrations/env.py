"""Run by Alembic. `results.migrations.upgrade` owns connection and transaction."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from alembic import context

from results.migrations import VERSION_TABLE
from results.tables import PREFIX, metadata

if TYPE_CHECKING:
    from collections.abc import Mapping


def is_ours(name: str | None, kind: str, _parents: Mapping[Any, str | None]) -> bool:
    """Exclude tables of Optuna and others from generated revisions."""
    return kind != "table" or (name is not None and name.startswith(PREFIX))


def run() -> None:
    """Apply the revisions on the given connection."""
    context.configure(
        connection=context.config.attributes["connection"],
        target_metadata=metadata,
        version_table=VERSION_TABLE,
        include_name=is_ours,
        render_as_batch=True,
        compare_type=True,
    )
    with context.begin_transaction():
        context.run_migrations()


run()
