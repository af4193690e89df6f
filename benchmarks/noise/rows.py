"""CSV files with rows that a process appends one by one, and that survive its sudden end."""

from __future__ import annotations

import csv
from typing import TYPE_CHECKING, Any, TypeVar

from benchmarks import table

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping
    from pathlib import Path

_Made = TypeVar("_Made")


class DamagedFileError(ValueError):
    """A file has another format; the message names the file and the line."""


def append(path: Path, columns: tuple[str, ...], rows: Iterable[Mapping[str, Any]]) -> None:
    """Append rows; an incomplete last row is removed.

    Raises:
        DamagedFileError: The file is not text.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    whole = _whole(path)
    with path.open("a", encoding="utf-8", newline="") as file:
        file.truncate(len(whole.encode()))
        writer = csv.DictWriter(file, columns, restval="", lineterminator="\n")
        if not whole:
            writer.writeheader()
        for row in rows:
            writer.writerow({name: table.shown(value) for name, value in row.items()})


def _whole(path: Path) -> str:
    """Return the complete rows of the file."""
    try:
        text = path.read_bytes().decode() if path.exists() else ""
    except UnicodeDecodeError as error:
        raise DamagedFileError(f"{path}: {error}") from error
    return text[: text.rfind("\n") + 1]


def read(path: Path, columns: tuple[str, ...]) -> list[dict[str, str]]:
    """Read all complete rows; empty for a missing file.

    Raises:
        DamagedFileError: The columns differ, or a row has another number of cells.
    """
    reader = csv.DictReader(_whole(path).splitlines(), restval=None, strict=True)
    missing = [name for name in columns if name not in (reader.fieldnames or columns)]
    if missing:
        raise DamagedFileError(f"{path}: it lacks the columns {', '.join(missing)}")
    found = []
    try:
        for row in reader:
            if None in row or None in row.values():
                raise DamagedFileError(
                    f"{path}, line {reader.line_num}: not as many cells as columns"
                )
            found.append(row)
    except csv.Error as error:
        raise DamagedFileError(f"{path}, line {reader.line_num}: {error}") from error
    return found


def each(
    path: Path, columns: tuple[str, ...], make: Callable[[Mapping[str, str]], _Made]
) -> Iterator[_Made]:
    """Return `make` of each row.

    Raises:
        DamagedFileError: As in `read`, or `make` refuses a row.
    """
    for line, row in enumerate(read(path, columns), 2):
        try:
            made = make(row)
        except (ValueError, TypeError) as error:
            raise DamagedFileError(f"{path}, line {line}: {error}") from error
        yield made
