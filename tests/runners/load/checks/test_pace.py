"""Drift, steps and uneven requests: a steady server is never named, the others always are."""

from __future__ import annotations

import random
import re

import pytest

from runners.load.checks.pace import drift, uneven, unsteady
from search_spaces.workload import OperatingPoint

from ..windows import PLAIN, Load
from .engine_windows import window

pytestmark = pytest.mark.slow

LOADS = [(1, 16), (8, 40), (32, 96)]
LENGTHS_S = {(1, False): 21.5, (8, False): 8.6, (32, False): 6.4,
             (1, True): 11.2, (8, True): 5.6, (32, True): 4.9}  # fmt: skip
"""Of the windows of a steady server, from the begin of the ramp."""


def named(evidence):
    checks = {"unsteady": unsteady, "drift": drift, "uneven": uneven}
    return {code: seen for code, check in checks.items() if (seen := check(evidence))}


@pytest.mark.parametrize("scale", [1.0, 10.0])
@pytest.mark.parametrize("speculative", [False, True])
@pytest.mark.parametrize(("lanes", "count"), LOADS)
def test_a_steady_server_raises_no_alarm(lanes, count, speculative, scale):
    rounds = {1: 24, 8: 8, 32: 4}[lanes]
    for seed in range(rounds):
        draw = random.Random(seed)
        evidence = window(draw, lanes, speculative=speculative, count=count, scale=scale)
        assert named(evidence) == {}


@pytest.mark.parametrize("speculative", [False, True])
@pytest.mark.parametrize(("lanes", "count"), LOADS)
@pytest.mark.parametrize(
    ("change", "bounds"),
    [
        (lambda part: 1 + 0.18 * part, (0.1, 0.25)),
        (lambda part: 1 + 0.8 * part, (0.6, 1.4)),
        (lambda part: 1.15 if part > 0.5 else 1.0, (0.12, 0.18)),
        (lambda part: 1 - 0.18 * part, (0.1, 0.2)),
    ],
    ids=["trend 18 %", "trend 80 %", "step 15 %", "faster 18 %"],
)
def test_a_change_is_named_with_its_size(lanes, count, speculative, change, bounds):
    length_s = LENGTHS_S[lanes, speculative]
    evidence = window(
        random.Random(1), lanes, speculative=speculative, count=count,
        pace=lambda now: change(now / length_s),
    )  # fmt: skip
    found = named(evidence)
    assert list(found) == ["unsteady"]
    assert bounds[0] <= int(re.search(r"(\d+)%", found["unsteady"])[1]) / 100 <= bounds[1]


def test_a_small_change_is_a_warning():
    evidence = window(
        random.Random(1), 8, speculative=False, count=48, pace=lambda now: 1 + 0.05 * now / 9.5
    )
    found = named(evidence)
    assert list(found) == ["drift"]
    assert 3 <= int(re.search(r"(\d+)%", found["drift"])[1]) <= 7


@pytest.mark.parametrize("speculative", [False, True])
@pytest.mark.parametrize("lanes", [1, 8])
@pytest.mark.parametrize(
    "change",
    [{"slower": lambda n: 3.0 if n % 5 == 4 else 1.0}, {"pace": lambda now: 1 + now % 1.0}],
    ids=["every fifth request", "sawtooth"],
)
def test_slow_requests_and_moments_are_named(lanes, speculative, change):
    evidence = window(random.Random(1), lanes, speculative=speculative, count=40, **change)
    assert list(named(evidence)) == ["uneven"]


@pytest.mark.parametrize("speculative", [False, True])
@pytest.mark.parametrize(("lanes", "count"), LOADS)
def test_a_disturbance_in_mid_window_is_named_with_its_share(lanes, count, speculative):
    length_s = LENGTHS_S[lanes, speculative]
    evidence = window(
        random.Random(1), lanes, speculative=speculative, count=count,
        pace=lambda now: 1.15 if 0.33 < now / length_s < 0.67 else 1.0,
    )  # fmt: skip
    found = named(evidence)
    assert list(found) == ["drift"]
    assert 3 <= int(re.search(r"(\d+)%", found["drift"])[1]) <= 7


def first_tokens(wait_s):
    """One user: answers of 65 tokens at one pace, with times to first token of `wait_s`."""
    load = Load(PLAIN, OperatingPoint(1), count=36, gap=3.0, pace=lambda _now: 0.01)
    for n, request in enumerate(load.requests):
        request.first = wait_s(n)
    return load.evidence()


def test_first_tokens_that_come_later_and_later_are_a_warning():
    found = named(first_tokens(lambda n: 0.5 * (1 + n / 24) + 0.01 * (n % 3)))
    assert list(found) == ["drift"]
    assert 100 <= int(re.search(r"(\d+)%", found["drift"])[1]) <= 200


def test_first_tokens_that_scatter_are_no_drift():
    draw = random.Random(3)
    for _ in range(50):
        assert named(first_tokens(lambda _n: 0.5 * draw.lognormvariate(0, 0.2))) == {}
