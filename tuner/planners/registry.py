"""Which planner a study gets."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tuner.planners.enumerated import ExhaustivePlanner, RandomPlanner
from tuner.planners.launches import everything

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable

    from search_spaces.configuration import Configuration
    from search_spaces.space.space import Space
    from tuner.planners.base import Planner
    from tuner.planners.launches import LaunchBuilder

PLANNERS = ("exhaustive", "random", "tpe")


def choose_planner(
    space: Space,
    launches: LaunchBuilder,
    budget: int,
    baselines: Iterable[Configuration] = (),
    *,
    without: Collection[Configuration] = frozenset(),
) -> str:
    """Exhaustive where the budget reaches every point beside the baselines, else TPE.

    Args:
        space: The legal points.
        launches: Fills launches.
        budget: Launches that may be spent.
        baselines: What is measured before them.
        without: Points that will likely need no launch.
    """
    own = tuple(baselines)
    left = everything(space, own, without=without)
    needed = launches.needed(left, baselines=own, at_most=budget).launches
    return "exhaustive" if needed <= budget else "tpe"


def make_planner(name: str, space: Space, launches: LaunchBuilder, *, seed: int) -> Planner:
    """Builds the planner called `name` (one of `PLANNERS`)."""
    if name == "exhaustive":
        return ExhaustivePlanner(space, launches)
    if name == "random":
        return RandomPlanner(space, launches, seed=seed)
    if name == "tpe":
        # Optuna takes a third of a second to import: only who uses it pays.
        from tuner.planners.tpe import TPEPlanner  # noqa: PLC0415

        return TPEPlanner(space, launches, seed=seed)
    raise ValueError(f"there is no planner {name!r}; choose one of {', '.join(PLANNERS)}")
