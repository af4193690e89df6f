"""Misbehaviours of the API: garbage, wrong accounts, refusals, cut connections, hanging calls."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from runners.simulated_server.api.errors import ApiError
from runners.simulated_server.engine.hooks import ConnectionCutError, ReplyHooks

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from starlette.types import ASGIApp, Receive, Scope, Send

    from runners.simulated_server.engine.engine import Engine
    from runners.simulated_server.engine.request import Request
    from runners.simulated_server.engine.tokens import Answer
    from runners.simulated_server.faults.misbehaviour import Misbehaviour

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
    {
        *("/server_info", "/get_server_info", "/flush_cache", "/set_internal_state"),
        "/v1/loads",
    }
)
"""What SGLang's HTTP server cannot answer by itself; `/metrics` and `/model_info` it can."""


class TroubledReplies(ReplyHooks):
    """All that goes wrong with the answers of one launch.

    Args:
        troubles: What holds in this configuration.
        dead: Whether the scheduler has stopped answering.
    """

    def __init__(self, troubles: Sequence[Misbehaviour], dead: Callable[[], bool]) -> None:
        self._of: dict[str, Misbehaviour] = {}
        for trouble in troubles:
            self._of.setdefault(trouble.kind, trouble)
        self._lies = [t for t in troubles if t.kind in {"hang", "dead_scheduler", "exit"}]
        self._dead = dead
        self._shares: dict[str, float] = {}
        self._first: dict[int, dict[str, Any]] = {}
        self._cut: set[str] = set()
        self.engine: Engine | None = None
        """Set once there is one."""

    def admit(self) -> None:
        """A share of the requests gets 500."""
        if self._hits("http_500"):
            raise ApiError({"error": {"message": "Internal Server Error"}}, 500)

    def answer(self, answer: Answer) -> Answer:
        """Garbage: one token, again and again."""
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
        """A share of the streams is cut off once they have begun."""
        if request.rid in self._cut:
            return
        if request.completion_tokens > 1:
            self._cut.add(request.rid)
            if self._hits("reset"):
                raise ConnectionCutError

    def meta_info(self, request: Request, meta: dict[str, Any]) -> None:
        """Wrong accounts."""
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
            self._tell_again(request.completion_tokens, meta)
        elif self._active("acceptance_impossible"):
            width = meta["spec_num_proposed_drafts"] // meta["spec_verify_ct"] + 1
            _account(meta, meta["spec_verify_ct"], width)
        elif self._active("acceptance_inconsistent"):
            histogram = list(meta["spec_correct_drafts_histogram"])
            histogram[0] += meta["spec_verify_ct"]
            meta["spec_correct_drafts_histogram"] = histogram

    def metrics(self, values: dict[str, float]) -> None:
        """What is missing in the answers is missing here."""
        if self._active("acceptance_missing"):
            values.pop("spec_accept_length", None)
            values.pop("spec_accept_rate", None)

    def health(self) -> int | None:
        """Lies while the scheduler is dead, or flaps under load."""
        if self._dead():
            return next((200 for trouble in self._lies if trouble.health == "ok"), None)
        busy = self.engine is not None and self.engine.busy
        return 503 if busy and self._hits("health_flaps") else None

    def _tell_again(self, tokens: int, meta: dict[str, Any]) -> None:
        """The accounts of the first answer of that length, for ever: nobody updates them."""
        mine = {name: meta[name] for name in _COUNTS if name in meta}
        meta.update(self._first.setdefault(tokens, mine))

    def _active(self, kind: str) -> bool:
        trouble = self._of.get(kind)
        if trouble is None:
            return False
        served = self.engine.served if self.engine is not None else 0
        return served >= trouble.after_requests

    def _hits(self, kind: str) -> bool:
        """Whether this one is of the share that it happens to: every other for a half."""
        if not self._active(kind):
            return False
        total = self._shares.get(kind, 0.0) + self._of[kind].share
        hit = total >= 1.0 - 1e-9
        self._shares[kind] = total - 1.0 if hit else total
        return hit


class Gate:
    """Stands before the whole API of a misbehaving server.

    Args:
        application: The API.
        troubles: What goes wrong.
        engine: The scheduler.
        dead: Set once the scheduler answers nobody.
        die: Ends the server.
    """

    def __init__(
        self,
        application: ASGIApp,
        troubles: Sequence[Misbehaviour],
        engine: Engine,
        dead: asyncio.Event,
        die: Callable[[Misbehaviour], None],
    ) -> None:
        self._application = application
        self._at_flush = [t for t in troubles if t.kind == "exit" and t.phase == "flush"]
        self._engine = engine
        self._dead = dead
        self._die = die

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Lets a request through, or not."""
        path = scope.get("path", "")
        if self._dead.is_set() and path in _ASK_THE_SCHEDULER:
            await asyncio.Event().wait()
        if path == "/flush_cache":
            served = self._engine.served
            for trouble in self._at_flush:
                if served and served >= trouble.after_requests:
                    self._die(trouble)
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
