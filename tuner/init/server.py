"""Today's server, from a launch command or from answers."""

from __future__ import annotations

import re
import sys
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from search_spaces.algorithms import ALGORITHMS, NAMES, canonical_algorithm
from search_spaces.configuration import NO_SPECULATION
from search_spaces.flags.flag_values import flag_problem
from search_spaces.launch_commands import UnreadableCommandError, read_launch_text
from search_spaces.problems import nearest
from tuner.errors import CommandError
from tuner.init.models import guess_draft_algorithm, has_mtp_layers, known_draft
from tuner.init.questions import Asker, Question
from tuner.init.today import Today, prefix_of, read_today, with_values
from tuner.init.variables import ask_for_values, told_values
from tuner.init.versions import version_that_runs, with_successors

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from search_spaces.launch_commands import LaunchText

_MOST_BYTES = 1_000_000
_NAMED = "for the draft that you named"


def command_text(given: str) -> tuple[str, str]:
    """Return the text that `--from-command` names, and its description for the study file.

    Raises:
        CommandError: The file does not exist or is not text.
    """
    if given == "-":
        return sys.stdin.read(_MOST_BYTES), "a launch command"
    try:
        path = Path(given).expanduser()
        is_file = "\n" not in given and path.is_file()
    except (OSError, ValueError, RuntimeError):
        is_file = False
    if not is_file:
        if not re.search(r"\s", given.strip()):
            raise CommandError(
                f"--from-command {given}: there is no such file, and it is no command either; "
                'quote the whole command: --from-command "python -m sglang.launch_server ..."'
            )
        return given, "a launch command"
    try:
        if path.stat().st_size > _MOST_BYTES:
            raise CommandError(f"--from-command {given}: too large to be a launch script")
        return path.read_text(encoding="utf-8-sig"), path.name
    except OSError as error:
        raise CommandError(f"--from-command {given}: {error.strerror or error}") from None
    except UnicodeDecodeError:
        raise CommandError(f"--from-command {given}: not text (UTF-8)") from None


def read_command(
    asker: Asker,
    text: str,
    sets: Sequence[str],
    *,
    service: str | None = None,
    runner: str,
    elsewhere: bool,
) -> tuple[Today, LaunchText]:
    """Read a launch command, with values for the variables that it does not set.

    Args:
        asker: Asks for values.
        text: The command, or a file that contains it.
        sets: Values as `NAME=VALUE`; they override values of the text.
        service: Name of the service, if the file starts several.
        runner: Runner of the study.
        elsewhere: Whether the study will run on another machine.

    Raises:
        CommandError: The text starts no server, or lacks values that nobody gives.
    """
    launch = _read(text, service)
    values, notes = told_values(sets, launch, text)
    # Given values override those of the text, so read the text again.
    if given := {name: value for name, value in values.items() if name.isidentifier()}:
        launch = _read(text, service, given)
    notes += ask_for_values(asker, launch, values, text)
    launch = with_values(launch, values)
    here = not elsewhere and not prefix_of(launch)
    version = version_that_runs(launch, runner=runner, here=here)
    renamed = with_successors(launch, version)
    launch = renamed.launch
    today = replace(read_today(launch), renamed=renamed.names, version=version)
    for name, value in launch.flags.items():
        if (problem := flag_problem(name, value)) is not None:
            raise CommandError(f"the command has --{name}: {problem}")
    if not today.model:
        raise CommandError("the command names no model (--model-path), so there is none to serve")
    today = replace(today, notes=(*today.notes, *notes))
    return today, launch


def _read(text: str, service: str | None, given: Mapping[str, str] | None = None) -> LaunchText:
    try:
        return read_launch_text(text, given=given, service=service, real_acceptance=True)
    except UnreadableCommandError as error:
        study = re.search(r"^study:", text, re.MULTILINE) is not None
        hint = "; it is a study file already: `tuner validate --study FILE`" if study else ""
        raise CommandError(f"--from-command: {error}{hint}") from None


def ask_server(asker: Asker, given: Mapping[str, str | None], model: str, gpus: int) -> Today:
    """Describe a server by answers."""
    draft, algorithm = ask_draft(asker, given, model)
    tp = asker.ask(_tp(gpus), given["tp"]) if gpus > 1 or given["tp"] is not None else 1
    flags: dict[str, int] = {} if tp == 1 else {"tp-size": tp}
    return Today(
        model=model,
        draft=draft,
        algorithm=algorithm,
        why_algorithm=_NAMED if draft is not None else "",
        flags=flags,
    )


def with_draft(today: Today, given: Mapping[str, str | None]) -> Today:
    """Replace draft and algorithm of today's server by those of the options, if given."""
    if given["draft"] is None and given["algorithm"] is None:
        return today
    asker = Asker(interactive=False)
    draft = today.draft
    if given["draft"] is not None:
        draft = asker.ask(Question("--draft", "Draft model", None, _draft), given["draft"])
    algorithm = _kind_of_draft(asker, draft, given["algorithm"])
    if today.draft is not None and draft != today.draft:
        note = (
            f"today's command drafts with {today.draft}, and a study has one draft: it is no "
            "baseline of this one"
        )
        today = replace(today, command=None, notes=(*today.notes, note))
    return replace(
        today,
        draft=draft,
        algorithm=algorithm,
        why_algorithm=_NAMED if draft is not None else "as you asked",
        num_steps=None,
        topk=None,
        num_draft_tokens=None,
        adaptive={},
    )


def ask_draft(asker: Asker, given: Mapping[str, str | None], model: str) -> tuple[str | None, str]:
    """Ask for draft and algorithm. No draft and `"none"` leave them to the proposal."""
    suggested = known_draft(model) or ""
    without = "the model's own MTP layers" if has_mtp_layers(model) else "none"
    text = f"Draft model, if you have one (a path or a name; Enter: {without})"
    if suggested:
        text = "Draft model (none: without one)"
    draft = asker.ask(Question("--draft", text, suggested, _draft), given["draft"])
    if draft is None and given["algorithm"] is None:
        return None, NO_SPECULATION
    return draft, _kind_of_draft(asker, draft, given["algorithm"])


def _kind_of_draft(asker: Asker, draft: str | None, given: str | None) -> str:
    guess = guess_draft_algorithm(draft) if draft is not None else NO_SPECULATION
    algorithm = asker.ask(_algorithm(guess), given)
    if ALGORITHMS[canonical_algorithm(algorithm)].needs_draft and draft is None:
        raise CommandError(f"--algorithm {algorithm} needs a draft model: --draft PATH")
    return "NEXTN" if algorithm == "EAGLE" and draft is None else algorithm


def _path(text: str) -> str:
    word = text.strip()
    example = "a name such as meta-llama/Llama-3.1-8B-Instruct, or a folder"
    if not word:
        raise ValueError(f"A model is needed: write {example}")
    # The first models on Hugging Face have no organization in their names.
    if not re.search(r"[A-Za-z]", word) or (" " in word and not Path(word).expanduser().exists()):
        raise ValueError(f"{text!r} is no model: write {example}")
    return word


def _draft(text: str) -> str | None:
    word = text.strip()
    if word.lower() in {"", "none", "no", "-"}:
        return None
    if " " in word or "/" not in word:
        if Path(word).expanduser().is_dir():
            return word
        raise ValueError(
            f"{text!r} is no model: write a name with its maker's, such as "
            "lmsys/sglang-EAGLE3-LLaMA3.1-Instruct-8B, a folder, or none"
        )
    return word


def _algorithm(guess: str) -> Question[str]:
    def read(text: str) -> str:
        word = text.strip().upper()
        if word.lower() == NO_SPECULATION:
            return NO_SPECULATION
        if word not in NAMES:
            raise ValueError(f"{text!r} is unknown; {nearest(word, NAMES)}")
        return word

    names = "EAGLE3, EAGLE, NEXTN, DFLASH, or STANDALONE for a small model"
    return Question("--algorithm", f"Which kind of draft is it ({names})", guess, read)


def _tp(gpus: int) -> Question[int]:
    def read(text: str) -> int:
        word = text.strip()
        if not (word.isascii() and word.isdigit() and 1 <= int(word) <= 4096):
            raise ValueError(f"{text!r} is no number of GPUs; write a whole number, like {gpus}")
        return int(word)

    return Question("--tp", "On how many of them does one server run (tp-size)", str(gpus), read)


MODEL: Question[str] = Question(
    "--model", "Which model do you serve (a path, or a name on Hugging Face)", None, _path
)
