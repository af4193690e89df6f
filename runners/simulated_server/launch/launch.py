"""One launch of the simulated server, from its start-up to its exit status."""

from __future__ import annotations

import asyncio
import gc
import os
import signal
import traceback
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

import uvicorn
from uvicorn.protocols.http.h11_impl import H11Protocol

from runners.simulated_server.api.jobs import ARRIVED, CONNECTION
from runners.simulated_server.api.metrics import new_observations
from runners.simulated_server.api.routes import build_application
from runners.simulated_server.api.state import SimulatedServer
from runners.simulated_server.engine.clock import new_event_loop
from runners.simulated_server.engine.cost import CostModel
from runners.simulated_server.engine.engine import Engine
from runners.simulated_server.engine.plugin import simulated_plugin
from runners.simulated_server.engine.profile import NoiseSource
from runners.simulated_server.faults import crashes
from runners.simulated_server.faults.misbehaviour import holds
from runners.simulated_server.faults.process import faults_of_process, leave_orphan
from runners.simulated_server.faults.serving import FaultyEngine, FaultyReplies, Gate
from runners.simulated_server.launch.log import ServerLog, uvicorn_log_config
from runners.simulated_server.launch.startup import Startup, count_warm_up

if TYPE_CHECKING:
    import socket
    from collections.abc import AsyncIterator, Sequence
    from types import FrameType

    from starlette.applications import Starlette

    from runners.simulated_server.engine.profile import Profile
    from runners.simulated_server.faults.misbehaviour import Misbehaviour
    from runners.simulated_server.launch.environment import SimulationEnvironment
    from runners.simulated_server.launch.flags import ResolvedFlags


_POLL_S = 5.0
"""Seconds between two checks that all requests have ended (SGLang's `sigterm_watchdog`)."""


class ArrivalProtocol(H11Protocol):
    """uvicorn's HTTP protocol, which notes arrival time and connection for the request's task.

    The time to read a request therefore does not delay its simulated arrival.
    """

    def data_received(self, data: bytes) -> None:
        ARRIVED.set(self.loop.time())
        CONNECTION.set(self.transport)
        super().data_received(data)


class HttpServer(uvicorn.Server):
    """HTTP server that drains its requests at SIGTERM, as SGLang does.

    Args:
        listening: Set after the port is bound.
    """

    def __init__(
        self,
        config: uvicorn.Config,
        listening: asyncio.Event,
        server: SimulatedServer,
        faults: Sequence[Misbehaviour],
    ) -> None:
        super().__init__(config)
        self._listening = listening
        self._log = server.log
        self._live = server.live
        self._poll_s = _POLL_S / server.simulation.time_scale
        self._ignores_sigterm = any(fault.kind == "ignore_sigterm" for fault in faults)
        slow = [fault.delay_s for fault in faults if fault.kind == "slow_sigterm"]
        self._delay_s = max(slow, default=0.0) / server.simulation.time_scale

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        if self.started:
            self._listening.set()

    def listening_sockets(self) -> list[int]:
        return [sock.fileno() for server in self.servers for sock in server.sockets]

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        if sig == signal.SIGTERM:
            self._log.main(
                "SIGTERM received. signum=None frame=None. Draining requests and shutting down..."
            )
            if self._ignores_sigterm:
                return
            loop = asyncio.get_event_loop()
            loop.call_soon_threadsafe(loop.call_later, self._delay_s, self._drain)
            return
        super().handle_exit(sig, frame)

    def _drain(self) -> None:
        """End after all requests have ended; new requests are served until then (0.5.23)."""
        rids = list(self._live)
        self._log.main(
            f"Gracefully exiting... Remaining number of requests {len(rids)}. Remaining requests "
            f"remaining_rids={rids}."
        )
        if rids:
            asyncio.get_running_loop().call_later(self._poll_s, self._drain)
        else:
            super().handle_exit(signal.SIGTERM, None)


_GRACE_S = 5


class Launch:
    """One launch.

    Args:
        began: `time.monotonic()` at the start of the process.
    """

    def __init__(
        self,
        argv: Sequence[str],
        flags: ResolvedFlags,
        simulation: SimulationEnvironment,
        profile: Profile,
        log: ServerLog,
        *,
        began: float,
    ) -> None:
        self._argv = argv
        self._flags = flags
        self._simulation = simulation
        self._profile = profile
        self._log = log
        self._began = began
        self._facts = facts_of(flags)
        self._faults = faults_of_process(faults_of(simulation, profile, self._facts))
        self._plugin = simulated_plugin(
            simulation,
            flags,
            profile.sglang,
            log,
            state_s=profile.startup.switchable_step_s / simulation.time_scale,
            faults=self._faults,
        )

    def run(self) -> int:
        if (refusal := self._plugin.refusal()) is not None:
            self._log.raw(refusal)
            return crashes.PLUGIN_REFUSES
        times = Startup(
            profile=self._profile,
            flags=self._flags,
            log=self._log,
            time_scale=self._simulation.time_scale,
            plugin=self._plugin,
            faults=self._faults,
            began=self._began,
        ).run()
        with asyncio.Runner(loop_factory=new_event_loop) as runner:
            return runner.run(self._serve(times))

    async def _serve(self, times: dict[str, Any]) -> int:
        engine, faulty = self._engine()
        hooks = FaultyReplies(self._faults, faulty.dead.is_set)
        hooks.engine = engine
        server = SimulatedServer(
            argv=self._argv,
            flags=self._flags,
            simulation=self._simulation,
            profile=self._profile,
            engine=engine,
            log=self._log,
            plugin=self._plugin,
            observations=new_observations(),
            startup_times=times,
            hooks=hooks,
        )
        listening = asyncio.Event()
        http: HttpServer

        @asynccontextmanager
        async def lifespan(_: Starlette) -> AsyncIterator[None]:
            self._log.main("Using fallback token IDs for yes/no (9693/2152)")
            tasks = [
                asyncio.create_task(server.engine.run()),
                asyncio.create_task(self._warm_up(server, listening, http)),
            ]
            for task in tasks:
                task.add_done_callback(self._end_if_failed)
            yield
            if not listening.is_set():
                # SGLang's warm-up reaches the server that holds the port, so it logs this too.
                self._log.main("The server is fired up and ready to roll!")
            for task in tasks:
                task.cancel()

        application = build_application(server, lifespan)
        if self._faults:
            application = Gate(application, self._faults, engine, faulty.dead, self._crash)
        http = HttpServer(
            uvicorn.Config(
                application,
                host=str(self._flags.values.get("host", "127.0.0.1")),
                port=int(self._flags.values.get("port", 30000)),
                log_config=uvicorn_log_config(),
                loop="none",
                http=ArrivalProtocol,
                ws="none",
                lifespan="on",
                timeout_graceful_shutdown=_GRACE_S,
                backlog=2048,
            ),
            listening,
            server,
            self._faults,
        )
        try:
            await http.serve()
        except SystemExit:
            # uvicorn could not bind the port, and has logged the error.
            pid = os.getpid()
            self._log.main(
                f"kill_process_tree called: parent_pid={pid}, include_parent=False, pid={pid}"
            )
            return crashes.PORT_TAKEN
        return 0

    def _end_if_failed(self, task: asyncio.Task[None]) -> None:
        """End the server after an internal error; otherwise its clients wait forever."""
        if not task.cancelled() and (error := task.exception()) is not None:
            text = "".join(traceback.format_exception(error))
            self._log.main(f"SIMULATED SGLang: internal error of the simulation: {text}")
            os._exit(1)

    def _engine(self) -> tuple[Engine, FaultyEngine]:
        simulation, flags = self._simulation, self._flags
        scale = simulation.time_scale
        faulty = FaultyEngine(
            self._faults, self._log, scale, self._crash, crashes.watchdog_s(flags)
        )
        engine = Engine(
            self._profile,
            CostModel(self._profile, self._facts),
            flags,
            NoiseSource(self._profile.noise, simulation.seed, self._launch_name()),
            time_scale=scale,
            log=self._log,
            hooks=faulty if self._faults else None,
            plugin=self._plugin,
        )
        return engine, faulty

    def _crash(self, fault: Misbehaviour) -> None:
        crashes.crash(
            self._log,
            fault.phase or "serving",
            fault.crash_cause,
            self._flags,
            time_scale=self._simulation.time_scale,
            lingers=fault.lingers,
        )

    async def _warm_up(
        self, server: SimulatedServer, listening: asyncio.Event, http: HttpServer
    ) -> None:
        scale, flags = self._simulation.time_scale, self._flags
        await listening.wait()
        for fault in self._faults:
            if fault.kind == "orphan":
                leave_orphan(fault, http.listening_sockets())
        for fault in self._faults:
            if fault.phase == "warmup":
                if fault.kind == "hang":
                    await asyncio.Event().wait()
                self._crash(fault)
        await asyncio.sleep(self._profile.startup.warmup_s / scale)
        if not flags.tree_fits:
            crashes.crash(self._log, "warmup", "tree_too_large", flags, time_scale=scale)
        if flags.tree_too_narrow:
            crashes.crash(self._log, "warmup", "tree_too_narrow", flags, time_scale=scale)
        gc.collect()
        gc.freeze()  # no pauses for objects of the start-up
        count_warm_up(server)
        server.ready = True
        self._log.main("The server is fired up and ready to roll!")

    def _launch_name(self) -> str:
        """Return the name for the launch's noise: the launch, its speculation and NCCL values."""
        shown = {
            name: str(value)
            for name, value in sorted(self._facts.items())
            if name.startswith(("speculative_", "NCCL_"))
        }
        return f"{self._simulation.launch} {shown}"


def faults_of(
    simulation: SimulationEnvironment, profile: Profile, facts: dict[str, Any]
) -> tuple[Misbehaviour, ...]:
    """Return the faults of this configuration: the environment's faults, then the profile's."""
    every = (*simulation.misbehave, *profile.misbehave)
    return tuple(fault for fault in every if holds(fault.when, facts))


def facts_of(flags: ResolvedFlags) -> dict[str, Any]:
    """Return the facts for a profile's conditions: environment, flags, and short names."""
    facts: dict[str, Any] = {**os.environ, **flags.values}
    if flags.algorithm is not None:
        facts |= {
            "algorithm": flags.algorithm,
            "num_steps": flags.num_steps,
            "topk": flags.topk,
            "num_draft_tokens": flags.num_draft_tokens,
        }
    return facts
