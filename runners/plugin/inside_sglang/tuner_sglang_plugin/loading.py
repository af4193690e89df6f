"""Loading of the plugin in a process of SGLang.

The main process only checks what needs no SGLang modules: hooks belong into the schedulers, and
importing those modules early might change the server.
"""

from __future__ import annotations

import importlib.metadata
import multiprocessing
import os
import sys
from typing import TYPE_CHECKING, Any, Protocol

from . import CLOCK_VARIABLE, STEPS_VARIABLE
from .clock import CycleClock
from .hooks import Point, apply
from .hot_switch import HotSwitch
from .log import MAIN_VARIABLE, refuse
from .status import Status

if TYPE_CHECKING:
    from collections.abc import Sequence

SCHEDULERS = "sglang.srt.managers.scheduler"
"""Module that scheduler processes import before plugins, and detokenizers never import."""


class Hooked(Protocol):
    """A part of the plugin with points in SGLang."""

    name: str
    """Name in the log and in `/server_info`."""

    @property
    def points(self) -> dict[str, tuple[Point, ...]]:
        """Hooked and called functions by verified version of SGLang."""
        ...


class Capability(Hooked, Protocol):
    """A function of the plugin with its own conditions."""

    key: str
    """Key of its requests in `POST /set_internal_state`."""
    wish: str
    """Words for such a request in the log, before its value."""
    refused: str | None
    """Why the last request was refused."""

    def ready(self, scheduler: Any) -> str:
        """Check that it works once the server is built; return text for the ready line."""
        ...

    def change(self, scheduler: Any, asked: dict[str, Any]) -> str | None:
        """Carry out a request of the tuner; return the reason if that failed."""
        ...

    def status(self, scheduler: Any) -> Any:
        """Its part of `/server_info`."""
        ...


def load() -> None:
    """Set up the requested capabilities, or refuse."""
    if multiprocessing.parent_process() is None:
        os.environ[MAIN_VARIABLE] = str(os.getpid())
    capabilities: list[Capability] = []
    if steps := os.environ.get(STEPS_VARIABLE):
        capabilities.append(HotSwitch.from_environment(steps))
    clock = os.environ.get(CLOCK_VARIABLE) or "0"
    if clock not in {"0", "1"}:
        refuse(CycleClock.name, f"{CLOCK_VARIABLE} is {clock!r}, neither 1 nor 0")
    if clock == "1":
        capabilities.append(CycleClock())
    version = _sglang_version()
    status = Status(version, capabilities)
    hooked: list[Hooked] = [*capabilities, status]
    _check_versions(version, hooked)
    if in_scheduler():
        for one in hooked:
            apply(one.name, one.points[version])


def in_scheduler() -> bool:
    """Whether this process runs a scheduler (or starts those of data parallelism)."""
    return SCHEDULERS in sys.modules and multiprocessing.parent_process() is not None


def _sglang_version() -> str:
    """Version as in `/server_info`."""
    version = getattr(sys.modules.get("sglang"), "__version__", None)
    return str(version or importlib.metadata.version("sglang"))


def _check_versions(version: str, hooked: Sequence[Hooked]) -> None:
    for one in hooked:
        if version not in one.points:
            verified = ", ".join(one.points)
            refuse(
                one.name,
                f"this is SGLang {version}, and it was verified with {verified} only",
            )
