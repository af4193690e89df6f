"""Acts: how a configuration becomes a running server that is measured, and stopped with proof.

    runner = make_runner("simulated", study, seed=0, log_dir="logs")
    with runner.start(intent, on_process=store) as session:
        measurement = session.measure(point)

What starts processes or speaks HTTP is imported on first use, so that importing this package
stays cheap.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from runners.base import LaunchCommand, Runner, RunnerError, Session, StartProgress

if TYPE_CHECKING:
    from pathlib import Path

    from runners.phases import StartTimeouts
    from runners.process_runner import ProcessRunner
    from runners.readback import differences
    from runners.replay import ReplayRunner
    from runners.replay_table import ReplayTable, read_replay_table
    from runners.server_environment import (
        CommandPrefix,
        LocalEnvironment,
        ServerEnvironment,
        server_environment,
    )
    from runners.server_facts import read_server_info, simulated_of, speculation_of
    from runners.sglang import SGLangRunner
    from runners.sglang_command import sglang_command, shell
    from runners.simulated import SimulatedRunner
    from search_spaces.study import Study

_LAZY = {
    "CommandPrefix": "server_environment",
    "LocalEnvironment": "server_environment",
    "ProcessRunner": "process_runner",
    "ReplayRunner": "replay",
    "ReplayTable": "replay_table",
    "SGLangRunner": "sglang",
    "ServerEnvironment": "server_environment",
    "SimulatedRunner": "simulated",
    "StartTimeouts": "phases",
    "differences": "readback",
    "read_replay_table": "replay_table",
    "read_server_info": "server_facts",
    "server_environment": "server_environment",
    "sglang_command": "sglang_command",
    "shell": "sglang_command",
    "simulated_of": "server_facts",
    "speculation_of": "server_facts",
}

__all__ = [
    "CommandPrefix",
    "LaunchCommand",
    "LocalEnvironment",
    "ProcessRunner",
    "ReplayRunner",
    "ReplayTable",
    "Runner",
    "RunnerError",
    "SGLangRunner",
    "ServerEnvironment",
    "Session",
    "SimulatedRunner",
    "StartProgress",
    "StartTimeouts",
    "differences",
    "make_runner",
    "read_replay_table",
    "read_server_info",
    "server_environment",
    "sglang_command",
    "shell",
    "simulated_of",
    "speculation_of",
]


def make_runner(
    kind: str,
    study: Study,
    *,
    seed: int,
    log_dir: Path | str,
    first_launch: int = 0,
    timeouts: StartTimeouts | None = None,
) -> ProcessRunner:
    """The runner of a kind.

    Args:
        kind: `"sglang"` or `"simulated"`.
        study: What it runs.
        seed: Selects the prompts, and the noise of a simulation.
        log_dir: Where server logs go.
        first_launch: Number of its first launch (a resumed study's is not 0).
        timeouts: Longest time per start-up phase.

    Raises:
        ValueError: There is no such kind.
    """
    if kind == "sglang":
        from runners.sglang import SGLangRunner  # noqa: PLC0415 - see the module's docstring

        return SGLangRunner(study, seed=seed, log_dir=log_dir, timeouts=timeouts)
    if kind == "simulated":
        from runners.simulated import SimulatedRunner  # noqa: PLC0415 - as above

        return SimulatedRunner(
            study, seed=seed, log_dir=log_dir, first_launch=first_launch, timeouts=timeouts
        )
    raise ValueError(f"unknown runner {kind!r}: sglang or simulated")


def __getattr__(name: str) -> Any:  # noqa: ANN401 - PEP 562
    if (module := _LAZY.get(name)) is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = getattr(importlib.import_module(f"{__name__}.{module}"), name)
    globals()[name] = value
    return value
