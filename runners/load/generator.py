"""The closed-loop load generator: warm-up, flush, one window, and back to rest."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import time
from typing import TYPE_CHECKING

from runners.load.client import LoadClient, clock, load_error
from runners.load.flight import Flight
from runners.load.rendering import IdentityRenderer
from runners.load.stream import GenerateEndpoint
from runners.load.window import Window, measurement_of

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from results.records import Measurement
    from runners.load.endpoint import Endpoint
    from runners.load.prompts import Prompt, PromptSource
    from runners.load.rendering import Renderer
    from search_spaces.configuration import Speculation
    from search_spaces.workload import OperatingPoint, Workload

REQUEST_TIMEOUT_S = 600.0
STALL_TIMEOUT_S = 120.0
FLUSH_TIMEOUT_S = 15.0


class LoadGenerator:
    """Loads one server in closed loops and measures it. Owned by one thread.

    Time-outs are real seconds, whatever the server's time scale; everything measured is in the
    server's own time.
    """

    def __init__(
        self,
        base_url: str,
        workload: Workload,
        prompts: PromptSource,
        renderer: Renderer | None = None,
        *,
        seed: int = 0,
        time_scale: float = 1.0,
        simulated: bool = False,
        request_timeout_s: float = REQUEST_TIMEOUT_S,
        stall_timeout_s: float = STALL_TIMEOUT_S,
        flush_timeout_s: float = FLUSH_TIMEOUT_S,
        api_key: str | None = None,
        endpoint: Endpoint | None = None,
    ) -> None:
        """Connects to nothing yet.

        Args:
            base_url: `http://host:port`.
            workload: Output length, sampling, warm-up.
            prompts: Where prompts come from.
            renderer: Applies the chat template; prompts are sent as they are without one.
            seed: Selects the prompts: the same seed gives every configuration the same load.
            time_scale: Simulated seconds per real second.
            simulated: Whether the server is a simulation.
            request_timeout_s: Longest that one request may take.
            stall_timeout_s: Longest silence of all requests together before it is a hang.
            flush_timeout_s: Longest that the server may take to come to rest.
            api_key: Sent as bearer token where given.
            endpoint: What the server speaks; SGLang's `/generate` if not given.
        """
        self._base_url = base_url
        self._workload = workload
        self._prompts = prompts
        self._renderer = renderer or IdentityRenderer()
        self._seed = seed
        self._time_scale = time_scale
        self._simulated = simulated
        self._request_timeout_s = request_timeout_s
        self._stall_timeout_s = stall_timeout_s
        self._flush_timeout_s = flush_timeout_s
        self._api_key = api_key
        self._endpoint = endpoint or GenerateEndpoint()

    def measure(self, point: OperatingPoint, *, speculation: Speculation) -> Measurement:
        """Measures one window at `point`, and leaves the server idle.

        Ctrl-C aborts what is in flight, also at the server, before `KeyboardInterrupt` leaves.

        Args:
            point: The operating point.
            speculation: What the server says it runs; the acceptance is checked against it.

        Raises:
            RunnerError: The server died, hung, refuses the load or did not come to rest.
            NotEnoughPromptsError: The prompt source is too small for the point.
        """
        with asyncio.Runner() as runner:
            return runner.run(self.measure_async(point, speculation=speculation))

    async def measure_async(
        self, point: OperatingPoint, *, speculation: Speculation
    ) -> Measurement:
        """`measure`, for callers that have an event loop."""
        count = self._workload.requests_at(point)
        concurrency = point.concurrency or 1
        warmup_count = self._workload.warmup_at(point)
        selected = self._prompts.select(count + warmup_count, self._seed)
        rendered = self._renderer.render(selected)
        prompts, warmup = rendered[:count], rendered[count:]
        loop = _ClosedLoop(self._stall_timeout_s)
        client = LoadClient(
            self._base_url,
            connections=concurrency,
            request_timeout_s=self._request_timeout_s,
            api_key=self._api_key,
            endpoint=self._endpoint,
            on_chunk=loop.heard,
        )
        async with client:
            try:
                if warmup:
                    warm = await loop.run(client, self._flights(warmup), concurrency)
                    self._check_warmup(warm)
                await client.flush_cache(timeout_s=self._flush_timeout_s)
                with _no_collection():
                    window = await loop.run(client, self._flights(prompts), concurrency)
                if any(flight.error is not None for flight in window.flights):
                    await client.abort_all()
                    await client.flush_cache(timeout_s=self._flush_timeout_s)
            except BaseException:
                # Also for an interrupt: the server must not go on generating for nobody.
                await client.abort_all()
                raise
        return measurement_of(
            window,
            prompts,
            workload=self._workload,
            point=point,
            speculation=speculation,
            time_scale=self._time_scale,
            simulated=self._simulated,
        )

    def _flights(self, prompts: Sequence[Prompt]) -> list[Flight]:
        # Encoded before the window opens: the loop itself has only to send.
        return [Flight(p.id, self._endpoint.body(p, self._workload)) for p in prompts]

    def _check_warmup(self, window: Window) -> None:
        failed = [flight for flight in window.flights if flight.error is not None]
        if failed:
            message = (
                f"{len(failed)} of {len(window.flights)} warm-up requests failed at "
                f"{self._base_url}; {failed[0].prompt}: {failed[0].error}"
            )
            raise load_error("request_failed", "configuration", message)


class _ClosedLoop:
    """Keeps a number of requests in flight until none is left, and watches for silence."""

    def __init__(self, stall_timeout_s: float) -> None:
        self._stall_timeout_s = stall_timeout_s
        self._last_heard = 0.0

    def heard(self, now: float) -> None:
        """Notes a sign of life."""
        self._last_heard = now

    async def run(self, client: LoadClient, flights: Sequence[Flight], concurrency: int) -> Window:
        """Sends all `flights`, `concurrency` at a time."""
        for flight in flights:
            client.prepare(flight)
        waiting = iter(flights)
        closed: float | None = None
        tokens = 0

        async def work() -> None:
            nonlocal closed, tokens
            for flight in waiting:
                await client.generate(flight)
            if closed is None:
                # The load is no longer whole from here on: the rest is drain.
                closed = clock()
                tokens = sum(flight.tokens for flight in flights)

        started_at, opened = time.time(), clock()
        self._last_heard = opened
        workers = [asyncio.ensure_future(work()) for _ in range(min(concurrency, len(flights)))]
        everything = asyncio.gather(*workers)
        watch = asyncio.ensure_future(self._watch())
        try:
            await asyncio.wait((everything, watch), return_when=asyncio.FIRST_COMPLETED)
            if watch.done():
                watch.result()
            await everything
        finally:
            for task in (*workers, watch):
                task.cancel()
            await asyncio.gather(*workers, everything, watch, return_exceptions=True)
        return Window(started_at, opened, closed or clock(), tokens, tuple(flights))

    async def _watch(self) -> None:
        while True:
            silence = clock() - self._last_heard
            if silence >= self._stall_timeout_s:
                break
            await asyncio.sleep(self._stall_timeout_s - silence)
        message = (
            f"no token from any request for {self._stall_timeout_s:g} s: "
            "the server hangs under load"
        )
        raise load_error("stall", "configuration", message)


@contextlib.contextmanager
def _no_collection() -> Iterator[None]:
    """Keeps Python's garbage collector out of a window: a full pass takes tens of milliseconds."""
    was_enabled = gc.isenabled()
    gc.collect()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()
