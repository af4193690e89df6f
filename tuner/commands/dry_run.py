"""`tuner sweep --dry-run`."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

from results.records import Purpose
from runners.sglang_command import shell
from tuner.json_text import dump
from tuner.planners import PlannedTrial
from tuner.planners.launches import everything
from tuner.words import describe, fixed_names

if TYPE_CHECKING:
    from runners.base import Runner
    from tuner.assembly import Problem
    from tuner.planners import LaunchPlan


def dry_run(
    problem: Problem, servers: Runner, planner: str, budget: int | None, *, as_json: bool
) -> None:
    """Says what a sweep would launch first, with its commands."""
    known = {c.key for c in problem.baselines.values()}
    firsts: list[tuple[str, LaunchPlan]] = []
    for name, configuration in problem.baselines.items():
        plan = problem.launches.plan(PlannedTrial(configuration, Purpose.BASELINE), known)
        known |= {t.configuration.key for t in plan.trials}
        firsts.append((name, plan))
    points = len(problem.space)
    needed = problem.launches.launches_needed(everything(problem.space, problem.baselines.values()))
    if as_json:
        data: dict[str, Any] = {
            "study": problem.study.name,
            "simulated": servers.simulated,
            "legal_points": points,
            "planner": planner,
            "budget": {"launches": budget},
            "launches_for_all_points": needed,
            "baselines": {
                name: {
                    "configuration": plan.trials[0].configuration.to_dict(),
                    "command": shell(servers.command(plan.trials[0].configuration)),
                }
                for name, plan in firsts
            },
            "notes": list(problem.notes),
        }
        sys.stdout.write(dump(data))
        return
    out = sys.stdout.write
    out(f"study {problem.study.name}: {points} legal configurations, planner {planner}, ")
    out(f"at most {budget} launches ({needed} would measure them all, baselines included)\n")
    for note in problem.notes:
        out(f"note: {note}\n")
    for name, plan in firsts:
        described = describe(plan.trials[0].configuration, fixed_names(problem.study))
        out(f"\nfirst, baseline '{name}': {described}")
        if len(plan.trials) > 1:
            out(f", and in the same launch {len(plan.trials) - 1} more settings")
        out(f"\n  {shell(servers.command(plan.trials[0].configuration))}\n")
