"""`tuner validate` and `tuner spaces`."""

from __future__ import annotations

import sys

from search_spaces import Space, StudyFileError, load_study, shipped, warnings
from tuner.errors import Exit
from tuner.json_text import dump
from tuner.profile_check import check_profile
from tuner.prompt_check import check_prompts
from tuner.words import counted


def validate(name_or_path: str, *, as_json: bool) -> Exit:
    """Checks a study file."""
    try:
        study = load_study(name_or_path)
        points = len(Space(study))
        check_prompts(study)
        check_profile(study)
    except StudyFileError as error:
        if not as_json:
            raise
        problems = [problem.to_dict() for problem in error.problems]
        sys.stdout.write(dump({"ok": False, "legal_points": None, "errors": problems}))
        return Exit.USAGE
    notes = list(warnings(study))
    if as_json:
        sys.stdout.write(
            dump({"ok": True, "legal_points": points, "errors": [], "warnings": notes})
        )
        return Exit.DONE
    for note in notes:
        sys.stderr.write(f"warning: {note}\n")
    sys.stdout.write(f"study {study.name} is valid: {counted(points, 'legal configuration')}\n")
    return Exit.DONE


def spaces(*, as_json: bool) -> Exit:
    """Lists the shipped studies."""
    found = shipped()
    if as_json:
        sys.stdout.write(dump({"studies": [{"name": n, "about": about} for n, about in found]}))
        return Exit.DONE
    width = max(len(name) for name, _ in found)
    for name, about in found:
        sys.stdout.write(f"{name:<{width}}  {about}\n")
    return Exit.DONE
