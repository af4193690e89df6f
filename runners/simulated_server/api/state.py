"""State of the simulated server that its endpoints share."""

from __future__ import annotations

import json
import shlex
import time
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from runners.plugin.protocol import STATUS, STEPS_ARGUMENT
from runners.simulated_server.engine import acceptance as simulated_acceptance
from runners.simulated_server.engine.plugin import asked_setting
from runners.simulated_server.launch.flags import CONTEXT_LENGTH

if TYPE_CHECKING:
    from collections.abc import Sequence

    from runners.simulated_server.engine.counters import Observations
    from runners.simulated_server.engine.engine import Engine
    from runners.simulated_server.engine.plugin import SimulatedPlugin
    from runners.simulated_server.engine.profile import Profile
    from runners.simulated_server.engine.request import Request
    from runners.simulated_server.engine.tokens import Answer
    from runners.simulated_server.launch.environment import SimulationEnvironment
    from runners.simulated_server.launch.flags import ResolvedFlags
    from runners.simulated_server.launch.log import ServerLog

_DATA = Path(__file__).parents[1] / "data"
# Recorded from 0.5.23 on a CPU; values of the device are changed to those of a GPU server.
_SERVER_INFO = _DATA / "server_info_0.5.23.json"
_MODEL_INFO = _DATA / "model_info_0.5.23.json"
_UNUSABLE_TOKENS = 6
_THRESHOLDS = frozenset({"speculative_accept_threshold_single", "speculative_accept_threshold_acc"})


class ConnectionCutError(Exception):
    """Raised by a hook to reset the client's connection."""


class ReplyHooks:
    """Hooks for faults of the replies. The base class changes nothing."""

    def admit(self) -> None:
        """Run when a request arrives.

        Raises:
            ApiError: The hook refuses the request.
        """

    def answer(self, answer: Answer) -> Answer:
        """Return the answer that replaces the model's answer."""
        return answer

    def chunk(self, request: Request) -> None:
        """Run before a chunk of a stream is sent.

        Raises:
            ConnectionCutError: The hook cuts the stream.
        """

    def meta_info(self, request: Request, meta: dict[str, Any]) -> None:
        """Change the `meta_info` of a finished request in place; OpenAI's usage follows it."""

    def metrics(self, values: dict[str, float]) -> None:
        """Change the gauges of `/metrics` in place; names have no prefix."""

    def health(self) -> int | None:
        """Return the status of `/health`, or `None` for the real health check."""
        return None


@dataclass(slots=True)
class SimulatedServer:
    """State of the server.

    Attributes:
        observations: Histograms of finished requests.
        startup_times: Seconds of the start-up phases.
        ready: Whether the warm-up has ended.
        live: Unfinished requests by id.
        overrides: Values that `/set_internal_state` changed, except the steps.
        created: Start of the server in seconds since the epoch.
    """

    argv: Sequence[str]
    flags: ResolvedFlags
    simulation: SimulationEnvironment
    profile: Profile
    engine: Engine
    log: ServerLog
    plugin: SimulatedPlugin
    observations: Observations
    startup_times: dict[str, Any] = field(default_factory=dict)
    ready: bool = False
    hooks: ReplyHooks = field(default_factory=ReplyHooks)
    live: dict[str, Request] = field(default_factory=dict)
    overrides: dict[str, float] = field(default_factory=dict)
    created: int = field(default_factory=lambda: int(time.time()))

    @property
    def model_path(self) -> str:
        return str(self.flags.values["model_path"])

    @property
    def served_model_name(self) -> str:
        return str(self.flags.values.get("served_model_name") or self.model_path)

    @property
    def context_length(self) -> int:
        return int(self.flags.values.get("context_length") or CONTEXT_LENGTH)

    @property
    def enable_metrics(self) -> bool:
        """`--enable-metrics`: `/metrics`, and all times in `meta_info`."""
        return bool(self.flags.values.get("enable_metrics"))

    @property
    def cache_report(self) -> bool:
        return bool(self.flags.values.get("enable_cache_report"))

    @property
    def incremental_streaming(self) -> bool:
        """`--incremental-streaming-output`: a chunk of `/generate` holds only new tokens."""
        return bool(self.flags.values.get("incremental_streaming_output"))

    @property
    def stream_interval(self) -> int:
        return int(self.flags.values.get("stream_interval") or 1)

    @property
    def fixed_tokens(self) -> bool:
        """Whether every verify emits one fixed token: the default of simulated acceptance."""
        facts = self.engine.cycles.cost.facts
        asked = simulated_acceptance.simulated_length(facts, self.flags.algorithm) is not None
        return asked and facts.get(simulated_acceptance.TOKEN_MODE, "fixed") == "fixed"

    @property
    def reserved_tokens(self) -> int:
        """Tokens of the context that are reserved for drafts.

        SGLang reserves them only for EAGLE and EAGLE3 (0.5.23, `compute_num_reserved_tokens`).
        """
        flags = self.flags
        if flags.algorithm not in {"EAGLE", "EAGLE3"}:
            return 0
        return max(flags.topk * flags.num_steps, flags.num_draft_tokens)

    @property
    def memory(self) -> dict[str, Any]:
        """`memory_usage` in gigabytes; the keys are recorded, the sizes invented."""
        found: dict[str, Any] = _template()["internal_state"]["memory_usage"]
        return found | {"token_capacity": self.engine.scheduler.limits.kv}

    @property
    def on_cpu(self) -> bool:
        return self.flags.values.get("device") == "cpu"

    def abort(self, rid: str, *, everything: bool) -> None:
        """End all requests, or the requests whose ids begin with the id `rid` of a live request."""
        if everything:
            self.engine.abort("", everything=True)
        elif rid in self.live:
            self.engine.abort(rid)

    def server_info(self) -> dict[str, Any]:
        template = _template()
        info: dict[str, Any] = dict(template["server_info"])
        info |= {
            "tokenizer_path": self.model_path,
            "served_model_name": self.served_model_name,
            "random_seed": self.flags.values.get("random_seed", self.created),
        }
        if self.on_cpu:
            info |= {"sampling_backend": "pytorch"}
        info |= {"attention_backend": self.flags.attention_backend} | self.flags.values
        in_force = {}
        if self.engine.cycles.speculating:
            in_force = {
                "speculative_num_steps": self.engine.cycles.num_steps,
                "speculative_num_draft_tokens": self.engine.cycles.num_draft_tokens,
            }
        if not self.flags.values.get("speculative_adaptive"):
            info |= in_force  # only the scheduler's process knows adaptive steps
        state = {k: v for k, v in info.items() if k not in template["internal_state_leaves_out"]}
        state |= template["internal_state"] | in_force
        state["memory_usage"] = self.memory
        if self.on_cpu:
            state["decode_cuda_graph_bs"] = []
        state |= {
            "startup_time": {k: v for k, v in self.startup_times.items() if k != "tokenizer_e2e"},
            "pp_max_micro_batch_size": self.flags.max_running_requests,
            "effective_max_running_requests_per_dp": self.flags.max_running_requests,
            "last_gen_throughput": self.engine.counters.gen_throughput,
        }
        state |= self.overrides
        if (status := self.plugin.status(self.engine.cycles.setting)) is not None:
            state[STATUS] = status
        if (average := self.engine.counters.average_accept_length) is not None:
            state["avg_spec_accept_length"] = average
        info |= {
            "launch_command": shlex.join(self.argv),
            "status": "ready" if self.ready else "starting",
            "max_total_num_tokens": self.engine.scheduler.limits.kv,
            "max_req_input_len": self.context_length - _UNUSABLE_TOKENS,
            "startup_time": self.startup_times,
            "internal_states": [state],
            "version": self.profile.sglang,
            "frontend": "python",
            "simulated": {
                "profile": self.profile.name,
                "time_scale": self.simulation.time_scale,
                "seed": self.simulation.seed,
                "clock": self.engine.pace.lateness.to_dict(),
            },
        }
        return info

    def model_info(self) -> dict[str, Any]:
        info: dict[str, Any] = json.loads(_MODEL_INFO.read_text())
        return info | {
            "model_path": self.model_path,
            "served_model_name": self.served_model_name,
            "tokenizer_path": self.model_path,
        }

    def set_internal_state(self, requested: dict[str, int | float]) -> bool:
        """Change values of the running server: all values, or none and return `False`.

        The log has the reason of a refusal.
        """
        if self.plugin.settings and STEPS_ARGUMENT in requested:
            return self._switch(requested)
        for key, value in requested.items():
            if (refusal := self._refusal(key, value)) is not None:
                self.log.scheduler(refusal)
                return False
        for key, value in requested.items():
            self.overrides[key] = value
        return True

    def _switch(self, requested: dict[str, int | float]) -> bool:
        if self.plugin.refuses(requested, busy=self.engine.busy):
            return False
        asked = asked_setting(requested)
        if self.plugin.switched(self.engine.cycles.setting, asked):
            self.engine.cycles.switch(asked)
        return True

    def _refusal(self, key: str, value: float) -> str | None:
        reason = None
        if key == "pp_max_micro_batch_size":
            most = self.flags.max_running_requests
            if not 1 <= value <= most:
                reason = f"because it is out of the valid range [1, {most}]"
        elif key not in _THRESHOLDS:
            return f"Updating {key} is not supported."
        return reason and f"Updating {key} to {value} is rejected {reason}."


@cache
def _template() -> dict[str, Any]:
    """Return the recorded `/server_info`; the result is shared and must not be changed."""
    found: dict[str, Any] = json.loads(_SERVER_INFO.read_text())
    return found
