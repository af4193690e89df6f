"""Acceptance of draft tokens: counts from a server's reports, accept length and accept rate."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from runners.load.http.endpoint import count_of, counts_of, first_value
from search_spaces.algorithms import ADAPTIVE_STEPS

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from search_spaces.configuration import Speculation

# Newest name first: 0.5.23 and 0.5.17, then the alias of 0.5.12 to 0.5.17, then 0.5.9.
_CORRECT = ("spec_num_correct_drafts", "spec_accepted_drafts", "spec_accept_token_num")
_PROPOSED = ("spec_num_proposed_drafts", "spec_draft_token_num")
_HISTOGRAM = ("spec_correct_drafts_histogram", "spec_accept_histogram")

# These algorithms verify the whole block at once: draft tokens alone are the bound.
_BLOCK_ALGORITHMS = frozenset({"NGRAM", "DFLASH", "DSPARK"})


class Acceptance(NamedTuple):
    """Draft counts of one request, with the fields of `Answer`.

    `proposed_drafts` is 0 where the server reports none. SGLang counts proposed drafts with the
    width at its start, which is wrong after a switch (0.5.23).
    """

    verify_calls: int = 0
    correct_drafts: int = 0
    histogram: tuple[int, ...] = ()
    proposed_drafts: int = 0


def acceptance_of(meta_info: Mapping[str, Any]) -> Acceptance:
    """Read the draft counts of one request, by the names of any supported version.

    `spec_accept_length` is not used, because it counts the prefill's token too.

    Raises:
        MalformedStreamError: A value is not a count.
    """
    correct = count_of(first_value(meta_info, _CORRECT), _CORRECT[0])
    verify = count_of(meta_info.get("spec_verify_ct"), "spec_verify_ct")
    if not verify or correct is None:
        # If an algorithm does not count, 0.5.x reports nothing, or zeros.
        return Acceptance()
    histogram = counts_of(first_value(meta_info, _HISTOGRAM), _HISTOGRAM[0])
    proposed = count_of(first_value(meta_info, _PROPOSED), _PROPOSED[0]) or 0
    return Acceptance(verify, correct, histogram, proposed)


def accept_length(verify_calls: int, correct_drafts: int) -> float | None:
    """Tokens per verify, including the bonus token; `None` without a verify."""
    return 1 + correct_drafts / verify_calls if verify_calls else None


def largest_accept_length(
    speculation: Speculation, adaptive_steps: Sequence[int] = ()
) -> int | None:
    """Return the upper bound of the accept length; `None` if the bound is unknown.

    Args:
        speculation: The server's current setting.
        adaptive_steps: Draft steps that an adaptive server chooses from. Their maximum sets the
            bound, whatever the current setting is.
    """
    if adaptive_steps:
        # Adaptive speculation supports only chains (0.5.23), which draft `steps + 1` tokens.
        return max(adaptive_steps) + 1
    bounds = [speculation.num_draft_tokens]
    if speculation.algorithm not in _BLOCK_ALGORITHMS and speculation.num_steps is not None:
        bounds.append(speculation.num_steps + 1)
    return min((bound for bound in bounds if bound is not None), default=None)


def accept_rate(
    correct_drafts: int, verify_calls: int, speculation: Speculation, proposed_drafts: int
) -> float | None:
    """Correct drafts per proposed draft; `None` if the number of proposed drafts is unknown.

    Each verify proposes all draft tokens except the root. The server's own count is used only if
    the width is unknown: SGLang counts with the width at its start, even after a switch (0.5.23).

    Args:
        correct_drafts: Sum over all requests.
        verify_calls: Sum over all requests.
        speculation: The server's setting; `num_draft_tokens` is `None` for an adaptive server.
        proposed_drafts: The server's count, summed over all requests; 0 if not reported.
    """
    if (width := speculation.num_draft_tokens) is not None:
        if speculation.topk == 1:
            # After a switch the server still reports its first width; a chain's steps are right.
            width = largest_accept_length(speculation) or width
        proposed_drafts = verify_calls * (width - 1)
    return correct_drafts / proposed_drafts if proposed_drafts else None


def adaptive_steps_of(server_info: Mapping[str, Any]) -> tuple[int, ...]:
    """Return all draft steps that an adaptive server chooses from; empty for fixed steps.

    The steps are the union over the batch sizes of `--speculative-adaptive-config`. If only the
    server can read this file, SGLang's default steps are used. The current steps are added.
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
