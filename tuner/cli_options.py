"""Options that several commands share."""

from __future__ import annotations

from typing import Annotated

import typer

DEFAULT_STORAGE = "sqlite:///tuner.db"

StorageOption = Annotated[
    str,
    typer.Option(
        "--storage",
        envvar="TUNER_STORAGE",
        help="Database: sqlite:///FILE or postgresql://USER:PASSWORD@HOST/NAME.",
    ),
]
JsonOption = Annotated[bool, typer.Option("--json", help="Print JSON on stdout.")]
