"""Records: what was planned, launched and measured, as plain frozen values.

Every layer above speaks in these. They carry their units in their names; times are seconds (`_s`)
or milliseconds (`_ms`), always in the server's own time: a simulated server that runs faster than
life is converted before a record is made.
"""

from __future__ import annotations

import enum
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal

from results.cycle import PARTS as PARTS  # noqa: PLC0414 - its names
from results.cycle import BatchCycles as BatchCycles  # noqa: PLC0414 - a record like the rest
from results.cycle import CycleTimes as CycleTimes  # noqa: PLC0414 - a record like the rest
from results.cycle import PartTime as PartTime  # noqa: PLC0414 - a record like the rest
from results.machine import Machine as Machine  # noqa: PLC0414, TC001 - a record like the rest
from results.measurement import Measurement as Measurement  # noqa: PLC0414, TC001 - as above
from results.measurement import RequestSample as RequestSample  # noqa: PLC0414 - as above

if TYPE_CHECKING:
    from search_spaces.configuration import Configuration, Setting

Fault = Literal["configuration", "host", "study", "client"]
"""Who is to blame: the configuration (infeasible), the host (retry or pause), the study (stop),
or the tuner's own side (a bug, or an interrupt)."""

LOSING_FAULTS: tuple[Fault, ...] = ("host", "client")
"""Faults that lose a launch: it says nothing of its configuration and spends no budget."""


KILLED = frozenset({"scheduler_killed", "server_killed"})
"""Failure kinds that either the host or the configuration may have caused."""


class TrialState(enum.StrEnum):
    """What became of a trial."""

    RUNNING = "running"
    COMPLETE = "complete"
    INFEASIBLE = "infeasible"
    """It cannot run, or violates a constraint of the objective."""
    INVALID = "invalid"
    """It was measured, but the measurement is not believed."""
    FAILED = "failed"
    """A fault of the host or the study, not of the configuration."""
    INACTIVE = "inactive"
    """The server ignored a knob, so this is not the configuration that was asked for; or it would
    ignore one, so that it is another trial's, and it was not launched."""

    @property
    def is_verdict(self) -> bool:
        """Whether the state judges the configuration (and so spends budget)."""
        return self in {TrialState.COMPLETE, TrialState.INFEASIBLE, TrialState.INVALID}


class Purpose(enum.StrEnum):
    """Why a configuration is measured."""

    BASELINE = "baseline"
    SEARCH = "search"
    ANCHOR = "anchor"
    CONFIRMATION = "confirmation"
    RETRY = "retry"


class LaunchState(enum.StrEnum):
    """What became of a launch."""

    RUNNING = "running"
    COMPLETE = "complete"
    """It served, and every setting in it was judged."""
    INFEASIBLE = "infeasible"
    """Its configuration cannot run."""
    FAILED = "failed"
    """Lost to the host, the study or the client."""
    LOST = "lost"
    """The tuner was killed or interrupted while it ran."""


@dataclass(frozen=True, slots=True)
class Failure:
    """Why something did not work; a value, so that it can be stored and shown.

    Attributes:
        kind: A short stable code (`"cuda_oom"`, `"port_taken"`, `"ready_timeout"`, ...).
        phase: Where it happened (`"arguments"`, `"distributed"`, `"weights"`, `"kv_cache"`,
            `"cuda_graph"`, `"warmup"`, `"ready"`, `"load"`, `"stop"`).
        fault: Who is to blame.
        message: One or two sentences with the salient line of the log.
    """

    kind: str
    phase: str
    fault: Fault
    message: str

    def to_dict(self) -> dict[str, str]:
        """The JSON shape of `docs/contract.md`."""
        return {
            "kind": self.kind,
            "phase": self.phase,
            "fault": self.fault,
            "message": self.message,
        }


@dataclass(frozen=True, slots=True)
class ProcessIdentity:
    """One server process tree, named so that it can never be confused with another.

    Attributes:
        pid: The process that was started; also its process group and session id.
        started: Start time of `pid` as the kernel reports it (seconds since the epoch), so that
            a reused pid is not mistaken for ours.
        mark: The launch's unique mark, carried in the environment of every descendant.
        port: The HTTP port.
        host: Name of the machine on which it runs.
    """

    pid: int
    started: float
    mark: str
    port: int
    host: str = ""


@dataclass(frozen=True, slots=True)
class LaunchIntent:
    """What is about to be launched; stored before anything is started.

    Attributes:
        configuration: Of the first trial that is to be judged. The server starts with it where
            nothing is switched, else at the most steps and the most draft tokens of the settings.
        settings: The settings to be switched through, in order; empty where none is switched.
        mark: Unique mark; every process of the launch carries `TUNER_LAUNCH=<mark>`.
        log: Path of the server's log file.
    """

    configuration: Configuration
    settings: tuple[Setting, ...]
    mark: str
    log: str


@dataclass(frozen=True, slots=True)
class Resolved:
    """What a running server says it runs, after its own rewrites.

    Attributes:
        configuration: In the shape of the configuration that was asked for.
        sglang_version: As the server states it.
        simulated: Whether the server is a simulation; then so is every figure from it.
        time_scale: Simulated seconds per real second; 1.0 for a real server.
        server_info: The raw `/server_info` body, for audits.
        environment: What the server's own process has in its environment, as far as it can be
            seen, SGLang's rewrites included (it sets `NCCL_CUMEM_ENABLE` and others); only
            variables that bear on serving, and nothing secret.
    """

    configuration: Configuration
    sglang_version: str
    simulated: bool = False
    time_scale: float = 1.0
    server_info: dict[str, Any] = field(default_factory=dict)
    environment: dict[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Launch:
    """One server process tree, from start to proof that it is gone, as it was stored.

    Attributes:
        id: Number of the launch within its study, from 0.
        state: What became of it.
        intent: What was launched.
        command: The argv that was started, and `environment` what it was given beside the
            caller's own.
        environment: Variables set for the launch (`None`: removed).
        process: The process tree; `None` before it existed.
        phases: Seconds per start-up phase, in order.
        ready_s: Seconds from start to the first good generation; `None` if never ready.
        seconds: Seconds from start to proof that it is gone; `None` while it runs.
        failure: Why it failed.
        trials: Numbers of the trials measured in it.
        sglang_version: As the server stated it.
        machine: Where it ran; `None` where that was not recorded.
        effective_environment: `Resolved.environment` once it was ready.
        log_digest: SHA-256 of the log file at its end; `None` while it runs.
        imported_from: `"study#launch"` where a forked study took it over from another one:
            it was not spent by this study.
        created: When it was stored, before anything was started (seconds since the epoch); `None`
            where it was not read from a database.
    """

    id: int
    state: LaunchState
    intent: LaunchIntent
    command: tuple[str, ...] = ()
    environment: tuple[tuple[str, str | None], ...] = ()
    process: ProcessIdentity | None = None
    phases: tuple[tuple[str, float], ...] = ()
    ready_s: float | None = None
    seconds: float | None = None
    failure: Failure | None = None
    trials: tuple[int, ...] = ()
    sglang_version: str | None = None
    machine: Machine | None = None
    effective_environment: tuple[tuple[str, str], ...] = ()
    log_digest: str | None = None
    imported_from: str | None = None
    created: float | None = field(default=None, compare=False)

    @property
    def is_lost(self) -> bool:
        """Whether a kill or the host took it: it is listed, and spends no budget."""
        if self.state is LaunchState.FAILED:
            return self.failure is not None and self.failure.fault in LOSING_FAULTS
        return self.state is LaunchState.LOST


@dataclass(frozen=True, slots=True)
class Trial:
    """One configuration judged, as it was stored; one Optuna trial of the same number.

    Attributes:
        number: From 0, in the order of creation.
        purpose: Why it was measured.
        state: What became of it.
        configuration: What was asked for, in canonical form.
        resolved: What the server said it ran; `None` if it never served.
        failure: Why it is not `complete`.
        measurements: One per operating point, in the order of the study's points.
        launches: Launches that worked on it, lost ones included, and those in which it was
            measured again as an anchor.
        judged_in: The one of them that judged it, whose measurements it has; `None` while there
            is none.
    """

    number: int
    purpose: Purpose
    state: TrialState
    configuration: Configuration
    resolved: Configuration | None = None
    failure: Failure | None = None
    measurements: tuple[Measurement, ...] = ()
    launches: tuple[int, ...] = ()
    judged_in: int | None = field(default=None, compare=False)
