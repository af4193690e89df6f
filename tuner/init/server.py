"""Today's server: read from a launch command and values of its variables, or from answers."""

from __future__ import annotations

import os
import re
import shlex
import sys
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from search_spaces.algorithms import ALGORITHMS, NAMES, canonical_algorithm
from search_spaces.configuration import NO_SPECULATION
from search_spaces.flags.flag_values import flag_problem
from search_spaces.launch_commands import UnreadableCommandError, read_launch_text
from search_spaces.problems import nearest
from search_spaces.secrets import is_secret
from tuner.errors import CommandError
from tuner.init.models import guess_draft_algorithm, has_mtp_layers, known_draft
from tuner.init.questions import NOTHING, Asker, Question, whole_number
from tuner.init.today import (
    Today,
    prefix_of,
    read_today,
    unresolved,
    version_that_runs,
    with_new_names,
    with_values,
)

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from search_spaces.launch_commands import LaunchText

_MOST_BYTES = 1_000_000
_OF_THE_SHELL = ("HOME", "PWD", "USER")
# A name, or the number of a script argument.
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*|[0-9]+")
# A shell reads such a word alike with and without quotes.
_PLAIN_WORD = re.compile(r"[A-Za-z0-9_./:@%+=,-]+")


def command_text(given: str) -> tuple[str, str]:
    """Return the text of `--from-command`, and a name for its source.

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
                f"--from-command {given}: no such file, and not a command; "
                'quote the whole command: --from-command "python -m sglang.launch_server ..."'
            )
        return given, "a launch command"
    try:
        if path.stat().st_size > _MOST_BYTES:
            raise CommandError(f"--from-command {given}: too large for a launch script")
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
    service: str | None,
    runner: str,
    elsewhere: bool,
) -> tuple[Today, LaunchText]:
    """Read a launch command, and complete it with the values of its variables.

    Args:
        asker: Asks for values.
        text: The command, or the text of a file with it.
        sets: Values of variables, as `NAME=VALUE`; they override those of the text.
        service: Service to tune, if the file starts several.
        runner: Registered name of the runner.
        elsewhere: Whether the servers will run on another machine.

    Raises:
        CommandError: The text starts no server, or a value is missing.
    """
    launch = _read(text, service)
    values, notes = _given_values(sets, launch, text)
    # The text is read again, because given values override its own.
    if given := {name: value for name, value in values.items() if name.isidentifier()}:
        launch = _read(text, service, given)
    notes += _ask_for_values(asker, launch, values, text)
    launch = with_values(launch, values)
    here = not elsewhere and not prefix_of(launch)
    version = version_that_runs(launch, runner=runner, here=here)
    launch, renamed = with_new_names(launch, version)
    today = read_today(launch)
    for name, value in launch.flags.items():
        if (problem := flag_problem(name, value)) is not None:
            raise CommandError(f"the command has --{name}: {problem}")
    if not today.model:
        raise CommandError("the command names no model; add --model-path")
    notes = [*today.notes, *notes]
    return replace(today, renamed=renamed, version=version, notes=tuple(notes)), launch


def _read(text: str, service: str | None, given: Mapping[str, str] | None = None) -> LaunchText:
    try:
        return read_launch_text(text, given=given, service=service, real_acceptance=True)
    except UnreadableCommandError as error:
        study = re.search(r"^study:", text, re.MULTILINE) is not None
        hint = "; it is a study file already: `tuner validate --study FILE`" if study else ""
        raise CommandError(f"--from-command: {error}{hint}") from None


def _given_values(
    sets: Sequence[str], launch: LaunchText, text: str
) -> tuple[dict[str, str], list[str]]:
    """Read `--set NAME=VALUE`, with notes on options that change nothing.

    Raises:
        CommandError: An option has another form, or its value is not a plain word.
    """
    values: dict[str, str] = {}
    notes = []
    unused = []
    handed_over = [launch.flags.get(name, launch.env.get(name)) for name in launch.secrets]
    for option in sets:
        written = option.strip().removeprefix("$")
        name, equals, value = written.partition("=")
        # A computed value (`(nproc --all=yes)`) may contain an equals sign.
        for computed in launch.variables:
            if computed.startswith("(") and written.startswith(f"{computed}="):
                name, value = computed, written[len(computed) + 1 :]
                break
        else:
            if not equals or not _NAME.fullmatch(name):
                raise CommandError(f"--set {option!r}: write it like --set MODEL=org/name")
        try:
            values[name] = _plain_word(value)
        except ValueError as error:
            raise CommandError(f"--set {name}: {error}") from None
        if is_secret(name) or f"${name}" in handed_over:
            del values[name]
            notes.append(f"--set {name} is a secret and not written; set it in your shell")
        elif name not in launch.variables and not re.search(rf"\$[{{(]?{name}\b", text):
            unused.append(name)
    if unused:
        notes.append(f"--set {', '.join(unused)}: the command uses no such variable")
    return values, notes


def _ask_for_values(
    asker: Asker, launch: LaunchText, values: dict[str, str], text: str
) -> list[str]:
    """Add missing values to `values`, and return notes on assumptions.

    Raises:
        CommandError: A value is missing, and nobody can answer.
    """
    notes = []
    missing = [name for name in unresolved(launch) if name not in values]
    own = {name: os.environ[name] for name in _OF_THE_SHELL if name in os.environ}
    if not asker.interactive:
        for name in missing:
            if name in own and _PLAIN_WORD.fullmatch(own[name]):
                values[name] = own[name]
                notes.append(
                    f"${name} is assumed to be {own[name]}, as here; `--set {name}=...` changes it"
                )
        if missing := [name for name in missing if name not in values]:
            options = " ".join(f"--set {_shown(name, text)}" for name in missing)
            named = ", ".join(f"${name}" for name in missing)
            raise CommandError(f"the command uses {named}, but does not set a value; add {options}")
    for name in missing:
        about = "The command uses this variable, but does not set a value."
        question = Question(f"--set {name}", f"What is ${name}", own.get(name), _plain_word, about)
        values[name] = asker.ask(question, None)
    return notes


def _shown(name: str, text: str) -> str:
    """Return the argument of `--set`; a computed value is named by the variable that has it."""
    if not name.startswith("("):
        return f"{name}=VALUE"
    kept = re.search(rf"\b([A-Za-z_]\w*)=\"?{re.escape(f'${name}')}", text)
    return f"{kept[1]}=VALUE" if kept is not None else shlex.quote(f"${name}=VALUE")


def _plain_word(value: str) -> str:
    word = value.strip()
    if not _PLAIN_WORD.fullmatch(word):
        raise ValueError(
            f"{value!r} is not a plain word (path, name or number); write the value in the command"
        )
    return word


def ask_server(asker: Asker, given: Mapping[str, str | None], model: str, gpus: int) -> Today:
    """Describe a server by answers."""
    suggested = known_draft(model) or ""
    without = "the model's own MTP layers" if has_mtp_layers(model) else "none"
    text = f"Draft model, if you have one (a path or a name; Enter: {without})"
    if suggested:
        text = "Draft model (none: without one)"
    draft = asker.ask(Question("--draft", text, suggested, _draft), given["draft"])
    algorithm = NO_SPECULATION
    if draft is not None or given["algorithm"] is not None:
        algorithm = _draft_algorithm(asker, draft, given["algorithm"])
    tp = asker.ask(_tp(gpus), given["tp"]) if gpus > 1 or given["tp"] is not None else 1
    return Today(
        model=model,
        draft=draft,
        algorithm=algorithm,
        why_algorithm=_why(draft),
        flags={} if tp == 1 else {"tp-size": tp},
    )


def with_draft(today: Today, given: Mapping[str, str | None]) -> Today:
    """Return today's server with the draft and the algorithm of the options."""
    if given["draft"] is None and given["algorithm"] is None:
        return today
    asker, draft = Asker(interactive=False), today.draft
    if given["draft"] is not None:
        draft = asker.ask(Question("--draft", "Draft model", None, _draft), given["draft"])
    algorithm = _draft_algorithm(asker, draft, given["algorithm"])
    if today.draft is not None and draft != today.draft:
        note = (
            f"today's command uses the draft {today.draft}, but a study has one draft; the command "
            "is not a baseline"
        )
        today = replace(today, command=None, notes=(*today.notes, note))
    return replace(
        today,
        draft=draft,
        algorithm=algorithm,
        why_algorithm=_why(draft),
        num_steps=None,
        topk=None,
        num_draft_tokens=None,
        adaptive={},
    )


def _why(draft: str | None) -> str:
    return "given" if draft is None else "for the given draft"


def _draft_algorithm(asker: Asker, draft: str | None, given: str | None) -> str:
    guess = guess_draft_algorithm(draft) if draft is not None else NO_SPECULATION
    algorithm = asker.ask(_algorithm(guess), given)
    if ALGORITHMS[canonical_algorithm(algorithm)].needs_draft and draft is None:
        raise CommandError(f"--algorithm {algorithm} needs a draft model; add --draft PATH")
    return "NEXTN" if algorithm == "EAGLE" and draft is None else algorithm


def _path(text: str) -> str:
    word = text.strip()
    # Hugging Face's first models have names of one word.
    if not re.search(r"[A-Za-z]", word) or (" " in word and not Path(word).expanduser().exists()):
        mistake = f"{text!r} is not a model" if word else "a model is needed"
        example = "meta-llama/Llama-3.1-8B-Instruct"
        raise ValueError(f"{mistake}; write a name like {example}, or a folder")
    return word


def _draft(text: str) -> str | None:
    word = text.strip()
    if word.lower() in NOTHING:
        return None
    if (" " in word or "/" not in word) and not Path(word).expanduser().is_dir():
        raise ValueError(
            f"{text!r} is not a model; write a name with its organization, like "
            "lmsys/sglang-EAGLE3-LLaMA3.1-Instruct-8B, a folder, or none"
        )
    return word


def _algorithm(guess: str) -> Question[str]:
    def read(text: str) -> str:
        word = text.strip().upper()
        if word == NO_SPECULATION.upper():
            return NO_SPECULATION
        if word not in NAMES:
            raise ValueError(f"{text!r} is not an algorithm; {nearest(word, NAMES)}")
        return word

    names = "EAGLE3, EAGLE, NEXTN, DFLASH, or STANDALONE for a small model"
    return Question("--algorithm", f"Algorithm of the draft ({names})", guess, read)


def _tp(gpus: int) -> Question[int]:
    return Question(
        "--tp",
        "How many GPUs does one server use (tp-size)",
        str(gpus),
        lambda text: whole_number(text, "number of GPUs", str(gpus), most=4096),
    )


MODEL: Question[str] = Question(
    "--model", "Which model do you serve (a path, or a name on Hugging Face)", None, _path
)
