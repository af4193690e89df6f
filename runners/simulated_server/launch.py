"""One launch of the simulated server, from its phases to its end."""

from __future__ import annotations

import asyncio
import gc
import os
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

import uvicorn

from runners.simulated_server import deaths
from runners.simulated_server.arrival import ArrivalProtocol
from runners.simulated_server.cost import CostModel
from runners.simulated_server.engine import Engine
from runners.simulated_server.log import ServerLog, uvicorn_log_config
from runners.simulated_server.noise import NoiseSource
from runners.simulated_server.precise_loop import new_event_loop
from runners.simulated_server.profile import Misbehaviour, Profile, holds
from runners.simulated_server.routes import build_application
from runners.simulated_server.startup import Startup
from runners.simulated_server.state import SimulatedServer

if TYPE_CHECKING:
    import socket
    from collections.abc import AsyncIterator, Sequence

    from starlette.applications import Starlette

    from runners.simulated_server.environment import SimulationEnvironment
    from runners.simulated_server.resolution import ResolvedFlags

_GRACE_S = 5


class Launch:
    """One launch.

    Args:
        argv: The flags as they were given.
        flags: What the server runs.
        simulation: What the environment says about the simulation.
        profile: The machine.
        log: The log.
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
        self._facts = _facts(flags)
        self._misbehaviour = self._trouble()

    def run(self) -> int:
        """Starts, serves, and returns the exit status."""
        times = Startup(
            profile=self._profile,
            flags=self._flags,
            log=self._log,
            time_scale=self._simulation.time_scale,
            switchable=len(self._simulation.switchable_steps),
            misbehaviour=self._misbehaviour,
            began=self._began,
        ).run()
        with asyncio.Runner(loop_factory=new_event_loop) as runner:
            return runner.run(self._serve(times))

    async def _serve(self, times: dict[str, Any]) -> int:
        server = self._build(times)
        listening = asyncio.Event()

        @asynccontextmanager
        async def lifespan(_: Starlette) -> AsyncIterator[None]:
            tasks = [
                asyncio.create_task(server.engine.run()),
                asyncio.create_task(self._warm_up(server, listening)),
            ]
            yield
            if not listening.is_set():
                # Its warm-up reaches whoever holds the port, so SGLang says this all the same.
                self._log.main("The server is fired up and ready to roll!")
            for task in tasks:
                task.cancel()

        http = _HttpServer(
            uvicorn.Config(
                build_application(server, lifespan),
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
        )
        try:
            await http.serve()
        except SystemExit:
            # uvicorn could not bind the port, and has said so.
            pid = os.getpid()
            self._log.main(
                f"kill_process_tree called: parent_pid={pid}, include_parent=False, pid={pid}"
            )
            return deaths.PORT_TAKEN
        return 0

    def _build(self, times: dict[str, Any]) -> SimulatedServer:
        simulation = self._simulation
        trouble = self._misbehaviour
        serving = trouble if trouble is not None and trouble.phase == "serving" else None
        engine = Engine(
            self._profile,
            CostModel(self._profile, self._facts),
            self._flags,
            NoiseSource(self._profile.noise, simulation.seed, self._launch_name()),
            time_scale=simulation.time_scale,
            log=self._log,
            crash=lambda: deaths.scheduler_crashed(self._log, simulation.time_scale),
            misbehaviour=serving,
            prefix_cache=not self._flags.values.get("disable_radix_cache"),
        )
        return SimulatedServer(
            argv=self._argv,
            flags=self._flags,
            simulation=simulation,
            profile=self._profile,
            engine=engine,
            log=self._log,
            misbehaviour=trouble,
            startup_times=times,
        )

    async def _warm_up(self, server: SimulatedServer, listening: asyncio.Event) -> None:
        scale = self._simulation.time_scale
        await listening.wait()
        trouble = self._misbehaviour
        if trouble is not None and trouble.phase == "warmup":
            if trouble.kind == "hang":
                await asyncio.Event().wait()
            deaths.out_of_memory(self._log, "warmup")
        await asyncio.sleep(self._profile.startup.warmup_s / scale)
        if not self._flags.tree_fits:
            deaths.tree_too_large(self._log, scale)
        gc.collect()
        gc.freeze()  # no pauses from what the start-up left
        server.ready = True
        self._log.main("The server is fired up and ready to roll!")

    def _launch_name(self) -> str:
        """What the launch's noise is drawn from: the launch, and what it runs."""
        shown = {
            name: str(value)
            for name, value in sorted(self._facts.items())
            if name.startswith(("speculative_", "NCCL_"))
        }
        return f"{self._simulation.launch} {shown}"

    def _trouble(self) -> Misbehaviour | None:
        every = (*self._simulation.misbehave, *self._profile.misbehave)
        return next((m for m in every if holds(m.when, self._facts)), None)


class _HttpServer(uvicorn.Server):
    """Says when it listens."""

    def __init__(self, config: uvicorn.Config, listening: asyncio.Event) -> None:
        super().__init__(config)
        self._listening = listening

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Binds the port."""
        await super().startup(sockets)
        if self.started:
            self._listening.set()


def _facts(flags: ResolvedFlags) -> dict[str, Any]:
    """What a profile's conditions may ask about: environment, flags, and short names."""
    facts: dict[str, Any] = {**os.environ, **flags.values}
    if flags.algorithm is not None:
        facts |= {
            "algorithm": flags.algorithm,
            "num_steps": flags.num_steps,
            "topk": flags.topk,
            "num_draft_tokens": flags.num_draft_tokens,
        }
    return facts
