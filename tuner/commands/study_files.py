"""`tuner validate` and `tuner spaces`."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

from runners import make_runner
from runners.server_environment import EnvironmentUnusableError, server_environment
from runners.sglang_judgement import Judgement, NotAskedError
from search_spaces import Space, StudyFileError, baselines, load_study, shipped, warnings
from search_spaces.version_flags import flags_not_had
from tuner.assembly import LOGS
from tuner.errors import CommandError, Exit
from tuner.json_text import dump
from tuner.profile_check import check_profile
from tuner.prompt_check import check_prompts
from tuner.sglang_judgement import as_json as judgement_json
from tuner.sglang_judgement import look, not_asked, refused_for_all, told
from tuner.words import counted

if TYPE_CHECKING:
    from search_spaces import Study


def validate(name_or_path: str, *, as_json: bool, ask: bool = True, gpu: str | None = None) -> Exit:
    """Checks a study file, and asks the SGLang that would run it.

    Args:
        name_or_path: The study.
        as_json: Whether programs read the result.
        ask: Whether SGLang is asked, where it is installed.
        gpu: The GPU that is meant, where there is none.
    """
    try:
        study = load_study(name_or_path)
        space = Space(study)
        points = len(space)
        check_prompts(study)
        check_profile(study)
    except StudyFileError as error:
        if not as_json:
            raise
        problems = [problem.to_dict() for problem in error.problems]
        sys.stdout.write(dump({"ok": False, "legal_points": None, "errors": problems}))
        return Exit.USAGE
    notes = list(warnings(study))
    word, refused = _word_of_sglang(study, space, gpu) if ask else (None, None)
    if as_json:
        data: dict[str, Any] = {
            "ok": refused is None,
            "legal_points": points,
            "errors": [] if refused is None else [{"key": "", "line": None, "message": refused}],
            "warnings": notes,
        }
        if word is not None:
            data["sglang"] = (
                judgement_json(word) if isinstance(word, Judgement) else {"not_asked": str(word)}
            )
        sys.stdout.write(dump(data))
        return Exit.DONE if refused is None else Exit.USAGE
    for note in notes:
        sys.stderr.write(f"warning: {note}\n")
    if refused is not None:
        raise CommandError(refused)
    sys.stdout.write(f"study {study.name} is valid: {counted(points, 'legal configuration')}\n")
    if isinstance(word, Judgement):
        first, *more = told(word)
        sys.stdout.write("".join([f"{first}\n", *(f"  {line}\n" for line in more)]))
    elif word is not None:
        sys.stdout.write(f"{not_asked(word)}\n")
    return Exit.DONE


def _word_of_sglang(
    study: Study, space: Space, gpu: str | None
) -> tuple[Judgement | NotAskedError | None, str | None]:
    """What SGLang makes of a study, or why it was not asked; then why it would run nothing of it.

    Nothing where the study is for simulated servers.
    """
    if study.runner != "sglang":
        return None, None
    try:
        version = server_environment(study).facts().sglang_version
    except EnvironmentUnusableError:
        version = None
    if (lacking := flags_not_had(study, version)) is not None:
        return None, lacking
    servers = make_runner(study.runner, study, seed=0, log_dir=LOGS)
    known = baselines(study)
    try:
        judgement = look(study, space, known.values(), servers, gpu=gpu)
    except NotAskedError as error:
        return error, None
    return judgement, refused_for_all(known, judgement)


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
