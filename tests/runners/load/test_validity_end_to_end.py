"""What the checks say of real windows: over HTTP, judged, stored, and never scored."""

from __future__ import annotations

import itertools
import time
from dataclasses import replace
from typing import Any

import pytest

from results.records import LaunchIntent, Purpose, TrialState
from results.store import Store
from results.studies import NewStudy
from runners.load.generator import LoadGenerator
from runners.load.prompts.prompts import BuiltInPrompts, Prompt, PromptSource
from runners.load.window.watches import LogWatch, ServerIdentityWatch
from search_spaces.configuration import Configuration, Speculation
from search_spaces.workload import OperatingPoint, Workload
from tuner.verdict.scores import Leaderboard, judge

from .timing import TIMING

pytestmark = pytest.mark.slow

TOKENS = 41
REQUESTS = 12
EAGLE3 = Speculation("EAGLE3", 3, 1, 4)
PLAIN = Speculation()
FACTS = {"model_path": "target", "version": "0.5.23", "random_seed": 7}


def accounts(n: int, **changes: Any) -> dict[str, Any]:
    """Of the n-th request: 40 tokens in verifies that accept 0 to 3 drafts, each its own way."""
    threes, ones = n % 5, 2 * (n % 3)
    nones = 40 - 4 * threes - 2 * ones
    histogram = [nones, ones, 0, threes]
    return {
        "spec_verify_ct": sum(histogram),
        "spec_num_correct_drafts": ones + 3 * threes,
        "spec_num_proposed_drafts": 3 * sum(histogram),
        "spec_correct_drafts_histogram": histogram,
    } | changes


class Bench:
    """A scripted server and a generator against it."""

    def __init__(self, server, answer, tmp_path):
        self.server, self.answer = server, answer
        self.log = tmp_path / "server.log"
        self.log.touch()
        self.server.server_info = FACTS
        self.speculation = EAGLE3
        self.point = OperatingPoint(2, requests=REQUESTS)
        self.prompts: PromptSource = BuiltInPrompts([("chat", 1.0)])
        self.options: dict[str, Any] = {}
        self.workload: dict[str, Any] = {"warmup_requests": 0, "output_tokens": TOKENS}

    def reply(self, n, **changes):
        """A good answer, with changes."""
        wait_s, per_chunk = changes.pop("wait_s", 0.0), changes.pop("per_chunk", 2)
        meta = accounts(n) if self.speculation.enabled else {}
        return self.answer(
            changes.pop("tokens", TOKENS), per_chunk=per_chunk, wait_s=wait_s, **(meta | changes)
        )

    def measure(self, reply):
        """One window of a server that answers its n-th counted request with `reply(n)`."""
        numbers = itertools.count()

        def generate(_n, body):
            asked = body["sampling_params"]["max_new_tokens"]
            # The first answer of each lane is cut, and in no sample.
            if asked == self.workload["output_tokens"]:
                return reply(next(numbers))
            return self.answer(asked, per_chunk=2)

        self.server.generate = generate
        load = LoadGenerator(
            self.server.url,
            Workload((("chat", 1.0),), points=(self.point,), **self.workload),
            self.prompts,
            watches=(LogWatch(self.log), ServerIdentityWatch(self.server.url, launched=FACTS)),
            **self.options,
        )
        return load.measure(self.point, speculation=self.speculation)


@pytest.fixture
def bench(server, answer, tmp_path):
    return Bench(server, answer, tmp_path)


def codes(found):
    return {reason.split(":", 1)[0] for reason in found}


def test_a_good_window_is_believed(bench):
    measurement = bench.measure(bench.reply)
    assert codes(measurement.invalid) <= TIMING
    assert measurement.requests == REQUESTS


def first(bench, **changes):
    return bench.measure(lambda n: bench.reply(n, **(changes if n == 0 else {})))


def failed(bench):
    return bench.measure(lambda n: (500, [b"out of luck"]) if n == 3 else bench.reply(n))


def timed_out(bench):
    bench.options["request_timeout_s"] = 3.0
    return bench.measure(lambda n: (200, [300.0]) if n == 3 else bench.reply(n))


def too_few(bench):
    bench.point = OperatingPoint(8, requests=3)
    return bench.measure(bench.reply)


def short(bench):
    return first(bench, tokens=TOKENS - 3)


def lost_tail(bench):
    def reply(n):
        status, pieces = bench.reply(n)
        if n:
            return status, pieces
        # The accounts of the whole answer on the last chunk, whose text and ids stop short.
        return status, [
            *pieces[:-2],
            pieces[-2].replace(b'"completion_tokens":41', b'"x":0'),
            pieces[-1],
        ]

    return bench.measure(reply)


def claims(bench):
    bench.workload |= {"output_tokens": 128}

    def reply(n):
        status, pieces = bench.reply(n, tokens=128, per_chunk=1, wait_s=0.002)
        return status, [pieces[0].replace(b'"completion_tokens":1,', b'"completion_tokens":120,'),
                        *pieces[1:]]  # fmt: skip

    bench.speculation = PLAIN
    return bench.measure(reply)


def other_ids(bench):
    def reply(n):
        status, pieces = bench.reply(n)
        return status, [piece if isinstance(piece, float) else piece.replace(b",39,40]", b",39]")
                        for piece in pieces]  # fmt: skip

    return bench.measure(reply)


def templated_twice(bench):
    class Ids(PromptSource):
        def select(self, count, seed):
            return tuple(Prompt(f"ids/{n}", input_ids=tuple(range(n, n + 6))) for n in range(count))

    bench.prompts = Ids()
    return bench.measure(bench.reply)  # the scripted server says 7 tokens


def cached(bench):
    return first(bench, cached_tokens=900)


def doubled(bench):
    class Twice(PromptSource):
        def select(self, count, seed):
            return tuple(Prompt(f"twice/{n}", f"{n // 2}: why?") for n in range(count))

    bench.prompts = Twice()
    return bench.measure(bench.reply)


def slowing(bench):
    bench.speculation = PLAIN
    bench.point = OperatingPoint(4, requests=72)
    return bench.measure(lambda n: bench.reply(n, wait_s=0.005 if n < 48 else 0.02))


def standstill(bench):
    bench.speculation = PLAIN
    bench.point = OperatingPoint(1, requests=12)

    def reply(n):
        status, parts = bench.reply(n)
        # Not in the warm-up, which is one request at a time too, and shorter.
        return status, ([3.0, *parts] if n == 8 else parts)

    return bench.measure(reply)


def queue(bench):
    bench.speculation = PLAIN
    bench.point = OperatingPoint(request_rate=40.0, requests=60)
    # Each takes longer than the one before: as if it waited for it.
    return bench.measure(lambda n: bench.reply(n, wait_s=0.04 * n / 21))


def too_short(bench):
    bench.speculation = PLAIN
    # All are sent in a tenth of a second, and each takes ten times as long at the least.
    bench.point = OperatingPoint(request_rate=200.0, requests=20)
    return bench.measure(lambda n: bench.reply(n, wait_s=0.1))


def unexpected(bench):
    bench.speculation = PLAIN
    return bench.measure(lambda n: bench.reply(n, **accounts(n)))


def missing(bench):
    return first(bench, spec_verify_ct=0, spec_num_correct_drafts=0)


def impossible(bench):
    return first(
        bench,
        spec_verify_ct=8,
        spec_num_correct_drafts=32,
        spec_correct_drafts_histogram=[0, 0, 0, 0, 8],
    )


def contradicting(bench):
    return first(bench, spec_correct_drafts_histogram=[1, 1, 1, 1])


def stale(bench):
    return bench.measure(lambda n: bench.reply(n, **accounts(4)))


def compiled(bench):
    def reply(n):
        if n == 5:
            with bench.log.open("a") as log:
                log.write("AUTOTUNE mm(64x4096, 4096x4096)\n")
        return bench.reply(n)

    return bench.measure(reply)


def restarted(bench):
    def reply(n):
        if n == 5:
            bench.server.server_info = FACTS | {"random_seed": 8}
        return bench.reply(n)

    return bench.measure(reply)


def not_ours(bench):
    bench.server.server_info = FACTS | {"random_seed": 8}
    return bench.measure(bench.reply)


def unreadable(bench):
    def reply(n):
        if n == 5:
            bench.server.server_info, bench.server.info_status = b"not now", 500
        return bench.reply(n)

    return bench.measure(reply)


INVALID = {
    "failed_requests": failed,
    "timed_out": timed_out,
    "too_few_requests": too_few,
    "completion_tokens": short,
    "token_totals": lost_tail,
    "chunk_tokens": claims,
    "prompt_tokens": templated_twice,
    "cached_tokens": cached,
    "duplicate_prompts": doubled,
    "unsteady": slowing,
    "silent": standstill,
    "short_window": too_short,
    "queue_grows": queue,
    "acceptance_unexpected": unexpected,
    "acceptance_missing": missing,
    "accept_length": impossible,
    "acceptance_counts": contradicting,
    "acceptance_stale": stale,
    "compiled": compiled,
    "server_restarted": restarted,
    "server_not_ours": not_ours,
    "server_unreadable": unreadable,
}


@pytest.mark.parametrize("code", INVALID)
def test_it_is_measured_and_not_believed(bench, code):
    measurement = INVALID[code](bench)
    assert code in codes(measurement.invalid), measurement.invalid
    assert measurement.samples
    state, failure = judge([measurement], {})
    assert state is TrialState.INVALID
    assert failure.kind == "invalid_measurement"
    assert f"{bench.point.name}: {code}: " in failure.message or code in failure.message


def test_verifies_that_are_booked_as_drafts_are_seen_without_a_histogram(bench):
    # Each of the 40 chunks after the first is a verify that accepts nothing.
    moved = {
        "spec_verify_ct": 36,
        "spec_num_correct_drafts": 4,
        "spec_correct_drafts_histogram": None,
    }
    measurement = bench.measure(lambda n: bench.reply(n, per_chunk=1, wait_s=0.002, **moved))
    assert measurement.accept_length == 1 + 4 / 36
    assert "acceptance_counts" in codes(measurement.invalid), measurement.invalid


def test_the_ids_of_an_answer_are_as_many_as_its_tokens(bench):
    measurement = other_ids(bench)
    assert "token_totals" in codes(measurement.invalid), measurement.invalid
    assert "the first has 40 ids and 41 tokens" in " ".join(measurement.invalid)


def never(bench):
    histogram = [40]
    return bench.measure(
        lambda n: bench.reply(
            n,
            spec_verify_ct=40,
            spec_num_correct_drafts=0,
            spec_correct_drafts_histogram=histogram,
        )
    )


def always(bench):
    return bench.measure(
        lambda n: bench.reply(
            n,
            per_chunk=4,
            spec_verify_ct=10,
            spec_num_correct_drafts=30,
            spec_correct_drafts_histogram=[0, 0, 0, 10],
        )
    )


def few(bench):
    bench.point = OperatingPoint(1, requests=3)
    return bench.measure(bench.reply)


def whole(bench):
    bench.speculation = PLAIN
    return bench.measure(lambda n: bench.reply(n, per_chunk=TOKENS, tokens=TOKENS))


def the_same(bench):
    # The scripted server answers every prompt with the same ids.
    return bench.measure(bench.reply)


WARNED = {
    "low_acceptance": never,
    "perfect_acceptance": always,
    "few_requests": few,
    "degenerate_output": the_same,
}


@pytest.mark.parametrize("code", WARNED)
def test_it_is_believed_with_a_warning(bench, code):
    measurement = WARNED[code](bench)
    assert code in codes(measurement.warnings), measurement.warnings
    assert codes(measurement.invalid) <= TIMING
    believed = replace(measurement, invalid=())
    assert judge([believed], {})[0] is TrialState.COMPLETE


def test_an_invalid_measurement_is_kept_and_never_scored(bench):
    bad, good = stale(bench), replace(bench.measure(bench.reply), invalid=())
    slow, fast = Configuration.of(PLAIN), Configuration.of(EAGLE3)
    with Store.open("sqlite://") as store:
        study = store.create_study(NewStudy("kept", "study: kept\n", "d", "s", "simulated", True))
        store.claim(study.id)
        intent = LaunchIntent(slow, (), "mark", "log")
        launch = store.add_launch(
            study.id, intent, [(slow, Purpose.BASELINE), (fast, Purpose.SEARCH)]
        )
        for number, measurement in enumerate((good, bad)):
            store.add_measurement(study.id, number, launch.id, measurement, Purpose.SEARCH)
            state, failure = judge([measurement], {})
            store.finish_trial(study.id, number, state, failure=failure, launch=launch.id)
        trials = store.trials(study.id, samples=True)
    leaderboard = Leaderboard.of(trials, {"none": slow})
    assert leaderboard.best is trials[0]
    assert trials[1].state is TrialState.INVALID
    assert leaderboard.score(trials[1]) is None
    (kept,) = trials[1].measurements
    assert kept.invalid == bad.invalid
    assert kept.samples == bad.samples
    assert kept.output_tok_s == bad.output_tok_s > 0


def test_watches_cost_no_time(bench):
    watch = ServerIdentityWatch(bench.server.url, launched=FACTS)

    def once():
        begun = time.thread_time()
        watch.begin()
        watch.end()
        return time.thread_time() - begun

    assert min(once() for _ in range(5)) < 0.5
