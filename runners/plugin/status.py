"""Status of the plugin, in `/server_info` and in the log line of each rank."""

from __future__ import annotations

import re
import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from results.records import Failure
from runners.base import RunnerError
from runners.plugin.protocol import NAME, PROTOCOL, STATUS
from search_spaces.configuration import Setting

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from pathlib import Path

_LINES_S = 10.0
"""Real seconds to wait for the log lines of all ranks."""
_POLL_S = 0.05

_READY = re.compile(rf"{NAME}: ready rank=(\d+)/(\d+) .*hot_switch=(\S+)")
_SWITCHED = re.compile(rf"{NAME}: rank=(\d+)/(\d+) steps (\S+) -> (\S+)")


@dataclass(frozen=True, slots=True)
class StateCost:
    """Cost of a further state at start-up.

    Attributes:
        build_s: Seconds on the server's clock.
        memory_gb: GiB of GPU memory of its graphs.
    """

    build_s: float
    memory_gb: float


@dataclass(frozen=True, slots=True)
class PluginStatus:
    """Status of the plugin.

    Attributes:
        in_force: Active setting; `None` without hot switching.
        switches: Number of switches since the start.
        refused: Why the last switch was refused; `None` if it was not.
        states: Cost of each candidate; zero for the setting of the start.
        clock: Durations by batch size and part; `None` without a clock, or if it failed.
        clock_failed: Why the clock stopped permanently; `None` if it did not.
    """

    in_force: Setting | None = None
    switches: int = 0
    refused: str | None = None
    states: Mapping[Setting, StateCost] = field(default_factory=dict)
    clock: Mapping[str, Mapping[str, Mapping[str, Any]]] | None = None
    clock_failed: str | None = None

    @property
    def has_clock(self) -> bool:
        """Whether the plugin records cycle times, or did until the clock failed."""
        return self.clock is not None or self.clock_failed is not None


def status_of(server_info: Mapping[str, Any]) -> PluginStatus | None:
    """Status of the plugin in a `/server_info` body; `None` without a known status.

    With data parallelism it is the status of the first replica; replicas are never switched.
    """
    states = server_info.get("internal_states")
    state = states[0] if isinstance(states, list) and states else None
    found = state.get(STATUS) if isinstance(state, dict) else None
    if not isinstance(found, dict) or found.get("protocol") != PROTOCOL:
        return None
    hot, clock = found.get("hot_switch") or {}, found.get("clock") or {}
    return PluginStatus(
        in_force=setting_in_force(hot),
        switches=int(hot.get("switches") or 0),
        refused=hot.get("refused"),
        states={
            Setting.read(name): StateCost(float(cost["build_s"]), float(cost["memory_gb"]))
            for name, cost in (hot.get("states") or {}).items()
        },
        clock=clock.get("batches") if clock and not clock.get("failed") else None,
        clock_failed=clock.get("failed"),
    )


def setting_in_force(hot_switch: Mapping[str, Any]) -> Setting | None:
    """Active setting; `None` without hot switching."""
    steps = hot_switch.get("in_force")
    if not isinstance(steps, int):
        return None
    return Setting(steps, hot_switch.get("in_force_draft_tokens"))


def described(setting: Setting) -> str:
    """Format a setting: `"5 draft steps"`, for a tree also its tokens."""
    is_chain = setting == Setting(setting.num_steps)
    tokens = "" if is_chain else f" and {setting.num_draft_tokens} draft tokens"
    return f"{setting.num_steps} draft steps{tokens}"


def prove_ready(log: Path, status: PluginStatus | None, settings: tuple[Setting, ...]) -> None:
    """Check that a ready server has the requested capabilities.

    Args:
        log: Its log.
        status: Its status.
        settings: Settings with states, ascending; the server starts at the last.

    Raises:
        RunnerError: The plugin is missing, missing on some ranks, or has other settings.
    """
    if status is None or not status.states:
        message = (
            "the server runs without the tuner's plugin, so it cannot be switched; its log "
            f"may have the reason ({NAME})"
        )
        raise _failure("plugin_missing", message)
    if status.states.keys() != set(settings) or status.in_force != settings[-1]:
        message = (
            f"the server can be switched between {_shown(status.states)} and runs "
            f"{status.in_force}; the tuner requested {_shown(settings)}, starting at {settings[-1]}"
        )
        raise _failure("plugin_missing", message)
    ready = _wait_for_ranks(log, 0, _READY, (_shown(settings),))
    if not ready.complete:
        message = f"the plugin is ready on {ready}, so a switch would not reach all ranks"
        raise _failure("plugin_half_loaded", message)


def prove_switched(log: Path, since: int, before: Setting, after: Setting) -> str | None:
    """Check that every rank reports a switch; return the problem, or `None`.

    Args:
        log: The server's log.
        since: Length of the log before the switch.
        before: Setting before.
        after: Setting after.
    """
    told = _wait_for_ranks(log, since, _SWITCHED, (str(before), str(after)))
    return None if told.complete else f"its log reports the switch on {told}"


def log_size(log: Path) -> int:
    """Length of a log in bytes; 0 if it does not exist."""
    try:
        return log.stat().st_size
    except OSError:
        return 0


@dataclass(frozen=True, slots=True)
class _Ranks:
    found: frozenset[int]
    size: int

    @property
    def complete(self) -> bool:
        return self.size > 0 and len(self.found) == self.size

    def __str__(self) -> str:
        if not self.size:
            return "no rank"
        missing = sorted(set(range(self.size)) - self.found)
        return f"{len(self.found)} of {self.size} ranks (not on {', '.join(map(str, missing))})"


def _wait_for_ranks(log: Path, since: int, line: re.Pattern[str], told: tuple[str, ...]) -> _Ranks:
    deadline = time.monotonic() + _LINES_S
    while True:
        ranks = _ranks(log, since, line, told)
        if ranks.complete or time.monotonic() >= deadline:
            return ranks
        time.sleep(_POLL_S)


def _ranks(log: Path, since: int, line: re.Pattern[str], told: tuple[str, ...]) -> _Ranks:
    found, size = set(), 0
    try:
        with log.open("rb") as file:
            file.seek(since)
            text = file.read().decode("utf-8", "replace")
    except OSError:
        text = ""
    for rank, ranks, *words in line.findall(text):
        if tuple(words) == told:
            found.add(int(rank))
            size = max(size, int(ranks))
    return _Ranks(frozenset(found), size)


def _shown(settings: Iterable[Setting]) -> str:
    return ",".join(map(str, settings))


def _failure(kind: str, message: str) -> RunnerError:
    return RunnerError(Failure(kind, "ready", "configuration", message))
