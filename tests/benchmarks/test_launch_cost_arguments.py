"""What `benchmarks.launch_cost` refuses before it starts a server."""

from __future__ import annotations

import sys

import pytest

from benchmarks.launch_cost import main


@pytest.mark.parametrize(
    ("given", "said"),
    [
        (("--study", "nosuch"), "No shipped study"),
        (("--study", "tiny", "--launches", "0"), "--launches"),
        (("--study", "tiny", "--blocks", "-1"), "--blocks"),
        (("--study", "tiny", "--point", "1000"), "the study has points 0 to"),
        (("--study", "tiny", "--point", "-1"), "the study has points 0 to"),
        (("--study", "tiny", "--ways", "exec,none"), "unknown none"),
    ],
)
def test_refused(tmp_path, monkeypatch, capsys, given, said):
    out = tmp_path / "out"
    monkeypatch.setattr(sys, "argv", ["launch_cost", "--output", str(out), *given])
    with pytest.raises(SystemExit, match="2"):
        main()
    assert said in capsys.readouterr().err
    assert not out.exists()
