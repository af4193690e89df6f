"""`SGLANG_SIMULATE_ACC_LEN`: SGLang's own way to have drafts accepted at will.

Read in SGLang 0.5.23: `srt/speculative/spec_utils.py` (lengths, tokens), `eagle_utils.py` and
`dflash_worker_v2.py` (who heeds it: the EAGLE family and DFLASH, not NGRAM). There one length is
drawn for a whole batch, here one for each request; on average they are the same.
"""

from __future__ import annotations

import math
from dataclasses import replace
from itertools import accumulate
from typing import TYPE_CHECKING, Any

from runners.simulated_server.tokens import text_of

if TYPE_CHECKING:
    from collections.abc import Mapping

    from runners.simulated_server.tokens import Answer

LENGTH = "SGLANG_SIMULATE_ACC_LEN"
METHOD = "SGLANG_SIMULATE_ACC_METHOD"
TOKEN_MODE = "SGLANG_SIMULATE_ACC_TOKEN_MODE"  # noqa: S105 - no secret
FIXED_TOKEN = 100
"""What every verify emits in the token mode `fixed`, SGLang's default."""

_HEEDED_BY = frozenset({"EAGLE", "EAGLE3", "STANDALONE", "DFLASH"})


def simulated_length(facts: Mapping[str, Any], algorithm: str | None) -> float | None:
    """The accept length that is asked for; `None` where drafts are judged as usual."""
    text = facts.get(LENGTH)
    if text is None or algorithm not in _HEEDED_BY:
        return None
    try:
        length = float(text)
    except ValueError:
        return None
    return length if length > 0.0 else None


def chances(length: float, depth: int, method: str = "match-expected") -> tuple[float, ...]:
    """`P(at least j drafts are correct)` for j = 1 to `depth`.

    Args:
        length: The accept length that is asked for, the bonus token included.
        depth: Drafts that a verify can accept.
        method: `match-expected` takes the two whole lengths around it, so that their mean is
            right; `multinomial` rounds a normal number of deviation 1.
    """
    if method == "multinomial":
        return tuple(
            0.5 * math.erfc((j + 0.5 - length) / math.sqrt(2)) for j in range(1, depth + 1)
        )
    spread = max(0.0, min(float(depth), length - 1.0))
    return tuple(max(0.0, min(1.0, spread - j)) for j in range(depth))


def fixed(answer: Answer) -> Answer:
    """The answer with the fixed token in all places but the prefill's, which no verify made."""
    ids = [*answer.ids[:1], *([FIXED_TOKEN] * (len(answer.ids) - 1))]
    pieces = [text_of([token]) for token in ids]
    return replace(
        answer, ids=ids, text="".join(pieces), ends=[0, *accumulate(len(piece) for piece in pieces)]
    )
