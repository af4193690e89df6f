"""Records of whole studies, as frozen values."""

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
    """A study as created; constant afterwards.

    Attributes:
        name: Unique within a database.
        text: Text of the study file.
        digest: Digest of the study file.
        space_digest: Digest of the search space; another space is another study.
        runner: `"sglang"`, `"simulated"` or `"replay"`.
        simulated: Whether all results are simulated.
        seed: Seed of planner and load.
        planner: Name of the planner.
        hot_switch: Whether launches may measure several settings.
        budget_launches: Launch budget; `None`: no limit.
        budget_hours: Hours of running time; `None`: no limit.
        sglang_version: SGLang version if known; else set by the first ready launch.
        options: Further values that must not change on resume (JSON values).
        base_dir: Folder of the file's relative paths; empty for the working directory.
        forked_from: Name of the study that it reuses; `None` if it is not a fork.
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
    """A finished trial that a fork copies.

    Attributes:
        number: Number in its own study.
        configuration: Configuration in the fork, whose file may vary what the other file fixed.
        state: State by the limits of the fork.
        failure: Why it is not `complete`.
    """

    number: int
    configuration: Configuration
    state: TrialState
    failure: Failure | None = None


@dataclass(frozen=True, slots=True)
class StoredStudy:
    """A study as stored: `NewStudy` and its progress.

    Attributes:
        id: Number in the database, used by all methods of the store.
        name: See `NewStudy` for this and all fields not listed here.
        created: Seconds since the epoch.
        stopped: Why it stopped; `None` while running, or after a kill.
        stop_reason: The reason as a sentence.
        work_s: Seconds of running time.
        sglang_version: Version of its servers; `None` before the first was ready.
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
    """Records that a killed tuner left unfinished.

    Attributes:
        launches: Launches without an end, whose processes may be alive.
        trials: Trials without a state, which will be measured again under the same number.
    """

    launches: tuple[Launch, ...]
    trials: tuple[Trial, ...]


@dataclass(frozen=True, slots=True)
class StoredMeasurement:
    """A measurement with its trial and launch.

    Attributes:
        trial: Number of the trial.
        launch: Number of the launch.
        purpose: Purpose of the measurement.
        measurement: The measurement.
    """

    trial: int
    launch: int
    purpose: Purpose
    measurement: Measurement
