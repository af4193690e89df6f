"""What is watched beside the requests of a window: the server's identity and clock, its log."""

from __future__ import annotations

import abc
import json
import re
from typing import TYPE_CHECKING, Any, Final

from runners.base import RunnerError
from runners.sglang.facts import read_server_info, simulated_of

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

WATCH_CODES: Final = (
    "compiled",
    "server_restarted",
    "server_not_ours",
    "server_unreadable",
    "setting_not_in_force",
    "simulation_behind",
    "slower_than_clock",
)
"""Codes of the reasons that watches, and the clocks of servers, give."""

_READ_S = 10.0
"""An idle server answers in milliseconds; one that does not is no longer idle, or hangs."""

_MOST_BYTES = 8 << 20

_BEHIND = 0.1
_BEHIND_REAL_S = 0.1
"""Share of its busy time, and real seconds, from which on a simulated server itself says that it
fell behind its clock."""

# What is unique to one start comes first. `startup_time` is a table of measured seconds (0.5.17 and
# later), `random_seed` is drawn at every start unless it is given.
_IDENTITY: Final = (
    "startup_time",
    "random_seed",
    "served_model_name",
    "model_path",
    "version",
    "port",
)

_COMPILES: Final = re.compile(
    r"""
      AUTOTUNE\ \w+\(                          # torch inductor, select_algorithm.py
    | Triton\ autotuning\ for\ function        # triton, runtime/autotuner.py
    | Autotuning\ kernel\ \S+\ with\ config    # the same
    | DeepGEMM\ JIT                            # sglang, deep_gemm_wrapper/compile_utils.py
    | DeepGEMM\ warmup
    | Running\ FlashInfer\ autotune            # sglang, runner/flashinfer_autotune.py
    | \[Autotuner\]:                           # flashinfer, autotuner.py
    | flashinfer\.jit:.*(?:Loading|Building|Compiling)\ JIT
    | (?:Loading|Building)\ JIT\ (?:ops|kernel)
    | Capture\ [\w -]*\b(?:CUDA|cpu)\ graph\b  # sglang, cuda_graph_setup.py and workers
    | Capturing\ batches\ \(
    | Compiling\ a\ graph\ for                 # sglang, compilation/backend.py
    | Building\ extension\ module              # torch, utils/cpp_extension.py
    | torch\._dynamo\ hit\ config\.\w*limit
    | ^\[\d+/\d+\]\ .*\b(?:nvcc|c\+\+|g\+\+|ninja)\b
    """,
    re.VERBOSE | re.MULTILINE | re.IGNORECASE,
)


def compile_lines(text: str) -> list[str]:
    """The lines of a log that tell of compiling, tuning or capturing."""
    # SGLang prints all its arguments on one line, names of such features among them.
    lines = (line for line in text.splitlines() if "server_args=" not in line)
    return [line for line in lines if _COMPILES.search(line)]


class WindowWatch(abc.ABC):
    """Looks at one thing before and after a window.

    The load generator calls `begin` right before the ramp and `end` after the drain, while the
    server idles: what is seen of ramp and drain counts too.
    """

    @abc.abstractmethod
    def begin(self) -> None:
        """Notes how things stand."""

    @abc.abstractmethod
    def end(self) -> tuple[str, ...]:
        """Reasons not to believe the window, as `"check: what was seen"`; empty for none."""


class LogWatch(WindowWatch):
    """Reads what a server logs from a window's ramp to its drain, and no more."""

    def __init__(self, log: Path) -> None:
        """Opens nothing yet.

        Args:
            log: The server's log; one that is not there yet is an empty one.
        """
        self._log = log
        self._begin = 0

    def begin(self) -> None:
        """See `WindowWatch.begin`."""
        self._begin = self._size()

    def end(self) -> tuple[str, ...]:
        """See `WindowWatch.end`."""
        found = compile_lines(self._written())
        if not found:
            return ()
        reason = (
            f"compiled: {len(found)} lines of compiling or tuning in the server's log inside the "
            f"window, first {found[0].strip()[:200]!r}: warm up longer"
        )
        return (reason,)

    def _written(self) -> str:
        try:
            with self._log.open("rb") as log:
                log.seek(self._begin)
                return log.read(_MOST_BYTES).decode("utf-8", "replace")
        except OSError:
            return ""

    def _size(self) -> int:
        try:
            return self._log.stat().st_size
        except OSError:
            return 0


class ServerIdentityWatch(WindowWatch):
    """Asks the server who it is, before and after: the same one, and the one that was launched.

    A simulated one also tells whether it kept its own time meanwhile.
    """

    def __init__(
        self,
        base_url: str,
        *,
        launched: Mapping[str, Any] | None = None,
        api_key: str | None = None,
        timeout_s: float = _READ_S,
    ) -> None:
        """Asks nothing yet.

        Args:
            base_url: `http://host:port`.
            launched: `/server_info` of the server that is to be measured, as read back when it
                was ready; without it, only a change is noticed.
            api_key: Sent as bearer token where given.
            timeout_s: Real seconds that an answer may take.
        """
        self._base_url = base_url
        self._launched = None if launched is None else identity_of(launched)
        self._api_key = api_key
        self._timeout_s = timeout_s
        self._before: dict[str, Any] | str = {}

    def begin(self) -> None:
        """See `WindowWatch.begin`."""
        self._before = self._read()

    def end(self) -> tuple[str, ...]:
        """See `WindowWatch.end`."""
        before_info, after_info = self._before, self._read()
        if isinstance(before_info, str) or isinstance(after_info, str):
            why = before_info if isinstance(before_info, str) else after_info
            return (f"server_unreadable: who the server is could not be read: {why}",)
        before, after = identity_of(before_info), identity_of(after_info)
        reasons = []
        if self._launched is not None and (what := _difference(self._launched, before)):
            reasons.append(f"server_not_ours: not the server that was read back at first: {what}")
        if what := _difference(before, after):
            reasons.append(f"server_restarted: the server changed inside the window: {what}")
        if what := simulation_behind(after_info):
            reasons.append(f"simulation_behind: {what}")
        return tuple(reasons)

    def _read(self) -> dict[str, Any] | str:
        """What it says of itself, or why that could not be read."""
        try:
            return read_server_info(
                self._base_url, timeout_s=self._timeout_s, api_key=self._api_key
            )
        except RunnerError as error:
            return error.failure.message


def identity_of(server_info: Mapping[str, Any]) -> dict[str, str]:
    """What tells one start of a server from another, as far as its version says it."""
    return {
        name: json.dumps(server_info[name], sort_keys=True, default=str)
        for name in _IDENTITY
        if server_info.get(name) is not None
    }


def simulation_behind(server_info: Mapping[str, Any]) -> str | None:
    """Why figures of a simulated server are its process's and not its profile's; else `None`.

    It counts since the last flush of its cache, which comes right before a window.
    """
    simulated, scale = simulated_of(server_info)
    clock = server_info["simulated"].get("clock") if simulated else None
    if not isinstance(clock, dict):
        return None
    behind, busy = clock["behind_s"], clock["busy_s"]
    if behind <= max(_BEHIND * busy, _BEHIND_REAL_S * scale):
        return None
    return (
        f"the simulated server served its clients {behind:.2f} of {busy:.2f} simulated seconds too "
        "late: take a lower time scale or load, or leave it a core of its own"
    )


def _difference(a: Mapping[str, str], b: Mapping[str, str]) -> str | None:
    for name in _IDENTITY:
        if a.get(name) != b.get(name):
            return f"{name} was {a.get(name, 'absent')[:120]} and is {b.get(name, 'absent')[:120]}"
    return None
