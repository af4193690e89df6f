"""The baselines of a study, today's launch command among them."""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING, cast

from search_spaces.algorithms import (
    ALGORITHMS,
    NAMES,
    canonical_algorithm,
    default_speculation,
    model_family,
)
from search_spaces.configuration import NO_SPECULATION, Configuration, Speculation
from search_spaces.flags.flag_values import flag_problem, unknown_flag
from search_spaces.flags.flags import canonical_flag
from search_spaces.flags.speculation_flags import ALGORITHM, DRAFT, NUMBER_FLAGS, speculation_of
from search_spaces.launch_commands import UnreadableCommandError, read_launch_text
from search_spaces.launch_commands.prefixes import prefix_here
from search_spaces.problems import nearest
from search_spaces.rules.legality import canonical, violations
from search_spaces.secrets import is_export_only, is_secret, reference
from search_spaces.variables import canonical_env

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from search_spaces.configuration import Value
    from search_spaces.launch_commands import LaunchText
    from search_spaces.study_file.study import Study
    from search_spaces.study_file.values import FixedValue

MODEL = "model-path"

PRODUCTION = "production"
"""Name of the baseline that `production.command` gives."""


def baselines(study: Study) -> dict[str, Configuration]:
    """The configurations that a study's winner is compared with, canonical, by name.

    - `"none"` is no speculation.
    - `"default"` is SGLang's defaults (0.5.23) for the first speculative algorithm of the study.
      It is absent without such an algorithm, or where a rule refuses it.
    - `"production"` is `production.command`, if the study has one. Rules do not exclude it, since
      it runs today.

    The first two leave every flag and variable unset that the study varies. A baseline need not be
    a point of the space, and two names can be the same configuration.
    """
    out = {"none": canonical(Configuration.of(Speculation()), study)}
    default = default_baseline(study)
    if default is not None and not violations(default, study):
        out["default"] = default
    production = production_configuration(study)
    if production is not None:
        out[PRODUCTION] = production
    return out


def default_baseline(study: Study) -> Configuration | None:
    """SGLang's defaults for the study's first speculative algorithm, legal or not."""
    for part in study.space.speculation:
        algorithm = part.canonical_algorithm
        if algorithm != NO_SPECULATION and algorithm in ALGORITHMS:
            speculation = default_speculation(algorithm, model_family(study.model))
            return canonical(Configuration.of(speculation), study)
    return None


def production_configuration(study: Study) -> Configuration | None:
    """The study's `production.command` as a canonical configuration; `None` without one.

    The configuration holds the flags and variables in which the command differs from
    `server.flags` and `server.env`; `None` marks one that the command lacks. Addresses, keys and
    secret variables are left out: trials never have them.

    Raises:
        ValueError: The command does not fit the study. (`production_problems` finds this when a
            study file is read.)
    """
    if study.production is None:
        return None
    launch = read_launch_text(study.production.command, kind="shell")
    if problem := next(_mismatches(launch, study), None):
        raise ValueError(problem)
    return _relative(launch, study)


def production_problems(study: Study, *, stored: bool = False) -> list[str]:
    """Reasons why `production.command` cannot be a baseline of the study.

    Args:
        study: The study.
        stored: Whether the study is stored already; its secrets are then accepted.
    """
    if study.production is None:
        return []
    try:
        launch = read_launch_text(study.production.command, kind="shell")
    except UnreadableCommandError as error:
        return [str(error)]
    messages = list(_mismatches(launch, study))
    return messages if stored else [*messages, *_literal_secrets(launch)]


def production_warnings(study: Study) -> Iterator[str]:
    """Warnings about a usable `production.command`."""
    if study.production is None:
        return
    launch = read_launch_text(study.production.command, kind="shell")
    for note in launch.notes:
        if not _repeats_server_warning(note, study):
            yield f"production.command: {note}"
    for name, value in launch.flags.items():
        if (problem := flag_problem(name, value)) is not None:
            yield f"production.command: --{name}: {problem}"
    today, server = prefix_here(launch.prefix), prefix_here(study.server.prefix)
    if today != server:
        yield (
            f"production.command has {_prefix_text(today)}, but server.prefix is "
            f"{_prefix_text(server)}; every launch uses server.prefix, so correct one of them"
        )
    configuration = production_configuration(study)
    for broken in violations(configuration, study) if configuration is not None else ():
        yield (
            f"production.command breaks a rule: {broken}; the tuner measures it anyway, because "
            "it runs today"
        )


def _prefix_text(prefix: tuple[str, ...]) -> str:
    return f"the prefix `{' '.join(prefix)}`" if prefix else "no prefix"


def _repeats_server_warning(note: str, study: Study) -> bool:
    """Whether a note is about an unknown flag that `server.flags` is warned about too."""
    flag = re.match(r"`--?([\w.-]+)`", note)
    name = canonical_flag(flag[1]) if flag is not None else ""
    return name in study.server.flags and unknown_flag(name) is not None


def same_value(one: FixedValue, other: FixedValue) -> bool:
    """Whether two values of a flag are equal as words, number or JSON on a command line."""
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
            flags[name] = _study_choice(name, value, study)
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


def _study_choice(name: str, value: FixedValue, study: Study) -> FixedValue:
    """The study's spelling of a value, if the study has one (`0.9` for `0.90`)."""
    lists = (study.space.flags, *(part.flags for part in study.space.speculation))
    choices = (choice for flags in lists for choice in flags.get(name, ()))
    return next((choice for choice in choices if same_value(choice, value)), value)


def _mismatches(launch: LaunchText, study: Study) -> Iterator[str]:
    if unset := _unset(launch):
        names = ", ".join(f"${name}" for name in unset)
        yield f"{names} is not set in the command; replace the name with its value"
        return
    if "config" in launch.flags:
        yield (
            f"The tuner does not read the file of `--config {launch.flags['config']}`; write its "
            "flags into the command"
        )
    yield from _other_model(launch, study)
    if study.server.flags.get("nnodes", 1) == 1 and launch.flags.get("nnodes", 1) != 1:
        yield (
            f"The command runs on {launch.flags['nnodes']} nodes, the study's servers on one; "
            "leave `production` out, or write the command for one machine"
        )
    yield from _speculation_problems(launch.flags)


def _literal_secrets(launch: LaunchText) -> Iterator[str]:
    for name in launch.written_out:
        written = f"--{name} " if name in launch.flags else f"{name}="
        yield (
            f"The command contains the secret {name}, which would be stored with the results; "
            f"write `{written}{reference(name)}` instead"
        )


def _unset(launch: LaunchText) -> list[str]:
    """Unset shell variables in the server's flags and environment."""
    texts = [str(value) for name, value in launch.flags.items() if not is_secret(name)]
    texts += [str(value) for name, value in launch.env.items() if not is_secret(name)]
    whole = " ".join(texts)
    return [n for n in launch.variables if f"${n}" in whole or f"${{{n}" in whole]


def _other_model(launch: LaunchText, study: Study) -> Iterator[str]:
    model = launch.flags.get(MODEL)
    if model is None:
        yield "The command names no model; add `--model-path`"
    elif str(model).rstrip("/") != study.model.path.rstrip("/"):
        yield f"The command serves {model}, but `model.path` is {study.model.path}; use one model"
    known = ALGORITHMS.get(speculation_of(launch.flags).algorithm)
    if known is None or not known.has_draft:
        return
    draft, own = launch.flags.get(DRAFT), study.model.draft
    if draft is not None and own is None:
        yield f"The command uses the draft {draft}; add `model: {{draft: {draft}}}` to the study"
    elif draft is None and own is not None:
        yield (
            f"The command names no draft model, but `model.draft` is {own}; leave `model.draft` "
            "out, or add --speculative-draft-model-path to the command"
        )
    elif draft is not None and str(draft).rstrip("/") != str(own).rstrip("/"):
        yield f"The command uses the draft {draft}, but `model.draft` is {own}; use the same draft"


def _speculation_problems(flags: Mapping[str, FixedValue]) -> Iterator[str]:
    algorithm = flags.get(ALGORITHM)
    if algorithm is not None and canonical_algorithm(str(algorithm)) not in ALGORITHMS:
        yield f"Unknown algorithm {algorithm!r}; {nearest(str(algorithm), NAMES)}"
    for name in NUMBER_FLAGS:
        value = flags.get(name)
        if value is not None and (isinstance(value, bool) or not isinstance(value, int)):
            yield f"--{name} must be a whole number, not {value!r}"
