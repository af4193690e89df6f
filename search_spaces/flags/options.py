"""SGLang's command-line options in three versions (`data/arguments_*.json`)."""

from __future__ import annotations

import functools
import json
from dataclasses import dataclass
from importlib.resources import files
from typing import Literal

VERSIONS = ("0.5.9", "0.5.17", "0.5.23")
"""Versions with known options, oldest first."""

Version = Literal["0.5.9", "0.5.17", "0.5.23"]

REPLACED = {
    "enable-ep-moe": "`--ep-size`",
    "enable-deepep-moe": "`--moe-a2a-backend deepep`",
    "enable-flashinfer-moe": "`--moe-runner-backend flashinfer_cutlass`",
    "enable-flashinfer-cutlass-moe": "`--moe-runner-backend flashinfer_cutlass`",
    "enable-flashinfer-trtllm-moe": "`--moe-runner-backend flashinfer_trtllm`",
    "enable-flashinfer-mxfp4-moe": "`--moe-runner-backend flashinfer_mxfp4`",
    "enable-triton-kernel-moe": "`--moe-runner-backend triton_kernel`",
    "enable-flashinfer-mla": "`--attention-backend flashinfer`",
    "enable-flashmla": "`--attention-backend flashmla`",
    "disable-flashinfer": "`--attention-backend triton`",
    "cuda-graph-max-bs": "`--cuda-graph-max-bs-decode`",
    "cuda-graph-bs": "`--cuda-graph-bs-decode`",
    "nsa-prefill-backend": "`--dsa-prefill-backend`",
    "nsa-decode-backend": "`--dsa-decode-backend`",
    "mamba-scheduler-strategy": "`--mamba-radix-cache-strategy`",
}
"""Replacements of flags that SGLang 0.5.23 does not have."""

RENAMED = {"speculative-draft": "speculative-draft-model-path"}
"""Flags before 0.5 that argparse finds ambiguous today."""


@dataclass(frozen=True, slots=True)
class Option:
    """One option of SGLang's command line.

    Attributes:
        name: Its first spelling without dashes (`"tp-size"` has the second one `"tp"`).
        spellings: All of them, without dashes.
        takes: Number of words as in argparse: `0` (a switch), `1`, `"?"`, `"*"` or `"+"`.
        choices: Valid values; empty if every value is valid.
        type: `"int"`, `"float"`, `"str"`, or the name of SGLang's parser.
        action: Class of the argparse action, `""` for storing the value.
    """

    name: str
    spellings: tuple[str, ...]
    takes: int | str
    choices: tuple[str, ...]
    type: str
    action: str = ""


@functools.cache
def options(version: Version = "0.5.23") -> dict[str, Option]:
    """Return every option of a version, by each of its spellings without dashes."""
    text = (files("search_spaces") / "data" / f"arguments_{version}.json").read_text("utf-8")
    found: dict[str, Option] = {}
    for entry in json.loads(text):
        spellings = tuple(flag.lstrip("-") for flag in entry["flags"])
        switch = entry.get("nargs") == 0
        option = Option(
            name=spellings[0],
            spellings=spellings,
            takes=0 if switch else entry.get("nargs", 1),
            choices=tuple(str(choice) for choice in entry.get("choices") or ()),
            type=entry.get("type", "str"),
            action=entry.get("action", ""),
        )
        found |= dict.fromkeys(spellings, option)
    return found
