"""Checks of draft acceptance: possible counts per request and over all requests."""

from __future__ import annotations

from typing import TYPE_CHECKING

from runners.load.checks.evidence import invalidates, warns

if TYPE_CHECKING:
    from results.records import RequestSample
    from runners.load.checks.evidence import Evidence
    from runners.load.http.in_flight import InFlightRequest

_STALE_REQUESTS = 6
"""Answers with equal counts that cannot be a coincidence. At a fixed length and one draft step a
count has one degree of freedom: two answers of 48 tokens agree in one of nine cases."""
_STALE_VERIFIES = 16
"""Shorter answers may have equal counts by chance."""

_LOW_ACCEPT_LENGTH = 1.05
_PERFECT = 0.98


@invalidates
def acceptance_unexpected(evidence: Evidence) -> str | None:
    """Answers report verify calls, but the server says that it does not speculate."""
    if evidence.speculation.enabled:
        return None
    counted = sum(sample.verify_calls > 0 for sample in evidence.good)
    if not counted:
        return None
    return (
        f"{counted} of {len(evidence.good)} answers report verify calls, but the server says that "
        "it does not speculate: check whether a proxy sends answers of another server"
    )


@invalidates
def acceptance_missing(evidence: Evidence) -> str | None:
    """Answers of a speculating server report no verify call; that is not an accept length of 1.

    An answer of one token comes from the prefill and needs no verify.
    """
    if not evidence.speculation.enabled or evidence.may_decode_plainly:
        return None
    missing = [s for s in evidence.good if s.completion_tokens > 1 and not s.verify_calls]
    if not missing:
        return None
    return (
        f"{len(missing)} of {len(evidence.good)} answers report no verify calls under "
        f"{evidence.speculation.algorithm}; first {missing[0].prompt}: use an SGLang version that "
        "reports the counts"
    )


@invalidates
def accept_length(evidence: Evidence) -> str | None:
    """The accept length of an answer is impossible for the drafts' width (design decision 6)."""
    if not evidence.speculation.enabled:
        return None
    largest = evidence.largest_accept_length
    wrong = [s for s in evidence.good if s.verify_calls and _is_out_of_bounds(s, largest)]
    if not wrong:
        return None
    first, speculation = wrong[0], evidence.speculation
    length = 1 + first.correct_drafts / first.verify_calls
    if evidence.adaptive_steps:
        shape = f"at most {max(evidence.adaptive_steps)} steps (adaptive)"
    else:
        shape = f"{speculation.num_steps} steps and {speculation.num_draft_tokens} draft tokens"
    return (
        f"{len(wrong)} of {len(evidence.good)} answers are outside [1, {largest}], the possible "
        f"range for {speculation.algorithm} with {shape}; first {first.prompt} with {length:.3f} "
        f"and histogram {list(first.histogram)}: the counts or the outputs are wrong"
    )


def _is_out_of_bounds(sample: RequestSample, largest: int | None) -> bool:
    # In whole numbers, to avoid rounding at the bound.
    if sample.verify_calls < 0 or sample.correct_drafts < 0:
        return True
    if largest is None:
        return False
    return sample.correct_drafts > sample.verify_calls * (largest - 1) or any(
        sample.histogram[largest:]
    )


@invalidates
def acceptance_counts(evidence: Evidence) -> str | None:
    """The counts of a request contradict each other, its tokens or its chunks.

    The prefill gives the first token, and one more after each retraction. Each verify gives one
    token and its correct drafts. The last verify may give more tokens than requested, and with the
    overlap scheduler one more verify may follow. The tokens of one verify arrive together, so
    chunks may merge but never split.
    """
    if not evidence.speculation.enabled:
        return None
    wrong = [
        (sample, why)
        for sample, flight in zip(evidence.samples, evidence.flights, strict=True)
        if sample.error is None
        and sample.verify_calls
        and (why := _contradiction(sample, evidence) or _too_many_chunks(flight, evidence))
    ]
    if not wrong:
        return None
    first, why = wrong[0]
    return (
        f"{len(wrong)} of {len(evidence.good)} answers have contradictory draft counts; "
        f"{first.prompt}: {why}"
    )


def _contradiction(sample: RequestSample, evidence: Evidence) -> str | None:
    verify, correct, histogram = sample.verify_calls, sample.correct_drafts, sample.histogram
    if histogram:
        if any(count < 0 for count in histogram) or sum(histogram) != verify:
            return f"the histogram {list(histogram)} does not have {verify} verify calls"
        if (drafts := sum(k * count for k, count in enumerate(histogram))) != correct:
            return f"the histogram {list(histogram)} has {drafts} correct drafts, not {correct}"
    prefills = 1 + evidence.retractions.get(sample.prompt, 0)
    tokens, counted = sample.completion_tokens, verify + correct
    decoded = tokens - prefills
    if decoded > counted and not evidence.may_decode_plainly:
        return f"{verify} verify calls and {correct} drafts give fewer than {tokens} tokens"
    largest = evidence.largest_accept_length
    if largest is not None and counted > decoded + 2 * largest:
        return f"{verify} verify calls and {correct} drafts give more than {tokens} tokens"
    return None


def _too_many_chunks(flight: InFlightRequest, evidence: Evidence) -> str | None:
    """More chunks than verifies and prefills can give."""
    # Chunks of a stream without counts may split: one for reasoning, one for content.
    if flight.answer is None or flight.evenly or evidence.may_decode_plainly:
        return None
    verify, chunks, again = flight.answer.verify_calls, len(flight.chunk_times), 1
    if flight.answer.retractions is not None:
        again = flight.answer.retractions
    if chunks <= 1 + again + verify:
        return None
    return f"{verify} verify calls cannot give {chunks} chunks"


@invalidates
def acceptance_stale(evidence: Evidence) -> str | None:
    """All answers report equal counts, so the counts are not those of the answers.

    Answers of one length have equal counts by nature if nothing or everything is accepted.
    """
    if not evidence.speculation.enabled:
        return None
    counted = [s for s in evidence.good if s.verify_calls >= _STALE_VERIFIES]
    counts = {(s.verify_calls, s.correct_drafts, s.histogram) for s in counted}
    if len(counted) < _STALE_REQUESTS or len(counts) > 1:
        return None
    verify, correct, histogram = counts.pop()
    largest = evidence.largest_accept_length
    if correct == 0 or (largest is not None and correct >= verify * (largest - 1)):
        return None
    if sum(count > 0 for count in histogram) == 1:
        return None
    return (
        f"all {len(counted)} answers report {verify} verify calls and {correct} correct drafts: "
        "the counts do not belong to the answers; report the answers to SGLang"
    )


@warns
def low_acceptance(evidence: Evidence) -> str | None:
    """Nearly no draft is accepted, as with a wrong draft model; the speed may still look right."""
    length = evidence.mean_accept_length
    if not evidence.speculation.enabled or length is None or length > _LOW_ACCEPT_LENGTH:
        return None
    return (
        f"accept length {length:.3f}: the target accepts nearly no draft; check that the draft "
        "model belongs to this target"
    )


@warns
def perfect_acceptance(evidence: Evidence) -> str | None:
    """Nearly every draft is accepted, which does not happen on real texts."""
    length, largest = evidence.mean_accept_length, evidence.largest_accept_length
    if not evidence.speculation.enabled or length is None or largest is None or largest < 2:
        return None
    if (length - 1) / (largest - 1) < _PERFECT:
        return None
    return f"accept length {length:.3f} of at most {largest} is too good; read some answers"
