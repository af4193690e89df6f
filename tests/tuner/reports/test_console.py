"""Where people read: widths, folding, no trailing blanks."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.table import Table

from tuner.reports.console import UNBOUND, fold, print_table, reader


@pytest.mark.parametrize(("columns", "width"), [("80", 80), ("200", 200), ("", UNBOUND)])
def test_a_pipe_is_as_wide_as_columns_has_it(columns, width, monkeypatch):
    monkeypatch.setenv("COLUMNS", columns)
    assert reader().width == width


@pytest.mark.parametrize(
    ("text", "width", "lines"),
    [
        ("EAGLE3 steps 2, NCCL_PROTO=LL", 40, ["EAGLE3 steps 2, NCCL_PROTO=LL"]),
        ("EAGLE3 steps 2, NCCL_PROTO=LL", 20, ["EAGLE3 steps 2,", "NCCL_PROTO=LL"]),
        ("NCCL_PROTO=LL,LL128,Simple", 20, ["NCCL_PROTO=LL,LL128,", "Simple"]),
        ("a nameoftwelve", 8, ["a", "nameoftw", "elve"]),
    ],
)
def test_names_are_broken_only_where_they_must_be(text, width, lines):
    assert fold(text, width).split("\n") == lines


@given(st.lists(st.text("ab_=,", min_size=1, max_size=30), max_size=6), st.integers(1, 40))
def test_folding_loses_nothing_and_keeps_the_width(words, width):
    folded = fold(" ".join(words), width)
    assert all(len(line) <= width for line in folded.split("\n"))
    assert folded.replace("\n", "").replace(" ", "") == "".join(words)


def test_no_line_of_a_piped_table_ends_in_blanks(capsys):
    table = Table("one", "other")
    table.add_row("1", "")
    print_table(reader(), table)
    lines = capsys.readouterr().out.splitlines()
    assert lines
    assert all(line == line.rstrip() for line in lines)
