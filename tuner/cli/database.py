"""Options of `tuner db`."""

from __future__ import annotations

from pathlib import Path  # noqa: TC003 - typer reads the annotations
from typing import Annotated

import typer

from tuner.cli.options import DEFAULT_STORAGE, JsonOption, StorageOption

app = typer.Typer(
    name="db",
    help="Look after the database: list, check, back up, move.",
    no_args_is_help=True,
    rich_markup_mode=None,
)


@app.command("list")
def list_(*, storage: StorageOption = DEFAULT_STORAGE, as_json: JsonOption = False) -> None:
    """List the stored studies: state, trials, launches spent, the best."""
    from tuner.commands import database  # noqa: PLC0415

    raise typer.Exit(int(database.list_studies(storage=storage, as_json=as_json)))


@app.command()
def check(*, storage: StorageOption = DEFAULT_STORAGE, as_json: JsonOption = False) -> None:
    """Look for damage, launches without an end, lost or changed logs. Exit code 4 if any."""
    from tuner.commands import database  # noqa: PLC0415

    raise typer.Exit(int(database.check(storage=storage, as_json=as_json)))


@app.command()
def backup(
    file: Annotated[
        Path | None,
        typer.Argument(help="The SQLite file to write; named by the time if left out."),
    ] = None,
    *,
    storage: StorageOption = DEFAULT_STORAGE,
    as_json: JsonOption = False,
) -> None:
    """Write the whole database into one SQLite file, also while a sweep runs."""
    from tuner.commands import database  # noqa: PLC0415

    raise typer.Exit(int(database.backup(file, storage=storage, as_json=as_json)))


@app.command()
def copy(
    to: Annotated[
        str,
        typer.Option(help="The other database: sqlite:///FILE or postgresql://..., made if new."),
    ],
    *,
    storage: StorageOption = DEFAULT_STORAGE,
    as_json: JsonOption = False,
) -> None:
    """Copy all studies into another database: from SQLite to PostgreSQL, back, or alike."""
    from tuner.commands import database  # noqa: PLC0415

    raise typer.Exit(int(database.copy(storage=storage, to=to, as_json=as_json)))
