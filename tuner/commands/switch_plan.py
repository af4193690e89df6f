"""What of a study will be switched, in how many launches, behind which anchor: before any."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from search_spaces.baseline import PRODUCTION
from tuner.words import counted

if TYPE_CHECKING:
    from collections.abc import Iterator

    from search_spaces.configuration import Configuration
    from tuner.assembly import Problem
    from tuner.planners.launches import Needed


@dataclass(frozen=True, slots=True)
class Shared:
    """One algorithm's launches for several settings.

    Attributes:
        algorithm: Its name.
        launches: So many.
        configurations: Measured in them, the anchor's among them.
        steps: Draft steps.
        anchor: The baseline whose own launch is the anchor; `None`: one of the search.
    """

    algorithm: str
    launches: int
    configurations: int
    steps: tuple[int, ...]
    anchor: str | None


@dataclass(frozen=True, slots=True)
class SwitchPlan:
    """What hot switching will do for a study.

    Attributes:
        asked: Whether it may.
        needed: Launches with and without it.
        shared: By algorithm.
    """

    asked: bool
    needed: Needed
    shared: tuple[Shared, ...]

    def to_dict(self) -> dict[str, Any]:
        """`hot_switch` of a dry run's JSON."""
        return {
            "asked": self.asked,
            "launches": self.needed.launches,
            "launches_without": self.needed.alone,
            "shared": [
                {
                    "algorithm": part.algorithm,
                    "launches": part.launches,
                    "configurations": part.configurations,
                    "steps": list(part.steps),
                    "anchor": part.anchor,
                }
                for part in self.shared
            ],
        }

    def lines(self) -> Iterator[str]:
        """The same in words."""
        if not self.asked:
            return
        shared = [part for part in self.shared if part.launches]
        if not shared:
            yield "hot switch: no launch can be shared here, an anchor's own left aside"
            return
        yield (
            f"hot switch: {counted(self.needed.launches, 'launch')} in place of "
            f"{self.needed.alone}:"
        )
        for part in shared:
            steps = ", ".join(map(str, part.steps))
            yield (
                f"  {part.algorithm}: {part.configurations} configurations (steps {steps}), "
                f"{counted(part.launches, 'launch')} to be switched through"
            )
            first = (
                f"baseline '{part.anchor}'"
                if part.anchor is not None
                else "one of its settings, searched first"
            )
            yield f"  its anchor: {first}, launched by itself, then measured again, switched to"
        yield "  nothing switched is scored before an anchor agrees; else each has its own launch"


def switch_plan(problem: Problem) -> SwitchPlan:
    """Works it out from the space."""
    needed = problem.needed()
    by_algorithm: dict[str, list[tuple[Configuration, ...]]] = {}
    for group in needed.shared:
        by_algorithm.setdefault(group[0].speculation.algorithm, []).append(group)
    shared = tuple(
        Shared(
            algorithm,
            _switched(groups),
            sum(map(len, groups)),
            tuple(sorted({c.speculation.num_steps or 0 for group in groups for c in group})),
            _anchor(problem, groups),
        )
        for algorithm, groups in by_algorithm.items()
    )
    return SwitchPlan(problem.launches.hot_switch, needed, shared)


def _switched(groups: list[tuple[Configuration, ...]]) -> int:
    """Launches for several settings; what is left of two, one of them launched alone, is one."""
    if len(groups) == 1 and len(groups[0]) == 2:
        return 0
    return len(groups)


def _anchor(problem: Problem, groups: list[tuple[Configuration, ...]]) -> str | None:
    known = {configuration for group in groups for configuration in group}
    names = [name for name, c in problem.baselines.items() if c in known]
    # Measured in this order; today's command last.
    return min(names, key=lambda name: name == PRODUCTION, default=None)
