"""Acceptance, noise, conditions and profile files."""

import statistics

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from runners.simulated_server.engine.acceptance import at_least, draw, thresholds
from runners.simulated_server.engine.profile import Acceptance, Noise, NoiseSource, load_profile
from runners.simulated_server.engine.tokens import offset
from runners.simulated_server.faults.misbehaviour import holds
from runners.simulated_server.launch.environment import read_environment


def correct_drafts(offset, n, chances):
    return draw(offset, n, thresholds(chances))


chances = st.lists(st.floats(0, 1), min_size=1, max_size=12).map(
    lambda values: tuple(sorted(values, reverse=True))
)


@given(chances, st.floats(0, 1, exclude_max=True), st.integers(0, 10_000))
def test_a_deeper_chain_accepts_the_same_drafts_and_more(at_least_, offset, n):
    counts = [correct_drafts(offset, n, at_least_[:depth]) for depth in range(len(at_least_) + 1)]
    full = counts[-1]
    assert counts == [min(full, depth) for depth in range(len(at_least_) + 1)]


@given(chances, st.floats(0, 1, exclude_max=True))
def test_a_short_window_has_the_mean(at_least_, offset):
    window = 200
    mean = statistics.fmean(correct_drafts(offset, n, at_least_) for n in range(window))
    # The error of each depth's count is the discrepancy of the sequence, about log(n).
    assert mean == pytest.approx(sum(at_least_), abs=3.0 * len(at_least_) / window)


@pytest.mark.parametrize("chance", [0.38, 0.62, 0.41, 0.73, 0.59, 0.27, 0.3, 0.7])
def test_prompts_do_not_all_have_one_count(chance):
    """Equal counts look like `acceptance_stale`; a probability of 0.62 needs two sequences."""
    counts = {
        tuple(sum(correct_drafts(offset(f"p{i}"), n, (chance,)) for n in range(length))
              for length in (29, 34))
        for i in range(16)
    }  # fmt: skip
    assert len(counts) > 1


@given(st.integers(1, 12), st.integers(1, 8), st.integers(2, 64))
def test_trees_accept_no_less_than_their_chain_and_never_too_much(steps, topk, width):
    acceptance = load_profile("kimi").acceptance
    tree = at_least(acceptance, steps, topk, width)
    assert len(tree) == min(steps, width - 1)
    chain = at_least(acceptance, len(tree), 1, len(tree) + 1)
    assert all(1.0 >= t >= c for t, c in zip(tree, chain, strict=True))
    assert list(tree) == sorted(tree, reverse=True)


def test_rising_acceptance_is_refused():
    with pytest.raises(ValueError, match="must not rise"):
        Acceptance(at_least=(0.2, 0.3))


def test_noise_is_reproducible_and_of_the_stated_size():
    noise = Noise(launch=0.01, block=0.01, prompt=0.01)
    one, same = (NoiseSource(noise, 1, "a") for _ in range(2))
    assert one.system == same.system
    assert one.prompt("p") == same.prompt("p") != one.prompt("q")
    assert NoiseSource(noise, 1, "b").prompt("p") == one.prompt("p")
    assert NoiseSource(noise, 2, "a").prompt("p") != one.prompt("p")
    assert NoiseSource(noise, 1, "b").system != one.system
    before = one.system
    one.next_block()
    assert one.system != before
    drawn = [NoiseSource(noise, 0, str(i)).system for i in range(500)]
    assert statistics.fmean(drawn) == pytest.approx(1.0, abs=0.003)
    assert statistics.stdev(drawn) == pytest.approx(0.01 * 2**0.5, rel=0.15)


def test_names_of_launches():
    assert read_environment({"TUNER_SIM_LAUNCH_INDEX": "3", "TUNER_LAUNCH": "mark"}).launch == "3"
    assert read_environment({"TUNER_LAUNCH": "mark"}).launch == "mark"
    assert read_environment({}).launch != read_environment({}).launch


def test_no_noise():
    quiet = NoiseSource(Noise(), 1, "a")
    assert (quiet.system, quiet.prompt("p")) == (1.0, 1.0)


@pytest.mark.parametrize(
    ("when", "holding"),
    [
        ({}, True),
        ({"num_steps": 4}, True),
        ({"num_steps": "4"}, True),
        ({"num_steps": 3}, False),
        ({"NCCL_PROTO": None}, True),
        ({"tp-size": 8, "NCCL_ALGO": "Ring"}, True),
        ({"tp-size": 8, "NCCL_ALGO": None}, False),
    ],
)
def test_conditions(when, holding):
    assert holds(when, {"num_steps": 4, "tp_size": 8, "NCCL_ALGO": "Ring"}) is holding


def test_profiles_are_checked(tmp_path, kimi):
    with pytest.raises(FileNotFoundError, match="kimi"):
        load_profile("nosuch")
    path = tmp_path / "p.yaml"
    path.write_text("name: [")
    with pytest.raises(ValueError, match="not YAML"):
        load_profile(path)
    path.write_text(yaml.safe_dump(dict(kimi, speed=1)))
    with pytest.raises(ValueError, match="speed"):
        load_profile(path)
