"""SGLang's own environment variables, and what each takes.

`data/variables_0.5.23.json`: the fields of `srt/environ.py` by kind, and under `text` all other
names that SGLang's source reads. A value that SGLang cannot read is its default, with a warning in
the server's log only (`EnvField.get`).
"""

from __future__ import annotations

import difflib
import functools
import json
from importlib.resources import files

VERSION = "0.5.23"
"""The version that the names were read in."""

YES = ("1", "true", "yes", "y")
"""What SGLang reads as true, in any case (`EnvBool`, `environ.py:143-150`)."""

_NO = ("0", "false", "no", "n")


@functools.cache
def kinds() -> dict[str, str]:
    """`bool`, `int`, `float` or `text` of every variable, by name."""
    text = (files("search_spaces") / "data" / f"variables_{VERSION}.json").read_text("utf-8")
    return {name: kind for kind, names in json.loads(text).items() for name in names}


def value_problem(name: str, value: str | None) -> str | None:
    """What SGLang would not read; `None` if nothing, or not known."""
    if value is None or not name.startswith("SGLANG_"):
        return None
    match kinds().get(name):
        case "bool" if value.lower() not in (*YES, *_NO):
            return f"SGLang reads {value!r} as its default: write 1 or 0"
        case "int" if not _reads(int, value):
            return f"SGLang reads {value!r} as its default: write a whole number"
        case "float" if not _reads(float, value):
            return f"SGLang reads {value!r} as its default: write a number"
    return None


def canonical_value(name: str, value: str) -> str:
    """The one spelling of a value: `true` is `1`; what SGLang cannot read stays as it is."""
    if not name.startswith("SGLANG_") or kinds().get(name) != "bool":
        return value
    if value.lower() in YES:
        return "1"
    return "0" if value.lower() in _NO else value


def unknown_variable(name: str) -> str | None:
    """What to know of a variable of SGLang's that it does not read; `None` if it does."""
    if not name.upper().startswith("SGLANG_") or name in kinds():
        return None
    close = difflib.get_close_matches(name.upper(), kinds(), n=1, cutoff=0.75)
    hint = f"; did you mean `{close[0]}`?" if close else ""
    return f"SGLang {VERSION} reads no such variable, and ignores it in silence{hint}"


def _reads(reader: type[int | float], value: str) -> bool:
    try:
        reader(value)
    except ValueError:
        return False
    return True
