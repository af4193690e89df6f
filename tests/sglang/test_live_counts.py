"""Draft counts in answers of the real server, and their interpretation."""

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
def test_accept_length_counts_verified_tokens_only(server):
    """SGLang divides all tokens by the verify calls, including the token of the prefill."""
    event = server.generate(TEXT, TOKENS)
    meta = event["meta_info"]
    accepted = acceptance_of(meta)
    verify, correct = meta["spec_verify_ct"], meta["spec_num_correct_drafts"]
    assert (accepted.verify_calls, accepted.correct_drafts) == (verify, correct)
    assert meta["completion_tokens"] == TOKENS
    assert meta["spec_accept_length"] == pytest.approx(TOKENS / verify)
    # Counted: the prefill's token, one of each verify, and correct drafts. Those of the last verify
    # count even if they exceed the requested length.
    surplus = 1 + verify + correct - TOKENS
    assert 0 <= surplus < server.speculation.num_draft_tokens
    ours = 1 + correct / verify
    assert ours == pytest.approx(meta["spec_accept_length"] + (surplus - 1) / verify)


@pytest.mark.kind("eagle3")
def test_accept_length_of_a_random_draft(server):
    meta = server.generate(TEXT, TOKENS)["meta_info"]
    accepted = acceptance_of(meta)
    # A random head is right now and then. If never, ours is 1 and SGLang's is more.
    assert accepted.verify_calls == TOKENS - 1 - accepted.correct_drafts
    ours = 1 + accepted.correct_drafts / accepted.verify_calls
    assert 1 <= ours < meta["spec_accept_length"] < 2


@speculating
def test_histogram_counts_verifies_by_correct_drafts(server):
    meta = server.generate(TEXT, TOKENS)["meta_info"]
    accepted = acceptance_of(meta)
    assert accepted.histogram == tuple(meta["spec_correct_drafts_histogram"])
    assert sum(accepted.histogram) == accepted.verify_calls
    assert sum(k * n for k, n in enumerate(accepted.histogram)) == accepted.correct_drafts


@speculating
def test_accept_rate_is_relative_to_proposed_tokens(server):
    meta = server.generate(TEXT, TOKENS)["meta_info"]
    accepted = acceptance_of(meta)
    # All nodes of a tree count, although at most `num_steps` of them can be right.
    width = server.speculation.num_draft_tokens
    assert accepted.proposed_drafts == accepted.verify_calls * (width - 1)
    assert meta["spec_accept_rate"] == pytest.approx(
        accepted.correct_drafts / accepted.proposed_drafts
    )


@pytest.mark.kind("plain")
def test_no_draft_counts_without_speculation(server):
    meta = server.generate(TEXT, TOKENS)["meta_info"]
    assert not [name for name in meta if name.startswith("spec_")]
    accepted = acceptance_of(meta)
    assert (accepted.verify_calls, accepted.correct_drafts, accepted.histogram) == (0, 0, ())


@every_kind
def test_stream_ends_with_all_ids_and_the_counts(server):
    """Events are cumulative; the client reads only a number from all but the last."""
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
        # Simulated acceptance is random.
        assert whole.output_ids == answer.output_ids
        assert whole.text == answer.text
    assert (whole.verify_calls > 0) == (answer.verify_calls > 0) == (server.kind != "plain")


@pytest.mark.kind("simulated_acceptance")
def test_simulated_acceptance_has_the_requested_length(server):
    """`SGLANG_SIMULATE_ACC_LEN` includes the bonus token; each verify draws its floor or ceil."""
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
