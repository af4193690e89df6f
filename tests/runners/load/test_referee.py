"""The load generator beside an independent client, and beside the profile's own truth."""

from __future__ import annotations

import random
import sys
from contextlib import contextmanager
from dataclasses import dataclass
from statistics import fmean, stdev

import httpx
import pytest
import yaml

from runners.load.generator import LoadGenerator
from runners.load.prompts.prompts import Prompt, PromptSource
from runners.load.window.watches import ServerIdentityWatch
from runners.simulated_server.engine.profile import PROFILES, load_profile
from search_spaces.configuration import Configuration, Speculation
from search_spaces.workload import OperatingPoint, Workload

from ..simulated_server.walk import walk
from . import referee
from .referee import Verdict
from .test_simulated_server import simulated_server

pytestmark = pytest.mark.slow

CHAIN = Speculation("EAGLE3", 2, 1, 3)
FLAGS = (
    *("--speculative-algorithm=EAGLE3", "--speculative-draft-model-path=draft"),
    *("--speculative-num-steps=2", "--speculative-eagle-topk=1"),
    "--speculative-num-draft-tokens=3",
)
MEAN = 128


class RandomIds(PromptSource):
    """Prompts of the referee's kind."""

    def select(self, count, seed):
        rng = random.Random(f"ids/{seed}")
        return tuple(
            Prompt(f"ids/{n}", input_ids=tuple(rng.choices(range(1000, 100_000), k=128)))
            for n in range(count)
        )


@dataclass
class Court:
    """A simulated server without noise, and who measures it."""

    url: str
    profile: str
    speculation: Speculation
    scale: float = 1.0  # simulated seconds per real second

    def truth(self, users, *, requests_each=240, seed=0):
        """What the profile implies, walked without a clock."""
        return walk(
            load_profile(self.profile),
            Configuration.of(self.speculation if self.speculation.enabled else None),
            concurrency=users,
            prompt_tokens=referee.PROMPT_TOKENS,
            output_tokens=MEAN,
            output_spread=0.5,
            requests=requests_each,
            seed=seed,
        )

    def scatter(self, users, requests_each):
        """Two standard deviations of one sample's tok/s and TPOT, as shares of their means.

        Samples differ in their answers and in the prefills that fall together: by 0.6 % of tok/s
        at 64 users and 20 requests each, without any error of measurement.
        """
        samples = [self.truth(users, requests_each=requests_each, seed=s) for s in range(1, 9)]
        figures = [(s.output_tok_s, s.tpot_p50_ms) for s in samples]
        return [2 * stdev(of_one) / fmean(of_one) for of_one in zip(*figures, strict=True)]

    def ours(self, users, requests_each, *, burst=False):
        point = OperatingPoint(users, requests=requests_each * users)
        load = Workload((("ids", 1.0),), MEAN, (point,), output_spread=0.5)
        generator = LoadGenerator(
            self.url, load, RandomIds(), burst=burst, watches=[ServerIdentityWatch(self.url)]
        )
        measured = generator.measure(point, speculation=self.speculation)
        assert measured.invalid == ()
        return self._in_time(
            Verdict(
                measured.output_tok_s / self.scale,
                measured.ttft_p50_ms * self.scale,
                measured.tpot_p50_ms * self.scale,
            )
        )

    def theirs(self, users, requests_each, **how):
        return self._in_time(
            referee.judge(self.url, users, requests_each, mean=MEAN, scale=self.scale, **how)
        )

    def _in_time(self, verdict):
        # Clients that are slow to send the next request make the simulation itself late.
        clock = httpx.get(f"{self.url}/server_info").json()["simulated"]["clock"]
        assert clock["behind_s"] < 0.005 * clock["busy_s"], clock
        return verdict


@contextmanager
def open_court(folder, speculation, *, scale=1.0):
    """One H200's profile without noise."""
    profile = yaml.safe_load((PROFILES / "llama-8b-h200.yaml").read_text())
    del profile["noise"]
    profile["startup"] = dict.fromkeys(profile["startup"], 0.0)
    path = folder / "quiet.yaml"
    path.write_text(yaml.safe_dump(profile))
    flags = (*(FLAGS if speculation.enabled else ()), "--max-running-requests=256")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("TUNER_SIM_PROFILE", str(path))
        with simulated_server(folder / "log", *flags, time_scale=scale) as (_, url):
            yield Court(url, str(path), speculation, scale)


BOTH = pytest.mark.parametrize("speculation", [Speculation(), CHAIN], ids=["plain", "eagle3"])


@BOTH
def test_an_independent_client_sees_the_same(speculation, tmp_path):
    """Within what a busy machine adds; `test_agreement_at_every_load` has the bound of 1 %."""
    with open_court(tmp_path, speculation) as court:
        ours, theirs, truth = court.ours(8, 8), court.theirs(8, 8), court.truth(8)
    assert ours.tok_s == pytest.approx(theirs.tok_s, rel=0.05)
    assert ours.tpot_ms == pytest.approx(theirs.tpot_ms, rel=0.05)
    assert ours.tok_s == pytest.approx(truth.output_tok_s, rel=0.05)


@pytest.mark.alone
@BOTH
@pytest.mark.parametrize(
    ("users", "requests_each", "scale"),
    # At half of life's pace 64 threads of Python, on two cores, send their next requests in time.
    [(1, 32, 1.0), (8, 24, 1.0), (32, 24, 1.0), (64, 14, 0.5)],
)
def test_agreement_at_every_load(speculation, users, requests_each, scale, tmp_path):
    """However the load begins: 1 % in tok/s and TPOT; TTFT as the other client sees it.

    A single figure also has its sampling error (`Court.scatter`); the mean of all five has not.
    """
    with open_court(tmp_path, speculation, scale=scale) as court:
        truth = court.truth(users)
        life_s = users * MEAN / truth.output_tok_s / scale
        theirs = [
            court.theirs(users, requests_each, begin=begin, life_s=life_s, seed=seed)
            for seed, begin in enumerate(referee.BEGINNINGS)
        ]
        ours = [court.ours(users, requests_each, burst=burst) for burst in (False, True)]
    tok_s_scatter, tpot_scatter = court.scatter(users, requests_each)
    names = ("ours", "ours, burst", *referee.BEGINNINGS)
    table = [
        f"truth {truth.output_tok_s:.1f} {truth.ttft_p50_ms:.2f} {truth.tpot_p50_ms:.3f}",
        f"2 sd of one sample: tok/s {tok_s_scatter:.2%}, TPOT {tpot_scatter:.2%}",
    ]
    table += [
        f"{name:12} {one.tok_s:.1f} {one.ttft_ms:.2f} {one.tpot_ms:.3f}"
        for name, one in zip(names, (*ours, *theirs), strict=True)
    ]
    what = f"{users} users, {speculation.algorithm}: tok/s, TTFT p50 and TPOT p50 in ms"
    sys.stdout.write("\n  ".join((f"\n{what}", *table)) + "\n")
    for one in (*ours, *theirs):
        assert one.tok_s == pytest.approx(truth.output_tok_s, rel=0.01 + tok_s_scatter)
        assert one.tpot_ms == pytest.approx(truth.tpot_p50_ms, rel=0.01 + tpot_scatter)
    mean_tok_s = fmean(one.tok_s for one in (*ours, *theirs))
    assert mean_tok_s == pytest.approx(truth.output_tok_s, rel=0.01)
    mean_tpot_ms = fmean(one.tpot_ms for one in (*ours, *theirs))
    assert mean_tpot_ms == pytest.approx(truth.tpot_p50_ms, rel=0.01)
    middle = sorted(one.ttft_ms for one in theirs)[1]
    assert ours[0].ttft_ms == pytest.approx(middle, rel=0.01, abs=0.5)
