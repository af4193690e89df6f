"""Acceptance of drafts from a request's `meta_info`, in the words of every supported version."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from runners.load.http.answer import count_of, counts_of, first_of
from search_spaces.algorithms import ADAPTIVE_STEPS

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from search_spaces.configuration import Speculation

# Newest spelling first: 0.5.23 and 0.5.17; the alias of 0.5.12 to 0.5.17; 0.5.9.
_CORRECT = ("spec_num_correct_drafts", "spec_accepted_drafts", "spec_accept_token_num")
_PROPOSED = ("spec_num_proposed_drafts", "spec_draft_token_num")
_HISTOGRAM = ("spec_correct_drafts_histogram", "spec_accept_histogram")

# Their verify checks the whole block at once, so draft tokens alone are the bound.
_BLOCK_ALGORITHMS = frozenset({"NGRAM", "DFLASH", "DSPARK"})


@dataclass(frozen=True, slots=True)
class Acceptance:
    """Drafts of one request.

    Attributes:
        verify_calls: Verify forwards; 0 where the server reported none.
        correct_drafts: Accepted draft tokens, bonus tokens excluded.
        histogram: `histogram[k]` verify calls accepted exactly k drafts.
        proposed_drafts: Draft tokens that were proposed; 0 where the server does not say. SGLang
            counts them with the width of its start, which is wrong after a switch (0.5.23).
    """

    verify_calls: int = 0
    correct_drafts: int = 0
    histogram: tuple[int, ...] = ()
    proposed_drafts: int = 0


def acceptance_of(meta_info: Mapping[str, Any]) -> Acceptance:
    """Reads the counts; never `spec_accept_length`, which counts the prefill's token too.

    Raises:
        MalformedStreamError: One of them is no count.
    """
    correct = count_of(first_of(meta_info, _CORRECT), _CORRECT[0])
    verify = count_of(meta_info.get("spec_verify_ct"), "spec_verify_ct")
    if not verify or correct is None:
        # 0.5.x reports nothing, or zeros, where an algorithm does not count: that is "missing".
        return Acceptance()
    histogram = counts_of(first_of(meta_info, _HISTOGRAM), _HISTOGRAM[0])
    proposed = count_of(first_of(meta_info, _PROPOSED), _PROPOSED[0]) or 0
    return Acceptance(verify, correct, histogram, proposed)


def accept_length(verify_calls: int, correct_drafts: int) -> float | None:
    """Tokens per verify, the bonus token included; `None` without a verify."""
    return 1 + correct_drafts / verify_calls if verify_calls else None


def largest_accept_length(
    speculation: Speculation, adaptive_steps: Sequence[int] = ()
) -> int | None:
    """The bound that no real accept length exceeds; `None` where it is not known.

    Args:
        speculation: What the server says it runs.
        adaptive_steps: Draft steps between which it switches by itself: then the largest of them
            is the bound, whatever it runs just now.
    """
    if adaptive_steps:
        # Adaptive speculation is for chains only (0.5.23), which draft `steps + 1` tokens.
        return max(adaptive_steps) + 1
    bounds = [speculation.num_draft_tokens]
    if speculation.algorithm not in _BLOCK_ALGORITHMS and speculation.num_steps is not None:
        bounds.append(speculation.num_steps + 1)
    return min((bound for bound in bounds if bound is not None), default=None)


def accept_rate(
    correct_drafts: int, verify_calls: int, speculation: Speculation, proposed_drafts: int
) -> float | None:
    """Correct drafts per proposed draft; `None` where it is not known what was proposed.

    Every verify proposes all draft tokens but the root. What the server reports is taken only
    where their number is not known: SGLang counts with the width of its start, also after a switch
    to other steps (0.5.23).

    Args:
        correct_drafts: Of all requests.
        verify_calls: Of all requests.
        speculation: What the server runs; steps that it switches by itself are not known.
        proposed_drafts: What the server reports of all requests; 0 for nothing.
    """
    if (width := speculation.num_draft_tokens) is not None:
        if speculation.topk == 1:
            # A chain is as wide as its steps, also where the width of its start is still shown.
            width = largest_accept_length(speculation) or width
        proposed_drafts = verify_calls * (width - 1)
    return correct_drafts / proposed_drafts if proposed_drafts else None


def adaptive_steps_of(server_info: Mapping[str, Any]) -> tuple[int, ...]:
    """Draft steps between which a server switches by itself; empty where they are fixed.

    They are the union over its batch sizes, as `--speculative-adaptive-config` lists them; the
    file may lie where only the server can read it, then SGLang's default and what it runs now
    stand for them.
    """
    if not server_info.get("speculative_adaptive"):
        return ()
    steps = set(ADAPTIVE_STEPS)
    if (path := server_info.get("speculative_adaptive_config")) is not None:
        steps = _candidate_steps(Path(str(path))) or steps
    states = server_info.get("internal_states")
    state = states[0] if isinstance(states, list) and states and isinstance(states[0], dict) else {}
    for source in (server_info, state):
        if isinstance(now := source.get("speculative_num_steps"), int):
            steps.add(now)
    return tuple(sorted(steps))


def _candidate_steps(path: Path) -> set[int]:
    try:
        slots = json.loads(path.read_text())
        return {
            int(steps)
            for key, slot in slots.items()
            if key.isdigit()
            for steps in slot["candidate_steps"]
        }
    except (OSError, ValueError, TypeError, KeyError, AttributeError):
        return set()
