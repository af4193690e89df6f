"""SGLang's flags of speculation, which studies store under separate keys."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from search_spaces.algorithms import canonical_algorithm
from search_spaces.configuration import NO_SPECULATION, Speculation

if TYPE_CHECKING:
    from collections.abc import Mapping

    from search_spaces.study_file.values import FixedValue

DRAFT = "speculative-draft-model-path"
ALGORITHM = "speculative-algorithm"
_NUMBERS = {
    "speculative-num-steps": "num_steps",
    "speculative-eagle-topk": "topk",
    "speculative-num-draft-tokens": "num_draft_tokens",
}
# A block's size is its draft tokens; DSPARK adds the bonus token (SGLang 0.5.23,
# speculative_hook.py:368-386 and 807-820).
_BLOCKS = {"speculative-dflash-block-size": 0, "speculative-dspark-block-size": 1}

NUMBER_FLAGS: Mapping[str, str] = _NUMBERS | dict.fromkeys(_BLOCKS, "num_draft_tokens")
"""Flags of speculation that take a number, and the key of a sub-space that each decides."""


def speculation_numbers(flags: Mapping[str, FixedValue]) -> dict[str, FixedValue]:
    """Numbers given by a command's flags, by key of a sub-space."""
    numbers: dict[str, FixedValue] = {
        key: value for name, key in _NUMBERS.items() if (value := flags.get(name)) is not None
    }
    for name, more in _BLOCKS.items():
        if isinstance(value := flags.get(name), int):
            numbers["num_draft_tokens"] = value + more
    return numbers


def speculation_of(flags: Mapping[str, FixedValue]) -> Speculation:
    """Speculation given by a command's flags."""
    algorithm = flags.get(ALGORITHM)
    if algorithm is None or str(algorithm).lower() == NO_SPECULATION:
        return Speculation()
    numbers: dict[str, Any] = speculation_numbers(flags)
    return Speculation(canonical_algorithm(str(algorithm)), **numbers)
