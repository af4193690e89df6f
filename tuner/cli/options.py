"""Options that several commands share."""

from __future__ import annotations

from typing import Annotated

import typer

from runners.registry import runner_names
from tuner.errors import remember

RUNNERS = "|".join(runner_names())


DEFAULT_STORAGE = "sqlite:///tuner.db"


def known_runner(name: str | None) -> str | None:
    """Check the value of `--runner`.

    Raises:
        typer.BadParameter: No runner has this name.
    """
    if name is not None and name not in runner_names():
        raise typer.BadParameter(f"{name!r} is not one of {', '.join(runner_names())}")
    return name


def _note_storage(context: typer.Context, parameter: typer.CallbackParam, storage: str) -> str:
    source = context.get_parameter_source(parameter.name or "")
    given = source is not None and source.name == "COMMANDLINE"
    remember(storage if given else None)
    return storage


StorageOption = Annotated[
    str,
    typer.Option(
        "--storage",
        envvar="TUNER_STORAGE",
        callback=_note_storage,
        help="Database: sqlite:///FILE or postgresql://USER:PASSWORD@HOST/NAME.",
    ),
]
JsonOption = Annotated[bool, typer.Option("--json", help="Print JSON on stdout.")]
ShownOption = Annotated[
    str | None,
    typer.Option(
        "--study",
        help="Name of a stored study, or path of its study file. [default: the only study]",
    ),
]
