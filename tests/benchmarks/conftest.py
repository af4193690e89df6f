"""Studies with planted noise, and the noise benchmark as a user runs it."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
import yaml

from benchmarks.noise.__main__ import main
from runners.simulated_server.engine.profile import PROFILES

if TYPE_CHECKING:
    from collections.abc import Callable

ROOT = Path(__file__).parents[2]

STUDY = """\
study: noisy
model: {{path: moonshotai/Kimi-K2.5, draft: lightseekorg/kimi-k2.5-eagle3}}
server: {{flags: {{tp-size: 8, trust-remote-code: true, max-running-requests: 64}}}}
space: {{speculation: [{{algorithm: none}}, {{algorithm: EAGLE3, num_steps: [2, 5], topk: 1}}]}}
workload: {{prompts: {{chat: 0.5, code: 0.5}}, output_tokens: 16, requests: 6,
           points: [{{concurrency: 1}}]}}
budget: {{launches: 4}}
runner: simulated
simulated: {{profile: {profile}, time_scale: 4.0}}
"""


OF_ALL = ("--study", "./study.yaml", "--output", "out/n")


class NoiseBenchmark:
    """`python -m benchmarks.noise` in a folder of its own."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.env = {k: v for k, v in os.environ.items() if not k.startswith("TUNER_")}
        self.env |= {"PYTHONPATH": str(ROOT), "TUNER_LOCKS": str(folder / "locks")}

    def plant(self, *, misbehave: list[dict[str, Any]] | None = None, **noise: float) -> None:
        """Writes a study of the Kimi machine with this noise and a quick start."""
        profile = yaml.safe_load((PROFILES / "kimi.yaml").read_text())
        profile["noise"] = noise
        profile["startup"] = dict.fromkeys(profile["startup"], 0.1)
        profile["misbehave"] = misbehave or []
        path = self.folder / "noisy.yaml"
        path.write_text(yaml.safe_dump(profile))
        (self.folder / "study.yaml").write_text(STUDY.format(profile=path))

    def start(self, *arguments: str) -> subprocess.Popen[str]:
        return subprocess.Popen(
            [sys.executable, "-m", "benchmarks.noise", *OF_ALL, *arguments],
            cwd=self.folder,
            env=self.env,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    def run(self, *arguments: str, code: int = 0) -> tuple[str, str]:
        process = self.start(*arguments)
        out, err = process.communicate(timeout=240)
        assert process.returncode == code, f"exit {process.returncode}\n{out}\n{err}"
        return out, err

    def here(self, *arguments: str) -> int:
        """The exit code of a run in this process: of one that starts no server."""
        handler = signal.getsignal(signal.SIGTERM)
        try:
            with contextlib.chdir(self.folder):
                return main([*OF_ALL, *arguments])
        finally:
            signal.signal(signal.SIGTERM, handler)


@pytest.fixture
def noise(tmp_path: Path) -> NoiseBenchmark:
    return NoiseBenchmark(tmp_path)


@pytest.fixture
def marked(noise: NoiseBenchmark) -> Callable[[], set[int]]:
    """Processes of launches that run in the benchmark's folder."""
    import psutil

    def find() -> set[int]:
        found = set()
        for process in psutil.process_iter():
            try:
                if "TUNER_LAUNCH" in process.environ() and process.cwd() == str(noise.folder):
                    found.add(process.pid)
            except psutil.Error:
                continue
        return found

    return find
