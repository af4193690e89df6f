"""The simulated engine: runs the scheduler's batches in the times of the cost model."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

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
from search_spaces.configuration import Setting

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

    Args:
        profile: The simulated machine.
        cost: Times of the configuration on this machine.
        flags: Resolved flags of the server.
        noise: Factors on all times.
        time_scale: Simulated seconds per real second.
        log: The server's log.
        hooks: Faults of the engine, if any.
        plugin: The tuner's plugin in the server, if any.
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
        self._noise = noise
        self._scale = time_scale
        self._log = log
        self._hooks = hooks
        self._plugin = plugin
        self._clock = plugin.clock if plugin is not None else None
        self._scheduler = Scheduler(
            Limits.of(flags.values, flags.max_running_requests, profile.kv_tokens)
        )
        self._batch_log = BatchLog(flags.values, self._scheduler)
        adaptive = adaptive_steps(flags.values, flags.num_steps, log.scheduler)
        self._cycles = Cycles(cost, flags.num_steps, flags.topk, flags.num_draft_tokens, adaptive)
        self._wake = asyncio.Event()
        self.pace = Pace(time_scale)
        self.counters = Counters()
        self._log_interval = int(flags.values.get("decode_log_interval") or DECODE_LOG_INTERVAL)
        self.last_progress = 0.0
        self.served = 0

    @property
    def running(self) -> int:
        """Number of running requests."""
        return self._scheduler.begun

    @property
    def queued(self) -> int:
        """Number of waiting requests."""
        return len(self._scheduler.waiting)

    @property
    def busy(self) -> bool:
        """Whether any request runs or waits."""
        return self._scheduler.busy

    @property
    def token_usage(self) -> float:
        """Share of the KV cache that requests hold."""
        return self._scheduler.token_usage

    @property
    def limits(self) -> Limits:
        """Limits of the batches."""
        return self._scheduler.limits

    @property
    def noise(self) -> NoiseSource:
        """Noise of this launch."""
        return self._noise

    @property
    def speculating(self) -> bool:
        """Whether cycles draft and verify."""
        return self._cycles.speculating

    @property
    def num_steps(self) -> int:
        """Current draft steps."""
        return self._cycles.num_steps

    @property
    def num_draft_tokens(self) -> int:
        """Current tokens per verify."""
        return self._cycles.num_draft_tokens

    @property
    def setting(self) -> Setting:
        """Current draft steps and tokens per verify."""
        return Setting(self.num_steps, self.num_draft_tokens)

    @property
    def facts(self) -> dict[str, Any]:
        """Facts for the profile's conditions, with the current setting."""
        return self._cycles.cost.facts

    def submit(self, request: Request) -> None:
        """Queue a request."""
        self.pace.arrived(request, asyncio.get_running_loop().time())
        self._scheduler.waiting.append(request)
        self._wake.set()

    def abort(self, rid: str, *, everything: bool = False) -> None:
        """End all requests, or the requests whose ids begin with a non-empty `rid`."""
        for request in self._scheduler.everyone():
            if request.finish is None and (everything or (rid and request.rid.startswith(rid))):
                request.end(ABORT)
        # Running requests leave at the end of the next forward.
        self._scheduler.drop_ended()

    def flush(self) -> bool:
        """Empty the prefix cache and begin the next block of noise; return `False` while busy."""
        if self.busy:
            return False
        self._scheduler.flush()
        self.pace.flushed()
        self.counters.flushed()
        self._noise.next_block()
        return True

    def rehearse(self, request: Request) -> None:
        """Complete and count a request at once, in no simulated time."""
        request.emit(1)
        while request.finish is None:
            self._give([request], self._cycles.next([request]))
            self.counters.window.iterations += 1
        self.counters.finished(request)

    def switch(self, setting: Setting) -> None:
        """Apply another setting; the engine must be idle."""
        self._cycles.switch(setting)

    async def run(self) -> None:
        """Serve requests until cancelled."""
        clock = asyncio.get_running_loop().time
        scheduler, pace = self._scheduler, self.pace
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
            await self.pace.gather(self._cycles.cost.prefill_ms(first.prompt_tokens))

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
        milliseconds = self._cycles.cost.prefill_ms(prefill.new_tokens)
        seconds = await self._pass_time(milliseconds, requests, repays=False)
        self.counters.forward(EXTEND, seconds)
        now = wall_time()
        for request in self._scheduler.prefilled(prefill):
            if request.finish is None:
                request.prefill_finished_at = now
                request.emit(1)

    async def _decode(self) -> None:
        batch = self._scheduler.running
        before = (self.num_steps, self.num_draft_tokens)
        cycle = self._cycles.next(batch)
        if self.num_steps != before[0]:
            self._log.scheduler(
                f"Switch adaptive runtime state: steps {before[0]} -> {self.num_steps}, "
                f"draft_tokens {before[1]} -> {self.num_draft_tokens}"
            )
        time = cycle.time
        if self._plugin is not None:
            time = self._plugin.distort(time, self.setting)
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
        self._cycles.verified(cycle)

    def _time_device(self, time: CycleTime, seconds_per_ms: float, size: int) -> None:
        counters = self.counters
        if self._plugin is not None and self._clock is not None:
            graphs = self._plugin.graphs(self.setting)
            self._clock.cycle(size, time, seconds_per_ms, graphs)
        if self.speculating:
            counters.forward(DRAFT, time.draft_ms * seconds_per_ms)
            counters.forward(TARGET_VERIFY, time.verify_ms * seconds_per_ms)
            counters.forward(DRAFT_EXTEND, time.draft_extend_ms * seconds_per_ms)
        else:
            counters.forward(DECODE, time.verify_ms * seconds_per_ms)

    def _retire(self) -> None:
        ended = self._scheduler.retire()
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
        if self._plugin is not None and self.setting != self._plugin.started:
            self._plugin.switched(self.setting, self._plugin.started)
            self.switch(self._plugin.started)

    async def _pass_time(
        self, milliseconds: float, batch: Sequence[Request], *, repays: bool
    ) -> float:
        """Wait for the time of a forward; return its seconds on the server's clock."""
        milliseconds *= self._noise.system * sum(r.noise for r in batch) / len(batch)
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
        counters.tick(now, self.num_steps, self.num_draft_tokens, self._flags.num_draft_tokens - 1)
        self._log.scheduler(self._batch_log.decode(counters, speculating=self.speculating))
