"""SGLang 0.5.23's speculative algorithms (`speculative/spec_info.py:28-36`).

UNO is not supported: it needs a LoRA adapter, one GPU and FA3, and has different rules for trees
(`arg_groups/speculative_hook.py:472-640`).
"""

from __future__ import annotations

import enum
import functools
import json
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, Protocol

from search_spaces.configuration import NO_SPECULATION, Speculation


class Shape(enum.Enum):
    """The numbers that an algorithm takes."""

    NONE = "none"
    """No numbers, no draft."""
    TREE = "tree"
    """`num_steps`, `topk` and `num_draft_tokens`; `topk` 1 is a chain."""
    LOOKUP = "lookup"
    """Only `num_draft_tokens`; SGLang derives the other numbers."""
    BLOCK = "block"
    """Only `num_draft_tokens`, drafted in one step."""


@dataclass(frozen=True, slots=True)
class Algorithm:
    """One speculative algorithm.

    Attributes:
        name: SGLang's name, in upper case.
        shape: The numbers that it takes.
        has_draft: Whether it runs a draft model, which has a tensor-parallel size.
        needs_draft: Whether it cannot start without `model.draft`.
    """

    name: str
    shape: Shape
    has_draft: bool
    needs_draft: bool


ALGORITHMS: dict[str, Algorithm] = {
    algorithm.name: algorithm
    for algorithm in (
        Algorithm(NO_SPECULATION, Shape.NONE, has_draft=False, needs_draft=False),
        # MTP models contain their draft (speculative_hook.py:1122-1153).
        Algorithm("EAGLE", Shape.TREE, has_draft=True, needs_draft=False),
        Algorithm("EAGLE3", Shape.TREE, has_draft=True, needs_draft=True),
        Algorithm("STANDALONE", Shape.TREE, has_draft=True, needs_draft=True),
        Algorithm("FROZEN_KV_MTP", Shape.TREE, has_draft=True, needs_draft=True),
        Algorithm("NGRAM", Shape.LOOKUP, has_draft=False, needs_draft=False),
        Algorithm("DFLASH", Shape.BLOCK, has_draft=True, needs_draft=True),
        # The draft may be bundled with the target (speculative_hook.py:722-748).
        Algorithm("DSPARK", Shape.BLOCK, has_draft=True, needs_draft=False),
    )
}

ALIASES = {"NEXTN": "EAGLE"}
"""Other names that SGLang accepts (`speculative_hook.py:81-113`)."""

NGRAM_DRAFT_TOKENS = 12
"""SGLang's default for NGRAM (`speculative_hook.py:1314`)."""

ADAPTIVE_STEPS = (0, 1, 3, 5, 7)
"""Steps that `--speculative-adaptive` switches between, over all batch sizes
(`speculative/adaptive_spec_params.py:28-53`)."""

NAMES = (*ALGORITHMS, *ALIASES)
"""Every name that a study file accepts, in upper or lower case."""


def canonical_algorithm(name: str) -> str:
    """Return the canonical name: upper case without aliases, but lower case `"none"`."""
    if name.lower() == NO_SPECULATION:
        return NO_SPECULATION
    upper = name.upper()
    return ALIASES.get(upper, upper)


Family = Literal["llama", "other"]


class Model(Protocol):
    """The part of a study's model that decides its family (`search_spaces.study_file.study`)."""

    @property
    def path(self) -> str: ...
    @property
    def family(self) -> Family | None: ...


_LLAMA = {"LlamaForCausalLM", "Grok1ForCausalLM", "Grok1VForCausalLM"}
_OTHER_NAME = re.compile(r"deepseek|glm|gpt-oss|kimi|minimax|mistral-large|qwen", re.IGNORECASE)
_LLAMA_NAME = re.compile(r"llama(?!-?_?4)|vicuna|grok-?_?[12]", re.IGNORECASE)


def model_family(model: Model) -> Family:
    """Return the family of a model, which selects SGLang's defaults.

    The family is `model.family` of the study, else from the architecture in a local `config.json`,
    else a guess from the last part of `model.path`.
    """
    if model.family is not None:
        return model.family
    return family_of(model.path)


def family_is_guessed(model: Model) -> bool:
    """Return whether `model_family` is a guess from the name."""
    if model.family is not None or _architecture(model.path) is not None:
        return False
    name = _last_part(model.path)
    return bool(_LLAMA_NAME.search(name)) or not _OTHER_NAME.search(name)


@functools.cache
def family_of(path: str) -> Family:
    """Return the family of the model at `path`: from its `config.json`, else from its name."""
    architecture = _architecture(path)
    if architecture is not None:
        return "llama" if architecture in _LLAMA else "other"
    return "llama" if _LLAMA_NAME.search(_last_part(path)) else "other"


def _last_part(path: str) -> str:
    return path.rstrip("/").rsplit("/", 1)[-1]


@functools.cache
def _architecture(path: str) -> str | None:
    try:
        config = json.loads((Path(path) / "config.json").read_text(encoding="utf-8"))
        return str(config["architectures"][0])
    except (OSError, ValueError, LookupError, TypeError):
        return None


def default_speculation(algorithm: str, family: Family) -> Speculation:
    """Return SGLang's speculation for a canonical algorithm without numbers.

    For blocks `num_draft_tokens` stays `None`: the draft model decides.
    """
    match ALGORITHMS[algorithm].shape:
        case Shape.NONE:
            return Speculation()
        case Shape.LOOKUP:
            return Speculation(algorithm, None, None, NGRAM_DRAFT_TOKENS)
        case Shape.BLOCK:
            return Speculation(algorithm, 1, 1, None)
        case Shape.TREE:
            if family == "llama" and algorithm in {"EAGLE", "EAGLE3"}:
                return Speculation(algorithm, 5, 4, 8)
            return Speculation(algorithm, 3, 1, 4)
