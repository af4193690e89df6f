"""Clock of decoding cycles.

A cycle is draft (including the construction of the tree), verify (from the end of the draft to the
end of the target's forward) and draft extend; without speculation it is one decode forward. The
time until the next cycle begins is the rest: sampling, scheduling, gaps. A part is time on the
stream, so it includes the host's work and gaps. If a prefill or nothing follows, the cycle has no
end: its parts count, its length does not.

An error in the clock stops the clock permanently and never the server.
"""

from __future__ import annotations

import math
import pkgutil
import time
from collections import deque
from functools import partial
from typing import TYPE_CHECKING, Any

from .hooks import Point
from .log import refuse, say

if TYPE_CHECKING:
    from collections.abc import Callable

NAME = "clock"
DEVICES = ("cpu", "cuda")
"""Devices whose time it measures."""

RUN_KEY = "tuner_clock"
"""Stops (0) and starts (1) the clock, so that its cost can be measured within one launch."""

_DRAFT = "sglang.srt.speculative.eagle_worker_v2.EagleDraftWorker"
_FORWARD = "sglang.srt.model_executor.model_runner.ModelRunner.forward"
_FORWARD_SIGNATURE = (
    "(self, forward_batch, skip_attn_backend_init=, pp_proxy_tensors=, reinit_attn_backend=,"
    " split_forward_count=)"
)
_IDLE = "sglang.srt.managers.scheduler.Scheduler.is_fully_idle"
_READ_AT_ONCE = 4
"""Cycles that are read per new cycle; more than one, so that unread cycles do not accumulate."""


GROWTH = 1.02
"""Ratio of bucket limits: medians from buckets are within 1 %."""

LEAST_S = 1e-6
"""Lower limit of bucket 0, which also holds shorter durations."""

_PER_BUCKET = 1 / math.log(GROWTH)


def bucket_of(seconds: float) -> int:
    """Bucket `i` holds durations in `[1e-6 * 1.02**i, 1e-6 * 1.02**(i + 1))` seconds."""
    return int(math.log(seconds / LEAST_S) * _PER_BUCKET) if seconds > LEAST_S else 0


class Durations:
    """Durations of one part since the start."""

    __slots__ = ("buckets", "count", "graphs", "total_s")

    def __init__(self) -> None:
        self.count = 0
        self.total_s = 0.0
        self.graphs = 0
        self.buckets: dict[int, int] = {}

    def add(self, seconds: float, *, graph: bool = False) -> None:
        """Count one duration."""
        self.count += 1
        self.total_s += seconds
        self.graphs += graph
        bucket = bucket_of(seconds)
        self.buckets[bucket] = self.buckets.get(bucket, 0) + 1

    def to_dict(self) -> dict[str, Any]:
        """JSON for `/server_info`."""
        return {
            "count": self.count,
            "total_s": self.total_s,
            "graphs": self.graphs,
            "buckets": {str(bucket): n for bucket, n in sorted(self.buckets.items())},
        }


class CpuMarks:
    """Marks of a CPU, which has done the work when the call returns."""

    def mark(self) -> Any:
        """Now."""
        return time.perf_counter()

    def is_past(self, mark: Any) -> bool:  # noqa: ARG002 - the shape of marks
        """Whether the device has passed the mark."""
        return True

    def seconds(self, begin: Any, end: Any) -> float:
        """Time between two passed marks."""
        return float(end - begin)

    def give_back(self, mark: Any) -> None:
        """Release the mark."""


class CudaMarks:
    """Events on the current stream, read after the GPU has passed them.

    Nothing waits for the GPU. Events are reused, since creating one costs more than recording it.
    """

    def __init__(self) -> None:
        import torch  # noqa: PLC0415 - the server's; in schedulers only

        self._make: Callable[[], Any] = partial(torch.cuda.Event, enable_timing=True)
        self._spare: list[Any] = []

    def mark(self) -> Any:
        """Record an event on the stream."""
        event = self._spare.pop() if self._spare else self._make()
        event.record()
        return event

    def is_past(self, mark: Any) -> bool:
        """Whether the GPU has passed the event; does not wait."""
        return bool(mark.query())

    def seconds(self, begin: Any, end: Any) -> float:
        """Time between two passed events."""
        return float(begin.elapsed_time(end)) / 1e3

    def give_back(self, mark: Any) -> None:
        """Release the mark."""
        self._spare.append(mark)


class _Cycle:
    """A cycle with its marks, until they are read."""

    __slots__ = ("begin", "end", "last", "marks", "parts", "size")

    def __init__(self, size: int, begin: Any) -> None:
        self.size = size
        self.begin = begin
        self.last = begin
        self.end: Any = None  # begin of the next cycle
        self.marks = [begin]
        self.parts: dict[str, tuple[Any, Any, bool]] = {}


class CycleClock:
    """The capability: hooks around the parts, and their sums."""

    name = NAME
    key = RUN_KEY
    wish = "set the clock to"
    refused: str | None = None

    def __init__(self) -> None:
        self._marks: CpuMarks | CudaMarks = CpuMarks()
        self._runs = False
        self._failed: str | None = None
        self._open: _Cycle | None = None
        self._unread: deque[_Cycle] = deque()
        self._ran_eagerly = False
        self._sums: dict[int, dict[str, Durations]] = {}
        self._measured: tuple[str, ...] = ("verify",)

    @property
    def points(self) -> dict[str, tuple[Point, ...]]:
        """Both halves of the draft worker, the forward of every model, and the idle check."""

        def each(idle: str, draft: str, draft_extend: str) -> tuple[Point, ...]:
            return (
                Point(_FORWARD, _FORWARD_SIGNATURE, "around", self.forward),
                Point(_IDLE, idle),
                Point(f"{_DRAFT}.draft", draft, "around", self.draft),
                Point(
                    f"{_DRAFT}._draft_extend_for_decode", draft_extend, "around", self.draft_extend
                ),
            )

        return {
            "0.5.17": each(
                "(self, for_health_check=)", "(self, batch)", "(self, batch, batch_result)"
            ),
            "0.5.23": each(
                "(self, for_health_check=, ignore_waiting=)",
                "(self, batch, *, with_topology=)",
                "(self, batch, batch_result, *, kv_loc_plan=)",
            ),
        }

    def ready(self, scheduler: Any) -> str:
        """Start the clock. Earlier forwards were warm-up and graph capture."""
        device = str(scheduler.device)
        if device == "cuda":
            self._marks = CudaMarks()
        elif device not in DEVICES:
            refuse(NAME, f"the device is {device}, and it measures {' and '.join(DEVICES)}")
        context = pkgutil.resolve_name("sglang.srt.runtime_context:get_context")()
        stages = context.resolved_server_args_dict().get("pp_size") or 1
        if stages > 1:
            refuse(NAME, f"--pp-size is {stages}: each stage would see its own part of a forward")
        draft_worker = getattr(scheduler.draft_worker, "draft_worker", None)
        if isinstance(draft_worker, pkgutil.resolve_name(_DRAFT)):
            self._measured = ("draft", "draft_extend", "verify")
        self._runs = True
        return "on"

    def status(self, scheduler: Any) -> dict[str, Any]:
        """Sums by batch size and part."""
        self._guard(self._catch_up, scheduler)
        return {
            "running": self._runs,
            "failed": self._failed,
            # Drafts of other workers (DFLASH, multi-layer EAGLE) count as rest.
            "parts": list(self._measured),
            "batches": {
                str(size): {part: one.to_dict() for part, one in parts.items()}
                for size, parts in sorted(self._sums.items())
            },
        }

    def change(self, scheduler: Any, asked: dict[str, Any]) -> str | None:  # noqa: ARG002
        """Stop or continue the clock; return the reason if that failed."""
        run = asked.pop(RUN_KEY)
        if asked:
            return f"it cannot be combined with {', '.join(sorted(asked))}"
        if run not in {0, 1}:
            return f"{RUN_KEY} is 0 or 1"
        if self._failed is not None:
            return f"it stopped for good: {self._failed}"
        self.interrupt()
        self._runs = bool(run)
        return None

    def draft(self, original: Callable[..., Any], worker: Any, batch: Any, **more: Any) -> Any:
        """Hook around the draft steps, which begin a cycle."""
        cycle = self._guard(self._drafting, batch) if self._runs else None
        result = original(worker, batch, **more)
        if cycle is not None:
            self._guard(self._drafted, cycle, worker)
        return result

    def draft_extend(
        self, original: Callable[..., Any], worker: Any, *args: Any, **more: Any
    ) -> Any:
        """Hook around the draft's pass over accepted tokens, the last part of a cycle."""
        cycle = self._open
        begin = self._guard(self._extending, cycle) if cycle is not None else None
        result = original(worker, *args, **more)
        if begin is not None:
            self._guard(self._extended, cycle, begin)
        return result

    def forward(
        self,
        original: Callable[..., Any],
        runner: Any,
        forward_batch: Any,
        *args: Any,
        **more: Any,
    ) -> Any:
        """Hook around every forward. The target's is verify, or ends a cycle."""
        cycle = self._guard(self._verifying, runner, forward_batch) if self._runs else None
        result = original(runner, forward_batch, *args, **more)
        if cycle is not None:
            self._guard(self._verified, cycle, result)
        return result

    def _drafting(self, batch: Any) -> _Cycle | None:
        if batch.forward_mode.is_idle():
            return None
        self._ran_eagerly = False
        return self._begin(int(batch.seq_lens.shape[0]))

    def _drafted(self, cycle: _Cycle, worker: Any) -> None:
        graph = worker.cuda_graph_runner is not None and not self._ran_eagerly
        self._part(cycle, "draft", cycle.begin, graph=graph)

    def _verifying(self, runner: Any, forward_batch: Any) -> _Cycle | None:
        if runner.is_draft_worker:
            self._ran_eagerly = True  # a part that runs as a graph does not reach this hook
            return None
        mode = forward_batch.forward_mode
        if not (mode.is_target_verify() or mode.is_decode()):
            self.interrupt()
            return None
        if self._open is None or "verify" in self._open.parts:  # no draft precedes this forward
            return self._begin(int(forward_batch.batch_size))
        return self._open

    def _verified(self, cycle: _Cycle, result: Any) -> None:
        # Verify begins at the end of the draft, since its preparation runs before the forward with
        # speculation, and inside it without (`load_batch`). Verify includes it in both cases.
        self._part(cycle, "verify", cycle.last, graph=bool(result.can_run_graph))

    def _extending(self, cycle: _Cycle) -> Any:
        self._ran_eagerly = False
        return self._mark(cycle)

    def _extended(self, cycle: _Cycle, begin: Any) -> None:
        self._part(cycle, "draft_extend", begin, graph=not self._ran_eagerly)

    def _guard(self, work: Callable[..., Any], *args: Any) -> Any:
        """Run the clock's work; an error stops the clock permanently."""
        if self._failed is not None:
            return None
        try:
            return work(*args)
        except Exception as error:  # noqa: BLE001 - whatever CUDA or SGLang raises
            self._failed = f"{type(error).__name__}: {error}".splitlines()[0]
            self._runs, self._open = False, None
            self._unread.clear()
            say(f"the clock failed and stops for good: {self._failed}")
            return None

    def interrupt(self) -> None:
        """Mark that something other than the next cycle follows."""
        if self._open is not None:
            self._unread.append(self._open)
            self._open = None

    def _begin(self, size: int) -> _Cycle:
        """Begin a cycle and end the previous one."""
        begin = self._marks.mark()
        if self._open is not None:
            self._open.end = self._open.last = begin
            self._unread.append(self._open)
        self._open = _Cycle(size, begin)
        self._read(_READ_AT_ONCE)
        return self._open

    def _mark(self, cycle: _Cycle) -> Any:
        cycle.last = self._marks.mark()
        cycle.marks.append(cycle.last)
        return cycle.last

    def _part(self, cycle: _Cycle, name: str, begin: Any, *, graph: bool) -> None:
        cycle.parts[name] = (begin, self._mark(cycle), graph)

    def _catch_up(self, scheduler: Any) -> None:
        if scheduler.is_fully_idle():
            self.interrupt()
        self._read(len(self._unread))

    def _read(self, most: int) -> None:
        """Add up cycles that the device has finished."""
        while most and self._unread and self._marks.is_past(self._unread[0].last):
            self._add(self._unread.popleft())
            most -= 1

    def _add(self, cycle: _Cycle) -> None:
        sums, marks = self._sums.setdefault(cycle.size, {}), self._marks
        spent = 0.0
        for name, (begin, end, graph) in cycle.parts.items():
            seconds = marks.seconds(begin, end)
            spent += seconds
            sums.setdefault(name, Durations()).add(seconds, graph=graph)
        if cycle.end is not None:
            whole = marks.seconds(cycle.begin, cycle.end)
            sums.setdefault("cycle", Durations()).add(whole)
            sums.setdefault("rest", Durations()).add(max(whole - spent, 0.0))
        for mark in cycle.marks:
            marks.give_back(mark)
