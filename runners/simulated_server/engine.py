"""The simulated scheduler: prefill, decode cycles, and their pace.

Every forward ends at an absolute deadline: what one wake-up is late by is not added to the next.
"""

from __future__ import annotations

import asyncio
from collections import deque
from typing import TYPE_CHECKING, NoReturn

from runners.simulated_server.acceptance import at_least, correct_drafts
from runners.simulated_server.counters import DECODE_LOG_INTERVAL, Counters
from runners.simulated_server.request import ABORT
from runners.simulated_server.wall_clock import wall_time

if TYPE_CHECKING:
    from collections.abc import Callable

    from runners.simulated_server.cost import CostModel, CycleTime
    from runners.simulated_server.log import ServerLog
    from runners.simulated_server.noise import NoiseSource
    from runners.simulated_server.profile import Misbehaviour, Profile
    from runners.simulated_server.request import Request
    from runners.simulated_server.resolution import ResolvedFlags

_TURNAROUND_S = 0.03
"""Real seconds between two requests up to which a client is at work rather than away."""


class Engine:
    """Runs requests in simulated time.

    Args:
        profile: The machine.
        cost: Its times in this configuration.
        flags: What the server runs.
        noise: Factors on every time.
        time_scale: Simulated seconds per real second.
        log: Where the batches are logged.
        crash: Ends the server as a crash of the scheduler does.
        misbehaviour: What happens while serving.
        prefix_cache: Whether a repeated prompt is found in the cache.
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
        crash: Callable[[], NoReturn],
        misbehaviour: Misbehaviour | None = None,
        prefix_cache: bool = True,
    ) -> None:
        self._profile = profile
        self._cost = cost
        self._flags = flags
        self._noise = noise
        self._scale = time_scale
        self._log = log
        self._crash = crash
        self._misbehaviour = misbehaviour
        self._prefix_cache = prefix_cache
        self._limit = flags.max_running_requests
        self._waiting: deque[Request] = deque()
        self._running: list[Request] = []
        self._cached: set[str] = set()
        self._wake = asyncio.Event()
        self._deadline = 0.0
        self._served = 0
        self.counters = Counters()
        self.last_progress = 0.0
        self.speculating = flags.algorithm is not None
        self.num_steps = flags.num_steps
        self.num_draft_tokens = flags.num_draft_tokens
        self._chances: tuple[float, ...] = ()
        self._renew_chances()

    @property
    def running(self) -> int:
        """Requests that run."""
        return len(self._running)

    @property
    def queued(self) -> int:
        """Requests that wait."""
        return len(self._waiting)

    @property
    def busy(self) -> bool:
        """Whether any request runs or waits."""
        return bool(self._running or self._waiting)

    @property
    def noise(self) -> NoiseSource:
        """The factors of this launch."""
        return self._noise

    def submit(self, request: Request) -> None:
        """Queues a request."""
        self._waiting.append(request)
        self._wake.set()

    def abort(self, rid: str, *, everything: bool = False) -> None:
        """Ends the requests whose ids begin with `rid` (an empty one matches nothing), or all."""
        chosen = [
            request
            for request in (*self._waiting, *self._running)
            if everything or (rid and request.rid.startswith(rid))
        ]
        for request in chosen:
            request.end(ABORT)
        self._waiting = deque(r for r in self._waiting if r.finish is None)
        # The running ones leave at the next cycle's end; nobody waits for them any more.

    def flush(self) -> bool:
        """Empties the prefix cache; refused while busy. Begins the next block of the noise."""
        if self.busy:
            return False
        self._cached.clear()
        self._deadline = 0.0  # what comes next is no turn-around: nobody was at work
        self.counters.flushed()
        self._noise.next_block()
        return True

    def switch(self, num_steps: int) -> None:
        """Takes on another depth; the server must be an idle chain."""
        self.num_steps = num_steps
        self.num_draft_tokens = num_steps + 1
        self._renew_chances()

    def _renew_chances(self) -> None:
        if self.speculating:
            self._chances = at_least(
                self._profile.acceptance, self.num_steps, self._flags.topk, self.num_draft_tokens
            )

    async def run(self) -> None:
        """Serves for ever."""
        clock = asyncio.get_running_loop().time
        while True:
            if not self.busy:
                self._wake.clear()
                await self._wake.wait()
                self._begin()
                continue
            await self._misbehave()
            if self._waiting and len(self._running) < self._limit:
                await self._prefill()
            if self._running:
                await self._decode()
                self.counters.window.iterations += 1
                if self.counters.window.iterations >= DECODE_LOG_INTERVAL:
                    self._tick(clock())
            self.last_progress = wall_time()

    def _begin(self) -> None:
        """Time begins where the first request arrived, not where it was noticed.

        Between two requests of a closed loop a client and its transport need some real
        milliseconds. They are no part of what runs faster than life, so they count once, not
        `time_scale` times: the request is taken to have arrived that much earlier. Not so the
        first one after a flush, with which a window opens: it would be served for free.
        """
        if not self._waiting:
            return  # aborted at once
        first = self._waiting[0].arrived
        gap = first - self._deadline
        if 0.0 < gap < _TURNAROUND_S:
            first -= gap * (1.0 - 1.0 / self._scale)
        self._deadline = max(self._deadline, first)
        self.counters.last_tick = max(self.counters.last_tick, first)

    async def _misbehave(self) -> None:
        trouble = self._misbehaviour
        if trouble is None or self._served < trouble.after_requests:
            return
        if not any(r.counted for r in (*self._waiting, *self._running)):
            return
        if trouble.kind == "exit":
            self._crash()
        await asyncio.Event().wait()

    async def _prefill(self) -> None:
        fresh: list[Request] = []
        while self._waiting and len(self._running) + len(fresh) < self._limit:
            fresh.append(self._waiting.popleft())
        uncached = 0
        now = wall_time()
        for request in fresh:
            request.forward_entry_at = now
            if self._prefix_cache and request.prompt in self._cached:
                request.cached_tokens = request.prompt_tokens - 1
            uncached += request.prompt_tokens - request.cached_tokens
        self._running += fresh
        self._log.scheduler(
            f"Prefill batch, #new-seq: {len(fresh)}, #new-token: {uncached}, "
            f"#cached-token: {sum(r.cached_tokens for r in fresh)}, token usage: 0.00, "
            f"#running-req: {len(self._running) - len(fresh)}, #queue-req: {len(self._waiting)}"
        )
        await self._pass_time(self._cost.prefill_ms(uncached), fresh)
        now = wall_time()
        for request in fresh:
            if request.finish is None:
                request.prefill_finished_at = now
                if request.counted:
                    self._cached.add(request.prompt)
                request.emit(1)
        self._retire()

    async def _decode(self) -> None:
        batch = len(self._running)
        await self._pass_time(self._cycle(batch).total_ms, self._running)
        window = self.counters.window
        for request in self._running:
            if request.finish is not None:
                continue
            tokens = 1
            if self.speculating:
                correct = correct_drafts(request.offset, request.verify_calls, self._chances)
                request.record_verify(correct)
                tokens += correct
                window.verify_calls += 1
                window.correct += correct
                window.accepted += tokens
            window.tokens += tokens
            request.emit(tokens)
        self._retire()

    def _cycle(self, batch: int) -> CycleTime:
        if not self.speculating:
            return self._cost.decode(batch)
        return self._cost.speculate(batch, self.num_steps, self._flags.topk, self.num_draft_tokens)

    def _retire(self) -> None:
        for request in self._running:
            if request.finish is not None and request.counted:
                self.counters.finished(request)
                self._served += 1
        self._running = [r for r in self._running if r.finish is None]

    async def _pass_time(self, milliseconds: float, batch: list[Request]) -> None:
        prompts = sum(r.noise for r in batch) / len(batch)
        seconds = milliseconds / 1000.0 * self._noise.system * prompts
        self._deadline += seconds / self._scale
        late = asyncio.get_running_loop().time() - self._deadline
        await asyncio.sleep(max(0.0, -late))

    def _tick(self, now: float) -> None:
        counters = self.counters
        # SGLang divides by the start-up width also after a switch, which is wrong then.
        counters.tick(now, self.num_steps, self.num_draft_tokens, self._flags.num_draft_tokens - 1)
        accept = (
            f"accept len: {counters.accept_length:.2f}, accept rate: {counters.accept_rate:.2f}, "
            if self.speculating
            else ""
        )
        tokens = sum(r.prompt_tokens + r.completion_tokens for r in self._running)
        self._log.scheduler(
            f"Decode batch, #running-req: {len(self._running)}, #token: {tokens}, "
            f"token usage: 0.00, {accept}cuda graph: True, "
            f"gen throughput (token/s): {counters.gen_throughput:.2f}, "
            f"#queue-req: {len(self._waiting)}"
        )
