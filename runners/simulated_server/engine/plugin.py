"""Simulation of the tuner's plugin inside SGLang (`runners/plugin/inside_sglang`).

All times are times of the server's clock: at a time scale of 10, a cycle of 20 ms takes 2 ms.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Final

from runners.plugin.protocol import (
    BUSY,
    CYCLE,
    DRAFT_TOKENS_ARGUMENT,
    NAME,
    PROTOCOL,
    STEPS_ARGUMENT,
    TOKEN_ARGUMENT,
    bucket_of,
    token_of,
)
from runners.simulated_server.launch.flags import CHAIN_ALGORITHMS
from search_spaces.configuration import Setting, largest

if TYPE_CHECKING:
    from collections.abc import Sequence

    from runners.simulated_server.engine.cost import CycleTime
    from runners.simulated_server.faults.misbehaviour import Misbehaviour
    from runners.simulated_server.launch.environment import SimulationEnvironment
    from runners.simulated_server.launch.flags import ResolvedFlags
    from runners.simulated_server.launch.log import ServerLog


@dataclass(slots=True)
class _Part:
    count: int = 0
    total_s: float = 0.0
    graphs: int = 0
    buckets: Counter[int] = field(default_factory=Counter)

    def add(self, seconds: float, *, graph: bool) -> None:
        self.count += 1
        self.total_s += seconds
        self.graphs += graph
        self.buckets[bucket_of(seconds)] += 1

    def to_dict(self) -> dict[str, Any]:
        return {
            "count": self.count,
            "total_s": self.total_s,
            "graphs": self.graphs,
            "buckets": {str(bucket): self.buckets[bucket] for bucket in sorted(self.buckets)},
        }


class CycleClock:
    """Cycle clock: counts and times since the start of the server.

    Args:
        drafts: Whether drafts have parts of their own; only EAGLE-like workers have.
    """

    def __init__(self, *, drafts: bool) -> None:
        self._measured = ("draft", "draft_extend", "verify") if drafts else ("verify",)
        self._batches: dict[int, dict[str, _Part]] = {}
        self._last: tuple[int, CycleTime, float] | None = None

    def cycle(
        self, size: int, time: CycleTime, seconds_per_ms: float, graphs: frozenset[str]
    ) -> None:
        """Count the parts of a cycle, and the whole of the cycle directly before it.

        Args:
            size: Requests of the batch.
            time: Times of the cycle, without noise.
            seconds_per_ms: Seconds of the server's clock per millisecond of `time`.
            graphs: Parts that ran as CUDA graphs.
        """
        self._close()
        self._last = (size, time, seconds_per_ms)
        for name, ms in self._parts(time).items():
            if ms > 0.0:
                self._part(size, name).add(ms * seconds_per_ms, graph=name in graphs)

    def interrupted(self) -> None:
        """Discard the last cycle's total: no cycle follows directly."""
        self._last = None

    def to_dict(self) -> dict[str, Any]:
        batches = {
            str(size): {name: part.to_dict() for name, part in parts.items()}
            for size, parts in sorted(self._batches.items())
        }
        return {"running": True, "failed": None, "parts": list(self._measured), "batches": batches}

    def _close(self) -> None:
        if self._last is None:
            return
        size, time, seconds_per_ms = self._last
        self._part(size, CYCLE).add(time.total_ms * seconds_per_ms, graph=False)
        rest_ms = time.total_ms - sum(self._parts(time).values())
        self._part(size, "rest").add(rest_ms * seconds_per_ms, graph=False)

    def _parts(self, time: CycleTime) -> dict[str, float]:
        forwards = {
            "draft": time.draft_ms,
            "draft_extend": time.draft_extend_ms,
            "verify": time.verify_ms,
        }
        return {name: forwards[name] for name in self._measured}

    def _part(self, size: int, name: str) -> _Part:
        return self._batches.setdefault(size, {}).setdefault(name, _Part())


VERSION: Final = "simulated"
VERIFIED: Final = ("0.5.17", "0.5.23")
"""Versions of SGLang that both capabilities of the plugin support."""

_STATE_GB = 0.4
_ARGUMENTS = {STEPS_ARGUMENT, DRAFT_TOKENS_ARGUMENT, TOKEN_ARGUMENT}


@dataclass(slots=True)
class SimulatedPlugin:
    """Plugin of one server.

    Attributes:
        settings: Settings of the hot switch in ascending order; empty without a hot switch.
        clock: The cycle clock, if requested.
        mark: Identifier of the launch.
        sglang: SGLang version of the server.
        state_s: Start-up seconds of each further setting, on the server's clock.
        switches: Number of switches.
        refused: Reason for the last refused switch.
    """

    settings: tuple[Setting, ...]
    clock: CycleClock | None
    mark: str
    flags: ResolvedFlags
    sglang: str
    log: ServerLog
    state_s: float
    faults: Sequence[Misbehaviour] = ()
    switches: int = 0
    refused: str | None = None
    _kinds: frozenset[str] = field(init=False)

    def __post_init__(self) -> None:
        self._kinds = frozenset(fault.kind for fault in self.faults)

    @property
    def started(self) -> Setting:
        """The setting of the start-up."""
        return Setting(self.flags.num_steps, self.flags.num_draft_tokens)

    def refusal(self) -> str | None:
        """Return the plugin's last line if it does not support the request, else `None`."""
        if not self.settings and self.clock is None:
            return None
        capability = "hot_switch" if self.settings else "clock"
        if "plugin_refused" in self._kinds or self.sglang not in VERIFIED:
            version = "0.0.0" if "plugin_refused" in self._kinds else self.sglang
            verified = ", ".join(VERIFIED)
            return _refused(capability, f"verified with SGLang {verified}, and this is {version}")
        if self.settings and (reason := self._unswitchable()) is not None:
            return _refused(capability, reason)
        return None

    def ready(self) -> None:
        if not self.settings and self.clock is None:
            return
        settings = ",".join(map(str, self.settings)) or "off"
        clock = "on" if self.clock is not None else "off"
        self._log_ranks(
            f"ready rank={{rank}} sglang={self.sglang} hot_switch={settings} clock={clock}"
        )

    def status(self, in_force: Setting) -> dict[str, Any] | None:
        """Return the plugin's entry in `/server_info`; `None` if nothing is requested."""
        if not self.settings and self.clock is None:
            return None
        return {
            "protocol": PROTOCOL,
            "plugin": VERSION,
            "hot_switch": self._hot_switch(in_force) if self.settings else None,
            "clock": None if self.clock is None else self.clock.to_dict(),
        }

    def refuses(self, requested: dict[str, int | float], *, busy: bool) -> bool:
        """Return whether a switch is refused, and log the reason."""
        asked = asked_setting(requested)
        self.refused = None
        if requested.get(TOKEN_ARGUMENT) != token_of(self.mark):
            self.refused = "the token is not that of the launch: another tuner started this server"
        elif others := sorted(requested.keys() - _ARGUMENTS):
            self.refused = f"it cannot be combined with {', '.join(others)}"
        elif asked not in self.settings:
            self.refused = f"there are states for {','.join(map(str, self.settings))} only"
        elif busy:
            self.refused = BUSY
        if self.refused is not None:
            self._log_ranks(f"rank={{rank}} refused to switch to {asked.num_steps}: {self.refused}")
        return self.refused is not None

    def switched(self, before: Setting, after: Setting) -> bool:
        """Log and count a switch; return `False` if a fault ignores the switch."""
        if before == after:
            return True
        self.switches += 1
        self._log_ranks(f"rank={{rank}} steps {before} -> {after}")
        return "switch_ignored" not in self._kinds

    def undoes(self, served: int) -> bool:
        """Return whether a fault restores the setting of the start-up now."""
        return any(
            fault.kind == "switch_undone" and served >= fault.after_requests
            for fault in self.faults
        )

    def distort(self, time: CycleTime, in_force: Setting) -> CycleTime:
        """Return a cycle's times with the faults of a switched state."""
        if not self.settings or in_force == self.started:
            return time
        for fault in self.faults:
            if fault.kind == "switch_eager":
                time = replace(time, draft_extend_ms=time.draft_extend_ms * fault.factor)
            elif fault.kind == "switch_slow":
                time = replace(time, verify_ms=time.verify_ms * fault.factor)
        return time

    def graphs(self, in_force: Setting) -> frozenset[str]:
        """Return the parts of a cycle that run as CUDA graphs."""
        values = self.flags.values
        if values.get("disable_cuda_graph") or values.get("device") == "cpu":
            return frozenset()
        parts = {"verify", "draft_extend"}
        if in_force.size[0] > 1:
            parts.add("draft")  # one step needs only the draft's extend
        if "switch_eager" in self._kinds and self.settings and in_force != self.started:
            parts.discard("draft_extend")
        return frozenset(parts)

    def _hot_switch(self, in_force: Setting) -> dict[str, Any]:
        states = {
            str(setting): {
                "build_s": 0.0 if setting == self.started else self.state_s,
                "memory_gb": 0.0 if setting == self.started else _STATE_GB,
            }
            for setting in self.settings
        }
        return {
            "steps": sorted({setting.num_steps for setting in self.settings}),
            "in_force": in_force.num_steps,
            "in_force_draft_tokens": in_force.num_draft_tokens,
            "switches": self.switches,
            "refused": self.refused,
            "states": states,
        }

    def _unswitchable(self) -> str | None:
        flags = self.flags
        if flags.algorithm not in CHAIN_ALGORITHMS:
            return f"speculative_algorithm={flags.algorithm} has no steps to switch"
        if flags.adaptive:
            return "--speculative-adaptive chooses the steps"
        for setting in self.settings:
            steps, draft_tokens = setting.size
            most = 1 + flags.topk + (steps - 1) * flags.topk**2
            if flags.topk == 1 and draft_tokens != steps + 1:
                return f"--speculative-eagle-topk is 1, and {setting} is no chain"
            if not steps < draft_tokens <= most:
                return f"at --speculative-eagle-topk {flags.topk} there is no tree of {setting}"
        if self.started not in self.settings or self.started != largest(self.settings):
            shown = ",".join(map(str, self.settings))
            return f"the server starts with {self.started}, which is not the largest of {shown}"
        return None

    def _log_ranks(self, message: str) -> None:
        size = self.flags.tp_size
        ranks = size // 2 if "plugin_half" in self._kinds else size
        lines = [f"{NAME}: {message.format(rank=f'{rank}/{size}')}" for rank in range(ranks)]
        if lines:
            self.log.raw("\n".join(lines))


def asked_setting(requested: dict[str, int | float]) -> Setting:
    """Return the requested setting; without draft tokens, a chain."""
    steps = int(requested[STEPS_ARGUMENT])
    return Setting(steps, int(requested.get(DRAFT_TOKENS_ARGUMENT, steps + 1)))


def _refused(capability: str, reason: str) -> str:
    return f"{NAME}: REFUSED {capability}: {reason}"


def simulated_plugin(
    simulation: SimulationEnvironment,
    flags: ResolvedFlags,
    sglang: str,
    log: ServerLog,
    *,
    state_s: float,
    faults: Sequence[Misbehaviour],
) -> SimulatedPlugin:
    """Return the plugin with the capabilities that the environment requests."""
    drafts = flags.algorithm in CHAIN_ALGORITHMS
    missing = any(fault.kind == "plugin_missing" for fault in faults)
    return SimulatedPlugin(
        settings=() if missing else simulation.switchable,
        clock=CycleClock(drafts=drafts) if simulation.cycle_clock and not missing else None,
        mark=simulation.mark,
        flags=flags,
        sglang=sglang,
        log=log,
        state_s=state_s,
        faults=faults,
    )
