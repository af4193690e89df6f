"""A running server process: measured, switched, and stopped with proof."""

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
"""Real seconds for the kernel to close the sockets of processes that are gone."""

_IDLE_S = 10.0
"""Real seconds for a server to come to rest before a switch."""

_POLL_S = 0.1


class ProcessSession(Session):
    """A session whose server is a process tree of this tuner."""

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
        """See `SwitchableSession.apply`; what the server then says it runs is the proof."""
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
            f"the server did not take {described(setting)}: {refused}",
        )
        raise self._post_mortem.explain(RunnerError(failure), "load")

    def _switch(self, setting: Setting) -> str | None:
        """Switches; what is wrong with it, or `None` once it is proven on every rank.

        Raises:
            RunnerError: What the server runs could not be read back.
        """
        before = status_of(self.resolved.server_info)
        if before is None or before.in_force is None:
            return "it was not started to be switched"
        log = self._post_mortem.log
        size = log_size(log)
        deadline = time.monotonic() + _IDLE_S
        while True:
            refused = self._client.switch(setting, token_of(self._process.identity.mark))
            if refused is not None:
                return refused
            self.resolved = self._read_back()
            after = status_of(self.resolved.server_info)
            # The last answer of a window may be out before the scheduler has let go of it.
            if after is None or after.refused != BUSY or time.monotonic() >= deadline:
                break
            time.sleep(_POLL_S)
        if after is None:
            return "it does not say any more what is in force"
        if after.in_force != setting:
            return f"it still runs {after.in_force}" + (
                f": {after.refused}" if after.refused else ""
            )
        if after.switches != before.switches + 1:
            return f"it was switched {after.switches - before.switches} times, not once"
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
        """Why the figures are another server's: ours lives, but it is not ours that listens.

        The process that was started is asked for by its pid and its start; what listens on its
        port must be of its launch. A crashed server that something restarts answers as before.
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
    """Stops the server; returns only when none of its processes lives.

    Raises:
        RunnerError: Something is left: a fault of the host, which the next launch would meet.
    """
    try:
        left = process.stop(grace_s)
    except BaseException:
        # A second interrupt while the server is given time to end: then it gets none.
        process.kill()
        raise
    if left:
        raise process_left(left, process.identity.mark)


def prove_port_free(port: int, host: str) -> None:
    """Returns when nothing listens on `port`, here and at `host`.

    Raises:
        RunnerError: Something does, although the server that had it is gone.
    """
    deadline = time.monotonic() + _PORT_FREE_S
    while not is_free(port) or answers(host, port):
        if time.monotonic() >= deadline:
            message = (
                f"port {port} is still in use although the server was stopped (behind a command "
                "prefix its processes may outlive the prefix): end what listens there"
            )
            raise RunnerError(Failure("port_left", "stop", "host", message))
        time.sleep(_POLL_S)
