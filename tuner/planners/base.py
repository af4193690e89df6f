"""The planner seam: what to launch next, and when to stop."""

from __future__ import annotations

import abc
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    from collections.abc import Collection

    from results.records import Purpose, TrialState
    from search_spaces.configuration import Configuration, Setting


@dataclass(frozen=True, slots=True)
class PlannedTrial:
    """One configuration to judge, and why."""

    configuration: Configuration
    purpose: Purpose


@dataclass(frozen=True, slots=True)
class Anchor:
    """A judged trial of a launch of its own, to be measured again in a switched server."""

    trial: int
    configuration: Configuration


@dataclass(frozen=True, slots=True)
class LaunchPlan:
    """One launch: trials that one server can be switched through, measured in this order.

    Attributes:
        trials: At least one; `Runner.can_switch` holds between any two. Each is measured at
            every operating point of the study.
        anchor: Measured before them: what tells whether figures of this server may be scored.
        spare: A setting that the server is started at and that is not measured: a server starts at
            the most steps and draft tokens of all, and an anchor says something only as one that
            was switched to.
    """

    trials: tuple[PlannedTrial, ...]
    anchor: Anchor | None = None
    spare: Setting | None = None

    @property
    def settings(self) -> tuple[Setting, ...]:
        """What the server has to be prepared for, in the order of measurement.

        Empty where it runs nothing but what it was started with.
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
        """Launches until it would stop by itself; `None` if it cannot say."""

    def unjudged(self) -> Collection[Configuration] | None:
        """What it has not observed yet, of all that it could propose; `None` if it cannot say."""
        return None
