"""Today's launch command as a configuration of a study, so that it can be one of its baselines."""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING, cast

from search_spaces.algorithms import ALGORITHMS, NAMES, canonical_algorithm
from search_spaces.configuration import Configuration
from search_spaces.flags.flag_values import flag_problem, unknown_flag
from search_spaces.flags.flags import canonical_flag
from search_spaces.flags.speculation_flags import ALGORITHM, DRAFT, NUMBER_FLAGS, speculation_of
from search_spaces.launch_commands import UnreadableCommandError, read_launch_text
from search_spaces.launch_commands.prefixes import prefix_here
from search_spaces.problems import Problem
from search_spaces.rules.legality import canonical, violations
from search_spaces.secrets import is_export_only, is_secret, reference
from search_spaces.suggestions import nearest
from search_spaces.variables import canonical_env

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from search_spaces.configuration import Value
    from search_spaces.launch_commands import LaunchText
    from search_spaces.study_file.study import Study
    from search_spaces.study_file.values import FixedValue
    from search_spaces.study_file.yaml_nodes import Document

MODEL = "model-path"
_KEY = ("production", "command")


def production_configuration(study: Study) -> Configuration | None:
    """The study's `production.command`, canonical; `None` where it has none.

    Flags and variables are those in which the command differs from `server.flags` and
    `server.env`; one of these that the command does not have is `None`. Flags of the server's
    address and keys, and secret variables, are no differences: trials never have them.

    Raises:
        ValueError: The command cannot be this study's (`production_problems` says why; a study
            that was read from a file has no such command).
    """
    if study.production is None:
        return None
    launch = read_launch_text(study.production.command, kind="shell")
    if problem := next(_mismatches(launch, study), None):
        raise ValueError(problem)
    return _relative(launch, study)


def production_problems(study: Study, document: Document, *, stored: bool = False) -> list[Problem]:
    """What keeps `production.command` from being a baseline of the study.

    Args:
        study: The study.
        document: Its file, for lines.
        stored: Whether it is stored already: then it is too late to refuse its secrets.
    """
    if study.production is None:
        return []
    try:
        launch = read_launch_text(study.production.command, kind="shell")
    except UnreadableCommandError as error:
        messages = [str(error)]
    else:
        messages = list(_mismatches(launch, study))
        if not stored:
            messages += _written_out(launch)
    return [Problem(".".join(_KEY), document.line(_KEY), message) for message in messages]


def production_warnings(study: Study) -> Iterator[str]:
    """What is worth knowing of a production command that is sound."""
    if study.production is None:
        return
    launch = read_launch_text(study.production.command, kind="shell")
    for note in launch.notes:
        if not _is_said_of_the_study(note, study):
            yield f"production.command: {note}"
    for name, value in launch.flags.items():
        if (problem := flag_problem(name, value)) is not None:
            yield f"production.command: --{name}: {problem}"
    today, own = prefix_here(launch.prefix), prefix_here(study.server.prefix)
    if today != own:
        yield (
            f"production.command starts {_behind(today)}, and the study's servers {_behind(own)}: "
            "every launch has `server.prefix`, the baseline 'production' too; correct one of them"
        )
    configuration = production_configuration(study)
    for broken in violations(configuration, study) if configuration is not None else ():
        yield (
            f"production.command breaks a rule that the search keeps to: {broken}; it runs today, "
            "so it is measured all the same"
        )


def _behind(prefix: tuple[str, ...]) -> str:
    return f"behind `{' '.join(prefix)}`" if prefix else "without a prefix that pins it"


def _is_said_of_the_study(note: str, study: Study) -> bool:
    """Whether it is of an unknown flag that `server.flags` has, too, where it is said already."""
    flag = re.match(r"`--?([\w.-]+)`", note)
    name = canonical_flag(flag[1]) if flag is not None else ""
    return name in study.server.flags and unknown_flag(name) is not None


def same_value(one: FixedValue, other: FixedValue) -> bool:
    """Whether two values of a flag are the same words, number or JSON on a command line."""
    if isinstance(one, bool) or isinstance(other, bool) or one is None or other is None:
        return one is other
    if isinstance(one, tuple) or isinstance(other, tuple):
        mine, theirs = _tuple(one), _tuple(other)
        return len(mine) == len(theirs) and all(map(same_value, mine, theirs))
    return str(one) == str(other) or _parsed(str(one)) == _parsed(str(other))


def _tuple(value: FixedValue) -> tuple[Value, ...]:
    return value if isinstance(value, tuple) else (value,)


def _parsed(text: str) -> object:
    try:
        return json.loads(text)
    except ValueError:
        return text


def _relative(launch: LaunchText, study: Study) -> Configuration:
    mine = {
        name: value
        for name, value in launch.flags.items()
        if name not in {MODEL, DRAFT, ALGORITHM, *NUMBER_FLAGS} and not is_export_only(name)
    }
    fixed = study.server.flags
    flags: dict[str, FixedValue] = {
        name: None
        for name, value in fixed.items()
        if value is not None and name not in mine and not is_export_only(name)
    }
    for name, value in mine.items():
        if not same_value(value, fixed.get(name)):
            flags[name] = _as_the_study_writes_it(name, value, study)
    env: dict[str, Value] = {
        name: None
        for name, text in study.server.env.items()
        if text is not None and launch.env.get(name) is None and not is_secret(name)
    }
    for name, text in launch.env.items():
        own = study.server.env
        same = name in own and _one_spelling(name, text) == _one_spelling(name, own[name])
        if name not in launch.secrets and not same:
            env[name] = text
    configuration = Configuration.of(
        speculation_of(launch.flags), flags=cast("Mapping[str, Value]", flags), env=env
    )
    return canonical(configuration, study)


def _one_spelling(name: str, text: str | None) -> str | None:
    return canonical_env({name: text}, {})[name]


def _as_the_study_writes_it(name: str, value: FixedValue, study: Study) -> FixedValue:
    """One of the study's choices where the command means it (`0.90` is `0.9`)."""
    lists = (study.space.flags, *(part.flags for part in study.space.speculation))
    choices = (choice for flags in lists for choice in flags.get(name, ()))
    return next((choice for choice in choices if same_value(choice, value)), value)


def _mismatches(launch: LaunchText, study: Study) -> Iterator[str]:
    if unset := _unset(launch):
        names = ", ".join(f"${name}" for name in unset)
        yield f"{names} is not set in it; write the value itself in its place"
        return
    if "config" in launch.flags:
        yield (
            f"It takes flags from the file {launch.flags['config']} (--config), which is not read; "
            "write them into the command"
        )
    yield from _other_model(launch, study)
    if study.server.flags.get("nnodes", 1) == 1 and launch.flags.get("nnodes", 1) != 1:
        yield (
            f"It runs on {launch.flags['nnodes']} nodes and the study's servers on one; leave "
            "`production` out, or write the command for one machine"
        )
    yield from _odd_speculation(launch.flags)


def _written_out(launch: LaunchText) -> Iterator[str]:
    for name in launch.written_out:
        written = f"--{name} " if name in launch.flags else f"{name}="
        yield (
            f"It holds the secret of {name}, which would be stored with the results; write "
            f"`{written}{reference(name)}` in its place"
        )


def _unset(launch: LaunchText) -> list[str]:
    """Names that flags or variables of the server need; a container's options may have theirs."""
    texts = [str(value) for name, value in launch.flags.items() if not is_secret(name)]
    texts += [str(value) for name, value in launch.env.items() if not is_secret(name)]
    whole = " ".join(texts)
    return [n for n in launch.variables if f"${n}" in whole or f"${{{n}" in whole]


def _other_model(launch: LaunchText, study: Study) -> Iterator[str]:
    model = launch.flags.get(MODEL)
    if model is None:
        yield "It names no model; write `--model-path` as today's command has it"
    elif str(model).rstrip("/") != study.model.path.rstrip("/"):
        yield f"It serves {model}, and `model.path` is {study.model.path}; keep one of them"
    known = ALGORITHMS.get(speculation_of(launch.flags).algorithm)
    if known is None or not known.has_draft:
        return
    draft, own = launch.flags.get(DRAFT), study.model.draft
    if draft is not None and own is None:
        yield f"It drafts with {draft}; the study has no draft: write `model: {{draft: {draft}}}`"
    elif draft is None and own is not None:
        yield (
            f"It drafts without a draft model, and `model.draft` is {own}; leave `model.draft` "
            "out, or write --speculative-draft-model-path into the command"
        )
    elif draft is not None and str(draft).rstrip("/") != str(own).rstrip("/"):
        yield f"It drafts with {draft}, and `model.draft` is {own}; keep one of them"


def _odd_speculation(flags: Mapping[str, FixedValue]) -> Iterator[str]:
    algorithm = flags.get(ALGORITHM)
    if algorithm is not None and canonical_algorithm(str(algorithm)) not in ALGORITHMS:
        yield f"Unknown algorithm {algorithm!r}; {nearest(str(algorithm), NAMES)}"
    for name in NUMBER_FLAGS:
        value = flags.get(name)
        if value is not None and (isinstance(value, bool) or not isinstance(value, int)):
            yield f"--{name} must be a whole number, not {value!r}"
