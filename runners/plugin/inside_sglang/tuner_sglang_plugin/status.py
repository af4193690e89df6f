"""Communication with the plugin: ready lines, `/server_info`, and requests."""

from __future__ import annotations

import hashlib
import os
import pkgutil
from typing import TYPE_CHECKING, Any

from .hooks import Point
from .log import place, refuse, say

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

PROTOCOL = 1
"""Version of the status, the log lines and the switching request."""

VERSION = "1.0"
"""Version of the plugin, equal to its dist-info."""

MARK_VARIABLE = "TUNER_LAUNCH"
"""Variable with the mark of the launch, in every process that the tuner starts."""

TOKEN_KEY = "tuner_token"  # noqa: S105 - the name of a field


def token_of(mark: str) -> int:
    """Token that a request must carry, known only to the process that launched this server.

    `POST /set_internal_state` passes numbers only; every JSON reader keeps 48 bits.
    """
    return int(hashlib.sha256(mark.encode()).hexdigest()[:12], 16)


class Status:
    """Shows the capabilities, and passes on requests of the tuner.

    It is hooked and checked like a capability, and always present.
    """

    name = "status"

    def __init__(self, sglang_version: str, capabilities: Sequence[Any]) -> None:
        self._sglang_version = sglang_version
        self._capabilities = capabilities
        mark = os.environ.get(MARK_VARIABLE)
        self._token = token_of(mark) if mark else None

    @property
    def points(self) -> dict[str, tuple[Point, ...]]:
        """The end of a scheduler's start, and its answers about its state."""
        scheduler = "sglang.srt.managers.scheduler.Scheduler"
        controller = (
            "sglang.srt.managers.scheduler_components.internal_state"
            ".SchedulerInternalStateController"
        )
        started_17 = (
            "(self, server_args, port_args, gpu_id, tp_rank, moe_ep_rank, pp_rank, attn_cp_rank,"
            " moe_dp_rank, dp_rank)"
        )

        def three(started: str, holder: str) -> tuple[Point, ...]:
            asked = "(self, recv_req)"
            return (
                Point(f"{scheduler}.__init__", started, "after", self.announce),
                Point(f"{holder}.get_internal_state", asked, "after", self.show),
                Point(f"{holder}.set_internal_state", asked, "around", self.set),
            )

        return {
            "0.5.17": three(started_17, scheduler),
            "0.5.23": three("(self, server_args, port_args)", controller),
        }

    def announce(self, _result: None, scheduler: Any, *_: Any, **__: Any) -> None:
        """After `Scheduler.__init__`: the server is built and does not serve yet."""
        told = {"hot_switch": "off", "clock": "off"}
        told |= {one.name: _ready(one, scheduler) for one in self._capabilities}
        words = " ".join(f"{name}={value}" for name, value in told.items())
        say(f"ready {place()} sglang={self._sglang_version} {words}")

    def status(self, scheduler: Any) -> dict[str, Any]:
        """The whole `tuner_plugin` object."""
        shown = {one.name: one.status(scheduler) for one in self._capabilities}
        told = {"protocol": PROTOCOL, "plugin": VERSION, "hot_switch": None, "clock": None}
        return told | shown

    def show(self, result: Any, holder: Any, *_: Any, **__: Any) -> None:
        """After `get_internal_state`: add the plugin's status to the answer."""
        result.internal_state["tuner_plugin"] = self.status(_scheduler_of(holder))

    def set(self, original: Callable[..., Any], holder: Any, request: Any) -> Any:
        """Around `set_internal_state`: handle requests to a capability, pass on others."""
        asked = dict(request.server_args)
        one = next((each for each in self._capabilities if each.key in asked), None)
        if one is None:
            return original(holder, request)
        if asked.pop(TOKEN_KEY, None) != self._token or self._token is None:
            reason = "the token is not that of the launch: another tuner started this server"
        else:
            reason = one.change(_scheduler_of(holder), dict(asked))
        one.refused = reason
        if reason:
            say(f"{place()} refused to {one.wish} {asked[one.key]}: {reason}")
        answer = pkgutil.resolve_name("sglang.srt.managers.io_struct:SetInternalStateReqOutput")
        return answer(updated=reason is None)


def _ready(capability: Any, scheduler: Any) -> str:
    """Text of a capability for the ready line; a capability that fails is refused."""
    try:
        words: str = capability.ready(scheduler)
    except Exception as error:  # noqa: BLE001 - whatever SGLang or torch raises
        refuse(capability.name, f"it is not ready: {type(error).__name__}: {error}")
    return words


def _scheduler_of(holder: Any) -> Any:
    """The scheduler (0.5.17), or the scheduler of its controller (0.5.23)."""
    return getattr(holder, "scheduler", holder)
