"""The load generator: warm-up, flush, ramp, window, drain, and back to rest."""

from __future__ import annotations

import asyncio
import dataclasses
from typing import TYPE_CHECKING, Any

from runners.load.http.client import ClientSettings, load_error
from runners.load.http.stream import GenerateEndpoint
from runners.load.prompts.rendering import IdentityRenderer
from runners.load.prompts.selection import select_prompts
from runners.load.schedule import warmup
from runners.load.schedule.arrivals import ArrivalTraceError, arrivals_of
from runners.load.schedule.driver import Driver
from runners.load.schedule.plan import closed_plan, open_plan
from runners.load.schedule.processes import processes_for
from runners.load.schedule.warmup import Warmth
from runners.load.window.in_flight import InFlightRequest
from runners.load.window.window import measurement_of

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from results.records import Measurement
    from runners.load.http.client import LoadClient
    from runners.load.http.endpoint import Endpoint
    from runners.load.prompts.prompts import Prompt, PromptSource
    from runners.load.prompts.rendering import Renderer
    from runners.load.schedule.arrivals import ArrivalProcess
    from runners.load.schedule.plan import Plan
    from runners.load.window.watches import WindowWatch
    from runners.load.window.window import Window
    from search_spaces.configuration import Speculation
    from search_spaces.workload import OperatingPoint, Workload

REQUEST_TIMEOUT_S = 600.0
STALL_TIMEOUT_S = 120.0
FLUSH_TIMEOUT_S = 15.0

_OPEN_ARRIVAL = (("x-tuner-arrival", "open"),)
"""Tells a simulated server that a short pause before a request is no turn-around of a client."""


class LoadGenerator:
    """Loads one server and measures it, in closed or open loops. Owned by one thread.

    Time-outs are real seconds, whatever the server's time scale; everything measured is in the
    server's own time. One generator serves one launch: what it has seen warm it warms up less.
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
        """Connects to nothing yet.

        Args:
            base_url: `http://host:port`.
            workload: Output length, sampling, warm-up.
            prompts: Where prompts come from.
            renderer: Applies the chat template; prompts are sent as they are without one.
            seed: Selects the prompts and the arrivals: the same seed gives every configuration
                the same load.
            time_scale: Simulated seconds per real second.
            simulated: Whether the server is a simulation.
            request_timeout_s: Longest that one request may take; the workload's own goes before.
            stall_timeout_s: Longest silence of all requests together before it is a hang.
            flush_timeout_s: Longest that the server may take to come to rest.
            api_key: Sent as bearer token where given.
            endpoint: What the server speaks; SGLang's `/generate` if not given.
            watches: What else is looked at while a window runs.
            processes: Client processes; chosen by the CPU that the client needs if not given.
            burst: Whether all lanes of a closed loop start at once with whole answers, as other
                load generators do; the window opens with them.
            whole_run: Whether the figures cover the run from the first send to the last token.
                There is no ramp then: a closed loop starts as with `burst`.
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
        """Of the last warm-up at each point and setting."""
        self._needed = 1
        """Client processes that a window of this launch turned out to need."""

    def measure(
        self,
        point: OperatingPoint,
        *,
        speculation: Speculation,
        server_info: Mapping[str, Any] | None = None,
    ) -> Measurement:
        """Measures one window at `point`, and leaves the server idle.

        Ctrl-C aborts what is in flight, also at the server, before `KeyboardInterrupt` leaves.

        Args:
            point: The operating point.
            speculation: What the server says it runs; the acceptance is checked against it.
            server_info: What it says of itself: between which steps it switches, and how many
                requests it runs at once.

        Raises:
            RunnerError: The server died, hung, refuses the load or did not come to rest; or the
                point's trace cannot be used.
            NotEnoughPromptsError: The prompt source is too small for the point.
        """
        with asyncio.Runner() as runner:
            return runner.run(
                self.measure_async(point, speculation=speculation, server_info=server_info)
            )

    async def measure_async(
        self,
        point: OperatingPoint,
        *,
        speculation: Speculation,
        server_info: Mapping[str, Any] | None = None,
    ) -> Measurement:
        """`measure`, for callers that have an event loop."""
        arrivals = self._arrivals(point)
        selected = select_prompts(
            self._workload,
            point,
            self._prompts,
            self._renderer,
            self._seed,
            ramp=self._has_ramp,
        )
        async with Driver(self._client_settings(point), self._stall_timeout_s) as driver:
            try:
                warm = await self._warm_up(driver, selected.warmup, point, speculation)
                if arrivals is None:
                    lanes = min(point.concurrency or 1, len(selected.window))
                    plan = closed_plan(lanes, ramp=bool(selected.ramp))
                else:
                    ramp_s = None if self._whole_run else warm.request_s
                    plan = open_plan(arrivals, ramp_s, self._time_scale)
                flights = self._flights((*selected.ramp, *selected.window), self._workload)
                window, watched = await self._window(driver, plan, flights, warm)
                await self._settle(driver.client, flights)
            except BaseException:
                # Also for an interrupt: the server must not go on generating for nobody.
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

    def _client_settings(self, point: OperatingPoint) -> ClientSettings:
        return ClientSettings(
            base_url=self._base_url,
            connections=point.concurrency or self._workload.requests_at(point),
            request_timeout_s=self._request_timeout_s,
            api_key=self._api_key,
            endpoint=self._endpoint,
            headers=_OPEN_ARRIVAL if self._simulated and point.is_open else (),
        )

    async def _warm_up(
        self,
        driver: Driver,
        prompts: Sequence[Prompt],
        point: OperatingPoint,
        speculation: Speculation,
    ) -> Warmth:
        """Passes over the warm-up's prompts, each with new nonces, until two passes agree.

        One pass is enough where it agrees with what an earlier measurement of this launch saw.
        """
        warm = Warmth()
        if not prompts:
            return warm
        tokens = min(self._workload.output_tokens, warmup.LONGEST_ANSWER)
        shorter = dataclasses.replace(self._workload, output_tokens=tokens)
        # Answers that end by themselves may be far shorter than their limit: as long a ramp of an
        # open loop would take most of its requests.
        expected = tokens if self._workload.natural_length else self._workload.output_tokens
        key = (tuple(point.to_dict().items()), speculation)
        earlier = self._paces.get(key)
        plan = closed_plan(min(point.concurrency or len(prompts), len(prompts)))
        for _ in range(warmup.MOST_PASSES):
            flights = self._flights(warmup.with_nonces(prompts), shorter)
            report = await driver.run(plan, flights)
            warmup.check(flights, self._base_url)
            warm = warmup.warmth_of(flights, expected, report.cpu_share)
            if warmup.agree(earlier, warm.pace_s):
                break
            earlier = warm.pace_s
        if warm.pace_s is not None:
            self._paces[key] = warm.pace_s
        return warm

    def _arrivals(self, point: OperatingPoint) -> ArrivalProcess | None:
        """Those of an open loop. Read first: a bad trace costs no warm-up."""
        if not point.is_open:
            return None
        try:
            return arrivals_of(point, self._workload, self._seed)
        except ArrivalTraceError as error:
            raise load_error("bad_trace", "study", str(error)) from error

    async def _window(
        self, driver: Driver, plan: Plan, flights: list[InFlightRequest], warm: Warmth
    ) -> tuple[Window, tuple[str, ...]]:
        processes = self._processes or max(self._needed, processes_for(warm.cpu_share))

        async def come_to_rest() -> None:
            await driver.client.flush_cache(timeout_s=self._flush_timeout_s)
            # Before the ramp, while the server idles: what a watch reads disturbs no stream.
            for watch in self._watches:
                watch.begin()

        window = await driver.run_window(plan, flights, processes, come_to_rest)
        watched = tuple(reason for watch in self._watches for reason in watch.end())
        self._needed = processes_for(window.client_cpu_share, processes)
        return window, watched

    async def _settle(self, client: LoadClient, flights: Sequence[InFlightRequest]) -> None:
        """Brings a server to rest whose requests did not all end well.

        Raises:
            RunnerError: Nothing at all was answered, or it does not come to rest.
        """
        if all(flight.error is None for flight in flights):
            return
        if all(flight.timed_out for flight in flights):
            tokens = sum(flight.tokens for flight in flights)
            message = (
                f"all {len(flights)} requests timed out after {self._request_timeout_s:g} s, with "
                f"{tokens} tokens in all: the server hangs under load, or the time-out is too "
                "short for it"
            )
            raise load_error("stall", "configuration", message)
        await client.abort_all()
        await client.flush_cache(timeout_s=self._flush_timeout_s)

    def _flights(self, prompts: Sequence[Prompt], workload: Workload) -> list[InFlightRequest]:
        # Encoded before the window opens: the loop itself has only to send.
        return [InFlightRequest(p.id, self._endpoint.body(p, workload)) for p in prompts]
