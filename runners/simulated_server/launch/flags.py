"""SGLang's command line: the flags that 0.5.23 takes, and what was given of them."""

from __future__ import annotations

import argparse
import json
from importlib.resources import files
from typing import TYPE_CHECKING, Any, cast

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

_SPECIFICATION = files("search_spaces") / "data" / "arguments_0.5.23.json"

_SUFFIXES = {"k": 10**3, "m": 10**6, "g": 10**9, "K": 2**10, "M": 2**20, "G": 2**30}


def _readable_int(text: str) -> int:
    factor = _SUFFIXES.get(text[-1:], 1)
    return int(text) if factor == 1 else int(float(text[:-1]) * factor)


def _json(text: str) -> object:
    return cast("object", json.loads(text))


def _nullable(text: str) -> str | None:
    return None if text.lower() in {"none", "null"} else text


_TYPES: dict[str, Callable[[str], Any]] = {
    "int": int,
    "float": float,
    "str": str,
    "human_readable_int": _readable_int,
    "nullable_str": _nullable,
    "loads": _json,
    "json_list_type": _json,
    "parse_cuda_graph_config_arg": _json,
    "parse_cuda_graph_backend_arg": str,
}


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="sglang serve", argument_default=argparse.SUPPRESS)
    for entry in json.loads(_SPECIFICATION.read_text("utf-8")):
        flags, action = entry["flags"], entry.get("action", "_StoreAction")
        options: dict[str, Any] = {"dest": entry["dest"], "default": argparse.SUPPRESS}
        if action == "BooleanOptionalAction":
            flags = flags[:1]  # argparse adds the --no- form itself
            options["action"] = argparse.BooleanOptionalAction
        elif entry.get("nargs") == 0:
            options["action"] = "store_true"
        else:
            options["type"] = _TYPES[entry.get("type", "str")]
            options["nargs"] = entry.get("nargs")
            options["choices"] = entry.get("choices")
        if entry["dest"] == "model_path":
            options["required"] = True
        parser.add_argument(*flags, **options)
    return parser


def parse_flags(argv: Sequence[str]) -> dict[str, Any]:
    """The flags that were given, by destination; those left out are absent.

    A flag that SGLang 0.5.23 does not know, or a value that it refuses, ends the process as
    SGLang does: the usage and `error: ...` on stderr, exit status 2.
    """
    given = vars(_parser().parse_args(list(argv)))
    if "config" in given:
        _parser().error("argument --config: not supported by the simulated server; give flags")
    return given
