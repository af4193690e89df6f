"""What is stored about a study as a whole, as plain frozen values."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal

if TYPE_CHECKING:
    from results.records import Failure, Launch, Measurement, Purpose, Trial, TrialState
    from search_spaces.configuration import Configuration

Stopped = Literal["exhausted", "budget", "converged", "interrupted", "fault"]
"""Why a study stopped: every point judged, budget used, Ctrl-C, or a fault.

No planner stops with `converged`, but older databases may contain the value."""


@dataclass(frozen=True, slots=True)
class NewStudy:
    """A study as it is created; none of this changes afterwards.

    Attributes:
        name: Unique within a database.
        text: The study file, word for word.
        digest: Digest of the whole study file.
        space_digest: Digest of what the space allows; a changed space is another study.
        runner: `"sglang"`, `"simulated"` or `"replay"`.
        simulated: Whether every figure of it is simulated.
        seed: Seed of planner and load.
        planner: Name of the planner.
        hot_switch: Whether launches are switched through several settings.
        budget_launches: Launches that may end in a verdict; `None`: no limit.
        budget_hours: Hours at work; `None`: no limit.
        sglang_version: As known beforehand; else the first ready launch fills it in.
        options: What else must be the same on resume (JSON values).
        base_dir: Folder that the file's relative paths start from; empty for the working
            directory.
        forked_from: Name of the study that it goes on from; `None` for one of its own.
    """

    name: str
    text: str
    digest: str
    space_digest: str
    runner: str
    simulated: bool
    seed: int = 0
    planner: str = "exhaustive"
    hot_switch: bool = False
    budget_launches: int | None = None
    budget_hours: float | None = None
    sglang_version: str | None = None
    options: dict[str, Any] = field(default_factory=dict)
    base_dir: str = ""
    forked_from: str | None = None


@dataclass(frozen=True, slots=True)
class ForkedTrial:
    """A finished trial that a fork takes over, as it is to be there.

    Attributes:
        number: Of the trial in its own study.
        configuration: As the fork spells it: its file may vary what the other one held fixed.
        state: Its state by the fork's limits.
        failure: Why it is not `complete`.
    """

    number: int
    configuration: Configuration
    state: TrialState
    failure: Failure | None = None


@dataclass(frozen=True, slots=True)
class StoredStudy:
    """A study as it is stored: `NewStudy`, and what became of it.

    Attributes:
        id: Number in the database; every method of the store takes it.
        name: See `NewStudy`, as for all fields not listed here.
        created: Seconds since the epoch.
        stopped: Why it is at rest; `None` while it runs, or after it was killed.
        stop_reason: The same as a sentence.
        work_s: Seconds at work so far, downtime left out.
        sglang_version: Of the servers that it measured; `None` before the first one was ready.
    """

    id: int
    name: str
    text: str
    digest: str
    space_digest: str
    runner: str
    simulated: bool
    seed: int
    planner: str
    hot_switch: bool
    budget_launches: int | None
    budget_hours: float | None
    created: float
    stopped: Stopped | None
    stop_reason: str | None
    work_s: float
    sglang_version: str | None
    options: dict[str, Any]
    base_dir: str = ""
    forked_from: str | None = None


@dataclass(frozen=True, slots=True)
class Unfinished:
    """What a tuner left behind when it was killed.

    Attributes:
        launches: Launches without an end: their processes may still be alive.
        trials: Trials without a verdict: to be measured again under the same number.
    """

    launches: tuple[Launch, ...]
    trials: tuple[Trial, ...]


@dataclass(frozen=True, slots=True)
class StoredMeasurement:
    """A measurement with where it belongs.

    Attributes:
        trial: Number of the trial.
        launch: Number of the launch in which it was made.
        purpose: Why it was made.
        measurement: The measurement.
    """

    trial: int
    launch: int
    purpose: Purpose
    measurement: Measurement
