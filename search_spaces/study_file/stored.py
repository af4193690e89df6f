"""A study as it was stored, whatever today's checks say of its text.

What was measured with it is not lost because rules have become stricter since: it is read as far
as it can be, and what speaks against it is said beside it.
"""

from __future__ import annotations

import copy
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from pydantic import ValidationError

from search_spaces.problems import Problem, StudyFileError
from search_spaces.space.production import production_problems
from search_spaces.study_file import yaml_nodes
from search_spaces.study_file.errors import problems_of
from search_spaces.study_file.load import keep_env_as_written, parse_study
from search_spaces.study_file.study import Study
from search_spaces.workload import DEFAULT_OUTPUT_SPREAD

if TYPE_CHECKING:
    from collections.abc import Mapping

_IN_PLACE: Final[dict[str, Any]] = {
    "study": "stored",
    "model": {"path": "unknown"},
    "space": {"speculation": [{"algorithm": "none"}]},
    "workload": {"prompts": {"chat": 1}, "output_tokens": 1},
    "budget": {"launches": 1},
}
"""Stands for a section that a study must have, where nothing of it can be read."""

_KEPT: Final = (("server", "flags"), ("server", "env"))
"""Where values stay as they are written: every launch had them, so an exported command needs
them."""

_MOST_ROUNDS: Final = 1000

_Kept = tuple[yaml_nodes.Path, Any]


@dataclass(frozen=True, slots=True)
class StoredFile:
    """The file of a stored study.

    Attributes:
        study: As far as it can be read.
        problems: What today's checks find wrong with it; empty where it is as good as ever.
        unread: Those of them for which `study` says something else than the text: no launch may
            be made of it.
    """

    study: Study
    problems: tuple[Problem, ...] = ()
    unread: tuple[Problem, ...] = ()


def parse_stored(
    text: str, source: str, *, base_dir: str = "", output_spread: float = DEFAULT_OUTPUT_SPREAD
) -> StoredFile:
    """Reads the text of a stored study, leniently where today's checks refuse it.

    Relations between keys and rules of SGLang that speak against it are passed over. A value that
    is not understood is left out, but for fixed flags and variables, which stay as they are
    written.

    Args:
        text: As it was stored.
        source: Kept as `Study.source`.
        base_dir: Folder that relative paths in it start from.
        output_spread: Spread of answer lengths where the text states none.

    Raises:
        StudyFileError: It is not even YAML with keys.
    """
    try:
        return StoredFile(
            parse_study(text, source, base_dir=base_dir, stored=True, output_spread=output_spread)
        )
    except StudyFileError as error:
        refused = error
    document = yaml_nodes.read(text)
    if not isinstance(document.data, dict):
        raise refused
    keep_env_as_written(document)
    unread: list[Problem] = list(document.problems)
    kept: list[_Kept] = []
    context = {"output_spread": output_spread}
    study = _with(_validated(document, refused, unread, kept, context), kept)
    if study.production is not None and (
        found := production_problems(study, document, stored=True)
    ):
        unread += found
        study = study.model_copy(update={"production": None})
    # Set once, where it is made.
    study._source, study._text, study._base_dir = source, text, base_dir  # noqa: SLF001
    study._output_spread = output_spread  # noqa: SLF001
    return StoredFile(study, refused.problems, tuple(sorted(unread, key=lambda p: p.line or 0)))


def _validated(
    document: yaml_nodes.Document,
    refused: StudyFileError,
    unread: list[Problem],
    kept: list[_Kept],
    context: Mapping[str, Any],
) -> Study:
    """The document without what is not understood; every round takes something away."""
    data: Any = document.data
    for _ in range(_MOST_ROUNDS):
        try:
            return Study.model_validate(data, context=context)
        except ValidationError as error:
            errors = error.errors(include_url=False)
        unread += [p for p in problems_of(errors, Study, document) if p not in unread]
        paths = {_at(error) for error in errors}
        # The last items of a list first, so that the others keep their places.
        for path in sorted(paths, key=lambda path: [str(part).zfill(9) for part in path])[::-1]:
            _take_away(data, path, kept)
    raise refused


def _at(error: Mapping[str, Any]) -> yaml_nodes.Path:
    path = tuple(part for part in error["loc"] if part != "[key]")
    at = (error.get("ctx") or {}).get("at")
    return path if at is None else (*path, at)


def _take_away(
    data: Any,  # noqa: ANN401 - YAML
    path: yaml_nodes.Path,
    kept: list[_Kept],
) -> None:
    """Takes the value at a path away, or the nearest thing around it that is there."""
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


def _with(study: Study, kept: list[_Kept]) -> Study:
    for (section, part, name), value in kept:
        server = getattr(study, str(section))
        written = tuple(value) if isinstance(value, list) else value
        values = {**getattr(server, str(part)), str(name): written}
        server = server.model_copy(update={str(part): values})
        study = study.model_copy(update={str(section): server})
    return study
