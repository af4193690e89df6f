"""Checks of draft counts: bounds, sums and recorded answers."""

from __future__ import annotations

import json

from hypothesis import given
from hypothesis import strategies as st

from runners.load.checks.acceptance import accept_length, acceptance_counts, acceptance_missing
from runners.load.http.acceptance import acceptance_of
from search_spaces.configuration import Speculation

from .samples import sample, window


@given(
    shape=st.tuples(st.integers(1, 10), st.integers(2, 32)),
    verify=st.integers(1, 1000),
    algorithm=st.sampled_from(["EAGLE", "EAGLE3", "STANDALONE", "NGRAM", "DFLASH"]),
    data=st.data(),
)
def test_accept_length_is_bounded(shape, verify, algorithm, data):
    steps, draft_tokens = shape
    speculation = Speculation(algorithm, steps, 2, draft_tokens)
    largest = min(steps + 1, draft_tokens) if "NGRAM" != algorithm != "DFLASH" else draft_tokens

    def judged(correct):
        return accept_length(
            window([sample(verify_calls=verify, correct_drafts=correct)], speculation)
        )

    assert judged(data.draw(st.integers(0, verify * (largest - 1)))) is None
    assert "outside [1, " in judged(verify * (largest - 1) + 1)
    assert "outside [1, " in judged(-1)


@given(histogram=st.lists(st.integers(0, 500), min_size=1, max_size=4).map(tuple), data=st.data())
def test_acceptance_counts_must_add_up(histogram, data):
    verify = sum(histogram)
    correct = sum(k * count for k, count in enumerate(histogram))
    # The last verify may give more than were asked for.
    excess = data.draw(st.integers(0, min(3, verify + correct)))
    values = {
        "verify_calls": verify,
        "correct_drafts": correct,
        "histogram": histogram,
        "completion_tokens": 1 + verify + correct - excess,
    }

    def judged(**changes):
        return acceptance_counts(
            window([sample(**values | changes)], Speculation("EAGLE3", 3, 1, 4))
        )

    assert judged() is None
    if not verify:
        return
    assert judged(histogram=(histogram[0] + 1, *histogram[1:])) is not None
    assert judged(correct_drafts=correct + 1) is not None
    assert judged(histogram=(), completion_tokens=2 + verify + correct) is not None
    assert judged(completion_tokens=verify + correct - 8) is not None


def test_acceptance_missing_allows_answers_of_one_token():
    speculation = Speculation("EAGLE3", 3, 1, 4)
    assert (
        acceptance_missing(window([sample(completion_tokens=1)], speculation, output_tokens=1))
        is None
    )
    assert acceptance_missing(window([sample()], speculation)) is not None


def test_recorded_answers_pass(bodies):
    """Counts of servers that nobody here wrote."""
    seen = 0
    for path in bodies.rglob("*generate*"):
        for meta in metas(path.read_text()):
            accounts = acceptance_of(meta)
            if not accounts.verify_calls:
                continue
            seen += 1
            # SGLang's own width stands in the proposals: drafts per verify.
            width = accounts.proposed_drafts // accounts.verify_calls + 1
            real = sample(
                verify_calls=accounts.verify_calls,
                correct_drafts=accounts.correct_drafts,
                histogram=accounts.histogram,
                completion_tokens=meta["completion_tokens"],
            )
            evidence = window([real], Speculation("NGRAM", None, None, max(width, 2)))
            assert [
                accept_length(evidence),
                acceptance_counts(evidence),
                acceptance_missing(evidence),
            ] == ([None] * 3)
    assert seen >= 6


def metas(text):
    """The last `meta_info` of every answer in a recorded body."""
    if text.lstrip().startswith("data:"):
        events = [line[6:] for line in text.splitlines() if line.startswith("data: {")]
        return [json.loads(events[-1])["meta_info"]]
    body = json.loads(text[min(text.find(c) for c in "[{" if c in text) :])
    answers = body if isinstance(body, list) else [body]
    return [answer["meta_info"] for answer in answers if "meta_info" in answer]
