"""The noise benchmark's files where a run was killed or somebody changed them, and its numbers."""

from __future__ import annotations

from pathlib import Path

import pytest

from benchmarks.noise.__main__ import main
from benchmarks.noise.rows import DamagedFileError, append, read

SHIPPED = Path(__file__).parents[2] / "benchmarks" / "data" / "h200-disturbed-aside.csv"


def test_a_row_without_its_end_is_not_read_and_goes(tmp_path):
    path, columns = tmp_path / "n.csv", ("a", "b")
    append(path, columns, [{"a": 1, "b": 2}, {"a": 3, "b": 4}])
    with path.open("a") as file:
        file.write("5,6")
    assert [row["a"] for row in read(path, columns)] == ["1", "3"]
    append(path, columns, [{"a": 7, "b": 8}])
    assert path.read_text() == "a,b\n1,2\n3,4\n7,8\n"
    # Killed before its first row was whole.
    path.write_text("a,")
    assert read(path, columns) == []
    append(path, columns, [{"a": 7, "b": 8}])
    assert path.read_text() == "a,b\n7,8\n"


@pytest.mark.parametrize(
    ("before", "after", "said"),
    [
        ("quiet,", "", "n-aside.csv, line 2: not as many cells as columns"),
        (",fingerprint", ",finger", "n-aside.csv: it lacks the columns fingerprint"),
        ("EAGLE3,2,", "EAGLE3,two,", "n-aside.csv, line 2: invalid literal"),
        ("concurrency", "\xe4", "n-aside.csv: 'utf-8' codec"),
    ],
)
def test_a_damaged_file_is_named(tmp_path, capsys, before, after, said):
    text = SHIPPED.read_text()
    assert before in text
    (tmp_path / "n-aside.csv").write_bytes(text.replace(before, after, 1).encode("latin-1"))
    assert main(["--output", str(tmp_path / "n"), "--report"]) == 2
    assert said in capsys.readouterr().err


def test_a_table_is_written_over_by_nobody(tmp_path):
    path = tmp_path / "n.csv"
    path.write_bytes(b"\xff\n")
    with pytest.raises(DamagedFileError, match=r"n\.csv"):
        append(path, ("a",), [{"a": 1}])
    assert path.read_bytes() == b"\xff\n"


def test_nothing_to_report_on(tmp_path, capsys):
    assert main(["--output", str(tmp_path / "n"), "--report"]) == 2
    assert "does not exist; measure first" in capsys.readouterr().err


@pytest.mark.parametrize(
    "given",
    [
        *(("--launches", "-1"), ("--blocks", "0"), ("--requests", "0"), ("--output-tokens", "0")),
        *(("--cycles", "0"), ("--concurrency", "0"), ("--minutes", "-1"), ("--minutes", "nan")),
        *(("--drift-minutes", "inf"), ("--blocks", "many")),
    ],
)
def test_numbers_that_make_no_sense(tmp_path, capsys, given):
    with pytest.raises(SystemExit, match="2"):
        main(["--study", "tiny", "--output", str(tmp_path / "n"), *given])
    assert f"argument {given[0]}" in capsys.readouterr().err
