"""Flags of a study that the SGLang which would run does not have: each would end a launch."""

from __future__ import annotations

import difflib
from typing import TYPE_CHECKING

from search_spaces.flags.options import REPLACED, VERSIONS, options
from search_spaces.space.baselines import PRODUCTION, baselines

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from search_spaces.study_file.study import Study
    from search_spaces.study_file.values import FixedValue


def flags_not_had(study: Study, version: str | None) -> str | None:
    """What of a study's flags a version lacks, with what to write; `None` where nothing is.

    Only versions whose options are known are judged (`options.VERSIONS`): plug-ins and forks have
    flags of their own under versions of their own.

    Args:
        study: Its fixed flags, its tuned ones and those of today's command are looked at.
        version: What would run.
    """
    exact = next((known for known in VERSIONS if known == version), None)
    if exact is None:
        return None
    known = options(exact)
    places: dict[str, list[str]] = {}
    for place, name in _given(study):
        if name not in known and place not in places.setdefault(name, []):
            places[name].append(place)
    if not places:
        return None
    lines = [
        f"  {', '.join(where)}: --{name}{_instead(name, known)}" for name, where in places.items()
    ]
    one = len(lines) == 1
    them = "it" if one else "them"
    # Its parser takes the beginning of one name for the whole of it.
    ends = "" if all(_begun(name, known) for name in places) else ", and would end at its start"
    return (
        f"SGLang {version}, which would run, has no such flag{'' if one else 's'}{ends}\n"
        + "\n".join(lines)
        + f"\nCorrect {them} in the study, or run an SGLang that has {them}"
    )


def _given(study: Study) -> Iterator[tuple[str, str]]:
    """Every flag that some server of the study has, with where it is written."""
    yield from (("server.flags", n) for n, v in study.server.flags.items() if _is_given(v))
    yield from _chosen("space.flags", study.space.flags)
    for index, part in enumerate(study.space.speculation):
        yield from _chosen(f"space.speculation[{index}].flags", part.flags)
    today = baselines(study).get(PRODUCTION)
    if today is not None:
        yield from (("production.command", name) for name, v in today.flags if _is_given(v))


def _chosen(place: str, flags: Mapping[str, tuple[FixedValue, ...]]) -> Iterator[tuple[str, str]]:
    for name, values in flags.items():
        if any(map(_is_given, values)):
            yield place, name


def _begun(name: str, known: Mapping[str, object]) -> str | None:
    """The one name that begins so."""
    whole = [option for option in known if option.startswith(name)]
    return whole[0] if len(whole) == 1 else None


def _is_given(value: object) -> bool:
    return value is not None and value is not False


def _instead(name: str, known: Mapping[str, object]) -> str:
    """What the version has in its place, or a name like it."""
    if begun := _begun(name, known):
        return f"; short for `--{begun}`: write the whole name"
    after = REPLACED.get(name, "")
    if after.strip("`-").split(" ")[0] in known:
        return f"; it has {after} in its place"
    before = next((old for old, new in REPLACED.items() if new == f"`--{name}`"), None)
    if before in known:
        return f"; it has `--{before}` in its place"
    close = difflib.get_close_matches(name, known, n=1, cutoff=0.75)
    return f"; did you mean `--{close[0]}`?" if close else ""
