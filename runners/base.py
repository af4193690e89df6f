"""The runner seam: how a configuration becomes a running server that can be measured.

`Runner.start` gives a `Session`; a session applies settings and measures operating points. Both
raise `RunnerError`, which carries a `Failure` value: the sweep loop decides what it means.
"""

from __future__ import annotations

import abc
import os
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Self

from results.records import Machine
from search_spaces.flags.flags import canonical_env_value
from search_spaces.secrets import is_reference, is_secret
from search_spaces.simulated_acceptance import simulation_variables

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping
    from types import TracebackType

    from results.records import (
        Failure,
        LaunchIntent,
        Measurement,
        ProcessIdentity,
        Resolved,
    )
    from search_spaces.configuration import Configuration, Setting
    from search_spaces.workload import OperatingPoint


class RunnerError(Exception):
    """A launch, switch, measurement or stop failed; `failure` says why."""

    def __init__(self, failure: Failure) -> None:
        super().__init__(f"{failure.kind} in {failure.phase}: {failure.message}")
        self.failure = failure


@dataclass(frozen=True, slots=True)
class LaunchCommand:
    """A server's command line.

    Attributes:
        argv: From the interpreter on.
        env: Variables to set.
        unset: Variables to remove where the caller's environment has them.
        prefix: Words before it that pin it (`numactl ...`); a command that is to be started as it
            is has them in `argv`.
    """

    argv: tuple[str, ...]
    env: tuple[tuple[str, str], ...] = ()
    unset: tuple[str, ...] = ()
    prefix: tuple[str, ...] = ()

    def environment(self) -> dict[str, str]:
        """The caller's environment with these changes; it never simulates acceptance by itself."""
        dropped = {*self.unset, *simulation_variables(os.environ)}
        kept = {name: value for name, value in os.environ.items() if name not in dropped}
        return kept | dict(self.env)


def with_variables(
    argv: Iterable[str], variables: Mapping[str, Any], *, fill_in: bool = True
) -> LaunchCommand:
    """A command that sets variables, and removes those that are `None`.

    Args:
        argv: The command.
        variables: By name.
        fill_in: Whether a secret that is given as `$NAME` takes its value from the environment of
            the tuner; where that has none, the variable is left alone.
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
    """A phase of the start-up that has begun (`"weights"`, `"cuda_graph"`, ...)."""

    phase: str
    elapsed_s: float


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


class Session(abc.ABC):
    """A running server. A context manager: leaving it stops the server, with proof.

    Owned by one thread. After `close` (or a `RunnerError` with a dead server) nothing else may be
    called. `resolved` is what the server says it runs *now*: it changes with `apply`.
    """

    resolved: Resolved
    """What the server says it runs."""
    phases: tuple[tuple[str, float], ...]
    """Seconds per start-up phase, in order."""
    ready_s: float
    """Seconds from start to the first good generation."""

    @abc.abstractmethod
    def apply(self, setting: Setting) -> Resolved:
        """Switches the idle server to `setting` and reads back what it runs.

        Raises:
            RunnerError: The server refused, or is gone.
        """

    @abc.abstractmethod
    def measure(self, point: OperatingPoint) -> Measurement:
        """Warms up, measures one window at `point`, and leaves the server idle.

        A window that cannot be believed is returned with its reasons in `invalid`.

        Raises:
            RunnerError: The server died, hung, or did not come to rest.
        """

    @abc.abstractmethod
    def close(self) -> None:
        """Stops the server and proves that it is gone. Idempotent.

        Raises:
            RunnerError: Something of it is left (a fault of the host).
        """

    @abc.abstractmethod
    def kill(self) -> None:
        """Ends the server's process group now, without manners (second Ctrl-C). Idempotent."""

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
    """Starts servers of one kind for one study. Owned by one thread.

    Never touches the database: it reports the process through a callback, and the caller stores.
    """

    name: str
    """`"sglang"`, `"simulated"` or `"replay"`: part of the study's identity."""
    simulated: bool
    """Whether its figures are simulated."""
    profile: str | None = None
    """What a simulation plays, with its GPUs; `None` of real servers."""
    time_scale: float = 1.0
    """Seconds of the study's clock per real second, as far as known before a server runs."""

    @abc.abstractmethod
    def check(self) -> str | None:
        """What is missing on this machine (SGLang, GPUs, models), with what to do; else `None`."""

    def machine(self) -> Machine:
        """Where its servers run, with which software; asked once, before the first launch."""
        return Machine()

    def devices(self) -> tuple[str, ...]:
        """What of a machine its servers have to themselves (`"gpu-UUID"`), sorted.

        Empty where a second tuner could measure beside it without either being wrong.
        """
        return ()

    def remarks(self) -> tuple[str, ...]:
        """What its launches go without here, and why: for the user, in sentences.

        May grow with a launch: what nobody has told yet is worth a line.
        """
        return ()

    def load_fingerprint(self, point: OperatingPoint) -> str | None:
        """`Measurement.workload_fingerprint` of what would be sent now, without a server.

        `None` where only a launch can tell.
        """
        del point
        return None

    @abc.abstractmethod
    def can_switch(self, a: Configuration, b: Configuration) -> bool:
        """Whether one launch can be measured at both, by `Session.apply`.

        An equivalence relation: reflexive, symmetric and transitive.
        """

    def no_switch(self) -> str | None:
        """Why none of its servers can be switched; `None`: some can, or nothing asks for it."""
        return None

    @abc.abstractmethod
    def supports_draft_tp(self, draft_tp: int) -> bool:
        """Whether the draft can be placed at this tensor-parallel size."""

    @abc.abstractmethod
    def command(self, configuration: Configuration) -> LaunchCommand:
        """The command that starts `configuration`, without a trial's own port: for export."""

    @abc.abstractmethod
    def start(
        self,
        intent: LaunchIntent,
        on_process: Callable[[ProcessIdentity, LaunchCommand], None],
        on_progress: Callable[[StartProgress], None] | None = None,
    ) -> Session:
        """Starts a server and waits until it is ready and proven to be ours.

        With several `intent.settings` the server is started such that all of them can be applied.
        `on_process` is called as soon as the process exists, before anything is waited for.

        Raises:
            RunnerError: It did not become ready; nothing of it is left running (or the failure
                says what is).
        """

    @abc.abstractmethod
    def end_leftover(self, process: ProcessIdentity) -> tuple[int, ...]:
        """Ends what a killed tuner's launch left; returns the pids that were ended.

        Only processes of that launch are touched: by pid and start time, or by the mark in their
        environment.

        Raises:
            RunnerError: Something of it lives on: nothing may be measured beside it.
        """

    @abc.abstractmethod
    def wait(self, seconds: float) -> None:
        """Lets `seconds` of the study's clock pass, without a server."""

    @abc.abstractmethod
    def now(self) -> float:
        """Seconds on the study's clock (the server's own time; monotonic)."""
