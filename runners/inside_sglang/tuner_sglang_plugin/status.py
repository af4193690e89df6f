"""What the plugin says of itself: the ready line of each rank, and `/server_info`."""

from collections.abc import Sequence
from typing import Any

from .hooks import Point
from .saying import say

PROTOCOL = 1
"""Of `/server_info`'s `tuner_plugin`, of the log lines, and of the switching request."""

VERSION = "1.0"
"""Of the plugin; its dist-info has the same."""


class Status:
    """Shows the capabilities to whoever asks the server.

    It is a capability like the others, and always there.
    """

    name = "status"

    def __init__(self, sglang_version: str, capabilities: Sequence[Any]) -> None:
        self._sglang_version = sglang_version
        self._capabilities = capabilities

    @property
    def points(self) -> "dict[str, tuple[Point, ...]]":
        """The end of a scheduler's start, and its answer to `/server_info`."""
        scheduler = "sglang.srt.managers.scheduler.Scheduler"
        controller = "sglang.srt.managers.scheduler_components.internal_state"
        started_17 = (
            "(self, server_args, port_args, gpu_id, tp_rank, moe_ep_rank, pp_rank, attn_cp_rank,"
            " moe_dp_rank, dp_rank)"
        )
        return {
            "0.5.17": (
                Point(f"{scheduler}.__init__", started_17, "after", self.announce),
                Point(f"{scheduler}.get_internal_state", "(self, recv_req)", "after", self.show),
            ),
            "0.5.23": (
                Point(
                    f"{scheduler}.__init__",
                    "(self, server_args, port_args)",
                    "after",
                    self.announce,
                ),
                Point(
                    f"{controller}.SchedulerInternalStateController.get_internal_state",
                    "(self, recv_req)",
                    "after",
                    self.show,
                ),
            ),
        }

    def announce(self, _result: None, scheduler: Any, *_: Any, **__: Any) -> None:
        """After `Scheduler.__init__`: the server is built, and serves nothing before this."""
        told = {"hot_switch": "off", "clock": "off"}
        told |= {one.name: one.ready(scheduler) for one in self._capabilities}
        rank, size = ranks()
        words = " ".join(f"{name}={value}" for name, value in told.items())
        say(f"ready rank={rank}/{size} sglang={self._sglang_version} {words}")

    def ready(self, scheduler: Any) -> str:  # noqa: ARG002 - the shape of a capability
        """It has no condition of its own."""
        return "on"

    def status(self, scheduler: Any) -> dict[str, Any]:
        """The whole of `tuner_plugin`."""
        shown = {one.name: one.status(scheduler) for one in self._capabilities}
        told = {"protocol": PROTOCOL, "plugin": VERSION, "hot_switch": None, "clock": None}
        return told | shown

    def show(self, result: Any, holder: Any, *_: Any, **__: Any) -> None:
        """After `get_internal_state`: adds ours to what the scheduler answers."""
        result.internal_state["tuner_plugin"] = self.status(scheduler_of(holder))


def scheduler_of(holder: Any) -> Any:
    """The scheduler (0.5.17), or the one that its controller holds (0.5.23)."""
    return getattr(holder, "scheduler", holder)


def ranks() -> tuple[int, int]:
    """This process among those that serve one model: its rank, from 0, and how many there are."""
    import torch.distributed as dist  # noqa: PLC0415 - the server's; in schedulers only

    if not dist.is_initialized():
        return 0, 1
    return dist.get_rank(), dist.get_world_size()
