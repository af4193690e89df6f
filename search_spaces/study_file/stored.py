"""Read stored studies, even if the current checks refuse their text.

Results stay readable when checks become stricter: values that cannot be read are dropped and
reported.
"""

from __future__ import annotations

import copy
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from pydantic import ValidationError

from search_spaces.problems import Problem, StudyFileError
from search_spaces.study_file import yaml_nodes
from search_spaces.study_file.errors import problems_of
from search_spaces.study_file.load import keep_env_as_written, parse_study, problems_of_production
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
"""Placeholders of required sections that cannot be read."""

_KEPT: Final = (("server", "flags"), ("server", "env"))
"""Sections whose values are never dropped: exported commands need them."""

_MOST_ROUNDS: Final = 1000

_Kept = tuple[yaml_nodes.Path, Any]


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
    document = yaml_nodes.read(text)
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
    document: yaml_nodes.Document,
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


def _at(error: Mapping[str, Any]) -> yaml_nodes.Path:
    path = tuple(part for part in error["loc"] if part != "[key]")
    at = (error.get("ctx") or {}).get("at")
    return path if at is None else (*path, at)


def _remove(
    data: Any,  # noqa: ANN401 - YAML
    path: yaml_nodes.Path,
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
