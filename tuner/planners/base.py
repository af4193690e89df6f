"""Interface of planners, and the launch plans that they propose."""

from __future__ import annotations

import abc
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Collection

    from results.records import Purpose, TrialState
    from search_spaces.configuration import Configuration, Setting


@dataclass(frozen=True, slots=True)
class PlannedTrial:
    """A configuration to measure, and its purpose."""

    configuration: Configuration
    purpose: Purpose


@dataclass(frozen=True, slots=True)
class Anchor:
    """A reference run: a separately measured trial to repeat in a switched server."""

    trial: int
    configuration: Configuration


@dataclass(frozen=True, slots=True)
class LaunchPlan:
    """One launch: trials that one server measures, in this order.

    Attributes:
        trials: At least one trial. The server can switch between any two. Each is measured at every
            operating point of the study.
        anchor: Reference run, measured before the trials; shows whether their results count.
        spare: Setting of the start that is not measured. A server starts at the most steps and
            draft tokens of its settings, but must be switched to the reference run.
    """

    trials: tuple[PlannedTrial, ...]
    anchor: Anchor | None = None
    spare: Setting | None = None

    @property
    def settings(self) -> tuple[Setting, ...]:
        """Settings that the server is prepared for, in the order of measurement.

        Empty if the server measures only the setting that it starts at.
        """
        if len(self.trials) == 1 and self.anchor is None:
            return ()
        configurations = [t.configuration for t in self.trials]
        if self.anchor is not None:
            configurations.insert(0, self.anchor.configuration)
        spare = () if self.spare is None else (self.spare,)
        return tuple(dict.fromkeys((*(c.setting for c in configurations), *spare)))


@dataclass(frozen=True, slots=True)
class Stop:
    """The planner has nothing left to propose: every point of the space has a result."""


@dataclass(frozen=True, slots=True)
class Observation:
    """A judged trial as input of a planner.

    Attributes:
        configuration: The canonical configuration.
        state: `complete`, `infeasible`, `invalid` or `inactive`.
        score: Gain over the best baseline, higher is better; `None` unless `complete`.
    """

    configuration: Configuration
    state: TrialState
    score: float | None


class Planner(abc.ABC):
    """Proposes launches. Equal observations and seed must give equal proposals.

    The observations are the only state, so a resumed study rebuilds its planner from the database.
    A planner proposes each canonical configuration once.
    """

    @abc.abstractmethod
    def propose(self) -> LaunchPlan | Stop:
        """The next launch, or `Stop` if no point is left."""

    @abc.abstractmethod
    def observe(self, observation: Observation) -> None:
        """Take a judged trial into account. Called once per trial, in the order of trial numbers.

        A baseline may be outside the space.
        """

    @abc.abstractmethod
    def launches_left(self) -> int | None:
        """Number of launches until the planner stops; `None` if it is unknown."""

    def unjudged(self) -> Collection[Configuration] | None:
        """Configurations that the planner can still propose; `None` if it cannot list them."""
        return None
