"""Whether the accounts of drafts can be true: per request, and of all together."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from results.records import RequestSample
    from runners.load.window.evidence import Check, Evidence
    from runners.load.window.in_flight import InFlightRequest

_STALE_REQUESTS = 6
"""So many answers with the same accounts are no coincidence: at a fixed length and one draft step
a count has one degree of freedom, and two answers of 48 tokens agree once in nine times."""

_STALE_VERIFIES = 16
"""Shorter answers may well agree in all their counts."""


def unexpected(evidence: Evidence) -> str | None:
    """Verify calls of a server that says that it does not speculate."""
    if evidence.speculation.enabled:
        return None
    counted = [sample for sample in evidence.good if sample.verify_calls]
    if not counted:
        return None
    return (
        f"{len(counted)} of {len(evidence.good)} answers report verify calls, but the server says "
        "that it does not speculate"
    )


def missing(evidence: Evidence) -> str | None:
    """Answers without accounts of a server that speculates: nothing is not 1.0.

    An answer of one token comes from the prefill: there is nothing to verify.
    """
    if not evidence.speculation.enabled or evidence.may_decode_plainly:
        return None
    silent = [s for s in evidence.good if s.completion_tokens > 1 and not s.verify_calls]
    if not silent:
        return None
    return (
        f"{len(silent)} of {len(evidence.good)} answers report no verify calls under "
        f"{evidence.speculation.algorithm}; first {silent[0].prompt}"
    )


def out_of_bounds(evidence: Evidence) -> str | None:
    """An accept length that drafts of that width cannot reach (design decision 6)."""
    if not evidence.speculation.enabled:
        return None
    largest = evidence.largest_accept_length
    wrong = [s for s in evidence.good if s.verify_calls and _is_out_of_bounds(s, largest)]
    if not wrong:
        return None
    first, runs = wrong[0], evidence.speculation
    length = 1 + first.correct_drafts / first.verify_calls
    if evidence.adaptive_steps:
        shape = f"at most {max(evidence.adaptive_steps)} steps (adaptive)"
    else:
        shape = f"{runs.num_steps} steps and {runs.num_draft_tokens} draft tokens"
    return (
        f"{len(wrong)} of {len(evidence.good)} answers, first {first.prompt} with {length:.3f} "
        f"and histogram {list(first.histogram)}, are outside [1, {largest}], what "
        f"{runs.algorithm} with {shape} can reach: the counts or the outputs are wrong"
    )


def _is_out_of_bounds(sample: RequestSample, largest: int | None) -> bool:
    # In whole numbers: no rounding near the bound.
    if sample.verify_calls < 0 or sample.correct_drafts < 0:
        return True
    if largest is None:
        return False
    return sample.correct_drafts > sample.verify_calls * (largest - 1) or any(
        sample.histogram[largest:]
    )


def counts_differ(evidence: Evidence) -> str | None:
    """Accounts of a request that contradict each other or its tokens.

    The prefill gives the first token (and one more after each retraction), every verify one and its
    correct drafts. The last verify may
    give more than were asked for, and with the overlap scheduler one more may follow it. The
    tokens of one verify arrive together, so chunks may merge and never split.
    """
    if not evidence.speculation.enabled:
        return None
    wrong = [
        (sample, what)
        for sample, flight in zip(evidence.samples, evidence.flights, strict=True)
        if sample.error is None
        and sample.verify_calls
        and (what := _contradiction(sample, evidence) or _more_chunks(flight, evidence))
    ]
    if not wrong:
        return None
    first, what = wrong[0]
    return (
        f"{len(wrong)} of {len(evidence.good)} answers have accounts of drafts that do not add "
        f"up; {first.prompt}: {what}"
    )


def _contradiction(sample: RequestSample, evidence: Evidence) -> str | None:
    verify, correct, histogram = sample.verify_calls, sample.correct_drafts, sample.histogram
    if histogram:
        if any(count < 0 for count in histogram) or sum(histogram) != verify:
            return f"its histogram {list(histogram)} is not one of {verify} verify calls"
        if (drafts := sum(k * count for k, count in enumerate(histogram))) != correct:
            return f"its histogram {list(histogram)} has {drafts} correct drafts, not {correct}"
    reads = 1 + evidence.retractions.get(sample.prompt, 0)
    tokens, accounted = sample.completion_tokens, verify + correct
    decoded = tokens - reads
    if decoded > accounted and not evidence.may_decode_plainly:
        return f"{verify} verify calls and {correct} drafts cannot give {tokens} tokens"
    largest = evidence.largest_accept_length
    if largest is not None and accounted > decoded + 2 * largest:
        return f"{verify} verify calls and {correct} drafts give more than {tokens} tokens"
    return None


def _more_chunks(flight: InFlightRequest, evidence: Evidence) -> str | None:
    """More chunks than verifies and prefills can have given."""
    # Chunks of a stream without counts may split: one for reasoning, one for content.
    if flight.answer is None or flight.evenly or evidence.may_decode_plainly:
        return None
    verify, chunks, again = flight.answer.verify_calls, len(flight.chunk_times), 1
    if flight.answer.retractions is not None:
        again = flight.answer.retractions
    if chunks <= 1 + again + verify:
        return None
    return f"{verify} verify calls cannot give {chunks} chunks"


def stale(evidence: Evidence) -> str | None:
    """The same accounts for every answer: they are not those of the answers.

    Nothing accepted, or everything, is the same for all answers of one length by nature.
    """
    if not evidence.speculation.enabled:
        return None
    counted = [s for s in evidence.good if s.verify_calls >= _STALE_VERIFIES]
    accounts = {(s.verify_calls, s.correct_drafts, s.histogram) for s in counted}
    if len(counted) < _STALE_REQUESTS or len(accounts) > 1:
        return None
    verify, correct, histogram = accounts.pop()
    largest = evidence.largest_accept_length
    if correct == 0 or (largest is not None and correct >= verify * (largest - 1)):
        return None
    if sum(count > 0 for count in histogram) == 1:
        return None
    return (
        f"all {len(counted)} answers report the same {verify} verify calls and {correct} correct "
        "drafts: the accounts do not move with the answers"
    )


ACCEPTANCE: dict[str, Check] = {
    "acceptance_unexpected": unexpected,
    "acceptance_missing": missing,
    "accept_length": out_of_bounds,
    "acceptance_counts": counts_differ,
    "acceptance_stale": stale,
}
