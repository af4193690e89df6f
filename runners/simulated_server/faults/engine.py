"""Misbehaviours of the scheduler: it dies, hangs, slows down, compiles, or ends answers early."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from runners.simulated_server.engine.engine import EngineHooks

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from runners.simulated_server.engine.engine import Engine
    from runners.simulated_server.engine.request import Request
    from runners.simulated_server.faults.misbehaviour import Misbehaviour
    from runners.simulated_server.launch.log import ServerLog

_PREFIX_TOKENS = 8
_EARLY = 0.75
"""Share of the asked tokens at which `wrong_tokens` ends an answer."""

_COMPILES = (
    "AUTOTUNE mm({tokens}x7168, 7168x4096)",
    "  triton_mm_{number} 0.0471 ms 100.0% ACC_TYPE='tl.float32', BLOCK_M=16, num_warps=4",
    "SingleProcess AUTOTUNE benchmarking takes 1.8312 seconds and 0.4417 seconds precompiling",
)


class TroubledEngine(EngineHooks):
    """All that goes wrong in the scheduler of one launch.

    Args:
        troubles: What holds in this configuration.
        log: Where it is logged.
        time_scale: Simulated seconds per real second.
        die: Ends the server; its argument says of what.
        watchdog_s: Simulated seconds of standstill after which SGLang ends itself.
    """

    def __init__(
        self,
        troubles: Sequence[Misbehaviour],
        log: ServerLog,
        time_scale: float,
        die: Callable[[Misbehaviour], None],
        watchdog_s: float,
    ) -> None:
        self._sudden = [
            t
            for t in troubles
            if t.kind == "dead_scheduler" or (t.kind in {"exit", "hang"} and t.phase == "serving")
        ]
        self._idle = [t for t in troubles if t.kind == "exit" and t.phase == "idle"]
        self._slow = [t for t in troubles if t.kind in {"slow", "drift"}]
        self._jit = [t for t in troubles if t.kind == "jit"]
        self._short = [t for t in troubles if t.kind == "wrong_tokens"]
        self._log = log
        self._scale = time_scale
        self._die = die
        self._watchdog_s = watchdog_s
        self._shortened: set[str] = set()
        self._ended = 0
        self._timer: asyncio.TimerHandle | None = None
        self.dead = asyncio.Event()
        """Set once the scheduler answers nobody any more."""

    async def before_forward(self, engine: Engine, batch: Sequence[Request]) -> None:
        """Strikes where its conditions hold, in the middle of requests that count."""
        counted = [request for request in batch if request.counted]
        if not counted:
            return
        for trouble in self._sudden:
            if not self._strikes(trouble, engine.served, counted):
                continue
            if trouble.delay_s:
                await asyncio.sleep(trouble.delay_s / self._scale)
            if trouble.kind == "exit" and trouble.dies_of != "watchdog":
                self._die(trouble)
            self.dead.set()
            if trouble.kind == "exit":
                await asyncio.sleep(self._watchdog_s / self._scale)
                self._die(trouble)
            await asyncio.Event().wait()
        if self._short:
            self._shorten(engine.served, counted)

    def factor(self, engine: Engine) -> float:
        """Slow from the beginning, or ever slower."""
        factor = 1.0
        for trouble in self._slow:
            if engine.served < trouble.after_requests:
                continue
            if trouble.kind == "slow":
                factor *= trouble.factor
            else:
                served = engine.served - trouble.after_requests
                factor *= 1.0 + (trouble.factor - 1.0) * served / 100.0
        return factor

    def finished(self, engine: Engine, request: Request) -> None:
        """Compiles for the next one, or counts how long nobody asks."""
        self._ended += 1
        for trouble in self._jit:
            if engine.served > trouble.after_requests:
                for line in _COMPILES:
                    self._log.raw(line.format(tokens=request.prompt_tokens, number=self._ended))
        for trouble in self._idle:
            if engine.served >= trouble.after_requests:
                self._wait_idle(engine, trouble)

    def _strikes(self, trouble: Misbehaviour, served: int, batch: Sequence[Request]) -> bool:
        if served < trouble.after_requests or len(batch) < trouble.concurrency:
            return False
        if trouble.padded and len(batch) & (len(batch) - 1) == 0:
            return False
        return not trouble.prefix_hit or self._repeats(batch)

    def _repeats(self, batch: Sequence[Request]) -> bool:
        """Whether the cache knows the beginning of one of these prompts."""
        return any(request.cached_tokens > _PREFIX_TOKENS for request in batch)

    def _shorten(self, served: int, batch: Sequence[Request]) -> None:
        if all(served < trouble.after_requests for trouble in self._short):
            return
        for request in batch:
            if request.completion_tokens == 0 and request.rid not in self._shortened:
                self._shortened.add(request.rid)
                request.limit = max(1, int(request.limit * _EARLY))

    def _wait_idle(self, engine: Engine, trouble: Misbehaviour) -> None:
        if self._timer is not None:
            self._timer.cancel()
        loop = asyncio.get_running_loop()
        served = engine.served

        def strike() -> None:
            if not engine.busy and engine.served == served:
                self._die(trouble)

        self._timer = loop.call_later(max(trouble.delay_s / self._scale, 0.01), strike)
