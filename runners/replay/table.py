"""Tables of measurements for the replay runner.

The table is CSV, one row per configuration, operating point and repeat:

| column | meaning |
|---|---|
| `configuration` | the key of the configuration (`Configuration.key`) |
| `concurrency` | the operating point; empty in a row that has only a failure |
| `repeat` | number of the repeat, from 0; after the last repeat the first one follows |
| `output_tok_s` | output tokens per second |
| `accept_length` | tokens per verify, bonus included; empty without speculation |
| `launch_s` | seconds from start to ready; the first row of a configuration counts |
| `failure` | empty, or the kind of failure that ends a launch of the configuration (see below) |
| `window_s` | optional: length of the window; defaults to the length from the workload |
| `fault` | optional: fault of `failure`; defaults to `configuration` |

A `failure` with a `concurrency` is the reason why that window is invalid. The row is skipped if the
point has valid windows; otherwise launches of the configuration end with this failure.
"""

from __future__ import annotations

import csv
import math
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, get_args

from results.records import Failure, Fault

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from search_spaces.configuration import Configuration

COLUMNS = (
    "configuration",
    "concurrency",
    "repeat",
    "output_tok_s",
    "accept_length",
    "launch_s",
    "failure",
)


@dataclass(frozen=True, slots=True)
class ReplayRow:
    """One measurement of the table."""

    output_tok_s: float
    accept_length: float | None = None
    window_s: float | None = None


@dataclass(frozen=True, slots=True)
class ReplayEntry:
    """Rows of one configuration.

    Attributes:
        launch_s: Seconds from the start until the server is ready or fails.
        failure: Failure of every launch, if any.
        rows: Repeats by concurrency.
    """

    launch_s: float
    rows: Mapping[int, tuple[ReplayRow, ...]]
    failure: Failure | None = None


@dataclass(frozen=True, slots=True)
class ReplayTable:
    """Entries by `Configuration.key`."""

    entries: Mapping[str, ReplayEntry]


def read_replay_table(path: Path | str) -> ReplayTable:
    """Read a table from a CSV file.

    Raises:
        OSError: The file cannot be read.
        ValueError: The file is not a valid table; the message names file and line.
    """
    with Path(path).open(encoding="utf-8", newline="") as file:
        reader = csv.DictReader(file)
        missing = [name for name in COLUMNS if name not in (reader.fieldnames or ())]
        if missing:
            raise ValueError(f"{path}: the table lacks the columns {', '.join(missing)}")
        read: dict[str, _Building] = {}
        for row in reader:
            try:
                read.setdefault(row["configuration"], _Building()).add(row)
            except (ValueError, TypeError) as error:
                raise ValueError(f"{path}, line {reader.line_num}: {error}") from error
    return ReplayTable({key: building.entry() for key, building in read.items()})


class _Building:
    def __init__(self) -> None:
        self._launch_s: float | None = None
        self._failure: Failure | None = None
        self._not_believed: dict[int, Failure] = {}
        self._rows: dict[int, list[tuple[int, ReplayRow]]] = {}

    def add(self, row: Mapping[str, str]) -> None:
        if self._launch_s is None:
            self._launch_s = _positive(row, "launch_s", or_zero=True)
        if kind := row["failure"]:
            failure = Failure(kind, "ready", _fault(row), f"replayed: {kind}")
            if row["concurrency"]:
                self._not_believed.setdefault(int(row["concurrency"]), failure)
            else:
                self._failure = failure
            return
        measured = ReplayRow(
            _positive(row, "output_tok_s"),
            _positive(row, "accept_length") if row["accept_length"] else None,
            _positive(row, "window_s") if row.get("window_s") else None,
        )
        repeats = self._rows.setdefault(int(row["concurrency"]), [])
        repeats.append((int(row["repeat"]), measured))

    def entry(self) -> ReplayEntry:
        rows = {
            concurrency: tuple(row for _, row in sorted(repeats, key=lambda pair: pair[0]))
            for concurrency, repeats in self._rows.items()
        }
        unknown = (failure for point, failure in self._not_believed.items() if point not in rows)
        return ReplayEntry(self._launch_s or 0.0, rows, self._failure or next(unknown, None))


def _positive(row: Mapping[str, str], column: str, *, or_zero: bool = False) -> float:
    number = float(row[column])
    if math.isfinite(number) and (number > 0 or (or_zero and number == 0)):
        return number
    raise ValueError(f"{column} {number} is not {'0 or ' if or_zero else ''}a number above 0")


def _fault(row: Mapping[str, str]) -> Fault:
    named = row.get("fault") or "configuration"
    known: tuple[Fault, ...] = get_args(Fault)
    for fault in known:
        if fault == named:
            return fault
    raise ValueError(f"fault {named!r} is not one of {', '.join(known)}")


def table_of(entries: Iterable[tuple[Configuration, ReplayEntry]]) -> ReplayTable:
    """Make a table from configurations."""
    return ReplayTable({configuration.key: entry for configuration, entry in entries})
