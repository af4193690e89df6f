"""`SGLANG_SIMULATE_ACC_LEN` sets the accept length, as in SGLang 0.5.23."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from runners.simulated_server.engine.acceptance import chances, simulated_length
from runners.simulated_server.engine.profile import load_profile
from search_spaces.configuration import Configuration, Speculation

from .walk import walk

LENGTH = "SGLANG_SIMULATE_ACC_LEN"


@given(length=st.floats(0.1, 12.0), depth=st.integers(1, 8))
def test_the_mean_is_the_requested_length_within_the_depth(length, depth):
    found = chances(length, depth)
    assert len(found) == depth
    assert 1.0 + sum(found) == pytest.approx(min(max(length, 1.0), depth + 1.0))
    # Only the two whole lengths around the mean occur.
    assert sum(0.0 < chance < 1.0 for chance in found) <= 1
    assert list(found) == sorted(found, reverse=True)


@given(length=st.floats(0.1, 12.0), depth=st.integers(1, 8))
def test_the_multinomial_method_spreads(length, depth):
    found = chances(length, depth, "multinomial")
    assert list(found) == sorted(found, reverse=True)
    assert all(0.0 <= chance <= 1.0 for chance in found)


@pytest.mark.parametrize(
    ("algorithm", "value", "length"),
    [
        ("EAGLE3", "3.3", 3.3),
        ("STANDALONE", "2", 2.0),
        ("DFLASH", "2", 2.0),
        ("NGRAM", "2", None),
        ("EAGLE3", "-1", None),
        (None, "2", None),
    ],
)
def test_algorithms_that_support_it(algorithm, value, length):
    assert simulated_length({LENGTH: value}, algorithm) == length
    assert simulated_length({}, algorithm) is None


def test_accept_length_and_tokens_of_a_client(start, speculation):
    served = start(*speculation(4), env={LENGTH: "3.3"}).wait_ready()
    replies = [served.generate(f"simulated {n}", 100).json() for n in range(4)]
    metas = [reply["meta_info"] for reply in replies]
    calls = sum(meta["spec_verify_ct"] for meta in metas)
    correct = sum(meta["spec_num_correct_drafts"] for meta in metas)
    assert 1 + correct / calls == pytest.approx(3.3, abs=0.1)
    for reply in replies:
        # The prefill emits the model's token, each verify the fixed token.
        assert set(reply["output_ids"][1:]) == {100}
        histogram = reply["meta_info"]["spec_correct_drafts_histogram"]
        assert {k for k, count in enumerate(histogram) if count} <= {2, 3}


def test_real_draft_tokens(start, speculation):
    mode = {"SGLANG_SIMULATE_ACC_TOKEN_MODE": "real-draft-token"}
    served = start(*speculation(4), env={LENGTH: "3.3", **mode}).wait_ready()
    assert len(set(served.generate("simulated", 60).json()["output_ids"])) > 30


def test_the_walk_uses_it():
    asked = Configuration.of(Speculation("EAGLE3", 4, 1, 5), draft_tp=1, env={LENGTH: "3.3"})
    found = walk(load_profile("kimi"), asked, concurrency=1)
    assert found.accept_length == pytest.approx(3.3, abs=0.02)
