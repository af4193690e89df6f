"""What SGLang 0.5.23 knows of each speculative algorithm (`speculative/spec_info.py:28-36`).

UNO is left out: it needs a LoRA adapter of its own, one GPU and FA3, and its trees obey other
rules (`arg_groups/speculative_hook.py:472-640`).
"""

from __future__ import annotations

import enum
from dataclasses import dataclass

from search_spaces.configuration import NO_SPECULATION


class Shape(enum.Enum):
    """Which numbers decide what an algorithm drafts."""

    NONE = "none"
    """Nothing is drafted."""
    TREE = "tree"
    """`num_steps`, `topk` and `num_draft_tokens`; a chain where `topk` is 1."""
    LOOKUP = "lookup"
    """`num_draft_tokens` alone; SGLang derives the rest."""
    BLOCK = "block"
    """`num_draft_tokens` alone, drafted in one step."""


@dataclass(frozen=True, slots=True)
class Algorithm:
    """One speculative algorithm.

    Attributes:
        name: SGLang's name, in upper case.
        shape: Which numbers decide what it drafts.
        has_draft: Whether it runs a draft model (which then has a tensor-parallel size).
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
        # MTP models bring their draft with them (speculative_hook.py:1122-1153).
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
"""Other names that SGLang takes (`speculative_hook.py:81-113`)."""

NGRAM_DRAFT_TOKENS = 12
"""SGLang's default for NGRAM (`speculative_hook.py:1314`)."""

ADAPTIVE_STEPS = (0, 1, 3, 5, 7)
"""Steps between which `--speculative-adaptive` switches, of all batch sizes
(`speculative/adaptive_spec_params.py:28-53`)."""

NAMES = (*ALGORITHMS, *ALIASES)
"""Every name that a study file may use, in any case."""


def canonical_algorithm(name: str) -> str:
    """The one name of an algorithm: upper case, aliases replaced; `"none"` in lower case."""
    if name.lower() == NO_SPECULATION:
        return NO_SPECULATION
    upper = name.upper()
    return ALIASES.get(upper, upper)
