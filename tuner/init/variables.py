"""Values of variables in a launch command: from `--set`, from the environment, or from the user."""

from __future__ import annotations

import os
import re
import shlex
from typing import TYPE_CHECKING

from search_spaces.secrets import is_secret
from tuner.errors import CommandError
from tuner.init.questions import Asker, Question
from tuner.init.today import is_plain_word, unresolved

if TYPE_CHECKING:
    from collections.abc import Sequence

    from search_spaces.launch_commands import LaunchText

_OF_THE_SHELL = ("HOME", "PWD", "USER")
# A name, or the number of a script's argument.
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*|[0-9]+")


def told_values(
    sets: Sequence[str], launch: LaunchText, text: str
) -> tuple[dict[str, str], list[str]]:
    """Parse `--set NAME=VALUE`; also returns notes on values without effect.

    Args:
        sets: The options.
        launch: The command, read without these values.
        text: The whole text of the command.

    Raises:
        CommandError: An option has another form, or its value is not a plain word.
    """
    values = _read(sets, launch.variables)
    secrets = [name for name in values if _is_secret(name, launch)]
    for name in secrets:
        del values[name]
    notes = [
        f"--set {name}: a secret, which is left to your shell and not written" for name in secrets
    ]
    unused = [name for name in values if not _is_used(name, text, launch)]
    if unused:
        notes.append(f"--set {', '.join(unused)}: the command uses no such variable")
    return values, notes


def ask_for_values(
    asker: Asker, launch: LaunchText, values: dict[str, str], text: str
) -> list[str]:
    """Add missing values to `values`; returns notes on assumptions.

    Args:
        asker: Asks for values.
        launch: The command.
        values: Known values.
        text: The whole text of the command.

    Raises:
        CommandError: A value is missing and cannot be asked for.
    """
    notes = []
    unknown = [name for name in unresolved(launch) if name not in values]
    for name in unknown:
        own = os.environ.get(name) if name in _OF_THE_SHELL else None
        if own is not None and is_plain_word(own) and not asker.interactive:
            values[name] = own
            notes.append(f"${name} is taken as {own}, as here; `--set {name}=...` if it differs")
    unknown = [name for name in unknown if name not in values]
    if unknown and not asker.interactive:
        options = " ".join(f"--set {_shown(name, text)}" for name in unknown)
        named = ", ".join(f"${name}" for name in unknown)
        raise CommandError(
            f"the command uses {named}, which it does not set; say what it stands for: {options}"
        )
    for name in unknown:
        about = "The command uses it and does not set it."
        own = os.environ.get(name) if name in _OF_THE_SHELL else None
        question = Question(f"--set {name}", f"What is ${name}", own, _plain_word, about)
        values[name] = asker.ask(question, None)
    return notes


def _read(sets: Sequence[str], variables: Sequence[str]) -> dict[str, str]:
    values: dict[str, str] = {}
    for text in sets:
        written = text.strip().removeprefix("$")
        name, equals, value = written.partition("=")
        # A computed value may contain an equals sign.
        computed = [v for v in variables if v.startswith("(") and written.startswith(f"{v}=")]
        if computed:
            name, value = computed[0], written[len(computed[0]) + 1 :]
        elif not equals or not _NAME.fullmatch(name):
            raise CommandError(f"--set {text!r}: write it like --set MODEL=org/name")
        try:
            values[name] = _plain_word(value)
        except ValueError as error:
            raise CommandError(f"--set {name}: {error}") from None
    return values


def _is_used(name: str, text: str, launch: LaunchText) -> bool:
    """Whether a text uses a variable."""
    return name in launch.variables or re.search(rf"\$[{{(]?{name}\b", text) is not None


def _is_secret(name: str, launch: LaunchText) -> bool:
    """Whether a variable is a secret by its name or by its use."""
    held = [launch.flags.get(secret, launch.env.get(secret)) for secret in launch.secrets]
    return is_secret(name) or f"${name}" in held


def _shown(name: str, text: str) -> str:
    """How to set a value; a computed value by the variable that stores it."""
    if not name.startswith("("):
        return f"{name}=VALUE"
    kept = re.search(rf"\b([A-Za-z_]\w*)=\"?{re.escape(f'${name}')}", text)
    return f"{kept[1]}=VALUE" if kept is not None else shlex.quote(f"${name}=VALUE")


def _plain_word(value: str) -> str:
    word = value.strip()
    if not is_plain_word(word):
        raise ValueError(
            f"{value!r} is no plain word (a path, a name, a number); write the command out with it"
        )
    return word
