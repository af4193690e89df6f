"""Options that several commands share."""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated

import typer


class RunnerKind(StrEnum):
    """Where servers come from."""

    SGLANG = "sglang"
    SIMULATED = "simulated"


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
ShownOption = Annotated[
    str | None,
    typer.Option(
        "--study",
        help="A stored study's name, or the file it was made from. May be left out where there "
        "is only one.",
    ),
]
