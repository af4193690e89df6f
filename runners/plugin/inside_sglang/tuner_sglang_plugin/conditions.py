"""Servers on which draft steps can be switched safely.

Most conditions are those of SGLang's `adaptive_unsupported_reason` for its own switching (0.5.17,
0.5.23). Further conditions follow from the tuner's switching: one request must reach all ranks and
have the same result on each.
"""

from __future__ import annotations

import pkgutil
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterable

WORKERS = ("EAGLEWorkerV2", "StandaloneWorkerV2")
"""Exactly these: derived workers (Gemma's MTP, those of other platforms) build other states."""


class Shape(NamedTuple):
    """Steps and tokens to verify, of a chain or (`topk` > 1) a tree.

    Attributes:
        steps: Draft steps.
        draft_tokens: Tokens per verify, including the last known token.
    """

    steps: int
    draft_tokens: int

    @classmethod
    def read(cls, word: str) -> Shape:
        """Parse `5` (a chain) or `3/6`.

        Raises:
            ValueError: The text is neither.
        """
        steps, slash, draft_tokens = word.partition("/")
        if not all(part.isascii() and part.isdigit() for part in (steps, draft_tokens or "0")):
            raise ValueError(word)
        return cls(int(steps), int(draft_tokens) if slash else int(steps) + 1)

    def __str__(self) -> str:
        return str(self.steps) if self.is_chain else f"{self.steps}/{self.draft_tokens}"

    @property
    def is_chain(self) -> bool:
        """Whether every token follows the previous one."""
        return self.draft_tokens == self.steps + 1

    def fits_in(self, other: Shape) -> bool:
        """Whether buffers sized for the other are large enough."""
        return self.steps <= other.steps and self.draft_tokens <= other.draft_tokens


def shape_of(holder: Any) -> Shape:
    """Shape of a worker or of a state."""
    return Shape(holder.speculative_num_steps, holder.speculative_num_draft_tokens)


def listed(shapes: Iterable[Shape]) -> str:
    """Format as in the variable and the ready line."""
    return ",".join(map(str, sorted(shapes)))


def unsupported_reason(worker: Any, candidates: tuple[Shape, ...]) -> str | None:
    """Why this worker's steps cannot be switched; `None` if they can."""
    arguments = pkgutil.resolve_name("sglang.srt.runtime_context:get_context")()
    return (
        _of_the_worker(worker)
        or _of_the_arguments(arguments.resolved_server_args_dict())
        or _of_the_candidates(worker, candidates)
    )


def sharing_reason(worker: Any) -> str | None:
    """Why the built states differ from those of separate launches.

    With `--speculative-adaptive`, 0.5.23 does not let this backend share indices between draft
    extend and draft steps. Without the flag it does, which was never tested with switching.
    """
    backend = type(getattr(worker.draft_worker, "draft_attn_backend", None)).__name__
    if backend == "QwenSparseMultiStepDraftBackend":
        return "the draft's sparse attention shares indices between the parts of a cycle"
    return None


def _of_the_worker(worker: Any) -> str | None:
    name = type(worker).__name__
    if name not in WORKERS:
        return f"the worker is a {name}, and only {' and '.join(WORKERS)} can be switched"
    if worker.adaptive_controller is not None:
        return "--speculative-adaptive switches the steps itself"
    if worker.device == "cpu" and not _captures_no_graphs():
        return "on a CPU it needs --disable-cuda-graph: SGLang would capture graphs for its states"
    return None


def _captures_no_graphs() -> bool:
    of_phase = "sglang.srt.model_executor.cuda_graph_config:check_cuda_graph_backend"
    return bool(pkgutil.resolve_name(of_phase)("decode", "disabled"))


def _of_the_arguments(arguments: dict[str, Any]) -> str | None:
    for name, why in NEVER.items():
        if arguments.get(name):
            return f"--{name.replace('_', '-')} is set: {why}"
    for name, why in ONE.items():
        if (arguments.get(name) or 1) > 1:
            return f"--{name.replace('_', '-')} is {arguments[name]}: {why}"
    mode = arguments.get("disaggregation_mode") or "null"
    if mode != "null":
        return f"--disaggregation-mode is {mode}: idle has another meaning there"
    return None


NEVER = {
    "enable_dp_attention": "a request does not reach all its ranks together",
    "enable_multi_layer_eagle": "its worker builds no states",
    "enable_two_batch_overlap": "a switch would lose its attention backend",
    "enable_pdmux": "a switch would not reach its attention backends",
    "enable_hisparse": "SGLang does not switch steps with it",
    "speculative_adaptive": "it switches the steps itself",
}
ONE = {
    "attn_dp_size": "with attention DP a request does not reach all ranks together",
    "dp_size": "a request does not reach all replicas together",
    "pp_size": "a request does not reach all stages together",
}


def _of_the_candidates(worker: Any, candidates: tuple[Shape, ...]) -> str | None:
    started, topk = shape_of(worker), worker.topk
    for one in candidates:
        if topk == 1 and not one.is_chain:
            return f"--speculative-eagle-topk is 1, and {one} is no chain"
        # A tree with fewer tokens than a path of all steps crashes in its first verify.
        if topk > 1 and not one.steps < one.draft_tokens <= 1 + topk + (one.steps - 1) * topk**2:
            return f"at --speculative-eagle-topk {topk} there is no tree of {one}"
    if started not in candidates or not all(one.fits_in(started) for one in candidates):
        return (
            f"the server starts with {started}, and buffers have the size of the start: it must be"
            f" one of the candidates, {listed(candidates)}, and the largest in every respect"
        )
    return None
