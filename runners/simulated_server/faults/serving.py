"""Faults while serving: wrong answers, refused requests, crashes and hangs of the scheduler."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from runners.simulated_server.api.errors import ApiError
from runners.simulated_server.api.state import ConnectionCutError, ReplyHooks
from runners.simulated_server.engine.engine import EngineHooks

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from starlette.types import ASGIApp, Receive, Scope, Send

    from runners.simulated_server.engine.engine import Engine
    from runners.simulated_server.engine.request import Request
    from runners.simulated_server.engine.tokens import Answer
    from runners.simulated_server.faults.misbehaviour import Misbehaviour
    from runners.simulated_server.launch.log import ServerLog


_GARBAGE_TOKEN = 0
_GARBAGE = "!"
_COUNTS = (
    "spec_accept_rate",
    "spec_accept_length",
    "spec_num_correct_drafts",
    "spec_num_proposed_drafts",
    "spec_verify_ct",
    "spec_correct_drafts_histogram",
)

_ASK_THE_SCHEDULER = frozenset(
    {"/server_info", "/get_server_info", "/flush_cache", "/set_internal_state"}
)
"""Endpoints that SGLang answers only with the scheduler's help."""


class FaultyReplies(ReplyHooks):
    """Faults of the answers of one launch.

    Args:
        dead: Whether the scheduler has stopped.
    """

    def __init__(self, faults: Sequence[Misbehaviour], dead: Callable[[], bool]) -> None:
        self._by_kind: dict[str, Misbehaviour] = {}
        for fault in faults:
            self._by_kind.setdefault(fault.kind, fault)
        self._health_faults = [t for t in faults if t.kind in {"hang", "dead_scheduler", "exit"}]
        self._dead = dead
        self._shares: dict[str, float] = {}
        self._first: dict[int, dict[str, Any]] = {}
        self._cut: set[str] = set()
        self.engine: Engine | None = None
        """The engine; set after the engine is made."""

    def admit(self) -> None:
        """Refuse a share of the requests with 500."""
        if self._hits("http_500"):
            raise ApiError({"error": {"message": "Internal Server Error"}}, 500)

    def answer(self, answer: Answer) -> Answer:
        """Replace the answer by one repeated token."""
        if not self._active("garbage"):
            return answer
        count = len(answer.ids)
        return replace(
            answer,
            ids=[_GARBAGE_TOKEN] * count,
            text=_GARBAGE * count,
            ends=list(range(count + 1)),
        )

    def chunk(self, request: Request) -> None:
        """Cut a share of the streams after their first tokens."""
        if request.rid in self._cut:
            return
        if request.completion_tokens > 1:
            self._cut.add(request.rid)
            if self._hits("reset"):
                raise ConnectionCutError

    def meta_info(self, request: Request, meta: dict[str, Any]) -> None:
        if self._active("cached_tokens"):
            meta["cached_tokens"] = request.prompt_tokens // 2
            meta["cached_tokens_details"] = {"device": request.prompt_tokens // 2, "host": 0}
        if "spec_verify_ct" not in meta:
            return
        if self._active("garbage"):
            _account(meta, max(1, request.completion_tokens - 1), 0)
        if self._active("acceptance_missing"):
            for name in _COUNTS:
                meta.pop(name, None)
        elif self._active("acceptance_stale"):
            self._repeat_counts(request.completion_tokens, meta)
        elif self._active("acceptance_impossible"):
            width = meta["spec_num_proposed_drafts"] // meta["spec_verify_ct"] + 1
            _account(meta, meta["spec_verify_ct"], width)
        elif self._active("acceptance_inconsistent"):
            histogram = list(meta["spec_correct_drafts_histogram"])
            histogram[0] += meta["spec_verify_ct"]
            meta["spec_correct_drafts_histogram"] = histogram

    def metrics(self, values: dict[str, float]) -> None:
        if self._active("acceptance_missing"):
            values.pop("spec_accept_length", None)
            values.pop("spec_accept_rate", None)

    def health(self) -> int | None:
        if self._dead():
            return next((200 for fault in self._health_faults if fault.health == "ok"), None)
        busy = self.engine is not None and self.engine.busy
        return 503 if busy and self._hits("health_flaps") else None

    def _repeat_counts(self, tokens: int, meta: dict[str, Any]) -> None:
        """Report the counts of the first answer with this length."""
        mine = {name: meta[name] for name in _COUNTS if name in meta}
        meta.update(self._first.setdefault(tokens, mine))

    def _active(self, kind: str) -> bool:
        fault = self._by_kind.get(kind)
        if fault is None:
            return False
        served = self.engine.served if self.engine is not None else 0
        return served >= fault.after_requests

    def _hits(self, kind: str) -> bool:
        """Return whether this call belongs to the fault's share; every other call for 0.5."""
        if not self._active(kind):
            return False
        total = self._shares.get(kind, 0.0) + self._by_kind[kind].share
        hit = total >= 1.0 - 1e-9
        self._shares[kind] = total - 1.0 if hit else total
        return hit


class Gate:
    """Blocks requests to a dead scheduler, and crashes at a flush.

    Args:
        dead: Set when the scheduler stops.
        crash: Ends the server with a fault's crash.
    """

    def __init__(
        self,
        application: ASGIApp,
        faults: Sequence[Misbehaviour],
        engine: Engine,
        dead: asyncio.Event,
        crash: Callable[[Misbehaviour], None],
    ) -> None:
        self._application = application
        self._at_flush = [t for t in faults if t.kind == "exit" and t.phase == "flush"]
        self._engine = engine
        self._dead = dead
        self._crash = crash

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        path = scope.get("path", "")
        if self._dead.is_set() and path in _ASK_THE_SCHEDULER:
            await asyncio.Event().wait()
        if path == "/flush_cache":
            served = self._engine.served
            for fault in self._at_flush:
                if served and served >= fault.after_requests:
                    self._crash(fault)
        await self._application(scope, receive, send)


def _account(meta: dict[str, Any], verify_calls: int, correct_each: int) -> None:
    proposed = meta["spec_num_proposed_drafts"] // meta["spec_verify_ct"] * verify_calls
    correct = correct_each * verify_calls
    meta["spec_verify_ct"] = verify_calls
    meta["spec_num_correct_drafts"] = correct
    meta["spec_num_proposed_drafts"] = proposed
    meta["spec_accept_rate"] = correct / proposed if proposed else 0.0
    meta["spec_accept_length"] = 1.0 + correct_each
    meta["spec_correct_drafts_histogram"] = [0] * correct_each + [verify_calls]


_PREFIX_TOKENS = 8
_EARLY = 0.75
"""Share of the requested tokens at which `wrong_tokens` ends an answer."""

_COMPILES = (
    "AUTOTUNE mm({tokens}x7168, 7168x4096)",
    "  triton_mm_{number} 0.0471 ms 100.0% ACC_TYPE='tl.float32', BLOCK_M=16, num_warps=4",
    "SingleProcess AUTOTUNE benchmarking takes 1.8312 seconds and 0.4417 seconds precompiling",
)


class FaultyEngine(EngineHooks):
    """Faults of the scheduler of one launch.

    Args:
        crash: Ends the server with a fault's crash.
        watchdog_s: Simulated seconds without progress after which SGLang ends itself.
    """

    def __init__(
        self,
        faults: Sequence[Misbehaviour],
        log: ServerLog,
        time_scale: float,
        crash: Callable[[Misbehaviour], None],
        watchdog_s: float,
    ) -> None:
        self._sudden = [
            t
            for t in faults
            if t.kind == "dead_scheduler" or (t.kind in {"exit", "hang"} and t.phase == "serving")
        ]
        self._idle = [t for t in faults if t.kind == "exit" and t.phase == "idle"]
        self._slow = [t for t in faults if t.kind in {"slow", "drift"}]
        self._jit = [t for t in faults if t.kind == "jit"]
        self._short = [t for t in faults if t.kind == "wrong_tokens"]
        self._log = log
        self._scale = time_scale
        self._crash = crash
        self._watchdog_s = watchdog_s
        self._shortened: set[str] = set()
        self._ended = 0
        self._timer: asyncio.TimerHandle | None = None
        self.dead = asyncio.Event()
        """Set when the scheduler stops."""

    async def before_forward(self, engine: Engine, batch: Sequence[Request]) -> None:
        """Crash or hang if a fault's conditions hold for the counted requests of the batch."""
        counted = [request for request in batch if request.counted]
        if not counted:
            return
        for fault in self._sudden:
            if not self._strikes(fault, engine.served, counted):
                continue
            if fault.delay_s:
                await asyncio.sleep(fault.delay_s / self._scale)
            if fault.kind == "exit" and fault.crash_cause != "watchdog":
                self._crash(fault)
            self.dead.set()
            if fault.kind == "exit":
                await asyncio.sleep(self._watchdog_s / self._scale)
                self._crash(fault)
            await asyncio.Event().wait()
        if self._short:
            self._shorten(engine.served, counted)

    def factor(self, engine: Engine) -> float:
        factor = 1.0
        for fault in self._slow:
            if engine.served < fault.after_requests:
                continue
            if fault.kind == "slow":
                factor *= fault.factor
            else:
                served = engine.served - fault.after_requests
                factor *= 1.0 + (fault.factor - 1.0) * served / 100.0
        return factor

    def finished(self, engine: Engine, request: Request) -> None:
        """Log a compilation, or start the timer of a crash while idle."""
        self._ended += 1
        for fault in self._jit:
            if engine.served > fault.after_requests:
                for line in _COMPILES:
                    self._log.raw(line.format(tokens=request.prompt_tokens, number=self._ended))
        for fault in self._idle:
            if engine.served >= fault.after_requests:
                self._wait_idle(engine, fault)

    def _strikes(self, fault: Misbehaviour, served: int, batch: Sequence[Request]) -> bool:
        if served < fault.after_requests or len(batch) < fault.concurrency:
            return False
        if fault.padded and len(batch) & (len(batch) - 1) == 0:
            return False
        return not fault.prefix_hit or self._repeats(batch)

    def _repeats(self, batch: Sequence[Request]) -> bool:
        """Return whether the prefix cache has the beginning of one of the prompts."""
        return any(request.cached_tokens > _PREFIX_TOKENS for request in batch)

    def _shorten(self, served: int, batch: Sequence[Request]) -> None:
        if all(served < fault.after_requests for fault in self._short):
            return
        for request in batch:
            if request.completion_tokens == 0 and request.rid not in self._shortened:
                self._shortened.add(request.rid)
                request.limit = max(1, int(request.limit * _EARLY))

    def _wait_idle(self, engine: Engine, fault: Misbehaviour) -> None:
        if self._timer is not None:
            self._timer.cancel()
        loop = asyncio.get_running_loop()
        served = engine.served

        def strike() -> None:
            if not engine.busy and engine.served == served:
                self._crash(fault)

        self._timer = loop.call_later(max(fault.delay_s / self._scale, 0.01), strike)
