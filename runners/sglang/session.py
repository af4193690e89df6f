"""Session of one SGLang server process: measure, switch, and stop with proof."""

from __future__ import annotations

import time
from dataclasses import replace
from typing import TYPE_CHECKING

from results.records import Failure
from runners.base import RunnerError, Session
from runners.load.prompts.prompts import NotEnoughPromptsError, PromptFileError
from runners.plugin.cycle_times import slower_than_clock
from runners.plugin.protocol import BUSY, token_of
from runners.plugin.status import described, log_size, prove_switched, status_of
from runners.process.ports import answers, is_free, listens
from runners.process.processes import process_left

if TYPE_CHECKING:
    from collections.abc import Callable

    from results.records import CycleTimes, Measurement, Resolved
    from runners.load.generator import LoadGenerator
    from runners.process.processes import ServerProcess
    from runners.sglang.post_mortem import PostMortem
    from runners.sglang.server_client import ServerClient
    from search_spaces.configuration import Setting
    from search_spaces.workload import OperatingPoint

GRACE_S = 20.0
"""From SIGTERM to SIGKILL. An idle server ends in under 7 s (0.5.23)."""

_PORT_FREE_S = 5.0
"""Real seconds until the kernel has closed the sockets of ended processes."""

_IDLE_S = 10.0
"""Real seconds until a server is idle before a switch."""

_POLL_S = 0.1


class ProcessSession(Session):
    """Session of a process tree that this tuner started."""

    def __init__(
        self,
        process: ServerProcess,
        post_mortem: PostMortem,
        client: ServerClient,
        resolved: Resolved,
        load: LoadGenerator,
        *,
        read_back: Callable[[], Resolved],
        phases: tuple[tuple[str, float], ...],
        ready_s: float,
        sees_processes: bool,
        host: str,
        cycle_of: Callable[[Measurement], CycleTimes | None],
    ) -> None:
        self.resolved = resolved
        self.phases = phases
        self.ready_s = ready_s
        self._process = process
        self._post_mortem = post_mortem
        self._client = client
        self._load = load
        self._read_back = read_back
        self._sees_processes = sees_processes
        self._host = host
        self._cycle_of = cycle_of
        self._closed = False

    def apply(self, setting: Setting) -> Resolved:
        """See `SwitchableSession.apply`; the reported configuration is the proof."""
        if setting.num_steps is None or setting == self.resolved.configuration.setting:
            return self.resolved
        try:
            refused = self._switch(setting)
        except RunnerError as error:
            raise self._post_mortem.explain(error, "load") from error
        if refused is None:
            return self.resolved
        failure = Failure(
            "switch_refused",
            "load",
            "configuration",
            f"the server did not switch to {described(setting)}: {refused}",
        )
        raise self._post_mortem.explain(RunnerError(failure), "load")

    def _switch(self, setting: Setting) -> str | None:
        """Switch, and return the fault, or `None` once every rank has proved the switch.

        Raises:
            RunnerError: The configuration could not be read back.
        """
        before = status_of(self.resolved.server_info)
        if before is None or before.in_force is None:
            return "the server was not launched for hot switching"
        log = self._post_mortem.log
        size = log_size(log)
        deadline = time.monotonic() + _IDLE_S
        while True:
            refused = self._client.switch(setting, token_of(self._process.identity.mark))
            if refused is not None:
                return refused
            self.resolved = self._read_back()
            after = status_of(self.resolved.server_info)
            # The scheduler may release a request shortly after its last answer.
            if after is None or after.refused != BUSY or time.monotonic() >= deadline:
                break
            time.sleep(_POLL_S)
        if after is None:
            return "the server no longer reports its setting"
        if after.in_force != setting:
            return f"the server still runs {after.in_force}" + (
                f": {after.refused}" if after.refused else ""
            )
        if after.switches != before.switches + 1:
            return f"the server switched {after.switches - before.switches} times instead of once"
        return prove_switched(log, size, before.in_force, setting)

    def measure(self, point: OperatingPoint) -> Measurement:
        """See `Session.measure`."""
        try:
            measurement = self._load.measure(
                point,
                speculation=self.resolved.configuration.speculation,
                server_info=self.resolved.server_info,
            )
        except RunnerError as error:
            raise self._post_mortem.explain(error, "load") from error
        except NotEnoughPromptsError as error:
            raise RunnerError(Failure("too_few_prompts", "load", "study", str(error))) from error
        except PromptFileError as error:
            raise RunnerError(Failure("bad_prompts", "load", "study", str(error))) from error
        if (failure := self._post_mortem.failure("load")) is not None:
            raise RunnerError(failure)
        measurement = replace(measurement, cycle=self._cycle_of(measurement))
        found = (slower_than_clock(measurement, self.resolved.time_scale), self._impostor())
        reasons = (reason for reason in found if reason is not None)
        return replace(measurement, invalid=(*measurement.invalid, *reasons))

    def _impostor(self) -> str | None:
        """Fault of a window that another server answered.

        A process of this launch must listen on its port. A crashed server that something restarts
        would answer as before.
        """
        if not self._sees_processes:
            return None
        port = self._process.identity.port
        if listens(self._process.members(), port):
            return None
        return f"server_not_ours: no process of this launch listens on port {port} after the window"

    def close(self) -> None:
        """See `Session.close`."""
        if self._closed:
            return
        self._closed = True
        self._client.close()
        stop_with_proof(self._process, GRACE_S)
        prove_port_free(self._process.identity.port, self._host)


def stop_with_proof(process: ServerProcess, grace_s: float) -> None:
    """Stop the server and return once none of its processes lives.

    Raises:
        RunnerError: A process survived (a fault of the host).
    """
    try:
        left = process.stop(grace_s)
    except BaseException:
        # A second interrupt ends the grace period.
        process.kill()
        raise
    if left:
        raise process_left(left, process.identity.mark)


def prove_port_free(port: int, host: str) -> None:
    """Return once nothing listens on `port`, here and at `host`.

    Raises:
        RunnerError: A process still listens there after the server has ended.
    """
    deadline = time.monotonic() + _PORT_FREE_S
    while not is_free(port) or answers(host, port):
        if time.monotonic() >= deadline:
            message = (
                f"port {port} is still in use after the server stopped; end the process that "
                "listens there (a server may outlive its command prefix)"
            )
            raise RunnerError(Failure("port_left", "stop", "host", message))
        time.sleep(_POLL_S)
