"""Session of one SGLang server process: measure, switch, and stop with proof."""

from __future__ import annotations

import time
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import httpx

from results.records import Failure
from runners.base import RunnerError, Session
from runners.load.prompts.prompts import NotEnoughPromptsError, PromptFileError
from runners.plugin.cycle_times import slower_than_clock
from runners.plugin.protocol import (
    BUSY,
    DRAFT_TOKENS_ARGUMENT,
    STEPS_ARGUMENT,
    TOKEN_ARGUMENT,
    token_of,
)
from runners.plugin.status import described, log_size, prove_switched, status_of
from runners.process.ports import answers, is_free, listens
from runners.server_info import http_client

if TYPE_CHECKING:
    from collections.abc import Callable

    from results.records import CycleTimes, Measurement, Resolved
    from runners.load.generator import LoadGenerator
    from runners.sglang.failures import PostMortem
    from search_spaces.configuration import Setting
    from search_spaces.workload import OperatingPoint


_CANARY_TOKENS = 8
_CANARY_TEXT = "Readiness check {mark}: count from one to eight."

HEALTH_TIMEOUT_S = 25.0
"""Longer than SGLang's own 20 s for a scheduler that does not answer (0.5.23)."""


class ServerClient:
    """Blocking HTTP calls outside a window: health, first generation, hot switch."""

    def __init__(self, base_url: str) -> None:
        """Make a client without connecting.

        Raises:
            ValueError: The address is not valid.
        """
        self.base_url = base_url
        try:
            self._http = http_client(
                base_url=base_url,
                timeout=HEALTH_TIMEOUT_S,
                # One connection per call: uvicorn closes an idle connection after 5 s, and a call
                # on that connection would look like a crash.
                limits=httpx.Limits(max_keepalive_connections=0),
            )
        except httpx.InvalidURL as error:
            raise ValueError(f"{base_url!r} is not an HTTP address: {error}") from error

    def healthy(self, timeout_s: float) -> bool:
        """Whether `/health` answers 200. A proxy may answer, so `generates` must follow."""
        try:
            return self._http.get("/health", timeout=timeout_s).status_code == httpx.codes.OK
        except httpx.HTTPError:
            return False

    def generates(self, mark: str, timeout_s: float) -> str | None:
        """Send one real request with a prompt of this launch.

        Returns:
            The fault of the answer; `None` if the answer is complete.
        """
        body = {
            "text": _CANARY_TEXT.format(mark=mark),
            "sampling_params": {
                "temperature": 0,
                "max_new_tokens": _CANARY_TOKENS,
                "ignore_eos": True,
            },
        }
        try:
            response = self._http.post("/generate", json=body, timeout=timeout_s)
            if response.status_code != httpx.codes.OK:
                return f"/generate answers HTTP {response.status_code}: {response.text[:200]}"
            tokens = response.json()["meta_info"]["completion_tokens"]
        except httpx.HTTPError as error:
            return f"/generate: {type(error).__name__} {error}"
        except (ValueError, KeyError, TypeError) as error:
            return f"/generate gave an answer that is not SGLang's ({type(error).__name__} {error})"
        if tokens != _CANARY_TOKENS:
            return f"/generate gave {tokens} tokens instead of {_CANARY_TOKENS}"
        return None

    def model_names(self) -> tuple[str, ...]:
        """Model names of `/v1/models`; empty without an answer."""
        try:
            listed: list[dict[str, Any]] = self._http.get("/v1/models").json()["data"]
            return tuple(str(model["id"]) for model in listed)
        except (httpx.HTTPError, ValueError, KeyError, TypeError):
            return ()

    def switch(self, setting: Setting, token: int) -> str | None:
        """Request another setting; return the server's refusal, or `None`.

        Args:
            setting: New setting; its steps are not `None`.
            token: Token of the launch (`runners.plugin.protocol.token_of`).
        """
        arguments = {
            STEPS_ARGUMENT: setting.num_steps,
            DRAFT_TOKENS_ARGUMENT: setting.num_draft_tokens,
            TOKEN_ARGUMENT: token,
        }
        body = {"server_args": arguments}
        try:
            response = self._http.post("/set_internal_state", json=body)
        except httpx.HTTPError as error:
            return f"{type(error).__name__} {error}"
        if response.status_code != httpx.codes.OK:
            return f"HTTP {response.status_code}: {response.text[:200]}"
        return None  # `[true]` is no proof of a switch; the status is

    def close(self) -> None:
        """Close the connections. Idempotent."""
        self._http.close()


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
        client: ServerClient,
        post_mortem: PostMortem,
        resolved: Resolved,
        load: LoadGenerator,
        *,
        read_back: Callable[[], Resolved],
        phases: tuple[tuple[str, float], ...],
        sees_processes: bool,
        host: str,
        cycle_of: Callable[[Measurement], CycleTimes | None],
    ) -> None:
        self.resolved = resolved
        self.phases = phases
        self.ready_s = sum(seconds for _, seconds in phases)
        self._process = post_mortem.process
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
        message = f"the server did not switch to {described(setting)}: {refused}"
        failure = Failure("switch_refused", "load", "configuration", message)
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
        self._process.stop(GRACE_S)
        prove_port_free(self._process.identity.port, self._host)


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
