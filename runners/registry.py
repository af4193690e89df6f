"""Runners by name. `_FACTORIES` lists the shipped ones; `register` adds another."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from pathlib import Path

    from runners.sglang.phases import StartTimeouts
    from runners.sglang.process_runner import ProcessRunner
    from search_spaces.study_file.study import Study


class RunnerFactory(Protocol):
    """Makes a runner; the arguments are those of `make_runner`."""

    def __call__(
        self,
        study: Study,
        *,
        seed: int,
        log_dir: Path | str,
        first_launch: int,
        timeouts: StartTimeouts | None,
    ) -> ProcessRunner: ...


def _sglang(
    study: Study,
    *,
    seed: int,
    log_dir: Path | str,
    first_launch: int,
    timeouts: StartTimeouts | None,
) -> ProcessRunner:
    from runners.sglang.runner import SGLangRunner  # noqa: PLC0415 - a runner is imported when it is used

    del first_launch  # only simulated noise depends on the launch number
    return SGLangRunner(study, seed=seed, log_dir=log_dir, timeouts=timeouts)


def _simulated(
    study: Study,
    *,
    seed: int,
    log_dir: Path | str,
    first_launch: int,
    timeouts: StartTimeouts | None,
) -> ProcessRunner:
    from runners.simulated import SimulatedRunner  # noqa: PLC0415 - as above

    return SimulatedRunner(
        study, seed=seed, log_dir=log_dir, first_launch=first_launch, timeouts=timeouts
    )


_FACTORIES: dict[str, RunnerFactory] = {"sglang": _sglang, "simulated": _simulated}


def register(name: str, factory: RunnerFactory) -> None:
    """Adds a runner.

    Raises:
        ValueError: The name is taken.
    """
    if name in _FACTORIES:
        raise ValueError(f"runner {name!r} is already registered")
    _FACTORIES[name] = factory


def runner_names() -> tuple[str, ...]:
    """The names of all registered runners."""
    return tuple(_FACTORIES)


def make_runner(
    kind: str,
    study: Study,
    *,
    seed: int,
    log_dir: Path | str,
    first_launch: int = 0,
    timeouts: StartTimeouts | None = None,
) -> ProcessRunner:
    """Makes the runner that is registered as `kind`.

    Args:
        kind: One of `runner_names`.
        study: The study that the runner serves.
        seed: Selects the prompts and the noise of a simulation.
        log_dir: Folder of the server logs.
        first_launch: Number of the first launch (not 0 in a resumed study).
        timeouts: Longest time per start-up phase.

    Raises:
        ValueError: No runner has this name.
    """
    if (factory := _FACTORIES.get(kind)) is None:
        raise ValueError(f"unknown runner {kind!r}; use {' or '.join(runner_names())}")
    return factory(study, seed=seed, log_dir=log_dir, first_launch=first_launch, timeouts=timeouts)
