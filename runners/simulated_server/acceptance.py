"""How many drafts are correct: a deterministic function of prompt, verify call and depth.

The verify calls of a prompt walk through a low-discrepancy sequence, so that even a short window
has almost exactly the profile's accept length.
"""

from __future__ import annotations

from bisect import bisect_right
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from runners.simulated_server.profile import Acceptance

_STRIDES = (3**0.5 - 1, 5**0.5 / 2 - 0.5)
"""How far a verify call is from the one before it; a prompt has one of the two.

Both are far from every simple fraction, so that each sequence fills [0, 1) evenly. The golden ratio
alone would give every prompt the very same count at a chance near it (0.62) or its rest (0.38),
which no real server does: it looks like accounts that do not move (`acceptance_stale`).
"""


def at_least(
    acceptance: Acceptance, num_steps: int, topk: int, num_draft_tokens: int
) -> tuple[float, ...]:
    """`P(at least j drafts are correct)` for j = 1 to the depth that a verify can accept.

    A chain takes the profile's values. A tree raises each by the profile's gain of its topk, in
    proportion to the nodes that it has beyond a chain of its depth (an assumption).
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
    """`chances` as `draw` searches them: negated, so that they rise."""
    return tuple(-p for p in chances)


def draw(offset: float, verify_call: int, thresholds_: tuple[float, ...]) -> int:
    """`correct_drafts` of chances that were made thresholds once: it runs for every verify."""
    # The chances fall, so those above the number are the first ones.
    stride = _STRIDES[int(offset * 0x100000000) & 1]
    return bisect_right(thresholds_, -((offset + verify_call * stride) % 1.0))


def correct_drafts(offset: float, verify_call: int, chances: tuple[float, ...]) -> int:
    """Correct drafts of a prompt's n-th verify call.

    Args:
        offset: The prompt's own number in [0, 1).
        verify_call: Counted from 0 within the request.
        chances: `P(at least j)` for j = 1, 2, ...; must not rise.
    """
    return draw(offset, verify_call, thresholds(chances))
