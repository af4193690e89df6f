"""Runners by name. To add a runner, add one module with a `Runner` class and one `register` call.

The command line's choices, its help and the check of a study's `runner` key follow from here.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Protocol, cast

if TYPE_CHECKING:
    from pathlib import Path

    from runners.base import Runner
    from runners.sglang.startup import StartTimeouts
    from search_spaces.study_file.study import Study

_CLASSES: dict[str, str] = {}
_WITH_PREFLIGHT: set[str] = set()


class RunnerFactory(Protocol):
    """A runner class; the arguments are those of `make_runner`."""

    def __call__(
        self,
        study: Study,
        *,
        seed: int,
        log_dir: Path | str,
        first_launch: int,
        timeouts: StartTimeouts | None,
    ) -> Runner: ...


def register(name: str, location: str, *, preflight: bool = False) -> None:
    """Register a runner class under a name.

    Args:
        name: Name on the command line and in study files.
        location: `module:class`. The module is imported when the runner is used.
        preflight: Whether the class has the capability `Preflight`.

    Raises:
        ValueError: The name is in use.
    """
    if name in _CLASSES:
        raise ValueError(f"runner {name!r} is already registered")
    _CLASSES[name] = location
    if preflight:
        _WITH_PREFLIGHT.add(name)


register("sglang", "runners.sglang.runner:SGLangRunner", preflight=True)
register("simulated", "runners.simulated:SimulatedRunner")


def runner_names() -> tuple[str, ...]:
    """Names of all runners."""
    return tuple(_CLASSES)


def has_preflight(name: str) -> bool:
    """Whether a runner has the capability `Preflight`, without importing the runner."""
    return name in _WITH_PREFLIGHT


def check_runner(name: str) -> str:
    """Return a registered name.

    Raises:
        ValueError: No runner has this name.
    """
    if name not in _CLASSES:
        raise ValueError(f"unknown runner {name!r}; use {' or '.join(runner_names())}")
    return name


def make_runner(
    name: str,
    study: Study,
    *,
    seed: int,
    log_dir: Path | str,
    first_launch: int = 0,
    timeouts: StartTimeouts | None = None,
) -> Runner:
    """Make the runner of a name.

    Args:
        name: One of `runner_names`.
        study: The study that the runner serves.
        seed: Selects the prompts and the noise of a simulation.
        log_dir: Folder of the server logs.
        first_launch: Number of the first launch (not 0 in a resumed study).
        timeouts: Maximum time per start-up phase.

    Raises:
        ValueError: No runner has this name.
    """
    module, _, attribute = _CLASSES[check_runner(name)].partition(":")
    factory = cast("RunnerFactory", getattr(importlib.import_module(module), attribute))
    return factory(study, seed=seed, log_dir=log_dir, first_launch=first_launch, timeouts=timeouts)
