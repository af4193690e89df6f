"""Options of `tuner db`."""

from __future__ import annotations

from pathlib import Path  # noqa: TC003 - typer reads the annotations
from typing import Annotated

import typer

from tuner.cli.options import DEFAULT_STORAGE, JsonOption, StorageOption

app = typer.Typer(
    name="db",
    help="List, check, back up or copy the database.",
    no_args_is_help=True,
    rich_markup_mode=None,
)


@app.command("list")
def list_(*, storage: StorageOption = DEFAULT_STORAGE, as_json: JsonOption = False) -> None:
    """List the stored studies with their state, trials, launches and best result."""
    from tuner.commands import database  # noqa: PLC0415

    raise typer.Exit(int(database.list_studies(storage=storage, as_json=as_json)))


@app.command()
def check(*, storage: StorageOption = DEFAULT_STORAGE, as_json: JsonOption = False) -> None:
    """Check the database for damage, unfinished launches and missing logs.

    Exits with code 4 if it finds a problem.
    """
    from tuner.commands import database  # noqa: PLC0415

    raise typer.Exit(int(database.check(storage=storage, as_json=as_json)))


@app.command()
def backup(
    file: Annotated[
        Path | None,
        typer.Argument(help="SQLite file to write. [default: a name with the current time]"),
    ] = None,
    *,
    storage: StorageOption = DEFAULT_STORAGE,
    as_json: JsonOption = False,
) -> None:
    """Write the whole database to one SQLite file. Works while a sweep runs."""
    from tuner.commands import database  # noqa: PLC0415

    raise typer.Exit(int(database.backup(file, storage=storage, as_json=as_json)))


@app.command()
def copy(
    to: Annotated[
        str,
        typer.Option(
            help="Target database: sqlite:///FILE or postgresql://... Created if missing."
        ),
    ],
    *,
    storage: StorageOption = DEFAULT_STORAGE,
    as_json: JsonOption = False,
) -> None:
    """Copy all studies to another database (SQLite or PostgreSQL)."""
    from tuner.commands import database  # noqa: PLC0415

    raise typer.Exit(int(database.copy(storage=storage, to=to, as_json=as_json)))
