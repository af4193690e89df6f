"""Why a window is not believed: checks that need nothing but its own requests."""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING

from runners.load.acceptance import accept_length, largest_accept_length

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from results.records import RequestSample
    from runners.load.prompts import Prompt
    from search_spaces.configuration import Speculation

_ROUNDING = 1e-9


def reasons_against(
    samples: Sequence[RequestSample],
    prompts: Sequence[Prompt],
    *,
    concurrency: int,
    output_tokens: int,
    window_tokens: int,
    speculation: Speculation,
) -> tuple[str, ...]:
    """Every reason not to believe a window, as `"code: what was seen"`; empty for a good one.

    Args:
        samples: The window's requests.
        prompts: The window's prompts, as rendered.
        concurrency: Requests that were to be in flight.
        output_tokens: Length that every answer was asked for.
        window_tokens: Tokens that arrived inside the window.
        speculation: What the server says it runs.
    """
    good = [sample for sample in samples if sample.error is None]
    found = [
        _failed(samples),
        _too_few(samples, concurrency),
        _empty(window_tokens),
        _lengths(good, output_tokens),
        _cached(good, shared_prefixes(prompts)),
        _acceptance(good, output_tokens, speculation),
    ]
    return tuple(reason for reason in found if reason is not None)


def shared_prefixes(prompts: Sequence[Prompt]) -> dict[str, int]:
    """Tokens of each prompt that the prefix cache may give it, because another begins alike.

    A chat template's head, a begin-of-sequence token, even a common first word are shared and so
    are cached once a window has begun (0.5.23 was seen to report 5 to 7 tokens a prompt). Exact
    for token ids; for text an upper bound: no token is shorter than a byte, and one more for the
    begin of the sequence.
    """
    as_ids = {prompt.id: prompt.input_ids for prompt in prompts if prompt.input_ids is not None}
    as_text = {prompt.id: prompt.text.encode() for prompt in prompts if prompt.text is not None}
    with_begin = {prompt_id: 1 + count for prompt_id, count in _common(as_text).items()}
    return _common(as_ids) | with_begin


def _common(contents: Mapping[str, Sequence[int]]) -> dict[str, int]:
    """Length of the longest beginning that each item shares with any other."""
    # In sorted order that is the one with a neighbour.
    ordered = sorted(contents.items(), key=lambda item: tuple(item[1]))
    shared = dict.fromkeys(contents, 0)
    for (left, a), (right, b) in itertools.pairwise(ordered):
        pairs = zip(a, b, strict=False)
        common = sum(1 for _ in itertools.takewhile(lambda pair: pair[0] == pair[1], pairs))
        shared[left] = max(shared[left], common)
        shared[right] = max(shared[right], common)
    return shared


def _failed(samples: Sequence[RequestSample]) -> str | None:
    failed = [sample for sample in samples if sample.error is not None]
    if not failed:
        return None
    first = failed[0]
    return (
        f"failed_requests: {len(failed)} of {len(samples)} requests failed; "
        f"{first.prompt}: {first.error}"
    )


def _too_few(samples: Sequence[RequestSample], concurrency: int) -> str | None:
    if len(samples) >= concurrency:
        return None
    return (
        f"too_few_requests: {len(samples)} requests cannot keep {concurrency} in flight: "
        "raise the requests per window"
    )


def _empty(window_tokens: int) -> str | None:
    return None if window_tokens > 0 else "empty_window: no token arrived inside the window"


def _lengths(good: Sequence[RequestSample], output_tokens: int) -> str | None:
    wrong = [sample for sample in good if sample.completion_tokens != output_tokens]
    if not wrong:
        return None
    first = wrong[0]
    return (
        f"completion_tokens: {len(wrong)} of {len(good)} answers are not {output_tokens} tokens "
        f"long; {first.prompt} has {first.completion_tokens} ({first.finish_reason})"
    )


def _cached(good: Sequence[RequestSample], allowed: dict[str, int]) -> str | None:
    if all(sample.cached_tokens <= allowed.get(sample.prompt, 0) for sample in good):
        return None
    cached = sum(sample.cached_tokens for sample in good)
    prompt_tokens = sum(sample.prompt_tokens for sample in good)
    return (
        f"cached_tokens: {cached} of {prompt_tokens} prompt tokens came from the cache, more than "
        "the prompts have in common"
    )


def _acceptance(
    good: Sequence[RequestSample], output_tokens: int, speculation: Speculation
) -> str | None:
    counted = [sample for sample in good if sample.verify_calls]
    if not speculation.enabled:
        if not counted:
            return None
        return (
            f"acceptance_unexpected: {len(counted)} of {len(good)} answers report verify calls, "
            "but the server says that it does not speculate"
        )
    # An answer of one token comes from the prefill: there is nothing to verify.
    if output_tokens > 1 and len(counted) < len(good):
        return (
            f"acceptance_missing: {len(good) - len(counted)} of {len(good)} answers report no "
            f"verify calls under {speculation.algorithm}"
        )
    length = accept_length(
        sum(sample.verify_calls for sample in counted),
        sum(sample.correct_drafts for sample in counted),
    )
    if length is None:
        return None
    largest = largest_accept_length(speculation)
    if length < 1 or (largest is not None and length > largest + _ROUNDING):
        return (
            f"accept_length: {length:.3f} is outside [1, {largest}], what {speculation.algorithm} "
            f"with {speculation.num_steps} steps and {speculation.num_draft_tokens} draft tokens "
            "can reach: the counts or the outputs are wrong"
        )
    return None
