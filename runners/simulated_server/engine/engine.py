"""The simulated engine: runs the scheduler's batches in the times of the cost model."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from runners.simulated_server.engine.adaptive import adaptive_steps
from runners.simulated_server.engine.clock import wall_time
from runners.simulated_server.engine.cost import Cycles
from runners.simulated_server.engine.counters import (
    DECODE,
    DECODE_LOG_INTERVAL,
    DRAFT,
    DRAFT_EXTEND,
    EXTEND,
    TARGET_VERIFY,
    Counters,
)
from runners.simulated_server.engine.pace import Pace
from runners.simulated_server.engine.request import ABORT
from runners.simulated_server.engine.scheduler import Limits, Prefill, Scheduler
from runners.simulated_server.launch.log import BatchLog

if TYPE_CHECKING:
    from collections.abc import Sequence

    from runners.simulated_server.engine.cost import CostModel, Cycle, CycleTime
    from runners.simulated_server.engine.plugin import SimulatedPlugin
    from runners.simulated_server.engine.profile import NoiseSource, Profile
    from runners.simulated_server.engine.request import Request
    from runners.simulated_server.launch.flags import ResolvedFlags
    from runners.simulated_server.launch.log import ServerLog


class EngineHooks:
    """Hooks for faults of the engine. The base class does nothing."""

    async def before_forward(self, engine: Engine, batch: Sequence[Request]) -> None:
        """Run before a forward of `batch`; may end the process or never return."""

    def factor(self, engine: Engine) -> float:  # noqa: ARG002 - subclasses use it
        """Return the factor on the time of the next forward."""
        return 1.0

    def finished(self, engine: Engine, request: Request) -> None:
        """Run after a request has ended and is counted."""


class Engine:
    """Runs requests in simulated time.

    Attributes:
        scheduler: Waiting and running requests.
        cycles: Decode cycles of the current setting.
        pace: The simulated clock.
        counters: Counters and gauges.
        last_progress: Wall-clock time of the last forward.
        served: Number of counted requests that have ended.

    Args:
        cost: Times of the configuration on this machine.
        noise: Factors on all times.
        hooks: Faults of the engine, if any.
    """

    def __init__(
        self,
        profile: Profile,
        cost: CostModel,
        flags: ResolvedFlags,
        noise: NoiseSource,
        *,
        time_scale: float,
        log: ServerLog,
        hooks: EngineHooks | None = None,
        plugin: SimulatedPlugin | None = None,
    ) -> None:
        self._flags = flags
        self.noise = noise
        self._scale = time_scale
        self._log = log
        self._hooks = hooks
        self._plugin = plugin
        self._clock = plugin.clock if plugin is not None else None
        self.scheduler = Scheduler(
            Limits.of(flags.values, flags.max_running_requests, profile.kv_tokens)
        )
        self._batch_log = BatchLog(flags.values, self.scheduler)
        adaptive = adaptive_steps(flags.values, flags.num_steps, log.scheduler)
        self.cycles = Cycles(cost, flags.num_steps, flags.topk, flags.num_draft_tokens, adaptive)
        self._wake = asyncio.Event()
        self.pace = Pace(time_scale)
        self.counters = Counters()
        self._log_interval = int(flags.values.get("decode_log_interval") or DECODE_LOG_INTERVAL)
        self.last_progress = 0.0
        self.served = 0

    @property
    def busy(self) -> bool:
        return self.scheduler.busy

    def submit(self, request: Request) -> None:
        self.pace.arrived(request, asyncio.get_running_loop().time())
        self.scheduler.waiting.append(request)
        self._wake.set()

    def abort(self, rid: str, *, everything: bool = False) -> None:
        """End all requests, or the requests whose ids begin with a non-empty `rid`."""
        for request in self.scheduler.everyone():
            if request.finish is None and (everything or (rid and request.rid.startswith(rid))):
                request.end(ABORT)
        # Running requests leave at the end of the next forward.
        self.scheduler.drop_ended()

    def flush(self) -> bool:
        """Empty the prefix cache and begin the next block of noise; return `False` while busy."""
        if self.busy:
            return False
        self.scheduler.flush()
        self.pace.flushed()
        self.counters.flushed()
        self.noise.next_block()
        return True

    def rehearse(self, request: Request) -> None:
        """Complete and count a request at once, in no simulated time."""
        request.emit(1)
        while request.finish is None:
            self._give([request], self.cycles.next([request]))
            self.counters.window.iterations += 1
        self.counters.finished(request)

    async def run(self) -> None:
        clock = asyncio.get_running_loop().time
        scheduler, pace = self.scheduler, self.pace
        while True:
            if not self.busy:
                self._interrupt_clock()
                self._wake.clear()
                await self._wake.wait()
                if scheduler.waiting:  # an abort may have removed the request
                    await self._begin(scheduler.waiting[0])
                continue
            await pace.hold()
            if (prefill := scheduler.next_prefill(pace.deadline)) is not None:
                await self._prefill(prefill)
            elif scheduler.running:
                await self._decode()
                self.counters.window.iterations += 1
                if self.counters.window.iterations >= self._log_interval:
                    self._tick(clock())
            elif scheduler.waiting:
                pace.begin(scheduler.waiting[0])
            self._retire()
            self.last_progress = wall_time()
            await asyncio.sleep(0)  # answers are sent before the next forward is prepared

    async def _begin(self, first: Request) -> None:
        self.pace.begin(first)
        self.counters.last_tick = max(self.counters.last_tick, self.pace.deadline)
        if not first.open_arrival:
            await self.pace.gather(self.cycles.cost.prefill_ms(first.prompt_tokens))

    def _interrupt_clock(self) -> None:
        if self._clock is not None:
            self._clock.interrupted()

    async def _prefill(self, prefill: Prefill) -> None:
        self._interrupt_clock()
        requests = [request for request, _ in prefill.requests]
        now = wall_time()
        for request in requests[len(requests) - prefill.fresh :]:
            request.forward_entry_at = now
        self._log.scheduler(self._batch_log.prefill(prefill, asyncio.get_running_loop().time()))
        self.pace.begin_prefill(requests)
        milliseconds = self.cycles.cost.prefill_ms(prefill.new_tokens)
        seconds = await self._pass_time(milliseconds, requests, repays=False)
        self.counters.forward(EXTEND, seconds)
        now = wall_time()
        for request in self.scheduler.prefilled(prefill):
            if request.finish is None:
                request.prefill_finished_at = now
                request.emit(1)

    async def _decode(self) -> None:
        batch = self.scheduler.running
        before = self.cycles.setting.size
        cycle = self.cycles.next(batch)
        if self.cycles.num_steps != before[0]:
            self._log.scheduler(
                f"Switch adaptive runtime state: steps {before[0]} -> {self.cycles.num_steps}, "
                f"draft_tokens {before[1]} -> {self.cycles.num_draft_tokens}"
            )
        time = cycle.time
        if self._plugin is not None:
            time = self._plugin.distort(time, self.cycles.setting)
        total = time.total_ms
        seconds = await self._pass_time(total, batch, repays=True)
        self._time_device(time, seconds / total if total else 0.0, len(batch))
        self._give(batch, cycle)

    def _give(self, batch: Sequence[Request], cycle: Cycle) -> None:
        """Give the requests the tokens of a cycle."""
        window = self.counters.window
        if not cycle.correct:
            for request in batch:
                if request.finish is None:
                    request.emit(1)
                    window.tokens += 1
            return
        for request, correct in zip(batch, cycle.correct, strict=True):
            if request.finish is not None:
                continue
            request.record_verify(correct)
            window.verify_calls += 1
            window.correct += correct
            window.accepted += correct + 1
            window.tokens += correct + 1
            request.emit(correct + 1)
        self.cycles.verified(cycle)

    def _time_device(self, time: CycleTime, seconds_per_ms: float, size: int) -> None:
        counters = self.counters
        if self._plugin is not None and self._clock is not None:
            graphs = self._plugin.graphs(self.cycles.setting)
            self._clock.cycle(size, time, seconds_per_ms, graphs)
        if self.cycles.speculating:
            counters.forward(DRAFT, time.draft_ms * seconds_per_ms)
            counters.forward(TARGET_VERIFY, time.verify_ms * seconds_per_ms)
            counters.forward(DRAFT_EXTEND, time.draft_extend_ms * seconds_per_ms)
        else:
            counters.forward(DECODE, time.verify_ms * seconds_per_ms)

    def _retire(self) -> None:
        ended = self.scheduler.retire()
        if not ended:
            return
        self.pace.ended(ended, asyncio.get_running_loop().time())
        for request in ended:
            if request.counted:
                self.counters.finished(request)
                self.served += 1
                if self._plugin is not None and self._plugin.undoes(self.served):
                    self._undo_switch()
                if self._hooks is not None:
                    self._hooks.finished(self, request)

    def _undo_switch(self) -> None:
        if self._plugin is not None and self.cycles.setting != self._plugin.started:
            self._plugin.switched(self.cycles.setting, self._plugin.started)
            self.cycles.switch(self._plugin.started)

    async def _pass_time(
        self, milliseconds: float, batch: Sequence[Request], *, repays: bool
    ) -> float:
        """Wait for the time of a forward; return its seconds on the server's clock."""
        milliseconds *= self.noise.system * sum(r.noise for r in batch) / len(batch)
        if self._hooks is not None:
            await self._hooks.before_forward(self, batch)
            milliseconds *= self._hooks.factor(self)
        warning = await self.pace.forward(milliseconds, repays=repays)
        if warning is not None:
            self._log.main(f"SIMULATED SGLang: {warning}; lower TUNER_SIM_TIME_SCALE or the load")
        return milliseconds / 1000.0 / self._scale

    def _tick(self, now: float) -> None:
        counters = self.counters
        # SGLang divides by the initial width after a switch too, which is wrong.
        steps, draft_tokens = self.cycles.setting.size
        counters.tick(now, steps, draft_tokens, self._flags.num_draft_tokens - 1)
        self._log.scheduler(self._batch_log.decode(counters, speculating=self.cycles.speculating))
