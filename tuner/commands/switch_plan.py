"""What of a study will be switched, in how many launches, behind which anchor: before any."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from runners.process_runner import launches_alone
from search_spaces.baseline import PRODUCTION
from tuner.hot_switch_report import NOT_ASKED
from tuner.planners.launches import may_anchor
from tuner.words import counted

if TYPE_CHECKING:
    from collections.abc import Iterator

    from search_spaces.configuration import Configuration, Drafter, Setting
    from tuner.assembly import Problem
    from tuner.planners.launches import Needed


@dataclass(frozen=True, slots=True)
class Shared:
    """One drafter's launches for several settings.

    Attributes:
        drafter: Its algorithm and topk.
        launches: So many.
        configurations: Measured in them, the anchor's among them.
        settings: Of those, ascending.
        anchor: The baseline whose own launch is the anchor; `None`: one of the search.
    """

    drafter: Drafter
    launches: int
    configurations: int
    settings: tuple[Setting, ...]
    anchor: str | None

    def to_dict(self) -> dict[str, Any]:
        """An entry of `shared` in a dry run's JSON."""
        return {
            "algorithm": self.drafter.algorithm,
            "topk": self.drafter.topk,
            "launches": self.launches,
            "configurations": self.configurations,
            "steps": [setting.num_steps for setting in self.settings],
            "draft_tokens": [setting.num_draft_tokens for setting in self.settings],
            "anchor": self.anchor,
        }

    @property
    def described(self) -> str:
        """`"steps 1, 2, 5"`; of trees with their draft tokens."""
        if self.drafter.topk == 1:
            return "steps " + ", ".join(str(s.num_steps) for s in self.settings)
        shapes = ", ".join(f"{s.num_steps}/{s.num_draft_tokens}" for s in self.settings)
        return f"steps/draft tokens {shapes}"


@dataclass(frozen=True, slots=True)
class SwitchPlan:
    """What hot switching will do for a study.

    Attributes:
        asked: Whether it may.
        needed: Launches with and without it.
        shared: By drafter.
        impossible: Why no server of the study can be switched; `None`: some can.
    """

    asked: bool
    needed: Needed
    shared: tuple[Shared, ...]
    impossible: str | None = None

    @property
    def remark(self) -> str | None:
        """What the runner says of it where nothing can be switched: the lines say it shorter."""
        return launches_alone(self.impossible) if self.impossible is not None else None

    @property
    def most_settings(self) -> int:
        """Of one launch."""
        shared = {drafter.drafter for drafter in self.shared if drafter.launches}
        return max(
            (len(g) for g in self.needed.shared if g[0].speculation.drafter in shared), default=1
        )

    def to_dict(self) -> dict[str, Any]:
        """`hot_switch` of a dry run's JSON."""
        return {
            "asked": self.asked,
            "launches": self.needed.launches,
            "launches_without": self.needed.alone,
            "shared": [part.to_dict() for part in self.shared],
        }

    def lines(self) -> Iterator[str]:
        """The same in words."""
        if not self.asked:
            yield NOT_ASKED
            return
        if self.impossible is not None:
            yield f"hot switch: off: {self.impossible}"
            return
        if not self.shared:
            yield "hot switch: no launch can be shared"
            return
        shared = [part for part in self.shared if part.launches]
        if not shared:
            yield "hot switch: no launch can be shared here, an anchor's own left aside"
            return
        yield (
            f"hot switch: {counted(self.needed.launches, 'launch')} for all of it in place of "
            f"{self.needed.alone}:"
        )
        for part in shared:
            yield (
                f"  {part.drafter}: {part.configurations} configurations ({part.described}), "
                f"{counted(part.launches, 'launch')} to be switched through"
            )
            first = (
                f"baseline '{part.anchor}'"
                if part.anchor is not None
                else "one of its settings, searched first"
            )
            yield f"  its anchor: {first}, launched by itself, then measured again, switched to"
        yield "  nothing switched is scored before an anchor agrees; else each has its own launch"


def switch_plan(problem: Problem, impossible: str | None = None) -> SwitchPlan:
    """Works it out from the space.

    Args:
        problem: What is to be solved.
        impossible: `Runner.no_switch`.
    """
    needed = problem.needed()
    by_drafter: dict[Drafter, list[tuple[Configuration, ...]]] = {}
    for group in needed.shared:
        by_drafter.setdefault(group[0].speculation.drafter, []).append(group)
    shared = tuple(
        Shared(
            drafter,
            _switched(groups),
            sum(map(len, groups)),
            tuple(sorted({c.setting for group in groups for c in group}, key=lambda s: s.size)),
            _anchor(problem, groups),
        )
        for drafter, groups in by_drafter.items()
    )
    return SwitchPlan(problem.launches.hot_switch, needed, shared, impossible)


def _switched(groups: list[tuple[Configuration, ...]]) -> int:
    """Launches for several settings; what is left of two, one of them launched alone, is one."""
    if len(groups) == 1 and len(groups[0]) == 2:
        return 0
    return len(groups)


def _anchor(problem: Problem, groups: list[tuple[Configuration, ...]]) -> str | None:
    known = {c for group in groups for c in group if may_anchor(c, group)}
    names = [name for name, c in problem.baselines.items() if c in known]
    # Measured in this order; today's command last.
    return min(names, key=lambda name: name == PRODUCTION, default=None)
