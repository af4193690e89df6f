"""The planner seam: what to launch next, and when to stop."""

from __future__ import annotations

import abc
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    from results.records import Purpose, TrialState
    from search_spaces.configuration import Configuration


@dataclass(frozen=True, slots=True)
class PlannedTrial:
    """One configuration to judge, and why."""

    configuration: Configuration
    purpose: Purpose


@dataclass(frozen=True, slots=True)
class LaunchPlan:
    """One launch: trials that one server can be switched through, measured in this order.

    Attributes:
        trials: At least one; `Runner.can_switch` holds between any two. Each is measured at
            every operating point of the study.
    """

    trials: tuple[PlannedTrial, ...]


@dataclass(frozen=True, slots=True)
class Stop:
    """The planner has nothing more to propose."""

    reason: Literal["exhausted", "converged"]


@dataclass(frozen=True, slots=True)
class Observation:
    """A judged trial, as planners see it.

    Attributes:
        configuration: The canonical configuration.
        state: A verdict state, or `inactive`.
        score: Gain over the best baseline (higher is better); `None` unless complete.
    """

    configuration: Configuration
    state: TrialState
    score: float | None


class Planner(abc.ABC):
    """Chooses launches. Deterministic: equal observations and seed give equal proposals.

    State lives in the observations, so a resumed study rebuilds its planner by observing what the
    database remembers. Never proposes one canonical configuration twice.
    """

    @abc.abstractmethod
    def propose(self) -> LaunchPlan | Stop:
        """The next launch, or why there is none."""

    @abc.abstractmethod
    def observe(self, observation: Observation) -> None:
        """Learns of a judged trial; called once per trial, in the order of their numbers.

        A baseline may lie outside the space.
        """

    @abc.abstractmethod
    def launches_left(self) -> int | None:
        """Launches until it would stop by itself, for an ETA; `None` if it cannot say."""
