"""Plays the tuner's plugin inside SGLang (`runners/inside_sglang`): what it logs, says and refuses.

With neither of its variables there is none: nothing is logged, and `/server_info` has no status.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Final

from runners.plugin_protocol import (
    BUSY,
    NAME,
    PROTOCOL,
    STEPS_ARGUMENT,
    TOKEN_ARGUMENT,
    token_of,
)
from runners.simulated_server.cycle_clock import CycleClock
from runners.simulated_server.resolution import CHAIN_ALGORITHMS

if TYPE_CHECKING:
    from collections.abc import Sequence

    from runners.simulated_server.cost import CycleTime
    from runners.simulated_server.environment import SimulationEnvironment
    from runners.simulated_server.log import ServerLog
    from runners.simulated_server.misbehaviour import Misbehaviour
    from runners.simulated_server.resolution import ResolvedFlags

VERSION: Final = "simulated"
VERIFIED: Final = ("0.5.17", "0.5.23")
"""Versions of SGLang that both capabilities take, as the real one's do."""

_STATE_GB = 0.4


@dataclass(slots=True)
class PlayedPlugin:
    """The plugin of one server.

    Attributes:
        steps: Candidates of the hot switch; empty where it was not asked for.
        clock: The cycle's clock, if it was asked for.
        mark: The launch's.
        flags: What the server runs.
        sglang: The version that it says it is.
        log: The server's.
        state_s: What each further state takes of the start-up, on the server's clock.
        troubles: What goes wrong, if anything.
        switches: How often the steps were switched.
        refused: Why the last request to switch was refused.
    """

    steps: tuple[int, ...]
    clock: CycleClock | None
    mark: str
    flags: ResolvedFlags
    sglang: str
    log: ServerLog
    state_s: float
    troubles: Sequence[Misbehaviour] = ()
    switches: int = 0
    refused: str | None = None
    _kinds: frozenset[str] = field(init=False)

    def __post_init__(self) -> None:
        self._kinds = frozenset(trouble.kind for trouble in self.troubles)

    def refusal(self) -> str | None:
        """The line with which the server ends at once, where it cannot do what was asked."""
        if not self.steps and self.clock is None:
            return None
        capability = "hot_switch" if self.steps else "clock"
        if "plugin_refused" in self._kinds or self.sglang not in VERIFIED:
            version = "0.0.0" if "plugin_refused" in self._kinds else self.sglang
            verified = ", ".join(VERIFIED)
            return _refused(capability, f"verified with SGLang {verified}, and this is {version}")
        if self.steps and (reason := self._unswitchable()) is not None:
            return _refused(capability, reason)
        return None

    def ready(self) -> None:
        """Tells, for every rank, that all is in place."""
        if not self.steps and self.clock is None:
            return
        steps = ",".join(map(str, self.steps)) or "off"
        clock = "on" if self.clock is not None else "off"
        self._tell(f"ready rank={{rank}} sglang={self.sglang} hot_switch={steps} clock={clock}")

    def status(self, in_force: int) -> dict[str, Any] | None:
        """What `/server_info` says of it; `None` where it was asked for nothing."""
        if not self.steps and self.clock is None:
            return None
        return {
            "protocol": PROTOCOL,
            "plugin": VERSION,
            "hot_switch": self._hot_switch(in_force) if self.steps else None,
            "clock": None if self.clock is None else self.clock.to_dict(),
        }

    def refuses(self, requested: dict[str, int | float], *, busy: bool) -> bool:
        """Whether the steps are not switched as asked; tells why."""
        steps = requested[STEPS_ARGUMENT]
        self.refused = None
        if requested.get(TOKEN_ARGUMENT) != token_of(self.mark):
            self.refused = "the token is not that of the launch: another tuner started this server"
        elif others := sorted(requested.keys() - {STEPS_ARGUMENT, TOKEN_ARGUMENT}):
            self.refused = f"it cannot be combined with {', '.join(others)}"
        elif steps not in self.steps:
            self.refused = f"there are states for {', '.join(map(str, self.steps))} only"
        elif busy:
            self.refused = BUSY
        if self.refused is not None:
            self._tell(f"rank={{rank}} refused to switch to {steps}: {self.refused}")
        return self.refused is not None

    def switched(self, before: int, after: int) -> bool:
        """Tells of a switch; `False` where it is not to take place, whatever is said."""
        if before == after:
            return True
        self.switches += 1
        self._tell(f"rank={{rank}} steps {before} -> {after}")
        return "switch_ignored" not in self._kinds

    def undoes(self, served: int) -> bool:
        """Whether the server goes back to the steps that it was started with, by itself."""
        return any(
            trouble.kind == "switch_undone" and served >= trouble.after_requests
            for trouble in self.troubles
        )

    def distort(self, time: CycleTime, num_steps: int) -> CycleTime:
        """A cycle's times in a switched state that is not what a launch of its own would be."""
        if not self.steps or num_steps == self.flags.num_steps:
            return time
        for trouble in self.troubles:
            if trouble.kind == "switch_eager":
                time = replace(time, draft_extend_ms=time.draft_extend_ms * trouble.factor)
            elif trouble.kind == "switch_slow":
                time = replace(time, verify_ms=time.verify_ms * trouble.factor)
        return time

    def graphs(self, num_steps: int) -> frozenset[str]:
        """The parts of a cycle that run as CUDA graphs."""
        values = self.flags.values
        if values.get("disable_cuda_graph") or values.get("device") == "cpu":
            return frozenset()
        parts = {"verify", "draft_extend"}
        if num_steps > 1:
            parts.add("draft")  # a single step is the draft's extend alone
        if "switch_eager" in self._kinds and self.steps and num_steps != self.flags.num_steps:
            parts.discard("draft_extend")
        return frozenset(parts)

    def _hot_switch(self, in_force: int) -> dict[str, Any]:
        states = {
            str(steps): {
                "build_s": 0.0 if steps == self.flags.num_steps else self.state_s,
                "memory_gb": 0.0 if steps == self.flags.num_steps else _STATE_GB,
            }
            for steps in self.steps
        }
        return {
            "steps": list(self.steps),
            "in_force": in_force,
            "in_force_draft_tokens": in_force + 1,
            "switches": self.switches,
            "refused": self.refused,
            "states": states,
        }

    def _unswitchable(self) -> str | None:
        flags = self.flags
        if flags.algorithm not in CHAIN_ALGORITHMS:
            return f"speculative_algorithm={flags.algorithm} has no steps to switch"
        if flags.topk != 1:
            return f"speculative_eagle_topk={flags.topk} (only topk=1 can be switched)"
        if flags.adaptive:
            return "--speculative-adaptive chooses the steps by itself"
        if flags.num_steps != max(self.steps):
            shown = ",".join(map(str, self.steps))
            return f"started with {flags.num_steps} steps, which is not the largest of {shown}"
        return None

    def _tell(self, message: str) -> None:
        size = self.flags.tp_size
        ranks = size // 2 if "plugin_half" in self._kinds else size
        lines = [f"{NAME}: {message.format(rank=f'{rank}/{size}')}" for rank in range(ranks)]
        if lines:
            self.log.raw("\n".join(lines))


def _refused(capability: str, reason: str) -> str:
    return f"{NAME}: REFUSED {capability}: {reason}"


def played_plugin(
    simulation: SimulationEnvironment,
    flags: ResolvedFlags,
    sglang: str,
    log: ServerLog,
    *,
    state_s: float,
    troubles: Sequence[Misbehaviour],
) -> PlayedPlugin:
    """The plugin that the variables ask for; a missing one is asked for nothing."""
    drafts = flags.algorithm in CHAIN_ALGORITHMS
    missing = any(trouble.kind == "plugin_missing" for trouble in troubles)
    return PlayedPlugin(
        steps=() if missing else simulation.switchable_steps,
        clock=CycleClock(drafts=drafts) if simulation.cycle_clock and not missing else None,
        mark=simulation.mark,
        flags=flags,
        sglang=sglang,
        log=log,
        state_s=state_s,
        troubles=troubles,
    )
