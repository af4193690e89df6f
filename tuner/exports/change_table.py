"""What an export changes against a baseline, as a table for people."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rich.box import SIMPLE_HEAD
from rich.table import Table
from rich.text import Text

from search_spaces.simulated_acceptance import MARK
from tuner.console import print_table, reader
from tuner.exports.change_words import (
    closing_words,
    describe_name,
    describe_value,
    describe_worth,
    opening_words,
)

if TYPE_CHECKING:
    from tuner.exports.exported import Exported


def render_changes(exported: Exported) -> None:
    """Prints the comparison to stdout."""
    console = reader()
    found, simulated = exported.contributions, exported.simulated
    mark = ", every figure simulated" if simulated else ""
    mark += f"; {MARK}" if exported.facts["simulated_acceptance"] else ""
    title = f"study {exported.study}, trial {exported.trial}{mark}"
    console.print(Text(title), style="bold")
    console.print(Text(opening_words(found)))
    if found.changes:
        table = Table(box=SIMPLE_HEAD)
        for name in ("", found.baseline or "", "exported", "worth"):
            table.add_column(name, overflow="fold")
        for change in found.changes:
            knob = change.knob
            cells = (
                describe_name(knob),
                describe_value(knob, change.before),
                describe_value(knob, change.after),
                describe_worth(change, found, simulated=False),
            )
            # As text: a value may hold what the console takes for markup.
            table.add_row(*map(Text, cells))
        print_table(console, table)
    for line in closing_words(found, simulated=simulated):
        console.print(Text(line))
