"""SGLang's environment variables and their types.

`data/variables_0.5.23.json` has the fields of `srt/environ.py` by type, and under `text` all other
names in SGLang's source. SGLang replaces a value that it cannot parse by the default, and
warns only in the server's log (`EnvField.get`).
"""

from __future__ import annotations

import difflib
import functools
import json
from importlib.resources import files

VERSION = "0.5.23"
"""SGLang version of the names."""

YES = ("1", "true", "yes", "y")
"""Values that SGLang reads as true, in upper or lower case (`EnvBool`, `environ.py:143-150`)."""

_NO = ("0", "false", "no", "n")


@functools.cache
def kinds() -> dict[str, str]:
    """The type of every variable, by name: `bool`, `int`, `float` or `text`."""
    text = (files("search_spaces") / "data" / f"variables_{VERSION}.json").read_text("utf-8")
    return {name: kind for kind, names in json.loads(text).items() for name in names}


def value_problem(name: str, value: str | None) -> str | None:
    """Return why SGLang cannot parse a value; `None` for a good value or an unknown variable."""
    if value is None or not name.startswith("SGLANG_"):
        return None
    match kinds().get(name):
        case "bool" if value.lower() not in (*YES, *_NO):
            return f"SGLang cannot parse {value!r} and would use its default; write 1 or 0"
        case "int" if not _reads(int, value):
            return f"SGLang cannot parse {value!r} and would use its default; write a whole number"
        case "float" if not _reads(float, value):
            return f"SGLang cannot parse {value!r} and would use its default; write a number"
    return None


def canonical_value(name: str, value: str) -> str:
    """Return the canonical spelling (`true` is `1`); invalid values stay unchanged."""
    if not name.startswith("SGLANG_") or kinds().get(name) != "bool":
        return value
    if value.lower() in YES:
        return "1"
    return "0" if value.lower() in _NO else value


def unknown_variable(name: str) -> str | None:
    """Return a warning about a variable of SGLang that SGLang does not read, else `None`."""
    if not name.upper().startswith("SGLANG_") or name in kinds():
        return None
    close = difflib.get_close_matches(name.upper(), kinds(), n=1, cutoff=0.75)
    hint = f"; did you mean `{close[0]}`?" if close else ""
    return f"SGLang {VERSION} does not read this variable and ignores it silently{hint}"


def _reads(reader: type[int | float], value: str) -> bool:
    try:
        reader(value)
    except ValueError:
        return False
    return True
