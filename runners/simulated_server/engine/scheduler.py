"""Scheduler: chooses the requests of the next forward, without a clock or an event loop.

- Requests are served in the order of arrival. Prefill precedes decode; there is no mixed chunk.
- A prefill batch takes waiting requests up to `--chunked-prefill-size`, `--max-prefill-tokens`, the
  limit of running requests and the size of the KV cache.
- A request that does not fit into the chunk is cut. Its remaining tokens are prefilled before the
  next decode.
- Every request reserves its whole answer, at most 4,096 tokens, so no request is retracted. SGLang
  reserves less for answers without a fixed length.

Source: SGLang 0.5.23, `srt/managers/scheduler.py` and `schedule_policy.py`.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from runners.simulated_server.engine.prefix_cache import PrefixCache
from runners.simulated_server.engine.tokens import TOKEN_BYTES, pack
from runners.simulated_server.launch.flags import CHUNKED_PREFILL_SIZE

if TYPE_CHECKING:
    from collections.abc import Mapping

    from runners.simulated_server.engine.request import Request

_CLIP_MAX_NEW_TOKENS = 4096
_MAX_PREFILL_TOKENS = 16384


@dataclass(frozen=True, slots=True)
class Limits:
    """Limits of a batch.

    Attributes:
        running: Running requests.
        chunk: Tokens of one prefill batch; `None`: prompts are not cut.
        prefill: Tokens of a prefill batch of several prompts.
        kv: Tokens of the KV cache.
        prefix_cache: Whether prefixes are cached.
    """

    running: int
    chunk: int | None = CHUNKED_PREFILL_SIZE
    prefill: int = _MAX_PREFILL_TOKENS
    kv: int = 300_000
    prefix_cache: bool = True

    @classmethod
    def of(cls, values: Mapping[str, Any], running: int, kv: int) -> Limits:
        """Return the limits of the flags.

        Args:
            values: Flags by destination.
            running: The resolved `max_running_requests`.
            kv: Size of the machine's KV cache in tokens.
        """
        chunk = int(values.get("chunked_prefill_size") or CHUNKED_PREFILL_SIZE)
        return cls(
            running=running,
            chunk=chunk if chunk > 0 else None,
            prefill=int(values.get("max_prefill_tokens") or _MAX_PREFILL_TOKENS),
            kv=min(kv, int(values.get("max_total_tokens") or kv)),
            prefix_cache=not values.get("disable_radix_cache"),
        )


@dataclass(frozen=True, slots=True)
class Prefill:
    """One prefill forward.

    Attributes:
        requests: Requests, each with its number of computed tokens.
        fresh: Number of requests that were waiting.
        new_tokens: Computed tokens.
        cached_tokens: Tokens of the fresh requests in the prefix cache.
    """

    requests: tuple[tuple[Request, int], ...]
    fresh: int
    new_tokens: int
    cached_tokens: int


class Scheduler:
    """Waiting and running requests.

    Attributes:
        waiting: Waiting requests, in order.
        running: Decoding requests.
        chunked: Request with a partly computed prompt.
        prefilling: Requests of the current prefill.
    """

    def __init__(self, limits: Limits) -> None:
        self.limits = limits
        self.waiting: deque[Request] = deque()
        self.running: list[Request] = []
        self.chunked: Request | None = None
        self.prefilling: tuple[Request, ...] = ()
        self.cache = PrefixCache()
        self._reserved: dict[Request, int] = {}

    @property
    def busy(self) -> bool:
        return bool(self.waiting or self.running or self.chunked or self.prefilling)

    @property
    def begun(self) -> int:
        return len(self.running) + len(self._between)

    @property
    def token_usage(self) -> float:
        """Share of the KV cache that requests hold."""
        used = self.cache.held + sum(self._reserved.values())
        return min(1.0, used / self.limits.kv)

    def everyone(self) -> list[Request]:
        return [*self.waiting, *self._between, *self.running]

    @property
    def _between(self) -> tuple[Request, ...]:
        """Requests that neither wait nor decode."""
        if self.chunked is None or self.chunked in self.prefilling:
            return self.prefilling
        return (*self.prefilling, self.chunked)

    def drop_ended(self) -> None:
        """Remove waiting requests that have been aborted."""
        self.waiting = deque(r for r in self.waiting if r.finish is None)

    def flush(self) -> None:
        """Empty the prefix cache; no request may run."""
        self.cache.clear()

    def next_prefill(self, until: float | None = None) -> Prefill | None:
        """Return the next prefill batch, if any, and remove its requests from the waiting ones.

        Args:
            until: Ignore requests of an open loop that arrived later.
        """
        room = self.limits.chunk
        parts: list[tuple[Request, int]] = []
        computed = cached = 0
        if self.chunked is not None:
            if self.chunked.finish is not None:
                self._release(self.chunked)
                self.chunked = None
            else:
                computed = self._take(self.chunked, room, parts)
        fresh = 0
        while self.waiting and not self._unfinished(parts):
            if room is not None and computed >= room:
                break
            if computed >= self.limits.prefill:
                break
            if len(self.running) + len(parts) >= self.limits.running:
                break
            request = self.waiting[0]
            if until is not None and request.open_arrival and request.arrived > until:
                break
            if not self._admit(request, computed, alone=not parts):
                break
            self.waiting.popleft()
            fresh += 1
            cached += request.cached_tokens
            left = None if room is None else room - computed
            computed += self._take(request, left, parts)
            if self._unfinished(parts):
                self.chunked = request
        self.prefilling = tuple(request for request, _ in parts)
        return Prefill(tuple(parts), fresh, computed, cached) if parts else None

    def prefilled(self, prefill: Prefill) -> list[Request]:
        """Record a finished prefill; return the requests with a complete prompt.

        These requests are running now, and have their first token.
        """
        self.prefilling = ()
        complete = []
        for request, tokens in prefill.requests:
            request.computed_tokens += tokens
            if request.finish is None and request.counted and self.limits.prefix_cache:
                self._hold(request, request.packed[: request.computed_tokens * TOKEN_BYTES])
                self._reserved[request] -= tokens
            if request.computed_tokens >= request.prompt_tokens:
                if request is self.chunked:
                    self.chunked = None
                complete.append(request)
        self._shrink()
        self.running += complete
        return complete

    def retire(self) -> list[Request]:
        """Remove and return running requests that have ended; their tokens stay cached."""
        ended = [r for r in self.running if r.finish is not None]
        if ended:
            self.running = [r for r in self.running if r.finish is None]
            for request in ended:
                if request.counted and self.limits.prefix_cache:
                    # Keys and values of the last token are not computed.
                    answer = pack(request.answer.ids[: max(0, request.completion_tokens - 1)])
                    self.cache.insert(request.packed + answer)
                self._release(request)
            self._shrink()
        return ended

    def _take(self, request: Request, room: int | None, parts: list[tuple[Request, int]]) -> int:
        missing = request.prompt_tokens - request.computed_tokens
        tokens = missing if room is None else min(missing, room)
        parts.append((request, tokens))
        return tokens

    @staticmethod
    def _unfinished(parts: list[tuple[Request, int]]) -> bool:
        if not parts:
            return False
        request, tokens = parts[-1]
        return request.computed_tokens + tokens < request.prompt_tokens

    def _admit(self, request: Request, computed: int, *, alone: bool) -> bool:
        node = None
        if self.limits.prefix_cache and request.counted:
            # The last token is always computed: its logits give the first output token.
            node, request.cached_tokens = self.cache.match(request.packed[:-TOKEN_BYTES])
        request.computed_tokens = request.cached_tokens
        missing = request.prompt_tokens - request.cached_tokens
        uncut = self.limits.chunk is None
        if uncut and not alone and computed + missing >= self.limits.prefill:
            request.computed_tokens = request.cached_tokens = 0
            return False
        need = missing + min(request.limit, _CLIP_MAX_NEW_TOKENS)
        if node is not None:
            self.cache.hold(node)
        free = self.limits.kv - self.cache.held - sum(self._reserved.values())
        if need > free and (self._reserved or not alone):
            if node is not None:
                self.cache.release(node)
            request.computed_tokens = request.cached_tokens = 0
            return False
        request.held = node
        self._reserved[request] = need
        self._shrink()
        return True

    def _hold(self, request: Request, packed: bytes) -> None:
        node = self.cache.insert(packed)
        self.cache.hold(node)
        if request.held is not None:
            self.cache.release(request.held)
        request.held = node

    def _release(self, request: Request) -> None:
        self._reserved.pop(request, None)
        if request.held is not None:
            self.cache.release(request.held)
            request.held = None

    def _shrink(self) -> None:
        self.cache.shrink(max(self.cache.held, self.limits.kv - sum(self._reserved.values())))
