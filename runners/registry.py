"""Runners by name."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path

    from runners.process.phases import StartTimeouts
    from runners.process.runner import ProcessRunner
    from search_spaces.study_file.study import Study


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
        from runners.sglang.runner import SGLangRunner  # noqa: PLC0415 - a runner is imported when it is used

        return SGLangRunner(study, seed=seed, log_dir=log_dir, timeouts=timeouts)
    if kind == "simulated":
        from runners.simulated import SimulatedRunner  # noqa: PLC0415 - as above

        return SimulatedRunner(
            study, seed=seed, log_dir=log_dir, first_launch=first_launch, timeouts=timeouts
        )
    raise ValueError(f"unknown runner {kind!r}: sglang or simulated")
