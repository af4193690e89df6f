"""The watches of a window: the server's identity, and its log."""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING, Any, Final

from runners.base import RunnerError
from runners.load.watch import WindowWatch
from runners.server_facts import read_server_info

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

WATCH_CODES: Final = ("compiled", "server_restarted", "server_not_ours", "server_unreadable")
"""Codes of the reasons that watches give."""

_READ_S = 10.0
"""An idle server answers in milliseconds; one that does not is no longer idle, or hangs."""

_MOST_BYTES = 8 << 20

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


class LogWatch(WindowWatch):
    """Reads what a server logs between the opening of a window and its close, and no more."""

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
    """Asks the server who it is, before and after: the same one, and the one that was launched."""

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
        self._before: dict[str, str] | str = {}

    def begin(self) -> None:
        """See `WindowWatch.begin`."""
        self._before = self._read()

    def end(self) -> tuple[str, ...]:
        """See `WindowWatch.end`."""
        before, after = self._before, self._read()
        if isinstance(before, str) or isinstance(after, str):
            why = before if isinstance(before, str) else after
            return (f"server_unreadable: who the server is could not be read: {why}",)
        reasons = []
        if self._launched is not None and (what := _difference(self._launched, before)):
            reasons.append(f"server_not_ours: not the server that was read back at first: {what}")
        if what := _difference(before, after):
            reasons.append(f"server_restarted: the server changed inside the window: {what}")
        return tuple(reasons)

    def _read(self) -> dict[str, str] | str:
        """Its identity, or why it could not be read."""
        try:
            info = read_server_info(
                self._base_url, timeout_s=self._timeout_s, api_key=self._api_key
            )
        except RunnerError as error:
            return error.failure.message
        return identity_of(info)


def identity_of(server_info: Mapping[str, Any]) -> dict[str, str]:
    """What tells one start of a server from another, as far as its version says it."""
    return {
        name: json.dumps(server_info[name], sort_keys=True, default=str)
        for name in _IDENTITY
        if server_info.get(name) is not None
    }


def _difference(a: Mapping[str, str], b: Mapping[str, str]) -> str | None:
    for name in _IDENTITY:
        if a.get(name) != b.get(name):
            return f"{name} was {a.get(name, 'absent')[:120]} and is {b.get(name, 'absent')[:120]}"
    return None
