"""Base classes of runners: a `Runner` starts servers, a `Session` measures one of them.

A runner of another engine subclasses both. The protocols below are optional capabilities: callers
test for them with `isinstance`. `docs/runners.md` has an example.
"""

from __future__ import annotations

import abc
import os
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol, Self, runtime_checkable

from results.records import Failure, Machine
from search_spaces.flags.flags import canonical_env_value
from search_spaces.secrets import is_reference, is_secret
from search_spaces.simulated_acceptance import simulation_variables

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping
    from types import TracebackType

    from results.records import LaunchIntent, Measurement, ProcessIdentity, Resolved
    from search_spaces.configuration import Configuration, Setting
    from search_spaces.workload import OperatingPoint


class RunnerError(Exception):
    """A launch, switch, measurement or stop failed; `failure` says why."""

    def __init__(self, failure: Failure) -> None:
        super().__init__(f"{failure.kind} in {failure.phase}: {failure.message}")
        self.failure = failure


class EnvironmentUnusableError(Exception):
    """The environment of the servers cannot be used, for example its interpreter."""


@dataclass(frozen=True, slots=True)
class LaunchCommand:
    """A server's command line and its changes to the environment.

    Attributes:
        argv: Interpreter and arguments.
        env: Variables to set.
        unset: Variables to remove from the caller's environment.
        prefix: Words before `argv` that pin the server (`numactl ...`). A command that is started
            unchanged has these words in `argv`.
    """

    argv: tuple[str, ...]
    env: tuple[tuple[str, str], ...] = ()
    unset: tuple[str, ...] = ()
    prefix: tuple[str, ...] = ()

    def environment(self) -> dict[str, str]:
        """The caller's environment with these changes, without variables that fake acceptance."""
        dropped = {*self.unset, *simulation_variables(os.environ)}
        kept = {name: value for name, value in os.environ.items() if name not in dropped}
        return kept | dict(self.env)


def with_variables(
    argv: Iterable[str], variables: Mapping[str, Any], *, fill_in: bool = True
) -> LaunchCommand:
    """Build a command that sets variables, and removes those whose value is `None`.

    Args:
        argv: The command.
        variables: Values by name.
        fill_in: Replace a secret given as `$NAME` by its value in the tuner's environment. A secret
            without a value there is neither set nor removed.
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
    """A start-up phase has begun (`"weights"`, `"cuda_graph"`, ...)."""

    phase: str
    elapsed_s: float


class Session(abc.ABC):
    """A running server, owned by one thread. Leaving the context stops the server.

    After `close`, or after a `RunnerError` of a dead server, no other method may be called.
    """

    resolved: Resolved
    """The configuration that the server reports."""
    phases: tuple[tuple[str, float], ...]
    """Seconds per start-up phase, in order."""
    ready_s: float
    """Seconds from the start of the process to the first correct answer."""

    @abc.abstractmethod
    def measure(self, point: OperatingPoint) -> Measurement:
        """Warm up, measure one window at `point`, and wait until the server is idle.

        The reasons against an untrustworthy window are in `Measurement.invalid`.

        Raises:
            RunnerError: The server died, hung, or did not become idle.
        """

    @abc.abstractmethod
    def close(self) -> None:
        """Stop the server and prove that none of its processes lives. Idempotent.

        Raises:
            RunnerError: A process still lives (a fault of the host).
        """

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
    """Starts servers of one engine for one study. Owned by one thread.

    A runner never writes to the database: `start` reports the process through a callback.
    """

    name: str
    """Registered name (`"sglang"`); part of the study's identity."""
    simulated: bool = False
    """Whether the figures are simulated."""
    time_scale: float = 1.0
    """Seconds of the study's clock per real second, as known before the first launch."""

    def check(self) -> str | None:
        """Say what this machine lacks (engine, GPUs, models) and the remedy, or `None`."""
        return None

    @abc.abstractmethod
    def command(self, configuration: Configuration) -> LaunchCommand:
        """Build the launch command of `configuration` for export, with the study's own port."""

    @abc.abstractmethod
    def start(
        self,
        intent: LaunchIntent,
        on_process: Callable[[ProcessIdentity, LaunchCommand], None],
        on_progress: Callable[[StartProgress], None] | None = None,
    ) -> Session:
        """Start a server, wait until it is ready, and prove that this launch owns it.

        Args:
            intent: The launch. With several settings, the session is a `SwitchableSession` that can
                apply each of them.
            on_process: Called as soon as the process exists.
            on_progress: Called when a start-up phase begins.

        Raises:
            RunnerError: The server did not become ready. No process is left, or the failure lists
                those that are.
        """

    @abc.abstractmethod
    def end_leftover(self, process: ProcessIdentity) -> tuple[int, ...]:
        """End the processes that a killed tuner's launch left, and return their pids.

        Processes belong to the launch by pid and start time, or by the mark in their environment.

        Raises:
            RunnerError: A process still lives, so that no measurement may start.
        """

    def wait(self, seconds: float) -> None:
        """Wait for `seconds` of the study's clock, without a server."""
        time.sleep(seconds / self.time_scale)

    def now(self) -> float:
        """Seconds on the study's clock, which is the server's own and monotonic."""
        return time.monotonic() * self.time_scale


@runtime_checkable
class HotSwitch(Protocol):
    """Capability of a runner: a running server can change its setting."""

    def can_switch(self, a: Configuration, b: Configuration) -> bool:
        """Whether one launch can measure both. An equivalence relation."""
        ...

    def no_switch(self) -> str | None:
        """Why no server can switch. `None`: some can, or no point of the study needs a switch."""
        ...


@runtime_checkable
class SwitchableSession(Protocol):
    """Capability of a session: the server can change its setting."""

    def apply(self, setting: Setting) -> Resolved:
        """Switch the idle server to `setting`, then read its configuration back.

        Raises:
            RunnerError: The server refused, or died.
        """
        ...


@runtime_checkable
class DraftPlacement(Protocol):
    """Capability of a runner: the draft may have another tensor-parallel size than the target."""

    def supports_draft_tp(self, draft_tp: int) -> bool:
        """Whether the draft can run at this tensor-parallel size."""
        ...


@runtime_checkable
class MachineFacts(Protocol):
    """Capability of a runner: it knows the machine of its servers."""

    def machine(self) -> Machine:
        """Hardware and software of the servers' machine; read once, before the first launch.

        Raises:
            EnvironmentUnusableError: They cannot be read.
        """
        ...


@runtime_checkable
class ExclusiveDevices(Protocol):
    """Capability of a runner: its measurements lock devices of the machine."""

    def devices(self) -> tuple[str, ...]:
        """Devices that a measurement needs for itself (`"gpu-UUID"`), sorted.

        Empty if a second tuner would not disturb a measurement.
        """
        ...


@runtime_checkable
class LoadFingerprint(Protocol):
    """Capability of a runner: it knows the prompts of a window without a server."""

    def load_fingerprint(self, point: OperatingPoint) -> str | None:
        """`Measurement.workload_fingerprint` of a window now; `None` if only a launch can tell."""
        ...


@runtime_checkable
class Remarks(Protocol):
    """Capability of a runner: it tells the user which features its launches lack."""

    def remarks(self) -> tuple[str, ...]:
        """Sentences for the user. A launch may add some."""
        ...


@runtime_checkable
class Simulation(Protocol):
    """Capability of a runner: its servers simulate a machine."""

    profile: str
    """Name of the simulated machine, with its GPUs."""

    def simulated_command(self, configuration: Configuration) -> LaunchCommand:
        """Build the launch command of the simulated server, with the study's own port."""
        ...


def machine_of(runner: Runner) -> Machine:
    """Machine of a runner's servers; an empty record if the runner does not know it."""
    return runner.machine() if isinstance(runner, MachineFacts) else Machine()


def devices_of(runner: Runner) -> tuple[str, ...]:
    """Devices that a runner's measurements need for themselves."""
    return runner.devices() if isinstance(runner, ExclusiveDevices) else ()


def remarks_of(runner: Runner) -> tuple[str, ...]:
    """What a runner tells the user about its launches."""
    return runner.remarks() if isinstance(runner, Remarks) else ()


def switch(session: Session, setting: Setting) -> Resolved:
    """Switch a session's server to `setting`.

    Raises:
        RunnerError: The server cannot switch, refused, or died.
    """
    if not isinstance(session, SwitchableSession):
        message = f"this runner cannot switch a running server to {setting}"
        raise RunnerError(Failure("cannot_switch", "load", "client", message))
    return session.apply(setting)


def differences(asked: Configuration, resolved: Configuration) -> tuple[str, ...]:
    """The knobs that the server does not run as asked, as sentences; empty if there are none.

    Knobs left to the server (`None`) and knobs that cannot be read back are not compared.
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
