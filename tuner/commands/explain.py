"""`tuner explain`: where the time of a trial's cycles goes."""

from __future__ import annotations

import sys

from search_spaces.space.space import Space
from tuner.analysis.explanation import explain as explained
from tuner.analysis.selected_trial import NothingToExplain
from tuner.commands.show import existing, report_of, trial_of
from tuner.errors import CommandError, Exit
from tuner.reports.json_text import dump
from tuner.studies.assembly import draft_sizes


def explain(name_or_path: str | None, *, storage: str, trial: int | None, as_json: bool) -> Exit:
    """Explain the best speculative trial at default system settings, or the given trial."""
    with existing(storage, name_or_path, read_only=True) as (store, stored, study):
        runner, report = report_of(store, stored, study)
    space = Space(study, draft_tp_allowed=draft_sizes(runner, study))
    chosen = trial_of(report, trial) if trial is not None else None
    try:
        found = explained(report, study, chosen, space)
    except NothingToExplain as error:
        raise CommandError(f"study {stored.name}: {error}", Exit.INFEASIBLE) from error
    if as_json:
        from tuner.reports.explain_json import to_dict  # noqa: PLC0415

        sys.stdout.write(dump(to_dict(found)))
    else:
        from tuner.reports.explain_table import render  # noqa: PLC0415

        render(found)
    return Exit.DONE
