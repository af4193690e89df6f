"""Lanes that send in bursts are named, in real windows; independent lanes are not."""

from __future__ import annotations

import csv
import heapq
import random
from array import array
from collections import defaultdict
from pathlib import Path

import pytest

from runners.load.checks.evidence import Evidence
from runners.load.checks.steadiness import lock_step, neighbours
from runners.load.http.endpoint import Answer
from runners.load.http.in_flight import InFlightRequest
from runners.load.prompts.selection import answer_lengths, ramp_lengths
from search_spaces.configuration import Speculation
from search_spaces.workload import OperatingPoint, Workload

ROWS = Path(__file__).parents[4] / "benchmarks" / "data" / "h200-noise-requests.csv"
"""Requests of one H200 whose answers were all of 64 tokens (see the folder's README)."""
PLAIN, EAGLE = "5c1939c568ffda76", "c2f580a355f20001"


def evidence_of(flights, concurrency, *, opened=0.0, closed=None, spread=0.0, natural=False):
    point = OperatingPoint(concurrency)
    load = Workload((("chat", 1.0),), 64, (point,), output_spread=spread, natural_length=natural)
    ends = sorted(flight.last for flight in flights)
    return Evidence(
        samples=(), flights=flights, prompts=(), point=point, workload=load,
        speculation=Speculation(), opened=opened, window_tokens=0,
        closed=ends[-concurrency] if closed is None else closed,
    )  # fmt: skip


def flight(name, sent, ttft, e2e, chunks):
    """A request whose chunks come evenly between the first and the last."""
    gap = (e2e - ttft) / max(chunks - 1, 1)
    times = array("d", (sent + ttft + n * gap for n in range(chunks)))
    tokens = array("q", range(1, chunks + 1))
    return InFlightRequest(
        name, b"", sent=sent, chunk_times=times, chunk_tokens=tokens, answer=Answer()
    )


def windows(concurrency):
    """The evidence of each committed window."""
    found = defaultdict(list)
    with ROWS.open() as rows:
        for row in csv.DictReader(rows):
            if int(row["concurrency"]) == concurrency:
                key = row["configuration"], int(row["launch"]), int(row["block"])
                chunks = 1 + (int(row["verify_calls"]) or int(row["completion_tokens"]) - 1)
                times = (float(row[name]) for name in ("sent_s", "ttft_s", "e2e_s"))
                found[key].append(flight(row["prompt"], *times, chunks))
    return {
        key: evidence_of(sorted(flights, key=lambda f: f.sent), concurrency)
        for key, flights in found.items()
    }


def share_of(evidence):
    sends = sorted(f.sent for f in evidence.flights if 0 < f.sent <= evidence.closed)
    return neighbours(sends, 0.002) / (evidence.point.concurrency - 1)


def test_all_windows_of_an_h200_at_32_users_are_named():
    found = windows(32)
    assert len(found) == 48
    assert all(map(lock_step, found.values()))


def test_windows_at_8_users_are_named_by_their_bursts():
    found = windows(8)
    assert len(found) == 48
    for evidence in found.values():
        assert (lock_step(evidence) is not None) == (share_of(evidence) > 0.3)
    named = [key[0] for key, evidence in found.items() if lock_step(evidence) is not None]
    # Of 24 windows each: sends in 1 to 3 bursts, and never.
    assert (named.count(EAGLE), named.count(PLAIN)) == (6, 0)


def test_one_user_is_never_in_lock_step():
    found = windows(1)
    assert len(found) == 48
    assert not any(map(lock_step, found.values()))


def walk(seed, lanes, *, spread, pace_s, equal_start=False):
    """A closed loop whose forwards take one time for all lanes, and whose prefills take turns."""
    chance = random.Random(seed)
    load = Workload((("chat", 1.0),), 64, (OperatingPoint(lanes),), output_spread=spread)
    lengths = answer_lengths(load, 4 * lanes, seed)
    first = [64] * lanes if equal_start else ramp_lengths(lengths, lanes)
    waiting = list(lengths)
    running = [(tokens, lane, 0.0) for lane, tokens in enumerate(first)]
    now, steps, lives, ends = 0.0, 0, [], []
    while running:
        now += pace_s * chance.uniform(0.9, 1.1)
        steps += 1
        while running and running[0][0] <= steps:
            _, lane, sent = heapq.heappop(running)
            if sent:
                lives.append((sent, now))
            else:
                ends.append(now)
            if waiting:
                at = now + chance.uniform(0.0001, 0.0005)
                heapq.heappush(running, (steps + 2 + waiting.pop(0), lane, at))
    opened = sorted(ends)[-1 - lanes // 4]
    made = [
        flight(str(n), sent, 2 * pace_s, last - sent, max(2, round((last - sent) / pace_s)))
        for n, (sent, last) in enumerate(sorted(lives))
    ]
    return evidence_of(made, lanes, opened=opened, spread=spread)


@pytest.mark.parametrize("lanes", [2, 4, 8, 32, 64])
def test_lanes_of_varied_lengths_are_not_in_lock_step(lanes):
    for seed in range(40):
        evidence = walk(seed, lanes, spread=0.5, pace_s=0.004 + 0.001 * (seed % 10))
        assert lock_step(evidence) is None


@pytest.mark.parametrize("lanes", [4, 8, 32])
def test_equal_answers_that_begin_together_are_in_lock_step(lanes):
    reason = lock_step(walk(1, lanes, spread=0.0, pace_s=0.006, equal_start=True))
    assert "100% of the other lanes" in reason
    assert "output_tokens: {mean: N, spread: 0.5}" in reason


@pytest.mark.parametrize(
    ("workload", "remedy"),
    [
        ({"spread": 0.1}, "raise the spread of `output_tokens`"),
        ({"natural": True}, "raise `output_tokens`"),
    ],
)
def test_the_remedy_fits_the_workload(workload, remedy):
    together = [flight(str(n), n // 4 * 1.0, 0.1, 0.99, 50) for n in range(16)]
    assert lock_step(evidence_of(together, 4, opened=-1.0, **workload)).endswith(
        remedy if "spread" in workload else "answers end together"
    )
    assert remedy in lock_step(evidence_of(together, 4, opened=-1.0, **workload))


def test_answers_of_a_few_milliseconds_tell_nothing():
    together = [flight(str(n), n // 4 * 0.003, 0.001, 0.002, 4) for n in range(16)]
    assert lock_step(evidence_of(together, 4, opened=-1.0)) is None


def test_open_loops_are_not_judged():
    together = [flight(str(n), n // 4 * 1.0, 0.1, 0.99, 50) for n in range(16)]
    evidence = evidence_of(together, 4, opened=-1.0)
    object.__setattr__(evidence, "point", OperatingPoint(request_rate=4.0))
    assert lock_step(evidence) is None
