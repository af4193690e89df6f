"""Number of accepted drafts: a deterministic function of prompt, verify call and depth.

The verify calls of a prompt follow a low-discrepancy sequence, so a short window nearly has the
accept length of the profile. `SGLANG_SIMULATE_ACC_LEN` overrides the profile.
"""

from __future__ import annotations

import math
from bisect import bisect_right
from dataclasses import replace
from itertools import accumulate
from typing import TYPE_CHECKING, Any

from runners.simulated_server.engine.tokens import text_of

if TYPE_CHECKING:
    from collections.abc import Mapping

    from runners.simulated_server.engine.profile import Acceptance
    from runners.simulated_server.engine.tokens import Answer


_STRIDES = (3**0.5 - 1, 5**0.5 / 2 - 0.5)
"""Distances between consecutive verify calls in [0, 1); each prompt uses one of the two.

Both distances are far from every simple fraction, so each sequence fills [0, 1) evenly. With the
golden ratio alone, all prompts have equal counts at a probability near 0.62 or 0.38. No real server
has that, and the load generator reports it as `acceptance_stale`.
"""


def at_least(
    acceptance: Acceptance, num_steps: int, topk: int, num_draft_tokens: int
) -> tuple[float, ...]:
    """Return `P(at least j drafts are correct)` for j = 1 to the depth of the tree.

    A chain has the profile's values. A tree raises each value by the profile's gain of its topk, in
    proportion to the nodes beyond a chain of the same depth (assumed).
    """
    depth = min(num_steps, num_draft_tokens - 1)
    chain = [acceptance.at_least[j] if j < len(acceptance.at_least) else 0.0 for j in range(depth)]
    known = [k for k in acceptance.tree_gain if k <= topk]
    if topk == 1 or not known or depth == 0:
        return tuple(chain)
    spare = num_draft_tokens - 1 - depth
    share = min(1.0, spare / (depth * (topk - 1)))
    gain = 1.0 + acceptance.tree_gain[max(known)] * share
    return tuple(min(1.0, p * gain) for p in chain)


def thresholds(chances: tuple[float, ...]) -> tuple[float, ...]:
    """Return falling probabilities in the form that `draw` searches: negated, so they rise."""
    return tuple(-p for p in chances)


def draw(offset: float, verify_call: int, thresholds_: tuple[float, ...]) -> int:
    """Return the number of correct drafts of one verify call.

    Args:
        offset: The prompt's number in [0, 1), see `tokens.offset`.
        verify_call: Counted from 0 within the request.
        thresholds_: See `thresholds`; computed once, because `draw` runs for every verify.
    """
    # The probabilities fall, so the ones above the number come first.
    stride = _STRIDES[int(offset * 0x100000000) & 1]
    return bisect_right(thresholds_, -((offset + verify_call * stride) % 1.0))


LENGTH = "SGLANG_SIMULATE_ACC_LEN"
METHOD = "SGLANG_SIMULATE_ACC_METHOD"
TOKEN_MODE = "SGLANG_SIMULATE_ACC_TOKEN_MODE"  # noqa: S105 - no secret
FIXED_TOKEN = 100
"""Token that every verify emits in SGLang's default token mode, `fixed`."""

_SUPPORTED_BY = frozenset({"EAGLE", "EAGLE3", "STANDALONE", "DFLASH"})


def simulated_length(facts: Mapping[str, Any], algorithm: str | None) -> float | None:
    """Return the accept length that the environment sets; `None` if the profile decides."""
    text = facts.get(LENGTH)
    if text is None or algorithm not in _SUPPORTED_BY:
        return None
    try:
        length = float(text)
    except ValueError:
        return None
    return length if length > 0.0 else None


def chances(length: float, depth: int, method: str = "match-expected") -> tuple[float, ...]:
    """Return `P(at least j drafts are correct)` for j = 1 to `depth`.

    Args:
        length: Accept length, bonus token included.
        depth: Drafts that a verify can accept.
        method: `match-expected` mixes the two whole lengths around `length`; `multinomial` rounds a
            normal variable with standard deviation 1.
    """
    if method == "multinomial":
        return tuple(
            0.5 * math.erfc((j + 0.5 - length) / math.sqrt(2)) for j in range(1, depth + 1)
        )
    spread = max(0.0, min(float(depth), length - 1.0))
    return tuple(max(0.0, min(1.0, spread - j)) for j in range(depth))


def fixed(answer: Answer) -> Answer:
    """Return the answer with the fixed token in every place except the prefill's."""
    ids = [*answer.ids[:1], *([FIXED_TOKEN] * (len(answer.ids) - 1))]
    pieces = [text_of([token]) for token in ids]
    return replace(
        answer, ids=ids, text="".join(pieces), ends=[0, *accumulate(len(piece) for piece in pieces)]
    )
