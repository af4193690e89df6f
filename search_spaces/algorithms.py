"""SGLang 0.5.23's speculative algorithms (`speculative/spec_info.py:28-36`).

UNO is not supported: it needs a LoRA adapter, one GPU and FA3, and has different rules for trees
(`arg_groups/speculative_hook.py:472-640`).
"""

from __future__ import annotations

import enum
from dataclasses import dataclass

from search_spaces.configuration import NO_SPECULATION


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
