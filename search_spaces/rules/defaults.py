"""The speculative defaults of SGLang 0.5.23.

Source: `arg_groups/speculative_hook.py:1430-1461` (trees), `:1314` (NGRAM), `:330-470` (DFLASH).
"""

from __future__ import annotations

import functools
import json
import re
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from search_spaces.algorithms import ALGORITHMS, NGRAM_DRAFT_TOKENS, Shape
from search_spaces.configuration import Speculation

if TYPE_CHECKING:
    from search_spaces.study_file.study import Model

Family = Literal["llama", "other"]

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
