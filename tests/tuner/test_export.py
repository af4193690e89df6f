"""What an exported script says of itself."""

from __future__ import annotations

from dataclasses import replace

from runners.base import LaunchCommand
from tuner.export import export_shell

from .replays import Odd, play


def test_warnings_go_with_the_command(small, store):
    study = small(steps="[1]", protos="[null]")

    def bend(configuration, measurement):
        return replace(measurement, warnings=("degenerate_output: all answers\nare '!!!!'",))

    report = play(study, store, Odd(study, bend))
    best = report.standing.best
    script = export_shell(report, best, LaunchCommand(("python", "-m", "sglang.launch_server")))
    assert "# WARNING: degenerate_output: all answers are '!!!!'\n" in script
    assert all(line.startswith(("#", "exec", "unset")) for line in script.splitlines() if line)
