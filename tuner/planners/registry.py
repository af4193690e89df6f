"""Planners by name. Each module of `tuner.planners` registers its own planners.

To add a planner, add one module here with a class under `@register`. The command line's choices,
its help and the validation follow from the registry.
"""

from __future__ import annotations

import importlib
import pkgutil
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING, Literal, Protocol, TypeVar

import tuner.planners

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable

    from search_spaces.configuration import Configuration
    from search_spaces.space.space import Space
    from tuner.planners.base import Planner
    from tuner.planners.launches import LaunchBuilder

AUTO = "auto"
"""Chooses a planner by the budget."""

Reach = Literal["all", "some"]

_SUPPORT = {"base", "conformance", "launches", "registry"}


class PlannerFactory(Protocol):
    """A planner class."""

    def __call__(self, space: Space, launches: LaunchBuilder, *, seed: int) -> Planner: ...


_Factory = TypeVar("_Factory", bound=PlannerFactory)


@dataclass(frozen=True, slots=True)
class RegisteredPlanner:
    """A planner and its place on the command line.

    Attributes:
        make: The planner class.
        summary: Help text of one line.
        auto: `auto` selects this planner if the budget reaches all points, or only some of them.
    """

    make: PlannerFactory
    summary: str
    auto: Reach | None = None


_PLANNERS: dict[str, RegisteredPlanner] = {}


def register(
    name: str, summary: str, *, auto: Reach | None = None
) -> Callable[[_Factory], _Factory]:
    """Register a planner class under a name.

    Raises:
        ValueError: The name is in use.
    """

    def add(make: _Factory) -> _Factory:
        if name == AUTO or name in _PLANNERS:
            raise ValueError(f"planner name {name!r} is already in use")
        _PLANNERS[name] = RegisteredPlanner(make, summary, auto)
        return make

    return add


@cache
def _import_planners() -> None:
    # Planner modules import optuna and the space when they run, so that `tuner --help` stays fast.
    for module in pkgutil.iter_modules(tuner.planners.__path__):
        if module.name not in _SUPPORT:
            importlib.import_module(f"{tuner.planners.__name__}.{module.name}")


def planner_names() -> tuple[str, ...]:
    """Names of all planners, without `auto`."""
    _import_planners()
    return tuple(sorted(_PLANNERS))


def auto_planner(reach: Reach) -> str:
    """Name of the planner that `auto` selects."""
    return next(name for name in planner_names() if _PLANNERS[name].auto == reach)


def planner_help() -> str:
    """Help of the command line option that selects a planner."""
    summaries = "; ".join(f"{name}: {_PLANNERS[name].summary}" for name in planner_names())
    return (
        f"Search strategy. {AUTO}: {auto_planner('all')} if the budget covers all points, else "
        f"{auto_planner('some')}; {summaries}."
    )


def choose_planner(
    space: Space,
    launches: LaunchBuilder,
    budget: int,
    baselines: Iterable[Configuration] = (),
    *,
    without: Collection[Configuration] = frozenset(),
) -> str:
    """Select a planner by the budget: `auto`.

    Args:
        space: The legal points.
        launches: Groups points into launches.
        budget: Maximum number of launches.
        baselines: Configurations that are measured first.
        without: Points that will probably need no launch.
    """
    # Delayed because the command line imports this module.
    from tuner.planners.launches import everything  # noqa: PLC0415

    measured_first = tuple(baselines)
    points = everything(space, measured_first, without=without)
    needed = launches.needed(points, baselines=measured_first, at_most=budget).launches
    return auto_planner("all" if needed <= budget else "some")


def make_planner(name: str, space: Space, launches: LaunchBuilder, *, seed: int) -> Planner:
    """Build a planner by its name.

    Raises:
        ValueError: The name is unknown.
    """
    names = planner_names()
    if name not in names:
        raise ValueError(f"unknown planner {name!r}; use one of {', '.join(names)}")
    return _PLANNERS[name].make(space, launches, seed=seed)
