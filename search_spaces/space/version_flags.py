"""Find flags of a study that the installed SGLang version does not have."""

from __future__ import annotations

import difflib
from typing import TYPE_CHECKING

from search_spaces.flags.options import REPLACED, VERSIONS, options
from search_spaces.space.baselines import PRODUCTION, baselines

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from search_spaces.study_file.study import Study
    from search_spaces.study_file.values import FixedValue


def unsupported_flags(study: Study, version: str | None) -> str | None:
    """Describe the flags that a version lacks, with replacements; `None` if it has all.

    Only the versions in `options.VERSIONS` are checked, because plug-ins and forks can have further
    flags.

    Args:
        study: Its fixed flags, searched flags and `production.command` are checked.
        version: SGLang version that would run.
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
    # SGLang's parser accepts unique prefixes of flags.
    ends = "" if all(_completion(name, known) for name in places) else ", so launches would fail"
    return (
        f"SGLang {version} does not have {'this flag' if one else 'these flags'}{ends}:\n"
        + "\n".join(lines)
        + f"\nCorrect {them} in the study, or use an SGLang version that has {them}"
    )


def _given(study: Study) -> Iterator[tuple[str, str]]:
    """List every flag of the study with its place in the file."""
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


def _completion(name: str, known: Mapping[str, object]) -> str | None:
    """Return the only flag that starts with a name, if there is one."""
    whole = [option for option in known if option.startswith(name)]
    return whole[0] if len(whole) == 1 else None


def _is_given(value: object) -> bool:
    return value is not None and value is not False


def _instead(name: str, known: Mapping[str, object]) -> str:
    """Suggest the version's replacement of a flag, or a similar name."""
    if whole := _completion(name, known):
        return f"; it abbreviates `--{whole}`: write the full name"
    after = REPLACED.get(name, "")
    if after.strip("`-").split(" ")[0] in known:
        return f"; write {after} instead"
    before = next((old for old, new in REPLACED.items() if new == f"`--{name}`"), None)
    if before in known:
        return f"; write `--{before}` instead"
    close = difflib.get_close_matches(name, known, n=1, cutoff=0.75)
    return f"; did you mean `--{close[0]}`?" if close else ""
