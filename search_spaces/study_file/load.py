"""Read and check study files.

study = load_study("kimi")              # a shipped study
study = load_study("my-studies/qwen.yaml")
"""

from __future__ import annotations

import copy
import functools
from dataclasses import dataclass
from importlib import resources
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from pydantic import ValidationError

from search_spaces.flags.flags import canonical_flag
from search_spaces.problems import Problem, StudyFileError, nearest
from search_spaces.simulated_acceptance import undeclared_simulation
from search_spaces.space.baselines import production_problems
from search_spaces.space.space import Space, SpaceTooLargeError, condition_effects
from search_spaces.study_file.document import Document, KeyPath, dotted, problems_of, read_yaml
from search_spaces.study_file.space_checks import check_space, tokens_in
from search_spaces.study_file.study import (
    SHIPPED,
    Model,
    Objective,
    Part,
    Server,
    SpaceSpec,
    Study,
    WorkloadSpec,
)
from search_spaces.study_file.workload_checks import check_objective, check_workload
from search_spaces.workload import DEFAULT_OUTPUT_SPREAD

if TYPE_CHECKING:
    from collections.abc import Mapping
    from os import PathLike


_CHECKED: dict[str, type[Part]] = {
    "model": Model,
    "server": Server,
    "space": SpaceSpec,
    "workload": WorkloadSpec,
    "objective": Objective,
}
"""Sections between which relations are checked."""

_ENDINGS = (".yaml", ".yml")


@functools.cache
def shipped() -> tuple[tuple[str, str], ...]:
    """Names of the shipped studies, each with a one-line description (its first comment)."""
    folder = resources.files("search_spaces") / "studies"
    out = []
    for file in folder.iterdir():
        if file.name.endswith(".yaml"):
            first = file.read_text(encoding="utf-8").splitlines()[0]
            out.append((file.name.removesuffix(".yaml"), first.removeprefix("#").strip()))
    return tuple(sorted(out))


def shipped_text(name: str) -> str:
    """The text of a shipped study.

    Raises:
        KeyError: No shipped study has this name.
    """
    if name not in dict(shipped()):
        raise KeyError(name)
    file = resources.files("search_spaces") / "studies" / f"{name}.yaml"
    return file.read_text(encoding="utf-8")


def load_study(name_or_path: str | PathLike[str]) -> Study:
    """Read a study.

    Args:
        name_or_path: The name of a shipped study, or the path of a file.

    Raises:
        StudyFileError: The file is missing or wrong; the error lists every problem.
    """
    given = str(name_or_path)
    if given in {name for name, _ in shipped()}:
        return parse_study(shipped_text(given), SHIPPED, shown=f"{given}.yaml (shipped)")
    path = Path(given)
    if not ("/" in given or path.suffix in _ENDINGS or path.is_file()):
        names = tuple(name for name, _ in shipped())
        message = f"No shipped study is named {given!r}; "
        here = next((p for end in _ENDINGS if (p := Path(f"{given}{end}")).is_file()), None)
        if here is not None:
            message += f"for the file {here} write ./{here}"
        else:
            message += f"{nearest(given, names)} (for your own file write a path: ./my-study.yaml)"
        raise StudyFileError(given, [Problem("", None, message)])
    try:
        text = path.read_text(encoding="utf-8-sig")
    except OSError as error:
        message = f"Cannot read the study file: {error.strerror or error}"
        raise StudyFileError(given, [Problem("", None, message)]) from None
    except UnicodeDecodeError as error:
        message = f"Not UTF-8 text (byte {error.start}); save the file as UTF-8"
        raise StudyFileError(given, [Problem("", None, message)]) from None
    return parse_study(text, given, base_dir=str(path.parent))


def parse_study(
    text: str,
    source: str,
    *,
    shown: str | None = None,
    base_dir: str = "",
    stored: bool = False,
    output_spread: float = DEFAULT_OUTPUT_SPREAD,
) -> Study:
    """Read a study from the text of its file.

    Args:
        text: YAML.
        source: Kept as `Study.source`.
        shown: Name of the file in messages; `source` by default.
        base_dir: Folder of relative paths in the file; the working directory if empty.
        stored: Whether the study is stored already. Its secrets and undeclared simulated acceptance
            are then accepted.
        output_spread: Spread of answer lengths for a file that states none.

    Raises:
        StudyFileError: The text is wrong; the error lists every problem.
    """
    document = read_yaml(text)
    problems = list(document.problems)
    study: Study | None = None
    if not isinstance(document.data, dict):
        if not problems:
            found = "empty" if document.data is None else "not a mapping of keys to values"
            message = f"The file is {found}; begin it with `study: NAME`"
            problems.append(Problem("", 1, message))
    else:
        keep_env_as_written(document)
        try:
            study = Study.model_validate(document.data, context={"output_spread": output_spread})
        except ValidationError as error:
            problems += problems_of(error.errors(include_url=False), Study, document)
        problems += _relations(_sections(study, document.data), document, stored=stored)
    if not stored:
        for line, message in tokens_in(text):
            if all(problem.line not in {None, line} for problem in problems):
                problems.append(Problem("", line, message))
        for path, message in undeclared_simulation(study) if study is not None else ():
            problems.append(_problem(path, message, document))
    if study is not None and not problems:
        problems += _space_problems(study, document)
        problems += problems_of_production(study, document, stored=stored)
    if study is None or problems:
        ordered = sorted(problems, key=lambda p: (p.line or 0, p.key))
        raise StudyFileError(shown or source, ordered)
    study.set_origin(source, text, base_dir, output_spread)
    return study


def _sections(study: Study | None, data: dict[str, Any]) -> dict[str, Any]:
    """Return the readable sections, so that relations are checked despite other mistakes."""
    if study is not None:
        return {name: getattr(study, name) for name in _CHECKED}
    out: dict[str, Any] = {}
    for name, kind in _CHECKED.items():
        if name in data or name in {"server", "objective"}:
            try:
                out[name] = kind.model_validate(data.get(name, {}))
            except ValidationError:
                continue
    return out


def keep_env_as_written(document: Document) -> None:
    """Replace numbers in environment variables by their text in the file (`1.50`)."""
    for section in ("server", "space"):
        _keep_as_written(document.data.get(section), (section,), document)
    space = document.data.get("space")
    conditions = space.get("conditions") if isinstance(space, dict) else None
    for index, condition in enumerate(conditions if isinstance(conditions, list) else ()):
        for key in ("when", "then"):
            pattern = condition.get(key) if isinstance(condition, dict) else None
            _keep_as_written(pattern, ("space", "conditions", index, key), document)


def _keep_as_written(part: object, at: KeyPath, document: Document) -> None:
    def written(value: object, path: KeyPath) -> object:
        number = isinstance(value, (int, float)) and not isinstance(value, bool)
        return document.texts[path] if number else value

    env = part.get("env") if isinstance(part, dict) else None
    if not isinstance(env, dict):
        return
    for name, value in env.items():
        path = (*at, "env", name)
        if isinstance(value, list):
            env[name] = [written(item, (*path, i)) for i, item in enumerate(value)]
        else:
            env[name] = written(value, path)


def _relations(sections: dict[str, Any], document: Document, *, stored: bool) -> list[Problem]:
    """Check relations within and between the readable sections."""
    server, space = sections.get("server"), sections.get("space")
    workload, objective = sections.get("workload"), sections.get("objective")
    found = [*check_space(sections.get("model"), server, space, document.data, stored=stored)]
    if workload is not None:
        found += check_workload(workload)
        if objective is not None:
            found += check_objective(objective, workload)
    return [_problem(_as_written(path, document.data), text, document) for path, text in found]


def _problem(path: KeyPath, message: str, document: Document) -> Problem:
    return Problem(dotted(path), document.line(path), message)


def _as_written(path: KeyPath, data: object) -> KeyPath:
    """Bring the flags in a path to the spelling of the file."""
    out: list[str | int] = []
    for part in path:
        key = part
        if isinstance(data, dict):
            if part not in data and out and out[-1] == "flags":
                key = next((name for name in data if canonical_flag(name) == part), part)
            data = data.get(key)
        elif isinstance(data, list) and isinstance(part, int) and part < len(data):
            data = data[part]
        else:
            data = None
        out.append(key)
    return tuple(out)


def _space_problems(study: Study, document: Document) -> list[Problem]:
    at: KeyPath = ("space",)
    try:
        space = Space(study)
    except SpaceTooLargeError as error:
        return [_problem(at, str(error), document)]
    if not space.is_empty:
        return []
    effects = condition_effects(study)
    if not any(effect.keeps or effect.excludes for effect in effects):
        return [_problem(at, f"No configuration is valid: {space.why_empty}", document)]
    conditions: KeyPath = ("space", "conditions")
    message = "Excludes every configuration; correct or remove it"
    alone = [index for index, effect in enumerate(effects) if not effect.keeps]
    if alone:
        return [_problem((*conditions, index), message, document) for index in alone]
    message = f"Together they exclude every configuration; the first reason: {space.why_empty}"
    return [_problem(conditions, message, document)]


def problems_of_production(study: Study, document: Document, *, stored: bool) -> list[Problem]:
    """Find reasons why `production.command` cannot be a baseline of the study."""
    found = production_problems(study, stored=stored)
    return [_problem(("production", "command"), message, document) for message in found]


_IN_PLACE: Final[dict[str, Any]] = {
    "study": "stored",
    "model": {"path": "unknown"},
    "space": {"speculation": [{"algorithm": "none"}]},
    "workload": {"prompts": {"chat": 1}, "output_tokens": 1},
    "budget": {"launches": 1},
}
"""Placeholders of required sections that cannot be read."""

_KEPT: Final = (("server", "flags"), ("server", "env"))
"""Sections whose values are never dropped: exported commands need them."""

_MOST_ROUNDS: Final = 1000

_Kept = tuple[KeyPath, Any]


@dataclass(frozen=True, slots=True)
class StoredFile:
    """The file of a stored study.

    Attributes:
        study: The readable part.
        problems: Problems that the current checks find.
        unread: Problems whose values are missing in `study`; such a study must not be launched.
    """

    study: Study
    problems: tuple[Problem, ...] = ()
    unread: tuple[Problem, ...] = ()


def parse_stored(
    text: str, source: str, *, base_dir: str = "", output_spread: float = DEFAULT_OUTPUT_SPREAD
) -> StoredFile:
    """Read the text of a stored study, leniently if the current checks refuse it.

    Violated relations and rules are ignored. Values that cannot be read are dropped, except for
    fixed flags and variables, which keep their text.

    Args:
        text: The stored text.
        source: Kept as `Study.source`.
        base_dir: Folder of relative paths in the text.
        output_spread: Spread of answer lengths for a text that states none.

    Raises:
        StudyFileError: The text is not a YAML mapping.
    """
    try:
        return StoredFile(
            parse_study(text, source, base_dir=base_dir, stored=True, output_spread=output_spread)
        )
    except StudyFileError as error:
        refused = error
    document = read_yaml(text)
    if not isinstance(document.data, dict):
        raise refused
    keep_env_as_written(document)
    unread: list[Problem] = list(document.problems)
    kept: list[_Kept] = []
    context = {"output_spread": output_spread}
    study = _with_kept(_validated(document, refused, unread, kept, context), kept)
    if study.production is not None and (
        found := problems_of_production(study, document, stored=True)
    ):
        unread += found
        study = study.model_copy(update={"production": None})
    study.set_origin(source, text, base_dir, output_spread)
    return StoredFile(study, refused.problems, tuple(sorted(unread, key=lambda p: p.line or 0)))


def _validated(
    document: Document,
    refused: StudyFileError,
    unread: list[Problem],
    kept: list[_Kept],
    context: Mapping[str, Any],
) -> Study:
    """Validate the document; drop unreadable values until it is valid."""
    data: Any = document.data
    for _ in range(_MOST_ROUNDS):
        try:
            return Study.model_validate(data, context=context)
        except ValidationError as error:
            errors = error.errors(include_url=False)
        unread += [p for p in problems_of(errors, Study, document) if p not in unread]
        paths = {_at(error) for error in errors}
        # Last list items first, so that the indices of the others stay valid.
        for path in sorted(paths, key=lambda path: [str(part).zfill(9) for part in path])[::-1]:
            _remove(data, path, kept)
    raise refused


def _at(error: Mapping[str, Any]) -> KeyPath:
    path = tuple(part for part in error["loc"] if part != "[key]")
    at = (error.get("ctx") or {}).get("at")
    return path if at is None else (*path, at)


def _remove(
    data: Any,  # noqa: ANN401 - YAML
    path: KeyPath,
    kept: list[_Kept],
) -> None:
    """Remove the value at a path, or the nearest existing value around it."""
    found: list[tuple[Any, Any]] = []
    around: Any = data
    for part in path:
        if not _has(around, part):
            break
        found.append((around, part))
        around = around[part]
    if len(found) > 1:
        container, part = found[-1]
        if path[:2] in _KEPT and len(found) > len(_KEPT[0]):
            container, part = found[len(_KEPT[0])]
            kept.append((path[:3], container[part]))
        del container[part]
        return
    section = str(path[0]) if path else ""
    stand_in = copy.deepcopy(_IN_PLACE.get(section))
    if stand_in is not None:
        data[section] = stand_in
    else:
        data.pop(section, None)


def _has(around: object, part: object) -> bool:
    if isinstance(around, dict):
        return part in around
    return isinstance(around, list) and isinstance(part, int) and part < len(around)


def _with_kept(study: Study, kept: list[_Kept]) -> Study:
    for (section, part, name), value in kept:
        server = getattr(study, str(section))
        written = tuple(value) if isinstance(value, list) else value
        values = {**getattr(server, str(part)), str(name): written}
        server = server.model_copy(update={str(part): values})
        study = study.model_copy(update={str(section): server})
    return study
