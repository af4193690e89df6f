"""Draft steps that change while the server runs.

SGLang's EAGLE workers can build "runtime states" (attention backends and CUDA graphs per number of
draft steps) and activate one; `--speculative-adaptive` does so by acceptance. The plugin replaces
SGLang's controller, without that flag: its controller builds a state per candidate and keeps the
requested one active.
"""

from __future__ import annotations

import os
import pkgutil
import time
from typing import TYPE_CHECKING, Any

from .conditions import Shape, listed, shape_of, sharing_reason, unsupported_reason
from .hooks import Point
from .log import place, refuse, say
from .status import MARK_VARIABLE

if TYPE_CHECKING:
    from collections.abc import Callable

NAME = "hot_switch"
STEPS_KEY = "speculative_num_steps"
DRAFT_TOKENS_KEY = "speculative_num_draft_tokens"
"""Needed for trees only: a chain has one token more than steps."""

BUSY = "requests are waiting or running"
"""Refusal that is worth a retry: a server is briefly busy after its last answer."""

_EAGLE = "sglang.srt.speculative.eagle_worker_v2.EAGLEWorkerV2"
_STANDALONE = "sglang.srt.speculative.standalone_worker_v2.StandaloneWorkerV2"
_SCHEDULER = "sglang.srt.managers.scheduler.Scheduler"
_WIDTH = "sglang.srt.speculative.spec_utils.resolve_num_tokens_per_req"


class HeldStates:
    """Replaces SGLang's `AdaptiveController`: states of one worker, one of them active.

    Its public methods, except `switch`, are those that the worker calls (0.5.17, 0.5.23).

    Attributes:
        in_force: Shape of the active state.
        built: Seconds and GiB of GPU memory of each state by shape; zero for the state of the
            start.
    """

    def __init__(self, worker: Any, candidates: tuple[Shape, ...]) -> None:
        self._worker = worker
        self._candidates = candidates
        self._states: dict[Shape, Any] = {}
        self.in_force = shape_of(worker)
        self.built: dict[Shape, dict[str, float]] = {}

    def register(self, state: Any, steps: int | None = None) -> None:  # noqa: ARG002
        """Store the state with which the server started."""
        self._states[shape_of(state)] = state
        self.built[shape_of(state)] = {"build_s": 0.0, "memory_gb": 0.0}

    def init_states(self, cuda_graph_bs: list[int] | None = None) -> None:  # noqa: ARG002
        """Build the other states, larger ones first, because they share graph memory.

        The worker chooses the batch sizes of the graphs, as in a separate launch.
        """
        for shape in sorted(set(self._candidates) - set(self._states), reverse=True):
            free, begun = self._free_memory(), time.perf_counter()
            self._states[shape] = self._worker.build_adaptive_runtime_state(
                speculative_num_steps=shape.steps, speculative_num_draft_tokens=shape.draft_tokens
            )
            self.built[shape] = {
                "build_s": time.perf_counter() - begun,
                "memory_gb": free - self._free_memory(),
            }

    def activate_step_by_batch(self, batch_size: int) -> None:
        """Do nothing: the batch does not decide."""

    def on_verify_complete(self, accepted: list[int], batch_size: int = 0) -> None:
        """Do nothing: acceptance does not decide."""

    @property
    def is_complete(self) -> bool:
        """Whether every candidate has a state."""
        return set(self._states) == set(self._candidates)

    def switch(self, shape: Shape) -> None:
        """Activate a state."""
        if shape != self.in_force:
            # The worker skips a state with its current number of steps, whatever else differs.
            self._worker.speculative_num_steps = None
            self._worker.apply_runtime_state(self._states[shape])
            self.in_force = shape_of(self._worker)

    def _free_memory(self) -> float:
        """Free GPU memory in GiB; 0 without a GPU."""
        if self._worker.device == "cpu":
            return 0.0
        free = pkgutil.resolve_name("sglang.srt.utils.common:get_available_gpu_memory")
        return float(free(self._worker.device, self._worker.gpu_id))


class HotSwitch:
    """The capability: its hooks and the worker of this process."""

    name = NAME

    key = STEPS_KEY
    wish = "switch to"
    refused: str | None = None

    def __init__(self, candidates: tuple[Shape, ...]) -> None:
        self._candidates = candidates
        self._held: HeldStates | None = None
        self._switches = 0

    @classmethod
    def from_environment(cls, steps: str) -> HotSwitch:
        """Read the request of the tuner, or refuse."""
        if not os.environ.get(MARK_VARIABLE):
            refuse(NAME, f"{MARK_VARIABLE} is not set, so no request could be accepted")
        try:
            candidates = {Shape.read(word) for word in steps.split(",")}
        except ValueError:
            refuse(NAME, f"{steps!r} is not a list like 1,2,5 (or 2/4,3/6 for trees)")
        return cls(tuple(sorted(candidates)))

    @property
    def points(self) -> dict[str, tuple[Point, ...]]:
        """Hooks of workers and scheduler, and functions that are called."""
        called = (
            Point(
                f"{_EAGLE}.build_adaptive_runtime_state",
                "(self, speculative_num_steps, speculative_num_draft_tokens, cuda_graph_bs=)",
            ),
            Point(f"{_EAGLE}.apply_runtime_state", "(self, state)"),
            Point(f"{_EAGLE}.init_cuda_graphs", "(self)"),
            Point(f"{_EAGLE}.activate_step_by_batch", "(self, batch_size)"),
            Point(
                f"{_EAGLE}.on_verify_complete_cpu",
                "(self, num_correct_drafts_per_req, batch_size=)",
            ),
            Point(
                "sglang.srt.utils.common.get_available_gpu_memory",
                "(device, gpu_id, distributed=, empty_cache=, cpu_group=)",
            ),
        )
        worker_17 = "(self, server_args, gpu_id, ps, nccl_port, target_worker)"
        worker_23 = "(self, server_args, gpu_id, nccl_port, target_worker)"
        width_17 = "(*, phase, server_args, spec_algorithm=, is_draft_worker=, num_draft_tokens=)"
        return {
            "0.5.17": (
                *called,
                Point(f"{_SCHEDULER}.is_fully_idle", "(self, for_health_check=)"),
                Point(f"{_EAGLE}.__init__", worker_17, "after", self.take_over),
                Point(f"{_STANDALONE}.__init__", worker_17, "after", self.take_over),
                Point(_WIDTH, width_17, "around", width_of_the_context),
            ),
            "0.5.23": (
                *called,
                Point(f"{_SCHEDULER}.is_fully_idle", "(self, for_health_check=, ignore_waiting=)"),
                Point(f"{_EAGLE}.__init__", worker_23, "after", self.take_over),
                Point(f"{_STANDALONE}.__init__", worker_23, "after", self.take_over),
            ),
        }

    def take_over(self, _result: None, worker: Any, *_: Any, **__: Any) -> None:
        """After `__init__` of a worker: replace SGLang's controller."""
        if reason := unsupported_reason(worker, self._candidates):
            refuse(NAME, reason)
        self._held = worker.adaptive_controller = HeldStates(worker, self._candidates)

    def ready(self, scheduler: Any) -> str:
        """Refuse if there is no worker or its states were not built."""
        if self._held is None:
            refuse(NAME, "no worker of EAGLE, EAGLE3, NEXTN or STANDALONE was started")
        if reason := sharing_reason(scheduler.draft_worker):
            refuse(NAME, reason)
        if not self._held.is_complete:
            refuse(NAME, f"states were built for {listed(self._held.built)} only")
        return listed(self._candidates)

    def status(self, scheduler: Any) -> dict[str, Any] | None:  # noqa: ARG002
        """The active setting, and the cost of the states."""
        if self._held is None:
            return None
        in_force, built = self._held.in_force, self._held.built
        return {
            "steps": sorted({shape.steps for shape in self._candidates}),
            "in_force": in_force.steps,
            "in_force_draft_tokens": in_force.draft_tokens,
            "switches": self._switches,
            "refused": self.refused,
            "states": {str(shape): built[shape] for shape in sorted(built)},
        }

    def change(self, scheduler: Any, asked: dict[str, Any]) -> str | None:
        """Switch; return the reason if that failed.

        Every rank receives the same request at the same point of its loop, so all ranks come to the
        same result. Whether they are idle, they ask each other.
        """
        if self._held is None:
            return "the worker is not built yet"
        steps = asked.pop(STEPS_KEY)
        shape = Shape(steps, asked.pop(DRAFT_TOKENS_KEY, steps + 1))
        if asked:
            return f"it cannot be combined with {', '.join(sorted(asked))}"
        if shape not in self._candidates:
            return f"there are states for {listed(self._candidates)} only"
        if not all_agree(bool(scheduler.is_fully_idle()), scheduler.tp_cpu_group):
            return BUSY
        before = self._held.in_force
        self._held.switch(shape)
        if self._held.in_force != before:
            self._switches += 1
            say(f"{place()} steps {before} -> {self._held.in_force}")
        return None


def all_agree(answer: bool, group: Any) -> bool:
    """Whether all ranks of a group agree."""
    import torch  # noqa: PLC0415 - the server's; in schedulers only

    if torch.distributed.get_world_size(group) == 1:
        return answer
    agreed = torch.tensor([int(answer)])
    torch.distributed.all_reduce(agreed, op=torch.distributed.ReduceOp.MIN, group=group)
    return bool(agreed.item())


def width_of_the_context(
    original: Callable[..., int],
    *,
    phase: str,
    num_draft_tokens: int | None = None,
    **others: Any,
) -> int:
    """Hook around `resolve_num_tokens_per_req` of 0.5.17: return the width of the current state.

    0.5.17 reads the width from the start arguments, so the graphs of every state would have the
    width of the first one, and draft extend would run without a graph. 0.5.23 reads it from this
    context.
    """
    spec = pkgutil.resolve_name("sglang.srt.runtime_context:get_spec")()
    if phase == "draft_extend":
        width: int = spec.speculative_num_draft_tokens
        return width
    if phase == "target_verify" and num_draft_tokens is None:
        num_draft_tokens = spec.speculative_num_draft_tokens
    return original(phase=phase, num_draft_tokens=num_draft_tokens, **others)
