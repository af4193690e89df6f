"""The shipped profiles match the measurements that they are made from."""

import pytest

from runners.simulated_server.engine.cost import CostModel, drafting, repetition
from runners.simulated_server.engine.profile import load_profile
from runners.simulated_server.engine.tokens import pack
from search_spaces.configuration import Configuration, Speculation

from .walk import walk

pytestmark = pytest.mark.slow

POINTS = ((1, 1, 2), (2, 1, 3), (5, 1, 6), (10, 1, 11), (3, 4, 8))
ALGORITHMS = ("EAGLE", "EAGLE3", "NEXTN", "STANDALONE", "NGRAM", "DFLASH")


def configuration(point=None, algorithm="EAGLE3", **env):
    return Configuration.of(Speculation(algorithm, *point) if point else None, env=env)


def accepting(profile, point, accept_length):
    """Return the profile with the given mean accept length."""
    depth = min(point[0], point[2] - 1)
    chances = ((accept_length - 1) / depth,) * depth
    update = {"at_least": chances, "tree_gain": {}}
    return profile.model_copy(update={"acceptance": profile.acceptance.model_copy(update=update)})


@pytest.mark.parametrize(
    ("point", "accept_length", "tok_s"),
    [
        (None, 1.0, 207.9),
        ((2, 1, 3), 2.1, 316),
        ((2, 1, 3), 2.5, 381),
        ((5, 1, 6), 2.5, 345),
        ((5, 1, 6), 3.0, 407),
        ((3, 4, 8), 2.5, 346),
        ((3, 4, 8), 3.0, 416),
        ((2, 1, 3), 1.0, 152),
    ],
)
def test_the_8b_on_one_h200(point, accept_length, tok_s):
    profile = load_profile("llama-8b-h200")
    if point is not None:
        profile = accepting(profile, point, accept_length)
    asked = configuration(point)
    found = walk(profile, asked, concurrency=1, output_tokens=512, requests=100)
    assert found.output_tok_s == pytest.approx(tok_s, rel=0.012)


@pytest.mark.parametrize("algorithm", ALGORITHMS)
@pytest.mark.parametrize("concurrency", [1, 8])
def test_no_setting_is_faster_on_the_equal_machine(algorithm, concurrency):
    profile = load_profile("equal")
    plain = walk(profile, configuration(), concurrency=concurrency, output_tokens=64, requests=3)
    for point in POINTS:
        found = walk(
            profile,
            configuration(point, algorithm, NCCL_PROTO="LL128"),
            concurrency=concurrency,
            output_tokens=64,
            requests=3,
        )
        assert found.accept_length > 1.1
        if concurrency == 1:
            assert found.output_tok_s == pytest.approx(plain.output_tok_s, rel=1e-9)
        else:  # equal cycles, but fewer shared prefills
            assert found.tpot_ms >= 0.99 * plain.tpot_ms


def test_every_shipped_profile_speculates_with_every_algorithm():
    for name in ("kimi", "llama-8b-h200", "equal"):
        profile = load_profile(name)
        for algorithm in ALGORITHMS:
            model = drafting(profile, algorithm)
            assert 1.0 < 1.0 + sum(model.chances(4, 1, 5)) < 5.0
            depth = 4 if algorithm in {"NGRAM", "DFLASH"} else 2
            assert len(model.chances(2, 1, 5)) == depth


def test_what_an_algorithm_costs_to_draft():
    profile = load_profile("kimi")
    bare = profile.model_copy(update={"algorithms": {}})
    for each in (profile, bare):
        head, ngram = drafting(each, "EAGLE3"), drafting(each, "NGRAM")
        assert drafting(each, "STANDALONE").draft_ms(3, 1, 4) > 5 * head.draft_ms(3, 1, 4)
        assert ngram.extend_ms == 0.0
        assert ngram.draft_ms(11, 8, 12) <= 0.1
        block = drafting(each, "DFLASH")
        assert block.draft_ms(1, 1, 16) == block.draft_ms(15, 1, 16)


def test_ngram_accepts_what_the_prompt_repeats():
    assert repetition(pack(range(50))) == 0.0
    assert repetition(pack([1, 2])) == 0.0
    assert repetition(pack([1, 2, 3] * 50)) > 0.95
    model = drafting(load_profile("kimi"), "NGRAM")
    fresh, half, full = (sum(model.chances(7, 8, 8, share)) for share in (0.0, 0.5, 1.0))
    assert fresh == pytest.approx(model.fresh * full)
    assert fresh < half < full


def test_another_depth_evaluates_the_conditions_again():
    kimi = load_profile("kimi").model_dump()
    kimi["collectives"] = [{"when": {"num_steps": 2}, "verify_ms": 5.0, "decode_ms": 0.0}]
    profile = type(load_profile("kimi")).model_validate(kimi)
    facts = {"algorithm": "EAGLE3", "num_steps": 5, "num_draft_tokens": 6}
    cost = CostModel(profile, facts)
    same, other = cost.at_steps(5, 6), cost.at_steps(2, 3)
    assert same.speculate(1, 5, 1, 6) == cost.speculate(1, 5, 1, 6)
    before = cost.speculate(1, 2, 1, 3).verify_ms
    assert other.speculate(1, 2, 1, 3).verify_ms == pytest.approx(before - 5.0)
    assert other.facts["speculative_num_steps"] == 2
