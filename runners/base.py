"""Base classes of runners: a `Runner` starts servers, a `Session` is one running server.

A runner of another engine implements `Runner.command`, `Runner.start`, `Session.measure` and
`Session.close`. All other methods are optional capabilities with a default. Both classes raise
`RunnerError`, whose `Failure` decides what the sweep does next.
"""

from __future__ import annotations

import abc
import os
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Self

from results.records import Failure, Machine
from search_spaces.flags.flags import canonical_env_value
from search_spaces.secrets import is_reference, is_secret
from search_spaces.simulated_acceptance import simulation_variables

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping
    from types import TracebackType

    from results.records import (
        LaunchIntent,
        Measurement,
        ProcessIdentity,
        Resolved,
    )
    from search_spaces.configuration import Configuration, Setting
    from search_spaces.workload import OperatingPoint


class RunnerError(Exception):
    """A launch, switch, measurement or stop failed; `failure` has the cause."""

    def __init__(self, failure: Failure) -> None:
        super().__init__(f"{failure.kind} in {failure.phase}: {failure.message}")
        self.failure = failure


class EnvironmentUnusableError(Exception):
    """The environment of the servers cannot be used, for example its interpreter."""


@dataclass(frozen=True, slots=True)
class LaunchCommand:
    """Command line and environment of a server.

    Attributes:
        argv: Interpreter and arguments.
        env: Variables to set.
        unset: Variables to remove from the caller's environment.
        prefix: Words before `argv` that pin the process (`numactl ...`). The command of a launch
            has these words in `argv`.
    """

    argv: tuple[str, ...]
    env: tuple[tuple[str, str], ...] = ()
    unset: tuple[str, ...] = ()
    prefix: tuple[str, ...] = ()

    def environment(self) -> dict[str, str]:
        """Return the caller's environment with these changes, without simulated acceptance."""
        dropped = {*self.unset, *simulation_variables(os.environ)}
        kept = {name: value for name, value in os.environ.items() if name not in dropped}
        return kept | dict(self.env)


def with_variables(
    argv: Iterable[str], variables: Mapping[str, Any], *, fill_in: bool = True
) -> LaunchCommand:
    """Return a command that sets the variables, and removes those that are `None`.

    Args:
        argv: The command.
        variables: Values by name.
        fill_in: Whether a secret given as `$NAME` takes its value from the tuner's environment. A
            name without a value there is not changed.
    """
    canonical = sorted((name, canonical_env_value(value)) for name, value in variables.items())
    present = [(name, value) for name, value in canonical if value is not None]
    if fill_in:
        filled = ((name, _filled_in(name, value)) for name, value in present)
        present = [(name, value) for name, value in filled if value is not None]
    unset = tuple(name for name, value in canonical if value is None)
    return LaunchCommand(tuple(argv), tuple(present), unset)


def _filled_in(name: str, value: str) -> str | None:
    if is_secret(name) and is_reference(value):
        return os.environ.get(value.strip("${}"))
    return value


@dataclass(frozen=True, slots=True)
class StartProgress:
    """Start of a start-up phase (`"weights"`, `"cuda_graph"`, ...)."""

    phase: str
    elapsed_s: float


def differences(asked: Configuration, resolved: Configuration) -> tuple[str, ...]:
    """Return one sentence per knob that the server does not run as asked.

    Knobs that are `None` and knobs that cannot be read back are not compared.
    """
    found = []
    for name in ("algorithm", "num_steps", "topk", "num_draft_tokens"):
        wanted, is_ = getattr(asked.speculation, name), getattr(resolved.speculation, name)
        if wanted is not None and wanted != is_:
            found.append(f"{name}: asked {wanted}, runs {is_}")
    if asked.draft_tp is not None and asked.draft_tp != resolved.draft_tp:
        found.append(f"draft_tp: asked {asked.draft_tp}, runs {resolved.draft_tp}")
    flags, env = dict(resolved.flags), dict(resolved.env)
    for name, value in asked.flags:
        if value is not None and name in flags and flags[name] != value:
            found.append(f"{name}: asked {value!r}, runs {flags[name]!r}")
    for name, value in asked.env:
        if name in env and env[name] != value:
            found.append(f"{name}: asked {value!r}, runs {env[name]!r}")
    return tuple(found)


class Session(abc.ABC):
    """A running server; leaving the context manager stops it.

    One thread owns a session. Do not call it after `close`, or after a `RunnerError` of a dead
    server.
    """

    resolved: Resolved
    """Configuration that the server reports; `apply` updates it."""
    phases: tuple[tuple[str, float], ...]
    """Seconds per start-up phase, in order."""
    ready_s: float
    """Seconds from the start of the process to the first valid answer."""

    @abc.abstractmethod
    def measure(self, point: OperatingPoint) -> Measurement:
        """Warm up, measure one window at `point`, and wait until the server is idle.

        `invalid` of the result lists the reasons why a window must not be used.

        Raises:
            RunnerError: The server died, hung, or stayed busy.
        """

    @abc.abstractmethod
    def close(self) -> None:
        """Stop the server and check that all of its processes are gone. Idempotent.

        Raises:
            RunnerError: A process is left (a fault of the host).
        """

    def apply(self, setting: Setting) -> Resolved:
        """Switch the idle server to `setting` and read its configuration back.

        Only called for settings that `Runner.can_switch` allows.

        Raises:
            RunnerError: The server refused, or died.
        """
        failure = Failure(
            "cannot_switch", "switch", "client", f"this runner cannot switch a server to {setting}"
        )
        raise RunnerError(failure)

    def kill(self) -> None:
        """End the server at once (second Ctrl-C). Idempotent."""
        self.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()


class Runner(abc.ABC):
    """Starts servers of one kind for one study.

    One thread owns a runner. A runner never uses the database.
    """

    name: str
    """Name in the registry; part of the study's identity."""
    simulated: bool = False
    """Whether the figures are simulated."""

    @abc.abstractmethod
    def command(self, configuration: Configuration) -> LaunchCommand:
        """Return the launch command of a configuration, as it is exported."""

    @abc.abstractmethod
    def start(
        self,
        intent: LaunchIntent,
        on_process: Callable[[ProcessIdentity, LaunchCommand], None],
        on_progress: Callable[[StartProgress], None] | None = None,
    ) -> Session:
        """Start a server and wait until it is ready.

        Args:
            intent: The launch. A server with several `intent.settings` must be able to apply all.
            on_process: Called as soon as the process exists, so that the caller stores it.
            on_progress: Called at the start of each start-up phase.

        Raises:
            RunnerError: The server did not become ready. No process is left, or the failure lists
                those that are.
        """

    # Optional capabilities.

    profile: str | None = None
    """Profile and GPUs of a simulation; `None` for real servers."""
    time_scale: float = 1.0
    """Seconds of the study's clock per real second, as far as known before a launch."""

    def check(self) -> str | None:
        """Return what is missing on this machine and what to do, or `None`."""
        return None

    def machine(self) -> Machine:
        """Return the hardware and software of the servers; called once, before the first launch.

        Raises:
            EnvironmentUnusableError: They cannot be read.
        """
        return Machine()

    def devices(self) -> tuple[str, ...]:
        """Return the devices that a server needs for itself (`"gpu-UUID"`), sorted.

        Two tuners may measure side by side only if they share no device.
        """
        return ()

    def remarks(self) -> tuple[str, ...]:
        """Return sentences for the user on abilities that the launches lack; a launch may add."""
        return ()

    def load_fingerprint(self, point: OperatingPoint) -> str | None:
        """Return the `Measurement.workload_fingerprint` of a window, without a server.

        `None` if only a launch can know it.
        """
        del point
        return None

    def can_switch(self, a: Configuration, b: Configuration) -> bool:
        """Whether `Session.apply` can switch a server between both: an equivalence relation."""
        return a == b

    def no_switch(self) -> str | None:
        """Return why no server can be switched; `None` if one can, or if no setting needs it."""
        return None

    def supports_draft_tp(self, draft_tp: int) -> bool:
        """Whether the draft can run at this tensor-parallel size, the target's own included."""
        del draft_tp
        return True

    def end_leftover(self, process: ProcessIdentity) -> tuple[int, ...]:
        """End the processes that a killed tuner left of a launch, and return their pids.

        Only processes of that launch are ended: by pid and start time, or by the mark in their
        environment.

        Raises:
            RunnerError: A process is left; nothing may be measured beside it.
        """
        del process
        return ()

    def wait(self, seconds: float) -> None:
        """Wait for `seconds` of the study's clock, without a server."""
        time.sleep(seconds / self.time_scale)

    def now(self) -> float:
        """Return the monotonic seconds of the study's clock."""
        return time.monotonic() * self.time_scale
