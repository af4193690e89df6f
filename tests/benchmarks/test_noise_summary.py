"""What the noise benchmark concludes from blocks and requests, on ones that were made up."""

from __future__ import annotations

import dataclasses
import json
import math
import random
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from benchmarks.noise.document import document
from benchmarks.noise.files import DRIFT, QUIET, Block, Files, Request, about_launch
from benchmarks.noise.points import balanced
from benchmarks.noise.summary import summarize
from benchmarks.noise.tables import tables
from results.records import Machine, Measurement, RequestSample
from runners.replay.table import read_replay_table
from search_spaces.configuration import Configuration, Speculation
from search_spaces.workload import OperatingPoint

pytestmark = pytest.mark.slow

PLAIN = Configuration.of()
EAGLE3 = Configuration.of(Speculation("EAGLE3", 2, 1, 3), draft_tp=1, env={"NCCL_PROTO": "LL"})


def block(launch: int, number: int, tok_s: float = 100.0, **changes: Any) -> Block:
    made = Block(
        configuration=PLAIN,
        concurrency=1,
        launch=launch,
        block=number,
        condition=QUIET,
        started_at=1000.0 * launch + 10 * number,
        output_tok_s=tok_s,
        cycle_ms=1000 / tok_s,
        accept_length=None,
        ttft_p50_ms=20.0,
        client_cpu_share=0.05,
        fingerprint="f",
        failure="",
        quiet_launch=True,
    )
    return dataclasses.replace(made, **changes)


def requests_of(of: Block, effects: dict[str, float], rng: random.Random, rest: float):
    """One request per prompt, at the block's speed but for the prompt's and its own effect."""
    for prompt, effect in effects.items():
        seconds = 64 / of.output_tok_s * math.exp(-effect - rng.gauss(0, rest))
        key = of.configuration.key
        yield Request(key, of.concurrency, of.launch, of.block, prompt, 0.01, seconds, 64, 0)


def experiment(of_plain: dict[str, float], of_eagle: dict[str, float], launches: int = 4):
    rng = random.Random(7)
    blocks, requests = [], []
    for launch in range(2 * launches):
        configuration, effects = ((PLAIN, of_plain), (EAGLE3, of_eagle))[launch % 2]
        slow = rng.gauss(0, 0.01)
        for number in range(8):
            speed = 100 * math.exp(slow + rng.gauss(0, 0.005))
            blocks.append(block(launch, number, speed, configuration=configuration))
            requests += requests_of(blocks[-1], effects, rng, 0.01)
    return summarize(blocks, requests)


def test_pairing_removes_what_prompts_do_to_both_and_nothing_else():
    rng = random.Random(1)
    both = {f"p{n}": rng.gauss(0, 0.1) for n in range(24)}
    own = {prompt: rng.gauss(0, 0.1) for prompt in both}
    (alike,) = experiment(both, both).pairs
    assert alike.removed > 0.98
    assert alike.deviation(3, prompts="same") < 0.5 * alike.deviation(3, prompts="other")
    assert alike.apart.low < math.sqrt(2) * 0.1 < alike.apart.high
    (unlike,) = experiment(both, own).pairs
    assert abs(unlike.removed) < 0.35
    # Speculation whose speed hangs on the prompt, and plain decoding that does not care.
    (against_plain,) = experiment(dict.fromkeys(both, 0.0), both).pairs
    assert abs(against_plain.removed) < 0.05
    for pair in (alike, unlike, against_plain):
        these, same, other = (pair.deviation(3, prompts=k) for k in ("these", "same", "other"))
        assert these < same < 1.1 * other
        assert pair.told_apart(5, prompts="same") < pair.told_apart(3, prompts="same")
    # Two launch components of 1 %, over three launches.
    assert 0.003 < alike.deviation(3, prompts="these") < 0.02


def test_launches_that_happen_to_agree_do_not_take_the_blocks_noise_away():
    # Blocks spread by 5 %, launches' means not at all: a component below 0.
    blocks = [
        block(
            launch, n, 100 * math.exp(0.05 * (-1) ** n), configuration=(PLAIN, EAGLE3)[launch % 2]
        )
        for launch in range(6)
        for n in range(8)
    ]
    summary = summarize(blocks, [])
    (pair,) = summary.pairs
    of_blocks = 0.05 * math.sqrt(8 / 7)
    least = of_blocks * math.sqrt(2 / (3 * 8))
    assert pair.deviation(3, prompts="these") == pytest.approx(least)
    # No file of requests: nothing is known of prompts, and all else is told.
    assert pair.deviation(3, prompts="other") == pytest.approx(least)
    assert "EAGLE3" in tables(summary)


def test_blocks_that_are_not_quiet_are_not_taken_for_it():
    quiet = [block(launch, n, 100 + launch + n % 2) for launch in (0, 1) for n in range(2)]
    wild = [
        block(0, 2, 7.0, failure="unsteady", quiet_launch=False),
        block(2, 0, 7.0, condition="imports", quiet_launch=False),
        block(2, 1, 7.0, quiet_launch=False),
        *(block(3, n, 7.0 + n, condition=DRIFT, quiet_launch=False) for n in range(5)),
        # A launch that was ended before anything was disturbed in it.
        block(4, 0, 7.0, quiet_launch=False),
    ]
    (with_wild,), (alone,) = summarize([*quiet, *wild], []).points, summarize(quiet, []).points
    assert with_wild.means == alone.means
    assert with_wild.left_out == 1
    assert with_wild.sizes == (2, 2, 0)


def test_a_disturbance_is_what_differs_from_the_quiet_blocks_around():
    blocks, number, rng = [], 0, random.Random(2)
    for cycle in range(6):
        order = [QUIET, "imports", "idle_server", QUIET]
        for condition in order if cycle % 2 == 0 else order[::-1]:
            # The machine itself becomes slower, by a third in all.
            speed = 100 * math.exp(-0.015 * number + rng.gauss(0, 0.002))
            speed *= {"imports": 0.95, "idle_server": 0.8}.get(condition, 1.0)
            blocks.append(block(0, number, speed, condition=condition, quiet_launch=False))
            number += 1
    # The last of the idle server's is not believed, and says the most.
    blocks[-2] = dataclasses.replace(blocks[-2], failure="unsteady")
    found = {d.condition: d for d in summarize(blocks, []).disturbances}
    assert found["imports"].tok_s.value == pytest.approx(math.log(0.95), abs=0.01)
    assert found["idle_server"].tok_s.value == pytest.approx(math.log(0.8), abs=0.01)
    assert found["idle_server"].tok_s.high < -0.15
    assert found["idle_server"].cycle_ms.value == pytest.approx(-math.log(0.8), abs=0.01)
    assert {d.cycles for d in found.values()} == {6}
    assert sum(d.not_believed for d in found.values()) == 1


def test_one_cycle_is_no_more_than_a_hint():
    order = (QUIET, "imports", QUIET)
    blocks = [block(0, n, 100 - n, condition=c, quiet_launch=False) for n, c in enumerate(order)]
    summary = summarize(blocks, [])
    (each,) = document(summary, {})["disturbances"]
    assert each["output_tok_s"]["value"] == pytest.approx(0.0, abs=1e-3)
    assert each["output_tok_s"]["low"] is each["output_tok_s"]["high"] is None
    assert "-inf to +inf" in tables(summary)


def test_a_long_launch_that_becomes_slower_says_so():
    slow = [
        block(0, n, 100 * (1 - 0.001 * n), condition=DRIFT, quiet_launch=False) for n in range(41)
    ]
    (drift,) = summarize(slow, []).drifts
    assert drift.blocks == 41
    assert drift.seconds == 400
    assert math.expm1(400 * drift.trend.slope.value) == pytest.approx(-0.04, abs=0.002)
    assert drift.quarters == pytest.approx((0, -0.01, -0.02, -0.03), abs=0.002)


@given(st.lists(st.integers(0, 6), max_size=6))
def test_balanced_blocks_are_the_most_that_as_many_launches_have(sizes):
    launches = [[block(n, b) for b in range(size)] for n, size in enumerate(sizes)]
    able = [size for size in sizes if size > 1]
    if len(able) < 2:
        with pytest.raises(ValueError, match="two launches of two blocks"):
            balanced(launches)
        return
    kept = balanced(launches)
    assert len({len(each) for each in kept}) == 1
    possible = [n * size for size in range(2, 7) if (n := sum(s >= size for s in sizes)) > 1]
    assert sum(map(len, kept)) == max(possible)
    assert all(each == launches[each[0].launch][: len(each)] for each in kept)


def measurement(tok_s: float, *, invalid: tuple[str, ...] = ()) -> Measurement:
    samples = (
        RequestSample("chat/001", 0.0, 0.02, 0.7, 9, 64, verify_calls=30, correct_drafts=33),
        RequestSample("chat/002", 0.7, 0.02, 0.8, 9, 64, verify_calls=32, correct_drafts=31),
        RequestSample("chat/003", 1.5, 0.02, 0.8, 9, 64, error="it broke"),
    )
    return Measurement(
        point=OperatingPoint(1),
        started_at=1796020748.1254,
        window_s=1.5,
        requests=2,
        failed_requests=1,
        output_tokens=128,
        output_tok_s=tok_s,
        accept_length=2.0,
        **dict.fromkeys(("ttft_p50_ms", "ttft_p95_ms", "tpot_p50_ms", "tpot_p95_ms"), 1.0),
        **dict.fromkeys(("e2e_p50_ms", "e2e_p95_ms"), 1.0),
        prompt_tokens=18,
        cached_tokens=0,
        histogram=(30, 10, 22),
        workload_fingerprint="f",
        simulated=False,
        invalid=invalid,
        samples=samples,
    )


def test_files_give_back_what_was_written_and_keep_apart_what_is_not_quiet(tmp_path):
    files = Files(tmp_path / "new" / "n")
    assert not files.exist()
    assert (files.next_launch(), files.read_blocks(), files.facts()) == (0, [], {})
    machine = Machine(host="h", sglang="0.5.17", gpus=("NVIDIA H200",))
    about = about_launch(EAGLE3, "s", machine, simulated=False) | {
        "launch": 3,
        "launch_s": 50.0,
        "ready_s": 50.0,
        "condition": QUIET,
    }
    files.append_block(measurement(90.5), about | {"block": 0, "repeat": 0}, quiet_launch=True)
    refused = measurement(20.0, invalid=("unsteady: it was",))
    files.append_block(refused, about | {"block": 1, "repeat": 1}, quiet_launch=True)
    files.append_failure(about | {"launch": 4}, "cuda_oom", 12.5)

    good, bad = files.read_blocks()
    assert good.configuration == bad.configuration == EAGLE3
    assert (good.output_tok_s, good.accept_length, good.block) == (90.5, 2.0, 0)
    assert good.started_at == pytest.approx(1796020748.125)
    assert (good.failure, good.quiet_launch) == ("", True)
    assert (bad.failure, bad.quiet_launch) == ("unsteady", False)
    requests = files.read_requests()
    assert [(r.block, r.prompt) for r in requests] == [
        (n, f"chat/00{p}") for n in (0, 1) for p in (1, 2)
    ]
    assert math.exp(requests[0].log_tok_s) == pytest.approx(64 / 0.7)
    assert math.exp(requests[0].log_cycle_ms) == pytest.approx(680 / 30)
    assert files.next_launch() == 5
    assert files.repeats(EAGLE3.key, 1) == 1
    assert files.facts()["machine"] == "1x NVIDIA H200"
    replayed = read_replay_table(files.blocks).entries[EAGLE3.key]
    assert replayed.failure is None
    assert [row.output_tok_s for row in replayed.rows[1]] == [90.5]

    files.blocks.write_text("configuration,concurrency\n1,2\n")
    with pytest.raises(ValueError, match="lacks the columns"):
        files.read_blocks()


def test_the_report_is_json_and_text_in_any_state():
    empty = summarize([], [])
    assert tables(empty) == ""
    assert json.loads(json.dumps(document(empty, {})))["points"] == []
    alone = summarize([block(0, 0)], [])
    assert "too few to tell: none, 1" in tables(alone)
    rng = random.Random(4)
    whole = experiment(*({f"p{n}": rng.gauss(0, 0.1) for n in range(8)} for _ in range(2)))
    text = tables(whole)
    assert "EAGLE3 2/1/3 NCCL_PROTO=LL" in text
    found = json.loads(json.dumps(document(whole, {"provenance": "measured"})))
    assert found["simulated"] is False
    (plain, eagle) = found["points"]
    assert (plain["launches"], plain["blocks"], plain["prompts"]) == (4, 8, 8)
    assert set(plain["of_requests"]["output_tok_s"]) == {
        *("prompt", "launch", "block", "prompt_launch", "residual")
    }
    assert eagle["configuration"] == EAGLE3.to_dict()
    assert found["pairs"][0]["first"] == PLAIN.key
