"""The load generator beside an independent client, and beside the profile's own truth."""

from __future__ import annotations

import random
import sys
from dataclasses import dataclass

import pytest
import yaml

from runners.load.generator import LoadGenerator
from runners.load.prompts.prompts import Prompt, PromptSource
from runners.load.window.watches import ServerIdentityWatch
from runners.simulated_server.engine.profile import PROFILES, load_profile
from runners.simulated_server.engine.walk import walk
from search_spaces.configuration import Configuration, Speculation
from search_spaces.workload import OperatingPoint, Workload

from . import referee
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
    mean: int = MEAN

    def truth(self, users):
        """What the profile implies, walked without a clock."""
        return walk(
            load_profile(self.profile),
            Configuration.of(self.speculation if self.speculation.enabled else None),
            concurrency=users,
            prompt_tokens=referee.PROMPT_TOKENS,
            output_tokens=self.mean,
            output_spread=0.5,
            requests=max(60, 400 // users),
        )

    def ours(self, users, requests_each, *, burst=False):
        point = OperatingPoint(users, requests=requests_each * users)
        load = Workload((("ids", 1.0),), self.mean, (point,), output_spread=0.5)
        generator = LoadGenerator(
            self.url, load, RandomIds(), burst=burst, watches=[ServerIdentityWatch(self.url)]
        )
        return generator.measure(point, speculation=self.speculation)


@pytest.fixture(scope="module", params=[Speculation(), CHAIN], ids=["plain", "eagle3"])
def court(request, tmp_path_factory):
    """One H200's profile without noise, at its own pace."""
    folder = tmp_path_factory.mktemp("court")
    profile = yaml.safe_load((PROFILES / "llama-8b-h200.yaml").read_text())
    del profile["noise"]
    profile["startup"] = dict.fromkeys(profile["startup"], 0.0)
    path = folder / "quiet.yaml"
    path.write_text(yaml.safe_dump(profile))
    flags = (*(FLAGS if request.param.enabled else ()), "--max-running-requests=256")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("TUNER_SIM_PROFILE", str(path))
        with simulated_server(folder / "log", *flags, time_scale=1) as (_, url):
            yield Court(url, str(path), request.param)


def test_an_independent_client_sees_the_same(court):
    """Within what a busy machine adds; `test_agreement_at_every_load` has the bound of 1 %."""
    ours, truth = court.ours(8, 8), court.truth(8)
    theirs = referee.judge(court.url, 8, 8)
    assert ours.output_tok_s == pytest.approx(theirs.tok_s, rel=0.05)
    assert ours.tpot_p50_ms == pytest.approx(theirs.tpot_ms, rel=0.05)
    assert ours.output_tok_s == pytest.approx(truth.output_tok_s, rel=0.05)


@pytest.mark.alone
@pytest.mark.parametrize(("users", "requests_each"), [(1, 32), (8, 24), (32, 24), (64, 20)])
def test_agreement_at_every_load(court, users, requests_each):
    """However the load begins: 1 % in tok/s and TPOT; TTFT as the other client sees it."""
    truth = court.truth(users)
    life_s = users * MEAN / truth.output_tok_s
    theirs = [
        referee.judge(court.url, users, requests_each, begin=begin, life_s=life_s, seed=seed)
        for seed, begin in enumerate(referee.BEGINNINGS)
    ]
    ours = [court.ours(users, requests_each, burst=burst) for burst in (False, True)]
    for one in ours:
        assert one.invalid == ()
    seen = [(m.output_tok_s, m.ttft_p50_ms, m.tpot_p50_ms) for m in ours]
    seen += [(v.tok_s, v.ttft_ms, v.tpot_ms) for v in theirs]
    names = ("ours", "ours, burst", *referee.BEGINNINGS)
    table = [f"truth {truth.output_tok_s:.1f} {truth.ttft_p50_ms:.2f} {truth.tpot_p50_ms:.3f}"]
    table += [
        f"{name:12} {tok_s:.1f} {ttft:.2f} {tpot:.3f}"
        for name, (tok_s, ttft, tpot) in zip(names, seen, strict=True)
    ]
    what = f"{users} users, {court.speculation.algorithm}: tok/s, TTFT p50 and TPOT p50 in ms"
    sys.stdout.write("\n  ".join((f"\n{what}", *table)) + "\n")
    for tok_s, _, tpot_ms in seen:
        assert tok_s == pytest.approx(truth.output_tok_s, rel=0.01)
        assert tpot_ms == pytest.approx(truth.tpot_p50_ms, rel=0.015)
    middle = sorted(verdict.ttft_ms for verdict in theirs)[1]
    assert ours[0].ttft_p50_ms == pytest.approx(middle, rel=0.01, abs=0.5)
