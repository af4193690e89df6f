"""Read and check study files.

study = load_study("kimi")              # a shipped study
study = load_study("my-studies/qwen.yaml")
"""

from __future__ import annotations

import functools
from importlib import resources
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pydantic import ValidationError

from search_spaces.problems import Problem, StudyFileError
from search_spaces.simulated_acceptance import undeclared_simulation
from search_spaces.space.condition_effects import what_empties
from search_spaces.space.production import production_problems
from search_spaces.space.space import Space, SpaceTooLargeError
from search_spaces.study_file import yaml_nodes
from search_spaces.study_file.checks import check
from search_spaces.study_file.errors import problems_of
from search_spaces.study_file.secret_checks import tokens_in
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
from search_spaces.suggestions import nearest
from search_spaces.workload import DEFAULT_OUTPUT_SPREAD

if TYPE_CHECKING:
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
    """Names of the shipped studies, each with one line that describes it (its first comment)."""
    folder = resources.files("search_spaces") / "studies"
    out = []
    for file in folder.iterdir():
        if file.name.endswith(".yaml"):
            first = file.read_text(encoding="utf-8").splitlines()[0]
            out.append((file.name.removesuffix(".yaml"), first.removeprefix("#").strip()))
    return tuple(sorted(out))


def shipped_text(name: str) -> str:
    """The file of a shipped study.

    Raises:
        KeyError: There is none of that name.
    """
    if name not in dict(shipped()):
        raise KeyError(name)
    file = resources.files("search_spaces") / "studies" / f"{name}.yaml"
    return file.read_text(encoding="utf-8")


def load_study(name_or_path: str | PathLike[str]) -> Study:
    """Reads a study.

    Args:
        name_or_path: The name of a shipped study, or a path (it has a slash or ends in `.yaml` or
            `.yml`, or is a file).

    Raises:
        StudyFileError: It does not exist or is wrong, with everything that is wrong with it.
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
            message += f"the file {here} lies here: write ./{here}"
        else:
            message += (
                f"{nearest(given, names)} "
                "(for a file of your own, give its path, such as ./my-study.yaml)"
            )
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
    """Reads a study from the text of its file.

    Args:
        text: YAML.
        source: Kept as `Study.source`.
        shown: How messages name the file; `source` by default.
        base_dir: Folder that relative paths in it start from; the working directory if empty.
        stored: Whether it is stored already: then it is too late to refuse its secrets, or
            acceptance that is simulated without a word.
        output_spread: Spread of answer lengths where the text states none.

    Raises:
        StudyFileError: With everything that is wrong with it.
    """
    document = yaml_nodes.read(text)
    problems = list(document.problems)
    study: Study | None = None
    if not isinstance(document.data, dict):
        if not problems:
            what = "empty" if document.data is None else "not a mapping of keys to values"
            message = f"The file is {what}; a study begins with `study: NAME`"
            problems.append(Problem("", 1, message))
    else:
        keep_env_as_written(document)
        try:
            study = Study.model_validate(document.data, context={"output_spread": output_spread})
        except ValidationError as error:
            problems += problems_of(error.errors(include_url=False), Study, document)
        problems += check(_sections(study, document.data), document, stored=stored)
    if not stored:
        for line, message in tokens_in(text):
            if all(problem.line not in {None, line} for problem in problems):
                problems.append(Problem("", line, message))
        for path, message in undeclared_simulation(study) if study is not None else ():
            problems.append(Problem(yaml_nodes.dotted(path), document.line(path), message))
    if study is not None and not problems:
        problems += _space_problems(study, document)
        problems += _production_problems(study, document, stored=stored)
    if study is None or problems:
        ordered = sorted(problems, key=lambda p: (p.line or 0, p.key))
        raise StudyFileError(shown or source, ordered)
    # Set once, where it is made.
    study._source, study._text, study._base_dir = source, text, base_dir  # noqa: SLF001
    study._output_spread = output_spread  # noqa: SLF001
    return study


def _sections(study: Study | None, data: dict[str, Any]) -> dict[str, Any]:
    """The sections that can be read, so that relations are checked beside other mistakes."""
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


def keep_env_as_written(document: yaml_nodes.Document) -> None:
    """Numbers as values of environment variables become the text that was written (`1.50`)."""
    for section in ("server", "space"):
        _keep_as_written(document.data.get(section), (section,), document)
    space = document.data.get("space")
    conditions = space.get("conditions") if isinstance(space, dict) else None
    for index, condition in enumerate(conditions if isinstance(conditions, list) else ()):
        for key in ("when", "then"):
            pattern = condition.get(key) if isinstance(condition, dict) else None
            _keep_as_written(pattern, ("space", "conditions", index, key), document)


def _keep_as_written(part: object, at: yaml_nodes.Path, document: yaml_nodes.Document) -> None:
    def written(value: object, path: yaml_nodes.Path) -> object:
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


def _space_problems(study: Study, document: yaml_nodes.Document) -> list[Problem]:
    try:
        space = Space(study)
    except SpaceTooLargeError as error:
        return [Problem("space", document.line(("space",)), str(error))]
    if space.is_empty:
        if blamed := _emptied_by_conditions(study):
            return [Problem(yaml_nodes.dotted(at), document.line(at), text) for at, text in blamed]
        message = f"Holds no configuration that SGLang would run: {space.why_empty}"
        return [Problem("space", document.line(("space",)), message)]
    return []


def _production_problems(
    study: Study, document: yaml_nodes.Document, *, stored: bool
) -> list[Problem]:
    if study.production is None:
        return []
    return production_problems(study, document, stored=stored)


def _emptied_by_conditions(study: Study) -> list[tuple[yaml_nodes.Path, str]]:
    if not study.space.conditions:
        return []
    without = study.space.model_copy(update={"conditions": ()})
    if Space(study.model_copy(update={"space": without})).is_empty:
        return []
    at: yaml_nodes.Path = ("space", "conditions")
    if alone := what_empties(study):
        text = "Leaves nothing of the space: no configuration is as `then` says"
        return [((*at, index), text) for index in alone]
    message = (
        "Together they leave nothing of the space, though each alone leaves something; the first "
        f"of what is excluded: {Space(study).why_empty}"
    )
    return [(at, message)]
