"""The one simulated server of this process: what its endpoints share."""

from __future__ import annotations

import json
import shlex
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from runners.simulated_server.resolution import CHAIN_ALGORITHMS

if TYPE_CHECKING:
    from collections.abc import Sequence

    from runners.simulated_server.engine import Engine
    from runners.simulated_server.environment import SimulationEnvironment
    from runners.simulated_server.log import ServerLog
    from runners.simulated_server.profile import Misbehaviour, Profile
    from runners.simulated_server.resolution import ResolvedFlags

VERSION = "0.5.23"
"""The SGLang version whose API is simulated."""

_DATA = Path(__file__).parent / "data"
# Recorded from 0.5.23 on a CPU, with the values that name the device made those of a GPU server.
_SERVER_INFO = _DATA / "server_info_0.5.23.json"
_MODEL_INFO = _DATA / "model_info_0.5.23.json"
_CONTEXT_LENGTH = 262_144
_RESERVED_TOKENS = 6


@dataclass(slots=True)
class SimulatedServer:
    """Everything that the endpoints answer from.

    Attributes:
        argv: The flags as they were given.
        flags: What the server runs.
        simulation: What the environment says about the simulation.
        profile: The machine.
        engine: The scheduler.
        log: The log.
        misbehaviour: What goes wrong in this configuration, if anything.
        startup_times: Seconds of the start-up phases.
        ready: Whether the warm-up is over.
    """

    argv: Sequence[str]
    flags: ResolvedFlags
    simulation: SimulationEnvironment
    profile: Profile
    engine: Engine
    log: ServerLog
    misbehaviour: Misbehaviour | None = None
    startup_times: dict[str, Any] = field(default_factory=dict)
    ready: bool = False
    created: int = field(default_factory=lambda: int(time.time()))

    @property
    def model_path(self) -> str:
        """The target's path."""
        return str(self.flags.values["model_path"])

    @property
    def served_model_name(self) -> str:
        """The name that the server answers under."""
        return str(self.flags.values.get("served_model_name") or self.model_path)

    @property
    def context_length(self) -> int:
        """Tokens of prompt and answer together, at most."""
        return int(self.flags.values.get("context_length") or _CONTEXT_LENGTH)

    def server_info(self) -> dict[str, Any]:
        """The body of `/server_info`."""
        template = json.loads(_SERVER_INFO.read_text())
        info: dict[str, Any] = template["server_info"]
        info |= {
            "tokenizer_path": self.model_path,
            "served_model_name": self.served_model_name,
            "random_seed": self.flags.values.get("random_seed", self.created),
        }
        info |= self.flags.values
        if self.engine.speculating:
            info["speculative_num_steps"] = self.engine.num_steps
            info["speculative_num_draft_tokens"] = self.engine.num_draft_tokens
        state = {k: v for k, v in info.items() if k not in template["internal_state_leaves_out"]}
        state |= template["internal_state"]
        state |= {
            "startup_time": {k: v for k, v in self.startup_times.items() if k != "tokenizer_e2e"},
            "pp_max_micro_batch_size": self.flags.max_running_requests,
            "effective_max_running_requests_per_dp": self.flags.max_running_requests,
            "last_gen_throughput": self.engine.counters.gen_throughput,
        }
        if (average := self.engine.counters.average_accept_length) is not None:
            state["avg_spec_accept_length"] = average
        info |= {
            "launch_command": shlex.join(self.argv),
            "status": "ready" if self.ready else "starting",
            "max_req_input_len": self.context_length - _RESERVED_TOKENS,
            "startup_time": self.startup_times,
            "internal_states": [state],
            "version": VERSION,
            "frontend": "python",
            "simulated": {
                "profile": self.profile.name,
                "time_scale": self.simulation.time_scale,
                "seed": self.simulation.seed,
            },
        }
        return info

    def model_info(self) -> dict[str, Any]:
        """The body of `/model_info`."""
        info: dict[str, Any] = json.loads(_MODEL_INFO.read_text())
        return info | {
            "model_path": self.model_path,
            "served_model_name": self.served_model_name,
            "tokenizer_path": self.model_path,
        }

    def models(self) -> dict[str, Any]:
        """The body of `/v1/models`."""
        model = {
            "id": self.served_model_name,
            "object": "model",
            "created": self.created,
            "owned_by": "sglang",
            "root": self.served_model_name,
            "parent": None,
            "max_model_len": self.context_length,
        }
        return {"object": "list", "data": [model]}

    def set_internal_state(self, requested: dict[str, int | float]) -> bool:
        """Switches the draft steps of an idle chain to one of `TUNER_SWITCHABLE_STEPS`.

        Everything else is refused as SGLang without a switching plugin does: with a warning in the
        log and `False`.
        """
        for key, value in requested.items():
            if key != "speculative_num_steps" or not self._can_switch:
                self.log.scheduler(f"Updating {key} is not supported.")
                return False
            if value not in self.simulation.switchable_steps:
                self.log.scheduler(
                    f"Updating {key} to {value} is rejected because it is not one of "
                    f"{list(self.simulation.switchable_steps)}."
                )
                return False
            if self.engine.busy:
                self.log.scheduler(f"Updating {key} is rejected while requests are running.")
                return False
        for value in requested.values():
            self.engine.switch(int(value))
        return True

    @property
    def _can_switch(self) -> bool:
        flags = self.flags
        chain = flags.algorithm in CHAIN_ALGORITHMS and flags.topk == 1
        return chain and bool(self.simulation.switchable_steps)
