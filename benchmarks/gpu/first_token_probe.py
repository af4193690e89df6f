"""Time every prefill inside SGLang's scheduler; `first_token.py` loads this module as a plugin.

SGLang (0.5.10 and later) calls `register` in each of its processes. The module runs in the server's
interpreter: it needs nothing but the standard library and SGLang's own torch.

The scheduler appends one JSON object per prefill to the file that `FIRST_TOKEN_TRACE` names. All
times are seconds of the monotonic clock, which the load client shares. `FIRST_TOKEN_SWITCHES` names
a file of two bytes that the client may change at any time: probes on or off, Python's garbage
collector on or off.
"""

# ruff: noqa: ANN401 - SGLang's own objects have no types here

from __future__ import annotations

import ctypes
import gc
import itertools
import json
import mmap
import os
import resource
import statistics
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable

TRACE_VARIABLE = "FIRST_TOKEN_TRACE"
SWITCHES_VARIABLE = "FIRST_TOKEN_SWITCHES"
PROBES, COLLECTOR = 0, 1
"""Offsets in the file of switches; a byte of 1 means on."""

SPIN_ROUNDS = 20_000
COPIED_BYTES = 4 << 20
KERNELS = 64

now = time.perf_counter
_libc = ctypes.CDLL(None)


def register() -> None:
    """Hook the scheduler if a trace was asked for."""
    if not os.environ.get(TRACE_VARIABLE):
        return
    from sglang.srt.plugins.hook_registry import HookRegistry, HookType  # noqa: PLC0415

    probe = _Probe()
    scheduler = "sglang.srt.managers.scheduler.Scheduler"
    for name, hook, kind in (
        ("handle_generate_request", probe.on_arrival, HookType.BEFORE),
        ("run_batch", probe.around_launch, HookType.AROUND),
        ("process_batch_result", probe.around_result, HookType.AROUND),
    ):
        HookRegistry.register(f"{scheduler}.{name}", hook, kind)


def spin() -> float:
    """Return the seconds that a fixed loop takes: how fast this core runs now."""
    began = now()
    for _ in range(SPIN_ROUNDS):
        pass
    return now() - began


class _Probe:
    """State of one scheduler process.

    `_rows` holds the prefills that have been launched and not yet processed, by their result's id:
    the batch itself is copied in between.
    """

    def __init__(self) -> None:
        self._ready = False
        self._arrivals: dict[str, float] = {}
        self._rows: dict[int, dict[str, Any]] = {}
        self._stamps: list[float] = []
        self._collections: list[float] = []

    def on_arrival(self, _scheduler: Any, request: Any, *_: Any) -> None:
        self._arrivals[str(request.rid)] = now()

    def around_launch(
        self, launch: Callable[..., Any], scheduler: Any, batch: Any, *more: Any
    ) -> Any:
        if not self._ready:
            self._prepare()
        if not batch.forward_mode.is_extend() or batch.forward_mode.is_target_verify():
            began = now()
            result = launch(scheduler, batch, *more)
            for row in self._rows.values():
                row.setdefault("next_launch_s", now() - began)
            return result
        return self._launch_prefill(launch, scheduler, batch, *more)

    def _launch_prefill(
        self, launch: Callable[..., Any], scheduler: Any, batch: Any, *more: Any
    ) -> Any:
        began = now()
        if self._switches[COLLECTOR]:
            gc.enable()
        else:
            gc.disable()
        row: dict[str, Any] = {
            "requests": [str(request.rid) for request in batch.reqs],
            "picked_at": began,
        }
        if self._switches[PROBES]:
            row |= self._measure_host()
        events = self._record_event(scheduler, [])
        self._stamps.clear()
        self._collections.clear()
        before, core, cpu = resource.getrusage(resource.RUSAGE_THREAD), _core(), time.thread_time()
        row["launch_at"] = now()
        result = launch(scheduler, batch, *more)
        row["launched_at"] = now()
        row["launch_cpu_s"] = time.thread_time() - cpu
        after = resource.getrusage(resource.RUSAGE_THREAD)
        row |= {
            "core": core,
            "core_after": _core(),
            "faults": after.ru_minflt - before.ru_minflt,
            "switches": after.ru_nvcsw - before.ru_nvcsw,
            "preemptions": after.ru_nivcsw - before.ru_nivcsw,
            "kernel_mode_s": after.ru_stime - before.ru_stime,
            "collections": len(self._collections) // 2,
            "collector_s": sum(self._collections[1::2]) - sum(self._collections[::2]),
            "layers_at": [stamp - row["launch_at"] for stamp in self._stamps],
        }
        self._record_event(scheduler, events)
        row["_events"] = events
        self._rows[id(result)] = row
        return result

    def around_result(
        self, process: Callable[..., Any], scheduler: Any, batch: Any, result: Any, *more: Any
    ) -> Any:
        row = self._rows.pop(id(result), None)
        if row is None:
            return process(scheduler, batch, result, *more)
        row["result_at"] = now()
        if getattr(result, "copy_done", None) is not None:
            result.copy_done.synchronize()
        row["computed_at"] = now()
        processed = process(scheduler, batch, result, *more)
        row["sent_at"] = now()
        self._write(row)
        return processed

    def _write(self, row: dict[str, Any]) -> None:
        events = row.pop("_events")
        if self._switches[PROBES]:
            row["spin_after_s"] = spin()
        if events:
            events[1].synchronize()
            row["gpu_s"] = events[0].elapsed_time(events[1]) / 1000
        if self._torch is not None:
            allocator = self._torch.cuda.memory.memory_stats_as_nested_dict()
            row["device_mallocs"] = allocator["num_device_alloc"]
            row["reserved_bytes"] = allocator["reserved_bytes"]["all"]["current"]
        layers = row["layers_at"]
        gaps = [later - earlier for earlier, later in itertools.pairwise(layers)]
        if gaps:
            row |= {
                "layer_median_s": statistics.median(gaps),
                "layer_longest_s": max(gaps),
                "layer_longest": gaps.index(max(gaps)),
            }
        row["arrived_at"] = min(
            self._arrivals.pop(rid, row["picked_at"]) for rid in row["requests"]
        )
        self._file.write(json.dumps(row) + "\n")

    def _measure_host(self) -> dict[str, float]:
        """Time three fixed pieces of work: Python alone, a copy of memory, launches of kernels."""
        found = {"spin_s": spin()}
        began = now()
        self._copied[:] = self._original
        found["copy_s"] = now() - began
        if self._number is not None:
            began = now()
            for _ in range(KERNELS):
                self._number.add_(1)
            found["kernels_s"] = now() - began
        return found

    def _record_event(self, scheduler: Any, events: list[Any]) -> list[Any]:
        if self._torch is not None:
            event = self._torch.cuda.Event(enable_timing=True)
            if scheduler.enable_overlap:
                event.record(scheduler.forward_stream)
            else:
                event.record()
            events.append(event)
        return events

    def _prepare(self) -> None:
        """Open the files and hook the layers; the first batch is a warm-up, so that it may wait."""
        import torch  # noqa: PLC0415 - a server without a trace pays nothing
        from sglang.srt.models import llama, llama_eagle3  # noqa: PLC0415

        self._ready = True
        self._torch = torch if torch.cuda.is_available() else None
        self._number = torch.zeros(1, device="cuda") if self._torch is not None else None
        self._original, self._copied = bytes(COPIED_BYTES), bytearray(COPIED_BYTES)
        self._file = Path(os.environ[TRACE_VARIABLE]).open("a", buffering=1)  # noqa: SIM115
        with Path(os.environ[SWITCHES_VARIABLE]).open("r+b") as switches:
            self._switches = mmap.mmap(switches.fileno(), 2)
        gc.callbacks.append(lambda *_: self._collections.append(now()))
        for layer in (llama.LlamaDecoderLayer, llama_eagle3.LlamaDecoderLayer):
            self._stamp_calls(layer)

    def _stamp_calls(self, layer: type) -> None:
        forward = vars(layer)["forward"]

        def stamped(*args: Any, **kwargs: Any) -> Any:
            self._stamps.append(now())
            return forward(*args, **kwargs)

        layer.forward = stamped  # type: ignore[attr-defined]


def _core() -> int:
    return int(_libc.sched_getcpu())
