"""The start-up before the port is bound: SGLang's phases, in its order and words."""

from __future__ import annotations

import threading
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NoReturn

from runners.simulated_server import deaths

if TYPE_CHECKING:
    from runners.simulated_server.log import ServerLog
    from runners.simulated_server.profile import Misbehaviour, Profile
    from runners.simulated_server.resolution import ResolvedFlags


@dataclass(frozen=True, slots=True)
class Startup:
    """The start-up of one launch.

    Attributes:
        profile: How long its phases take.
        flags: What the server runs.
        log: Where it is logged.
        time_scale: Simulated seconds per real second.
        switchable: Step counts that the server can be switched to.
        misbehaviour: What goes wrong, if anything.
        began: `time.monotonic()` at the start of the process: real imports count.
    """

    profile: Profile
    flags: ResolvedFlags
    log: ServerLog
    time_scale: float
    switchable: int
    misbehaviour: Misbehaviour | None
    began: float

    def run(self) -> dict[str, Any]:
        """Goes through the phases; returns SGLang's `startup_time`."""
        log, times = self.log, self.profile.startup
        began = self.began
        time.sleep(max(0.0, began + times.imports_s / self.time_scale - time.monotonic()))
        scheduler_began = time.monotonic()
        log.scheduler("Init parallel begin.")
        took = self._wait(times.distributed_s)
        log.scheduler(f"Init parallel ends. elapsed={took:.2f} s")
        weights = self._load("load_weight", times.load_weight_s, "KimiK25ForConditionalGeneration")
        drafting = self.flags.algorithm is not None
        if drafting:
            weights += self._load("load_draft", times.load_draft_s, "LlamaForCausalLMEagle3")
        kv_cache = self._wait(times.kv_cache_s)
        for _ in range(2 if drafting else 1):
            log.scheduler(
                "KV Cache is allocated. dtype: torch.bfloat16, #tokens: 300000, K size: 3.25 GB, V "
                "size: 3.25 GB"
            )
            log.scheduler("Memory pool end. avail mem=9.61 GB")
        if self.flags.algorithm == "EAGLE3" and not self._has_draft:
            deaths.draft_missing(log)
        graphs = self._capture_graphs()
        log.scheduler(
            "max_total_num_tokens=300000, chunked_prefill_size=8192, max_prefill_tokens=16384, "
            f"max_running_requests={self.flags.max_running_requests}, "
            f"context_len={self.flags.values.get('context_length') or 262144}, "
            "available_gpu_mem=8.00 GB"
        )
        now = time.monotonic()
        return {
            "load_weight": weights,
            "kv_cache_allocation": kv_cache,
            "scheduler_e2e": now - scheduler_began,
            "cuda_graph": graphs,
            "tokenizer_e2e": now - began,
        }

    @property
    def _has_draft(self) -> bool:
        return self.flags.values.get("speculative_draft_model_path") is not None

    def _load(self, phase: str, seconds: float, kind: str) -> float:
        self.log.scheduler("Load weight begin. avail mem=94.16 GB")
        self._misbehave(phase, seconds)
        took = self._wait(seconds)
        self.log.scheduler(
            f"Load weight end. elapsed={took:.2f} s, type={kind}, avail mem=16.11 GB, "
            "mem usage=78.05 GB."
        )
        return took

    def _capture_graphs(self) -> dict[str, float]:
        times = self.profile.startup
        graphs = dict.fromkeys(
            ("prefill", "decode", "target_verify", "draft_prefill", "draft_decode", "draft_extend"),
            0.0,
        )
        if self.flags.values.get("disable_cuda_graph"):
            return graphs
        if self.flags.algorithm is None:
            graphs["decode"] = self._capture("decode", times.cuda_graph_s, 1)
            return graphs
        width = self.flags.num_draft_tokens
        extra = times.switchable_step_s * max(0, self.switchable - 1)
        graphs["target_verify"] = self._capture("target verify", times.cuda_graph_s + extra, width)
        half = times.draft_cuda_graph_s / 2
        graphs["draft_decode"] = self._capture("draft decode", half, self.flags.topk)
        graphs["draft_extend"] = self._capture("draft extend", half, width)
        return graphs

    def _capture(self, name: str, seconds: float, tokens_per_request: int) -> float:
        self.log.scheduler(
            f"Capture {name} CUDA graph begin. backend=full, "
            f"num_tokens_per_req={tokens_per_request}, bs=[1, 2, 4, 8, 16, 32, 64], "
            "avail mem=9.61 GB"
        )
        if name in {"decode", "target verify"}:
            self._misbehave("cuda_graph", seconds)
        took = self._wait(seconds)
        self.log.scheduler(
            f"Capture {name} CUDA graph end. elapsed={took:.2f} s, mem usage=0.40 GB, "
            "avail mem=8.40 GB."
        )
        return took

    def _misbehave(self, phase: str, seconds: float) -> None:
        trouble = self.misbehaviour
        if trouble is None or trouble.phase != phase:
            return
        if trouble.kind == "hang":
            _sleep_for_ever()
        self._wait(seconds / 2)
        deaths.out_of_memory(self.log, phase)

    def _wait(self, seconds: float) -> float:
        real = seconds / self.time_scale
        time.sleep(real)
        return real


def _sleep_for_ever() -> NoReturn:
    while True:
        threading.Event().wait(3600.0)
