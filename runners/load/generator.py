"""The load generator: warm-up, cache flush, ramp, window and drain."""

from __future__ import annotations

import asyncio
import dataclasses
from typing import TYPE_CHECKING, Any

from runners.load.http.client import ClientSettings, load_error
from runners.load.http.generate import GenerateEndpoint
from runners.load.http.in_flight import InFlightRequest
from runners.load.prompts.rendering import IdentityRenderer
from runners.load.prompts.selection import select_prompts
from runners.load.schedule import warmup
from runners.load.schedule.arrivals import ArrivalTraceError, arrivals_of
from runners.load.schedule.loops import closed_plan, open_plan
from runners.load.schedule.warmup import WarmupResult
from runners.load.schedule.worker_pool import Driver, processes_for
from runners.load.window.measurement import measurement_of
from runners.load.window.window import window_of

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from results.records import Measurement
    from runners.load.http.client import LoadClient
    from runners.load.http.endpoint import Endpoint
    from runners.load.prompts.prompts import Prompt, PromptSource
    from runners.load.prompts.rendering import Renderer
    from runners.load.schedule.arrivals import ArrivalProcess
    from runners.load.schedule.loops import Plan
    from runners.load.window.watches import WindowWatch
    from runners.load.window.window import Window
    from search_spaces.configuration import Speculation
    from search_spaces.workload import OperatingPoint, Workload

REQUEST_TIMEOUT_S = 600.0
STALL_TIMEOUT_S = 120.0
FLUSH_TIMEOUT_S = 15.0

_OPEN_ARRIVAL = (("x-tuner-arrival", "open"),)
"""Tells a simulated server that a pause before a request is an arrival, not a client's delay."""


class LoadGenerator:
    """Load one server and measure it, in closed or open loops. Owned by one thread.

    Time-outs are in real seconds, measurements in server seconds. A generator belongs to one
    launch: later measurements need a shorter warm-up.
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
        watches: Sequence[WindowWatch] = (),
        processes: int | None = None,
        burst: bool = False,
        whole_run: bool = False,
    ) -> None:
        """Set all options; the first measurement opens the first connection.

        Args:
            base_url: `http://host:port`.
            workload: Answer lengths, sampling and warm-up.
            prompts: Source of the prompts.
            renderer: Applies the chat template; defaults to none.
            seed: Selects prompts, answer lengths and arrivals. The same seed gives every
                configuration the same load.
            time_scale: Simulated seconds per real second.
            simulated: Whether the server is simulated.
            request_timeout_s: Limit for one request; the workload's own limit overrides it.
            stall_timeout_s: Time without any token after which the server counts as hung.
            flush_timeout_s: Time in which the server must become idle.
            api_key: Bearer token.
            endpoint: Endpoint that receives the load; defaults to SGLang's `/generate`.
            watches: Further checks around each window.
            processes: Number of client processes; defaults to as many as the client's CPU use
                requires.
            burst: Whether all lanes of a closed loop start at once with whole answers, as in other
                load generators. The window opens with the first request.
            whole_run: Whether the figures cover the run from the first send to the last token,
                without a ramp.
        """
        self._base_url = base_url
        self._workload = workload
        self._prompts = prompts
        self._renderer = renderer or IdentityRenderer()
        self._seed = seed
        self._time_scale = time_scale
        self._simulated = simulated
        self._request_timeout_s = workload.request_timeout_s or request_timeout_s
        self._stall_timeout_s = stall_timeout_s
        self._flush_timeout_s = flush_timeout_s
        self._api_key = api_key
        self._endpoint = endpoint or GenerateEndpoint()
        self._watches = tuple(watches)
        self._processes = processes
        self._has_ramp = not (burst or whole_run)
        self._whole_run = whole_run
        self._paces: dict[tuple[object, Speculation], float] = {}
        """Pace of the last warm-up at each point and setting."""
        self._needed_processes = 1

    def measure(
        self,
        point: OperatingPoint,
        *,
        speculation: Speculation,
        server_info: Mapping[str, Any] | None = None,
    ) -> Measurement:
        """Measure one window at `point`; the server is idle afterwards.

        Ctrl-C aborts all requests, also at the server, before `KeyboardInterrupt` is raised.

        Args:
            point: Operating point.
            speculation: Setting that the server reports; the acceptance is checked against it.
            server_info: `/server_info`, for adaptive steps and the limit of running requests.

        Raises:
            RunnerError: The server died, hung, refused the load or did not become idle; or the
                point's trace cannot be used.
            NotEnoughPromptsError: The prompt source is too small for the point.
        """
        with asyncio.Runner() as runner:
            return runner.run(self._measure(point, speculation, server_info))

    async def _measure(
        self,
        point: OperatingPoint,
        speculation: Speculation,
        server_info: Mapping[str, Any] | None,
    ) -> Measurement:
        arrivals = self._arrivals(point)
        selected = select_prompts(
            self._workload,
            point,
            self._prompts,
            self._renderer,
            self._seed,
            ramp=self._has_ramp,
        )
        settings = ClientSettings(
            base_url=self._base_url,
            connections=point.concurrency or self._workload.requests_at(point),
            request_timeout_s=self._request_timeout_s,
            api_key=self._api_key,
            endpoint=self._endpoint,
            headers=_OPEN_ARRIVAL if self._simulated and point.is_open else (),
        )
        async with Driver(settings, self._stall_timeout_s) as driver:
            try:
                warm = await self._warm_up(driver, selected.warmup, point, speculation)
                if arrivals is None:
                    lanes = min(point.concurrency or 1, len(selected.window))
                    plan = closed_plan(lanes, ramp=bool(selected.ramp))
                else:
                    ramp_s = None if self._whole_run else warm.request_s
                    plan = open_plan(arrivals, ramp_s, self._time_scale)
                flights = self._encode((*selected.ramp, *selected.window), self._workload)
                window, watched = await self._window(driver, plan, flights, warm)
                await self._wait_until_idle(driver.client, flights)
            except BaseException:
                # Also after an interrupt: the server must not continue for a client that left.
                await driver.client.abort_all()
                raise
        return measurement_of(
            window,
            selected.window,
            workload=self._workload,
            point=point,
            speculation=speculation,
            arrivals=() if arrivals is None else arrivals.times,
            time_scale=self._time_scale,
            simulated=self._simulated,
            watched=watched,
            server_info=server_info,
            whole_run=self._whole_run,
            decode_s=warm.decode_s,
            ramp_prompts=selected.ramp,
        )

    async def _warm_up(
        self,
        driver: Driver,
        prompts: Sequence[Prompt],
        point: OperatingPoint,
        speculation: Speculation,
    ) -> WarmupResult:
        """Repeat passes over the warm-up prompts, with new nonces, until two passes agree.

        One pass is enough if it agrees with an earlier measurement of this launch.
        """
        warm = WarmupResult()
        if not prompts:
            return warm
        tokens = min(self._workload.output_tokens, warmup.LONGEST_ANSWER)
        shorter = dataclasses.replace(self._workload, output_tokens=tokens)
        # Answers with natural length may be much shorter than their limit. A ramp as long as the
        # limit would take most requests of an open loop.
        expected = tokens if self._workload.natural_length else self._workload.output_tokens
        key = (tuple(point.to_dict().items()), speculation)
        earlier = self._paces.get(key)
        plan = closed_plan(min(point.concurrency or len(prompts), len(prompts)))
        for _ in range(warmup.MOST_PASSES):
            flights = self._encode(warmup.with_nonces(prompts), shorter)
            report = await driver.run(plan, flights)
            warmup.check(flights, self._base_url)
            warm = warmup.result_of(flights, expected, report.cpu_share)
            if warm.agrees_with(earlier):
                break
            earlier = warm.pace_s
        if warm.pace_s is not None:
            self._paces[key] = warm.pace_s
        return warm

    def _arrivals(self, point: OperatingPoint) -> ArrivalProcess | None:
        """Read the arrivals of an open loop, before the warm-up to fail early."""
        if not point.is_open:
            return None
        try:
            return arrivals_of(point, self._workload, self._seed)
        except ArrivalTraceError as error:
            raise load_error("bad_trace", "study", str(error)) from error

    async def _window(
        self, driver: Driver, plan: Plan, flights: list[InFlightRequest], warm: WarmupResult
    ) -> tuple[Window, tuple[str, ...]]:
        processes = self._processes or max(self._needed_processes, processes_for(warm.cpu_share))

        async def before_start() -> None:
            await driver.client.flush_cache(timeout_s=self._flush_timeout_s)
            # Before the ramp, while the server is idle: the watches' requests disturb no stream.
            for watch in self._watches:
                watch.begin()

        reports = await driver.run_window(plan, flights, processes, before_start)
        window = window_of(plan, flights, reports)
        watched = tuple(reason for watch in self._watches for reason in watch.end())
        self._needed_processes = processes_for(window.client_cpu_share, processes)
        return window, watched

    async def _wait_until_idle(
        self, client: LoadClient, flights: Sequence[InFlightRequest]
    ) -> None:
        """Abort the remaining requests at the server if some failed, and wait until it is idle.

        Raises:
            RunnerError: All requests timed out, or the server does not become idle.
        """
        if all(flight.error is None for flight in flights):
            return
        if all(flight.timed_out for flight in flights):
            tokens = sum(flight.tokens for flight in flights)
            message = (
                f"all {len(flights)} requests timed out after {self._request_timeout_s:g} s, with "
                f"{tokens} tokens in total: the server hangs under load, or the time-out is too "
                "short"
            )
            raise load_error("stall", "configuration", message)
        await client.abort_all()
        await client.flush_cache(timeout_s=self._flush_timeout_s)

    def _encode(self, prompts: Sequence[Prompt], workload: Workload) -> list[InFlightRequest]:
        """Encode all requests before the load starts, so that the loop only sends bytes."""
        return [InFlightRequest(p.id, self._endpoint.body(p, workload)) for p in prompts]
