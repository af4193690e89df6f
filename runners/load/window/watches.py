"""Watches: compare the server's identity, clock and log before and after a window."""

from __future__ import annotations

import abc
import json
import re
from typing import TYPE_CHECKING, Any, Final

from runners.base import RunnerError
from runners.server_info import read_server_info, simulated_of

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
"""Codes of the findings of watches and of the plugin's cycle clock."""

_READ_S = 10.0
"""An idle server answers in milliseconds. A slower server is busy or hangs."""

_MOST_BYTES = 8 << 20

_BEHIND = 0.1
_BEHIND_REAL_S = 0.1
"""Largest delay of a simulated server, as a share of its busy time and in real seconds."""

# Values that differ at each start come first. `startup_time` is a table of measured seconds (0.5.17
# and later). SGLang draws `random_seed` at every start unless it is set.
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
    """Return the lines of a log that report compiling, tuning or graph capture."""
    # SGLang logs all its arguments on one line, which may contain names of such features.
    lines = (line for line in text.splitlines() if "server_args=" not in line)
    return [line for line in lines if _COMPILES.search(line)]


class WindowWatch(abc.ABC):
    """Compare one aspect of the server before and after a window.

    The load generator calls `begin` right before the ramp and `end` after the drain, while the
    server is idle. So a watch covers ramp and drain too.
    """

    @abc.abstractmethod
    def begin(self) -> None:
        """Record the state before the window."""

    @abc.abstractmethod
    def end(self) -> tuple[str, ...]:
        """Return reasons against the window as `"code: phrase"`; empty for none."""


class LogWatch(WindowWatch):
    """Find compiling in the server's log, from the ramp to the drain of a window."""

    def __init__(self, log: Path) -> None:
        """Set the file of the server's log; a missing file counts as empty."""
        self._log = log
        self._begin = 0

    def begin(self) -> None:
        """See `WindowWatch.begin`."""
        try:
            self._begin = self._log.stat().st_size
        except OSError:
            self._begin = 0

    def end(self) -> tuple[str, ...]:
        """See `WindowWatch.end`."""
        try:
            with self._log.open("rb") as log:
                log.seek(self._begin)
                written = log.read(_MOST_BYTES).decode("utf-8", "replace")
        except OSError:
            return ()
        found = compile_lines(written)
        if not found:
            return ()
        reason = (
            f"compiled: the server's log has {len(found)} lines about compiling or tuning inside "
            f"the window, first {found[0].strip()[:200]!r}: raise `warmup_requests`"
        )
        return (reason,)


class ServerIdentityWatch(WindowWatch):
    """Check that the launched server answers before and after the window.

    The watch also checks that a simulated server kept up with its own clock.
    """

    def __init__(
        self,
        base_url: str,
        *,
        launched: Mapping[str, Any] | None = None,
        api_key: str | None = None,
        timeout_s: float = _READ_S,
    ) -> None:
        """Prepare the watch without a request.

        Args:
            base_url: `http://host:port`.
            launched: `/server_info` of the launched server when it became ready; without it, the
                watch only finds changes.
            api_key: Bearer token.
            timeout_s: Limit for each answer in real seconds.
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
            return (f"server_unreadable: the server's identity could not be read: {why}",)
        before, after = identity_of(before_info), identity_of(after_info)
        reasons = []
        if self._launched is not None and (difference := _difference(self._launched, before)):
            reasons.append(f"server_not_ours: not the server that was launched: {difference}")
        if difference := _difference(before, after):
            reasons.append(f"server_restarted: the server changed during the window: {difference}")
        if behind := simulation_behind(after_info):
            reasons.append(f"simulation_behind: {behind}")
        return tuple(reasons)

    def _read(self) -> dict[str, Any] | str:
        """Return `/server_info`, or the reason why it could not be read."""
        try:
            return read_server_info(
                self._base_url, timeout_s=self._timeout_s, api_key=self._api_key
            )
        except RunnerError as error:
            return error.failure.message


def identity_of(server_info: Mapping[str, Any]) -> dict[str, str]:
    """Return the values that distinguish two starts of a server, as far as its version has them."""
    return {
        name: json.dumps(server_info[name], sort_keys=True, default=str)
        for name in _IDENTITY
        if server_info.get(name) is not None
    }


def simulation_behind(server_info: Mapping[str, Any]) -> str | None:
    """Describe a simulated server that fell behind its clock; `None` if it kept up.

    The server counts since the last flush of its cache, which comes right before a window.
    """
    simulated, scale = simulated_of(server_info)
    clock = server_info["simulated"].get("clock") if simulated else None
    if not isinstance(clock, dict):
        return None
    behind, busy = clock["behind_s"], clock["busy_s"]
    if behind <= max(_BEHIND * busy, _BEHIND_REAL_S * scale):
        return None
    return (
        f"the simulated server was {behind:.2f} of {busy:.2f} simulated seconds late: lower the "
        "time scale or the load, or give the server its own core"
    )


def _difference(a: Mapping[str, str], b: Mapping[str, str]) -> str | None:
    for name in _IDENTITY:
        if a.get(name) != b.get(name):
            return f"{name} was {a.get(name, 'absent')[:120]} and is {b.get(name, 'absent')[:120]}"
    return None
