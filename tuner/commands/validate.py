"""`tuner validate` and `tuner spaces`."""

from __future__ import annotations

import sys
from typing import Any

from runners.registry import has_preflight
from search_spaces.problems import StudyFileError
from search_spaces.simulated_acceptance import simulates_acceptance
from search_spaces.space.space import Space
from search_spaces.study_file.load import load_study, shipped
from search_spaces.study_file.warnings import warnings
from tuner.errors import CommandError, Exit
from tuner.formatting import counted
from tuner.preflight.workload import check_prompts, check_runner_key
from tuner.reports.json_text import dump


def validate(name_or_path: str, *, as_json: bool, ask: bool = True, gpu: str | None = None) -> Exit:
    """Check a study file, also with the SGLang installation that would run it.

    Args:
        name_or_path: Name of a shipped study, or path of a study file.
        as_json: Print JSON.
        ask: Run the SGLang checks, if SGLang is installed.
        gpu: GPU to assume on a machine without one.
    """
    try:
        study = load_study(name_or_path)
        space = Space(study)
        points = len(space)
        file_notes = check_prompts(study)
        check_runner_key(study)
    except StudyFileError as error:
        if not as_json:
            raise
        problems = [problem.to_dict() for problem in error.problems]
        sys.stdout.write(dump({"ok": False, "legal_points": None, "errors": problems}))
        return Exit.USAGE
    notes = [*file_notes, *warnings(study)]
    summary = None
    if ask and has_preflight(study.runner):
        from tuner.preflight.sglang import check_study  # noqa: PLC0415 - slow to import

        summary = check_study(study, space, gpu)
    refused = summary.refused if summary is not None else None
    if as_json:
        data: dict[str, Any] = {
            "ok": refused is None,
            "legal_points": points,
            "simulated_acceptance": simulates_acceptance(study),
            "errors": [] if refused is None else [{"key": "", "line": None, "message": refused}],
            "warnings": notes,
        }
        if summary is not None:
            data["sglang"] = summary.to_dict()
        sys.stdout.write(dump(data))
        return Exit.DONE if refused is None else Exit.USAGE
    for note in notes:
        sys.stderr.write(f"warning: {note}\n")
    if refused is not None:
        raise CommandError(refused)
    sys.stdout.write(f"study {study.name} is valid: {counted(points, 'legal configuration')}\n")
    if summary is not None:
        first, *more = summary.lines
        sys.stdout.write("".join([f"{first}\n", *(f"  {line}\n" for line in more)]))
    return Exit.DONE


def spaces(*, as_json: bool) -> Exit:
    """List the shipped studies."""
    found = shipped()
    if as_json:
        sys.stdout.write(dump({"studies": [{"name": n, "about": about} for n, about in found]}))
        return Exit.DONE
    width = max(len(name) for name, _ in found)
    for name, about in found:
        sys.stdout.write(f"{name:<{width}}  {about}\n")
    return Exit.DONE
