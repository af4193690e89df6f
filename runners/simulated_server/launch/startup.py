"""Start-up phases before the port is bound, in the order and words of SGLang 0.5.23.

NCCL variables that stop a server (recorded with SGLang 0.5.17 and NCCL 2.28 on two H200):
`NCCL_PROTO=FOO` and `NCCL_ALGO=CollnetDirect` fail when the process groups are created.
`NCCL_ALGO=Tree` fails in the graph capture, because all-gather has no tree algorithm.
`NCCL_ALGO=allreduce:tree` works.
"""

from __future__ import annotations

import os
import threading
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NoReturn

from runners.simulated_server.engine import tokens
from runners.simulated_server.engine.adaptive import candidate_steps
from runners.simulated_server.engine.request import make_request
from runners.simulated_server.engine.scheduler import Limits
from runners.simulated_server.faults.crashes import crash
from runners.simulated_server.launch.flags import CHAIN_ALGORITHMS, CONTEXT_LENGTH

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from runners.simulated_server.api.state import SimulatedServer
    from runners.simulated_server.engine.plugin import SimulatedPlugin
    from runners.simulated_server.engine.profile import Profile
    from runners.simulated_server.faults.misbehaviour import Misbehaviour
    from runners.simulated_server.launch.flags import ResolvedFlags
    from runners.simulated_server.launch.log import ServerLog


_PROTOCOLS = frozenset({"LL", "LL128", "SIMPLE"})


def nccl_refusal(tp_size: int, environ: Mapping[str, str] | None = None) -> str | None:
    """Return the cause of the crash that NCCL's variables lead to; `None` if NCCL accepts them.

    Args:
        tp_size: Number of ranks; a single rank does not use NCCL.
        environ: The variables; defaults to the environment of the process.
    """
    if tp_size < 2:
        return None
    env = os.environ if environ is None else environ
    protocols = env.get("NCCL_PROTO", "")
    if protocols and ";" not in protocols and ":" not in protocols:
        words = {word.strip().upper() for word in protocols.lstrip("^").split(",")}
        if words - _PROTOCOLS:
            return "nccl_protocol"
    algorithm = env.get("NCCL_ALGO", "").strip().lower()
    if algorithm == "collnetdirect":
        return "nccl_algorithm"
    return "nccl_capture" if algorithm == "tree" else None


_TARGET = "KimiK25ForConditionalGeneration"
_DRAFTS = {
    "EAGLE3": "LlamaForCausalLMEagle3",
    "EAGLE": "DeepseekV3ForCausalLMNextN",
    "STANDALONE": "LlamaForCausalLM",
    "DFLASH": "DFlashDraftModel",
}
_MEMORY_GB = {"load_weight": (94.16, 16.11), "load_draft": (16.11, 13.93)}
"""Free GPU memory before and after the weights."""
_NO_DRAFT_BACKENDS = frozenset({"torch_native", "flex_attention"})
"""Attention backends that do not support drafting (`speculative/draft_utils.py`)."""
_PREFILL_DISABLED = (
    "Disable prefill CUDA graph because cuda_graph_config resolved prefill.backend='disabled' "
    "(e.g. via --cuda-graph-backend-prefill=disabled or auto-disable rules)."
)


@dataclass(frozen=True, slots=True)
class Startup:
    """Start-up of one launch.

    Attributes:
        profile: The simulated machine, with the times of the phases.
        began: `time.monotonic()` at the start of the process; its real imports count.
    """

    profile: Profile
    flags: ResolvedFlags
    log: ServerLog
    time_scale: float
    plugin: SimulatedPlugin
    faults: Sequence[Misbehaviour]
    began: float

    def run(self) -> dict[str, Any]:
        """Run the phases; return SGLang's `startup_time`."""
        log, times = self.log, self.profile.startup
        began = self.began
        self._apply_faults("arguments", 0.0)
        time.sleep(max(0.0, began + times.imports_s / self.time_scale - time.monotonic()))
        scheduler_began = time.monotonic()
        self._connect()
        weights = self._load("load_weight", times.load_weight_s, _TARGET)
        standalone = self.flags.algorithm == "STANDALONE"
        if self._has_draft_model:
            if not standalone:
                self._log_expert_backends()
            kind = _DRAFTS[self.flags.algorithm or ""]
            weights += self._load("load_draft", times.load_draft_s, kind)
        kv_cache = self._allocate()
        if standalone:
            self._log_expert_backends()
        graphs = self._capture_graphs()
        self.plugin.ready()
        limits = self._limits
        log.scheduler(
            f"max_total_num_tokens={limits.kv}, chunked_prefill_size={limits.chunk or -1}, "
            f"max_prefill_tokens={limits.prefill}, max_running_requests={limits.running}, "
            f"context_len={self.flags.values.get('context_length') or CONTEXT_LENGTH}, "
            f"available_{'cpu' if self._on_cpu else 'gpu'}_mem=8.00 GB"
        )
        log.ranks(
            "Init Unified Radix Cache. Components: (<ComponentType.FULL: 0>,). Tree Core: "
            "RustUnifiedTreeCore"
        )
        log.ranks(
            "Tree cache initialized: source=default impl=UnifiedRadixCache hybrid_swa=False "
            "hybrid_ssm=False hicache_attached=False"
        )
        now = time.monotonic()
        took = {
            "load_weight": weights,
            "kv_cache_allocation": kv_cache,
            "scheduler_e2e": now - scheduler_began,
            "cuda_graph": graphs,
            "tokenizer_e2e": now - began,
        }
        captured = ", ".join(f"{name}={seconds:.2f}" for name, seconds in graphs.items())
        log.main(
            f"Engine startup timings (s): load_weight={weights:.2f}, kv_cache_allocation="
            f"{kv_cache:.2f}, scheduler_e2e={took['scheduler_e2e']:.2f}, "
            f"cuda_graph={{{captured}}}, tokenizer_e2e={took['tokenizer_e2e']:.2f}"
        )
        return took

    @property
    def _on_cpu(self) -> bool:
        return self.flags.values.get("device") == "cpu"

    @property
    def _limits(self) -> Limits:
        return Limits.of(self.flags.values, self.flags.max_running_requests, self.profile.kv_tokens)

    def _log_expert_backends(self) -> None:
        self.log.ranks("SPECULATIVE_MOE_RUNNER_BACKEND is not initialized, using auto backend")
        self.log.ranks("SPECULATIVE_MOE_A2A_BACKEND is not initialized, using none backend")

    @property
    def _has_draft_model(self) -> bool:
        return self.flags.algorithm in _DRAFTS

    def _connect(self) -> None:
        self.log.ranks("Init parallel begin.")
        seconds = self.profile.startup.distributed_s
        self._apply_faults("distributed", seconds)
        refused = nccl_refusal(self.flags.tp_size)
        if refused is not None and refused != "nccl_capture":
            crash(self.log, "distributed", refused, self.flags)
        if self.flags.tp_size > 1:
            self.log.ranks("sglang is using nccl==2.30.7")
        if self._has_own_all_reduce:
            self.log.scheduler(
                "All Reduce config: symmetric_memory = 80.01 MB, local_buffer = 2.00 MB, "
                "multicast = False, pull = True"
            )
        took = self._wait(seconds)
        self.log.ranks(f"Init parallel ends. elapsed={took:.2f} s")

    @property
    def _has_own_all_reduce(self) -> bool:
        """Whether SGLang's own all-reduce kernel runs (0.5.23, `custom_all_reduce_v2.py`)."""
        off = ("disable_custom_all_reduce", "enable_deterministic_inference")
        return (
            self.profile.nvlink
            and self.flags.tp_size > 1
            and not any(self.flags.values.get(name) for name in off)
        )

    def _load(self, phase: str, seconds: float, kind: str) -> float:
        self.log.ranks("Memory baseline taken. mem usage=0.09 GB")
        before, after = _MEMORY_GB[phase]
        self.log.ranks(f"Load weight begin. avail mem={before:.2f} GB")
        self._apply_faults(phase, seconds)
        took = self._wait(seconds)
        self.log.ranks(
            f"Load weight end. elapsed={took:.2f} s, type={kind}, avail mem={after:.2f} GB, "
            f"mem usage={before - after:.2f} GB."
        )
        return took

    def _allocate(self) -> float:
        seconds = self.profile.startup.kv_cache_s
        self._apply_faults("kv_cache", seconds)
        took = self._wait(seconds)
        asked = self.flags.values.get("max_total_tokens")
        if asked is not None and asked > self.profile.kv_tokens:
            self.log.ranks(
                f"max_total_tokens={asked} is larger than the profiled value "
                f"{self.profile.kv_tokens}. Use the profiled value instead."
            )
        for _ in range(2 if self._has_draft_model else 1):
            self.log.ranks(
                f"KV Cache is allocated. dtype: torch.bfloat16, #tokens: {self._limits.kv}, "
                "K size: 3.25 GB, V size: 3.25 GB"
            )
            self.log.ranks("Memory pool end. avail mem=9.61 GB")
        if self.flags.algorithm == "EAGLE3" and not self.flags.has_draft:
            crash(self.log, "kv_cache", "draft_missing", self.flags)
        stepwise = self.flags.algorithm in CHAIN_ALGORITHMS
        backend = self.flags.draft_attention_backend
        if stepwise and self.flags.num_steps > 1 and backend in _NO_DRAFT_BACKENDS:
            crash(self.log, "kv_cache", "backend_unsupported", self.flags)
        return took

    def _capture_graphs(self) -> dict[str, float]:
        flags, times = self.flags, self.profile.startup
        graphs = dict.fromkeys(
            ("prefill", "decode", "target_verify", "draft_prefill", "draft_decode", "draft_extend"),
            0.0,
        )
        self.log.ranks(_PREFILL_DISABLED)
        if flags.values.get("disable_cuda_graph") or self._on_cpu:
            # No capture, but faults of this phase still occur.
            self._apply_faults("cuda_graph", 0.0)
            if self._has_draft_model:
                self.log.ranks(_PREFILL_DISABLED)
            return graphs
        if flags.algorithm is None:
            graphs["decode"] = self._capture("target decode", times.cuda_graph_s, 1)
            return graphs
        width = flags.num_draft_tokens
        states = len(self.plugin.settings)
        if flags.adaptive:
            states = len(candidate_steps(flags.values.get("speculative_adaptive_config")))
        extra = times.switchable_step_s * max(0, states - 1)
        graphs["target_verify"] = self._capture("target verify", times.cuda_graph_s + extra, width)
        if flags.algorithm == "NGRAM":
            return graphs
        self.log.ranks(_PREFILL_DISABLED)
        if flags.algorithm == "DFLASH":
            seconds = times.draft_cuda_graph_s
            graphs["draft_decode"] = self._capture("draft verify", seconds, width)
            return graphs
        half = times.draft_cuda_graph_s / 2
        if flags.num_steps > 1:
            graphs["draft_decode"] = self._capture("draft decode", half, flags.topk)
        graphs["draft_extend"] = self._capture("draft extend", half, width)
        return graphs

    def _capture(self, name: str, seconds: float, tokens_per_request: int) -> float:
        # The draft's runners log on the first rank only.
        write = self.log.scheduler if name.startswith("draft") else self.log.ranks
        write(
            f"Capture {name} CUDA graph begin. backend=full, "
            f"num_tokens_per_req={tokens_per_request}, bs=[1, 2, 4, 8, 16, 32, 64], "
            "avail mem=9.61 GB"
        )
        if name.startswith("target"):
            self._apply_faults("cuda_graph", seconds)
            if nccl_refusal(self.flags.tp_size) == "nccl_capture":
                crash(self.log, "cuda_graph", "nccl_capture", self.flags)
        took = self._wait(seconds)
        write(
            f"Capture {name} CUDA graph end. elapsed={took:.2f} s, mem usage=0.40 GB, "
            "avail mem=8.40 GB."
        )
        return took

    def _apply_faults(self, phase: str, seconds: float) -> None:
        for fault in self.faults:
            if fault.phase != phase:
                continue
            if fault.cause == "states_oom" and len(self.plugin.settings) < 2:
                continue
            if fault.kind == "hang":
                _sleep_forever()
            self._wait(seconds / 2)
            crash(self.log, phase, fault.crash_cause, self.flags, time_scale=self.time_scale)

    def _wait(self, seconds: float) -> float:
        real = seconds / self.time_scale
        time.sleep(real)
        return real


def _sleep_forever() -> NoReturn:
    while True:
        threading.Event().wait(3600.0)


_PROMPT = "The capital city of France is"
_TOKENS = 8


def count_warm_up(server: SimulatedServer) -> None:
    """Count the warm-up request in `/metrics`; its time is the profile's `warmup_s`."""
    ids = tokens.tokenize(_PROMPT)
    request = make_request("warm-up", ids, _TOKENS, arrived=time.monotonic())
    request.forward_entry_at = request.prefill_finished_at = request.received_at
    server.engine.rehearse(request)
    if server.enable_metrics:
        server.observations.finished(request)
