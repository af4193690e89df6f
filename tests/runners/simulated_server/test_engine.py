"""The engine on a virtual clock: pace, compensation for slow clients, hooks."""

import asyncio
from statistics import fmean

import pytest

from runners.simulated_server.engine.cost import CostModel
from runners.simulated_server.engine.engine import EngineHooks
from runners.simulated_server.engine.profile import load_profile
from runners.simulated_server.engine.request import ABORT
from search_spaces.configuration import Configuration, Setting, Speculation

from .walk import facts_of, walk

KIMI = load_profile("kimi")
PREFILL_MS = 40.0  # of 200 tokens


def speculation(point, algorithm="EAGLE3"):
    return Configuration.of(Speculation(algorithm, *point) if point else None)


@pytest.mark.parametrize("clients", [1, 8, 64, 256])
@pytest.mark.parametrize("point", [None, (2, 1, 3)])
def test_pauses_of_clients_do_not_change_the_throughput(new_bench, point, clients):
    # Without compensation, a pause of 3 real milliseconds is 24 simulated milliseconds.
    configuration = speculation(point)
    requests = 4 if clients > 1 else 8
    wanted = walk(KIMI, configuration, concurrency=clients, output_tokens=96, requests=requests)
    seen = new_bench(configuration).run(lambda b: b.closed_loop(clients, requests, 96, 0.003))
    steady, began = seen[clients:-clients], seen[clients - 1].ended
    tok_s = 1000.0 * 96 * len(steady) / (steady[-1].ended - began)
    assert tok_s == pytest.approx(wanted.output_tok_s, rel=0.005)
    assert fmean(one.ttft for one in steady) == pytest.approx(wanted.ttft_ms, rel=0.01)
    # Shorter decode cycles repay the pauses: 24 ms of a second at one client.
    tpot = fmean(one.decode / 95 for one in steady)
    assert tpot == pytest.approx(wanted.tpot_ms, rel=0.025)
    verifies = sum(one.request.verify_calls for one in steady)
    if verifies:
        correct = sum(one.request.correct_drafts for one in steady)
        assert 1 + correct / verifies == pytest.approx(wanted.accept_length, rel=1e-3)


def test_clients_within_some_milliseconds_start_together(new_bench):
    async def burst(bench):
        async def late(i):
            await asyncio.sleep(0.001 * i)
            return await bench.ask(bench.request(8))

        return await asyncio.gather(*(late(i) for i in range(10)))

    seen = new_bench(scale=2.0).run(burst)
    assert len({round(one.ended - one.decode) for one in seen}) == 1
    assert fmean(one.ttft for one in seen) == pytest.approx(34.0 + 10 * 6.0, rel=1e-6)


def test_a_pause_does_not_change_the_prefill(new_bench):
    for one in new_bench(scale=10.0).run(lambda b: b.closed_loop(1, 6, tokens=8, pause_s=0.004)):
        assert one.ttft == pytest.approx(PREFILL_MS, rel=1e-6)


def test_repaid_s_is_the_shortening_of_the_cycles(new_bench):
    bench = new_bench(scale=8.0)
    seen = bench.run(lambda b: b.closed_loop(8, 3, pause_s=0.003))
    cycle = KIMI.decode_ms + 7 * KIMI.batch.token_ms
    short_ms = 3 * 63 * cycle - sum(one.decode for one in seen) / 8
    assert short_ms > 30.0
    assert 1000.0 * bench.engine.pace.lateness.to_dict()["repaid_s"] == pytest.approx(short_ms)


def test_clients_too_slow_for_the_scale_cause_a_warning(new_bench):
    bench = new_bench(scale=40.0)
    bench.run(lambda b: b.closed_loop(1, 40, tokens=256, pause_s=0.02))
    (warning,) = (line for line in bench.log.lines if line.startswith("SIMULATED"))
    assert "times per output token are too short" in warning
    assert "lower TUNER_SIM_TIME_SCALE" in warning
    quick = new_bench(scale=8.0)
    quick.run(lambda b: b.closed_loop(1, 40, tokens=256, pause_s=0.003))
    assert not [line for line in quick.log.lines if line.startswith("SIMULATED")]


def test_a_long_pause_is_not_compensated(new_bench):
    seen = new_bench(scale=10.0).run(lambda b: b.closed_loop(1, 3, tokens=32, pause_s=0.2))
    for one in seen:
        assert one.decode == pytest.approx(31 * KIMI.decode_ms, rel=1e-6)


def test_an_open_loop_is_not_compensated(new_bench):
    async def client(bench):
        seen = [await bench.ask(bench.request(32))]
        for _ in range(5):
            await asyncio.sleep(0.01)
            seen.append(await bench.ask(bench.request(32, open_arrival=True)))
        return seen

    for one in new_bench(scale=20.0).run(client)[1:]:
        assert one.ttft > 0.98 * PREFILL_MS
        assert one.ttft + one.decode > 0.99 * (PREFILL_MS + 31 * KIMI.decode_ms)


def test_an_open_arrival_waits_for_the_running_forward(new_bench):
    async def clients(bench):
        long = asyncio.create_task(bench.ask(bench.request(64)))
        await asyncio.sleep(0.1)
        late = bench.request(2, open_arrival=True)
        seen = await bench.ask(late)
        await long
        return seen

    assert new_bench(scale=2.0).run(clients).ttft > 0.98 * PREFILL_MS


def test_a_drain_costs_one_wait(new_bench):
    async def drain(bench):
        # Eight clients end one after another and send no next request.
        return await asyncio.gather(*(bench.ask(bench.request(16 + 8 * i)) for i in range(8)))

    seen = new_bench(scale=4.0).run(drain)
    # The cycles of the last request, with a shrinking batch. The only wait, after the first end, is
    # repaid.
    cycles = (
        KIMI.decode_ms + KIMI.batch.token_ms * (8 - 1 - max(0, n - 7) // 8) for n in range(71)
    )
    assert seen[-1].decode == pytest.approx(sum(cycles), rel=0.001)


def test_a_late_engine_warns_and_reports_its_delay(new_bench):
    class Laborious(EngineHooks):
        async def before_forward(self, engine, batch):
            # 50 us of work for each of 64 streams, in cycles of 110 us.
            asyncio.get_running_loop().now += 50e-6 * len(batch)

    bench = new_bench(scale=100.0, hooks=Laborious())
    seen = bench.run(lambda b: b.closed_loop(64, 2, tokens=128))
    wanted = walk(KIMI, Configuration(), concurrency=64, output_tokens=128, requests=3)
    lateness = bench.engine.pace.lateness.to_dict()
    assert fmean(one.decode / 127 for one in seen) > 5 * wanted.tpot_ms
    # `behind_s` is the delay.
    begun = min(one.ended - one.decode - one.ttft for one in seen)
    spent_s = (max(one.ended for one in seen) - begun) / 1000.0
    assert lateness["behind_s"] == pytest.approx(spent_s - lateness["busy_s"], rel=0.1)
    warnings = [line for line in bench.log.lines if "falls behind its own clock" in line]
    assert len(warnings) == 1
    assert bench.engine.flush()
    assert bench.engine.pace.lateness.forwards == 0


def test_device_times_add_up(new_bench):
    configuration = speculation((2, 1, 3))
    bench = new_bench(configuration, scale=100.0)
    seen = bench.run(lambda b: b.closed_loop(1, 2))
    calls = sum(one.request.verify_calls for one in seen)
    cycle = CostModel(KIMI, facts_of(configuration)).speculate(1, 2, 1, 3)
    seconds = {k: v * 100.0 * 1000.0 for k, v in bench.engine.counters.forward_seconds.items()}
    assert seconds == pytest.approx(
        {
            "extend": 2 * PREFILL_MS,
            "eagle_draft": calls * cycle.draft_ms,
            "target_verify": calls * cycle.verify_ms,
            "eagle_draft_extend": calls * cycle.draft_extend_ms,
        }
    )


def test_adaptive_steps_follow_what_is_accepted(new_bench):
    update = {"acceptance": KIMI.acceptance.model_copy(update={"at_least": (1.0,) * 10})}
    sure = KIMI.model_copy(update=update)
    bench = new_bench(speculation((3, 1, 4)), scale=200.0, profile=sure, speculative_adaptive=True)
    bench.run(lambda b: b.closed_loop(1, 2, tokens=200))
    assert bench.engine.cycles.setting == Setting(7, 8)
    switch = "Switch adaptive runtime state: steps 5 -> 7, draft_tokens 6 -> 8"
    assert switch in bench.log.lines
    # The same server with 64 requests at once does not draft at all.
    bench = new_bench(speculation((3, 1, 4)), scale=100.0, profile=sure, speculative_adaptive=True)
    seen = bench.run(lambda b: b.closed_loop(64, 1, tokens=8))
    assert {one.request.correct_drafts for one in seen} == {0}


def test_a_switch_evaluates_the_conditions_again(new_bench):
    data = KIMI.model_dump()
    data["collectives"] = [{"when": {"num_steps": 2}, "verify_ms": 10.0, "decode_ms": 0.0}]
    bench = new_bench(speculation((5, 1, 6)), scale=50.0, profile=type(KIMI).model_validate(data))

    async def client(bench):
        before = await bench.ask(bench.request(64))
        bench.engine.cycles.switch(Setting(2))
        return before, await bench.ask(bench.request(64))

    before, after = bench.run(client)
    assert bench.engine.cycles.cost.facts["num_steps"] == 2
    assert len(after.request.histogram) <= 3 < len(before.request.histogram)
    verify_ms = bench.engine.counters.forward_seconds["target_verify"] * 50.0 * 1000.0
    wanted = sum(
        seen.request.verify_calls * (13.778 + 2.369 * width - saving)
        for seen, width, saving in ((before, 6, 0.0), (after, 3, 10.0))
    )
    assert verify_ms == pytest.approx(wanted)


def test_hooks_of_a_misbehaving_engine(new_bench):
    class Disturbed(EngineHooks):
        ended = 0

        def factor(self, engine):
            return 3.0 if engine.served else 1.0

        def finished(self, engine, request):
            self.ended += 1

    hooks = Disturbed()
    bench = new_bench(scale=20.0, hooks=hooks)
    first, second = bench.run(lambda b: b.closed_loop(1, 2, tokens=31))
    assert hooks.ended == 2
    alone = PREFILL_MS + 30 * KIMI.decode_ms
    assert first.ttft + first.decode == pytest.approx(alone, rel=0.01)
    assert second.ttft + second.decode == pytest.approx(3.0 * alone, rel=0.01)


def test_an_abort_ends_a_request_of_a_hung_engine(new_bench):
    class Hanging(EngineHooks):
        async def before_forward(self, engine, batch):
            if engine.served and any(request.counted for request in batch):
                await asyncio.Event().wait()

    async def clients(bench):
        await bench.ask(bench.request(4))
        stuck = asyncio.create_task(bench.ask(bench.request(4)))
        await asyncio.sleep(0.2)
        assert not stuck.done()
        assert not bench.engine.flush()
        bench.engine.abort("", everything=True)
        return await stuck

    assert new_bench(scale=50.0, hooks=Hanging()).run(clients).request.finish == ABORT
