"""What an answer of the real server says of its drafts, and what we make of it."""

from __future__ import annotations

import httpx
import pytest

from runners.load.http.acceptance import acceptance_of
from runners.load.http.generate import GenerateReader, answer_of

from .servers import every_kind, generation, speculating

pytestmark = [pytest.mark.sglang, pytest.mark.timeout(600)]

TOKENS = 48
TEXT = "def sum_of(numbers):\n    total = 0\n    for number in numbers:\n"


@speculating
def test_accept_length_is_of_verifies_alone(server):
    """SGLang divides all tokens by the verify calls: also the prefill's, which none verified."""
    event = server.generate(TEXT, TOKENS)
    meta = event["meta_info"]
    accepted = acceptance_of(meta)
    verify, correct = meta["spec_verify_ct"], meta["spec_num_correct_drafts"]
    assert (accepted.verify_calls, accepted.correct_drafts) == (verify, correct)
    assert meta["completion_tokens"] == TOKENS
    assert meta["spec_accept_length"] == pytest.approx(TOKENS / verify)
    # The prefill's token, one of each verify, and its correct drafts: those of the last verify
    # count in full, even where they are past the length that was asked for.
    surplus = 1 + verify + correct - TOKENS
    assert 0 <= surplus < server.speculation.num_draft_tokens
    ours = 1 + correct / verify
    assert ours == pytest.approx(meta["spec_accept_length"] + (surplus - 1) / verify)


@pytest.mark.kind("eagle3")
def test_a_draft_that_is_hardly_ever_right(server):
    meta = server.generate(TEXT, TOKENS)["meta_info"]
    accepted = acceptance_of(meta)
    # A random head guesses right now and then. Ours is 1 where it never does, SGLang's is not.
    assert accepted.verify_calls == TOKENS - 1 - accepted.correct_drafts
    ours = 1 + accepted.correct_drafts / accepted.verify_calls
    assert 1 <= ours < meta["spec_accept_length"] < 2


@speculating
def test_the_histogram_counts_verifies_by_their_correct_drafts(server):
    meta = server.generate(TEXT, TOKENS)["meta_info"]
    accepted = acceptance_of(meta)
    assert accepted.histogram == tuple(meta["spec_correct_drafts_histogram"])
    assert sum(accepted.histogram) == accepted.verify_calls
    assert sum(k * n for k, n in enumerate(accepted.histogram)) == accepted.correct_drafts


@speculating
def test_the_rate_is_of_proposed_tokens_not_of_steps(server):
    meta = server.generate(TEXT, TOKENS)["meta_info"]
    accepted = acceptance_of(meta)
    # Of a tree all its nodes count, though at most `num_steps` of them can be right.
    width = server.speculation.num_draft_tokens
    assert accepted.proposed_drafts == accepted.verify_calls * (width - 1)
    assert meta["spec_accept_rate"] == pytest.approx(
        accepted.correct_drafts / accepted.proposed_drafts
    )


@pytest.mark.kind("plain")
def test_without_speculation_it_says_nothing_of_drafts(server):
    meta = server.generate(TEXT, TOKENS)["meta_info"]
    assert not [name for name in meta if name.startswith("spec_")]
    accepted = acceptance_of(meta)
    assert (accepted.verify_calls, accepted.correct_drafts, accepted.histogram) == (0, 0, ())


@every_kind
def test_a_stream_repeats_all_ids_and_ends_with_the_counts(server):
    """Cumulative events; the client reads the last in full and only a number of the others."""
    body = generation(TEXT, TOKENS) | {"stream": True}
    reader, counts, raw = GenerateReader(), [], b""
    with httpx.stream(
        "POST", f"{server.url}/generate", json=body, timeout=120, trust_env=False
    ) as stream:
        assert stream.headers["content-type"].startswith("text/event-stream")
        for piece in stream.iter_raw():
            raw += piece
            if (count := reader.feed(piece)) is not None:
                counts.append(count)
    assert raw.endswith(b"data: [DONE]\n\n")
    assert counts == sorted(counts)
    assert counts[-1] == TOKENS
    answer = reader.answer()
    assert answer.error is None
    assert answer.completion_tokens == len(answer.output_ids) == TOKENS
    assert answer.finish_reason == "length"
    whole = answer_of(server.generate(TEXT, TOKENS))
    if server.kind != "simulated_acceptance":
        # Acceptance by chance; else the same text, and the same way there.
        assert whole.output_ids == answer.output_ids
        assert whole.text == answer.text
    assert (whole.verify_calls > 0) == (answer.verify_calls > 0) == (server.kind != "plain")


@pytest.mark.kind("simulated_acceptance")
def test_simulated_acceptance_is_what_was_asked_for(server):
    """`SGLANG_SIMULATE_ACC_LEN` means the bonus token too; each verify draws its floor or ceil."""
    verify = correct = 0
    seen = set()
    for n in range(8):
        accepted = acceptance_of(server.generate(f"{n}: {TEXT}", 96)["meta_info"])
        verify += accepted.verify_calls
        correct += accepted.correct_drafts
        seen |= {k for k, times in enumerate(accepted.histogram) if times}
    assert seen == {2, 3}
    # About 230 draws with a spread of 0.46 each: five times their standard error is 0.15.
    assert 1 + correct / verify == pytest.approx(3.3, abs=0.2)
