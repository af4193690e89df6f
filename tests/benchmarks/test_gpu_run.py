"""`benchmarks/gpu/run.sh`: what it calls, in which folder, and what it refuses before anything.

Its interpreters are stand-ins that note how they were called.
"""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

RUN = Path(__file__).parents[2] / "benchmarks" / "gpu" / "run.sh"
STAND_IN = '#!/bin/sh\necho "$(basename "$0")|$(basename "$PWD")|$*" >> "$CALLS"\n'


@pytest.fixture
def run(tmp_path):
    """Runs it from a folder with the stand-ins; the outcome, and the calls."""
    here = tmp_path / "my machine"
    (here / "bin").mkdir(parents=True)
    for name in ("python", "tuner", "sglang-python"):
        (here / "bin" / name).write_text(STAND_IN)
        (here / "bin" / name).chmod(0o755)
    calls = tmp_path / "calls"
    given = {
        "PATH": "/usr/bin:/bin",
        "CALLS": str(calls),
        "PYTHON": "bin/python",
        "TUNER_SGLANG_PYTHON": "bin/sglang-python",
    }

    def start(*arguments, **env):
        done = subprocess.run(
            ["bash", RUN, *arguments],
            cwd=here,
            env=given | env,
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )
        found = calls.read_text().splitlines() if calls.exists() else []
        calls.unlink(missing_ok=True)
        return done, [call.split("|") for call in found]

    return start


@pytest.mark.parametrize("env", [{}, {"TUNER": "bin/../bin/python -m tuner"}])
def test_relative_interpreters_and_a_folder_with_a_space(run, env):
    done, calls = run("one-gpu-eagle3", "of mine/a study", **env)
    assert done.returncode == 0, done.stderr
    assert calls[0][2].endswith("models.py of mine/a study")
    # `show` knows the study, says the stand-in: so it goes on.
    of_tuner = [arguments.split()[2] for _, _, arguments in calls if "-m tuner" in arguments]
    assert of_tuner == ["show", "resume", "export", "export"]
    assert {folder for _, folder, _ in calls[1:]} == {"a study"}
    assert "--study one-gpu-eagle3 --output one-gpu-eagle3.csv" in calls[-1][2]


def test_three_drafts(run):
    done, calls = run("one-gpu-standalone", "s")
    assert done.returncode == 0, done.stderr
    assert calls[0][0] == "sglang-python"
    assert calls[0][2].endswith("models.py s --weights")
    resumed = [arguments for _, _, arguments in calls if "resume" in arguments]
    assert [name for name in ("01", "02", "05") if f"standalone-{name}.yaml" in str(resumed)] == [
        *("01", "02", "05")
    ]


@pytest.mark.parametrize("study", ["one-gpu-depths", "one-gpu-trees", "two-gpus-depths"])
def test_depths_are_measured_both_ways(run, study, tmp_path):
    done, calls = run(study, "a folder/d", ORDER="alone")
    assert done.returncode == 0, done.stderr
    [_, (program, folder, arguments)] = calls
    assert (program, folder) == ("python", "d")
    assert f"hot_switch.py --study ./{study}.yaml --storage sqlite:///tuner.db" in arguments
    assert f"--order alone --output {study}.md" in arguments
    # The interpreter's path has a space in it, and is one word of the tuner's command.
    assert "my\\ machine/bin/python -m tuner" in arguments
    written = tmp_path / "my machine" / "a folder" / "d" / f"{study}.yaml"
    assert f"study: {study}\n" in written.read_text()


@pytest.mark.parametrize(
    ("arguments", "env", "said"),
    [
        ((), {}, "usage"),
        (("one-gpu-eagle3",), {}, "usage"),
        (("one-gpu-eagle3", "f", "more"), {}, "usage"),
        (("one-gpu-noise", "f"), {}, "no study 'one-gpu-noise'"),
        (("../gpu/one-gpu-eagle3", "f"), {}, "no study"),
        (("one-gpu-eagle3", "f"), {"TUNER_SGLANG_PYTHON": ""}, "export TUNER_SGLANG_PYTHON"),
        (("one-gpu-eagle3", "f"), {"TUNER_SGLANG_PYTHON": "bin/none"}, "bin/none"),
        (("one-gpu-eagle3", "f"), {"PYTHON": "no-such-python"}, "no no-such-python"),
        (("one-gpu-eagle3", "f"), {"TUNER": "bin/none --x"}, "bin/none"),
    ],
)
def test_refused_before_anything(run, tmp_path, arguments, env, said):
    done, calls = run(*arguments, **env)
    assert (done.returncode, calls) == (2, [])
    assert said in done.stderr
    assert not (tmp_path / "my machine" / "f").exists()
