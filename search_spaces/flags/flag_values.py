"""Values that SGLang's options accept, and flags that no known version has.

Based on the options in `search_spaces.flags.options`. SGLang's parser reads the beginning of a
flag's name as the whole flag (abbreviations of argparse, `server_args.py:679`, 0.5.23).
"""

from __future__ import annotations

import difflib
import json
import re
from typing import TYPE_CHECKING

from search_spaces.flags.options import REPLACED, VERSIONS, options
from search_spaces.problems import nearest

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from search_spaces.flags.options import Option
    from search_spaces.study_file.values import FixedValue

_INT = re.compile(r"[+-]?[0-9]+(_[0-9]+)*")
_COUNT = re.compile(r"[0-9]+(\.[0-9]+)?[kMGT]|[0-9]+[KMGT]i")
"""`human_readable_int` of `srt/utils/common.py:3394`, 0.5.23: 25.6k, 1Ki."""
_MOST_SHOWN = 12


def flag_problem(name: str, value: FixedValue, written: object = None) -> str | None:
    """Return why SGLang's parser would refuse a value; `None` if it accepts or the flag is unknown.

    Args:
        name: The flag without dashes.
        value: Value in a study: `True` for a switch, `None` if not given, a tuple for several
            words.
        written: Text in the file, if different.
    """
    found = _known(name)
    if not found:
        return None
    newest = found[-1]
    if written is False and newest.takes == 0 and len(newest.spellings) > 1:
        on, off = newest.spellings[0], newest.spellings[-1]
        if off == f"no-{on}" and name == on:
            return (
                f"`false` is a flag that is not given, and SGLang may have it on by itself: write "
                f"`{off}: true` to switch it off, or leave it out"
            )
    if value is None:
        return None
    problem = _refusal(newest, value)
    return None if problem is None or _older(found, value) else problem


def old_value(name: str, value: FixedValue) -> str | None:
    """Warning about a value that only older versions accept; `None` if the newest accepts it."""
    found = _known(name)
    if value is None or not found or VERSIONS[-1] not in _versions(name):
        return None
    newest = found[-1]
    if _refusal(newest, value) is None:
        return None
    older = [v for v in _versions(name) if _older([options(v)[name]], value)]
    if not older:
        return None
    instead = f"; {_choice_meant(str(value), newest.choices)}" if newest.choices else ""
    return f"Only SGLang {' and '.join(older)}, not {VERSIONS[-1]}, takes `{value}`{instead}"


def _older(found: list[Option], value: FixedValue) -> bool:
    """Whether a version with choices accepts the value."""
    newest = found[-1]
    return any(
        _refusal(option, value) is None and (option.choices or not newest.choices)
        for option in found
    )


def _versions(name: str) -> list[str]:
    return [version for version in VERSIONS if name in options(version)]


def _has(versions: list[str]) -> str:
    return "has" if len(versions) == 1 else "have"


def unknown_flag(name: str) -> str | None:
    """Warning about a flag that SGLang 0.5.23 does not have; `None` if it does."""
    have = _versions(name)
    newest = VERSIONS[-1]
    if newest in have:
        return None
    known = options()
    begun = sorted({option.name for spelling, option in known.items() if spelling.startswith(name)})
    if len(begun) == 1 and not have:
        return f"SGLang {newest} reads it as `{begun[0]}`: write the whole name"
    if have:
        return (
            f"Of the versions that the tuner knows ({', '.join(VERSIONS)}) only "
            f"{' and '.join(have)} {_has(have)} it{_instead(name)}"
        )
    if begun:
        return f"SGLang {newest} has no such flag; {_some(begun)} begin with this text: write one"
    return f"No known SGLang version has this flag{_close(name, known)}"


def _instead(name: str) -> str:
    return f"; {VERSIONS[-1]} has {REPLACED[name]} in its place" if name in REPLACED else ""


def _close(name: str, known: Iterable[str]) -> str:
    found = difflib.get_close_matches(name, list(known), n=1, cutoff=0.7)
    return f"; did you mean `{found[0]}`?" if found else ""


def _known(name: str) -> list[Option]:
    """The option in every version that has it, oldest first."""
    return [option for v in VERSIONS if (option := options(v).get(name)) is not None]


def _refusal(option: Option, value: FixedValue) -> str | None:
    several = option.takes in {"*", "+"}
    if option.takes == 0:
        message = "Is a switch, which takes no value: write `true`, or null to leave it out"
        return None if value is True else f"{message}, {_not(value)}"
    if isinstance(value, tuple):
        if not several:
            return f"Takes one value, {_not(value)}"
        return next((p for item in value if (p := _word(option, item, several=True))), None)
    if value is True:
        needs = option.takes not in {"?", "*"}
        return f"Is no switch: it takes {_wanted(option)}, not `true`" if needs else None
    return _word(option, value, several=several)


def _word(option: Option, value: FixedValue, *, several: bool) -> str | None:
    """Problem of one word."""
    text = str(value)
    if isinstance(value, bool) or value is None:
        return f"Takes {_wanted(option)}, {_not(value)}"
    if option.choices and text not in option.choices:
        return f"SGLang has no `{text}` here; {_choice_meant(text, option.choices)}"
    if _FITS.get(option.type, _any)(text):
        return None
    spaced = several and " " in text
    hint = f"; several are a list, `[{', '.join(text.split())}]`" if spaced else ""
    return f"Takes {_wanted(option)}, {_not(value)}{hint}"


def _choice_meant(text: str, choices: tuple[str, ...]) -> str:
    begun = [choice for choice in choices if choice.startswith(text)]
    if len(begun) > 1:
        return f"{_some(begun)} begin with it"
    if begun:
        return f"did you mean `{begun[0]}`?"
    if len(choices) <= _MOST_SHOWN or _near(text, choices):
        return nearest(text, choices)
    return f"SGLang {VERSIONS[-1]} takes {_some(choices)}"


def _any(_: str) -> bool:
    return True


def _is_int(text: str) -> bool:
    return _INT.fullmatch(text) is not None


def _is_count(text: str) -> bool:
    return _is_int(text) or _COUNT.fullmatch(text) is not None


def _is_float(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True


def _is_json(text: str, kinds: tuple[type, ...] = (object,)) -> bool:
    try:
        return isinstance(json.loads(text), kinds)
    except ValueError:
        return False


_FITS: Mapping[str, Callable[[str], bool]] = {
    "int": _is_int,
    "human_readable_int": _is_count,
    "float": _is_float,
    "loads": _is_json,
    "json_list_type": _is_json,
    "parse_cuda_graph_config_arg": lambda text: _is_json(text, (dict,)),
}


def _wanted(option: Option) -> str:
    if option.choices:
        return f"one of {_some(option.choices)}"
    return {
        "int": "a whole number",
        "human_readable_int": "a whole number, or one such as 32k (32,000) or 32Ki (32,768)",
        "float": "a number",
        "loads": 'JSON, such as `{"key": 1}`',
        "json_list_type": "a list in JSON, in quotes",
        "parse_cuda_graph_config_arg": 'JSON, such as `{"decode": {"max_bs": 64}}`',
    }.get(option.type, "a value")


def _not(value: FixedValue) -> str:
    if isinstance(value, tuple):
        return f"not the list {list(value)!r}"
    return f"not {'true' if value is True else repr(value)}"


def _near(word: str, known: Iterable[str]) -> bool:
    return bool(difflib.get_close_matches(word.lower(), [k.lower() for k in known], n=1))


def _some(words: Iterable[str]) -> str:
    listed = [f"`{word}`" for word in words]
    more = f" and {len(listed) - _MOST_SHOWN} more" if len(listed) > _MOST_SHOWN else ""
    return ", ".join(listed[:_MOST_SHOWN]) + more
