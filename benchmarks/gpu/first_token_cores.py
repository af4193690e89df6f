"""Observe and load the CPU's cores, and read the GPU's clocks, for `first_token.py`."""

from __future__ import annotations

import contextlib
import functools
import importlib
import os
import signal
import statistics
import time
from pathlib import Path
from typing import Any

from first_token_probe import spin

SLOWED_BY = 1.2
"""A busy loop on a core's sibling makes a loop slower by this factor at least."""


class Burners:
    """Processes that keep the given cores busy."""

    def __init__(self, cores: list[int], work: str = "spin") -> None:
        self._cores = cores
        self._work = work
        self._children: list[int] = []

    def start(self) -> None:
        for core in self._cores:
            child = os.fork()
            if child == 0:
                _burn(core, self._work)
            self._children.append(child)

    def stop(self) -> None:
        for child in self._children:
            os.kill(child, signal.SIGKILL)
            os.waitpid(child, 0)
        self._children.clear()

    def move(self, core: int) -> None:
        """Move the only process to another core."""
        os.sched_setaffinity(self._children[0], {core})


def _burn(core: int, work: str) -> None:
    os.sched_setaffinity(0, {core})
    block = bytearray(64 << 20 if work == "copy" else 0)
    while True:
        if work == "copy":
            block[: 32 << 20] = block[32 << 20 :]
        else:
            spin()


def scan_cores(cores: list[int]) -> dict[int, float]:
    """Return the seconds that a fixed loop takes on each core now."""
    found: dict[int, float] = {}
    try:
        for core in cores:
            os.sched_setaffinity(0, {core})
            found[core] = min(spin() for _ in range(3))
    finally:
        os.sched_setaffinity(0, set(cores))
    return found


def find_siblings(cores: list[int]) -> dict[int, int]:
    """Return the cores that a busy loop on another core slows most, and that other core.

    A virtual machine may hide which of its cores share a physical one; time does not.
    """
    found: dict[int, tuple[float, int]] = {}
    burner = Burners(cores[:1])
    burner.start()
    try:
        times: dict[tuple[int, int], float] = {}
        for core in cores:
            os.sched_setaffinity(0, {core})
            for other in cores:
                if other != core:
                    burner.move(other)
                    time.sleep(0.001)
                    times[core, other] = min(spin() for _ in range(3))
        usual = statistics.median(times.values())
        for (core, other), seconds in times.items():
            if seconds > SLOWED_BY * usual:
                found[core] = max(found.get(core, (0.0, -1)), (seconds, other))
    finally:
        burner.stop()
        os.sched_setaffinity(0, set(cores))
    return {core: other for core, (_, other) in sorted(found.items())}


def host_counters(pid: int) -> dict[str, float]:
    """Return counters of a process and of the machine; differences of two calls mean something.

    `run_s` and `run_delay_s` are of the process' main thread (seconds on a core, and ready but
    without one), `threads_s` the CPU time of its other threads, `steal_s` of the whole machine.
    """
    tick = os.sysconf("SC_CLK_TCK")
    found = {"run_s": 0.0, "run_delay_s": 0.0, "threads_s": 0.0, "steal_s": 0.0}
    with contextlib.suppress(OSError, IndexError):
        ran, delayed, *_ = Path(f"/proc/{pid}/task/{pid}/schedstat").read_text().split()
        found["run_s"], found["run_delay_s"] = int(ran) / 1e9, int(delayed) / 1e9
    for task in Path(f"/proc/{pid}/task").iterdir():
        if task.name != str(pid):
            with contextlib.suppress(OSError):
                fields = (task / "stat").read_text().rpartition(")")[2].split()
                found["threads_s"] += (int(fields[11]) + int(fields[12])) / tick
    with contextlib.suppress(OSError, IndexError):
        found["steal_s"] = int(Path("/proc/stat").read_text().split("\n", 1)[0].split()[8]) / tick
    found["interrupts"] = _field("/proc/stat", "intr")
    found["context_switches"] = _field("/proc/stat", "ctxt")
    return found


def _field(path: str, name: str) -> float:
    for line in Path(path).read_text().splitlines():
        if line.startswith(name + " "):
            return float(line.split()[1])
    return 0.0


def gpu_clocks() -> dict[str, float]:
    """Return the first GPU's clocks in MHz, its power in W and its state; nothing without NVML."""
    handle = _gpu()
    if handle is None:
        return {}
    nvml, gpu = handle
    return {
        "sm_mhz": nvml.nvmlDeviceGetClockInfo(gpu, nvml.NVML_CLOCK_SM),
        "memory_mhz": nvml.nvmlDeviceGetClockInfo(gpu, nvml.NVML_CLOCK_MEM),
        "power_w": nvml.nvmlDeviceGetPowerUsage(gpu) / 1000,
        "pstate": nvml.nvmlDeviceGetPerformanceState(gpu),
        "temperature": nvml.nvmlDeviceGetTemperature(gpu, nvml.NVML_TEMPERATURE_GPU),
    }


@functools.cache
def _gpu() -> tuple[Any, Any] | None:
    """Return NVML and its handle of the first GPU, or nothing where either is missing."""
    try:
        nvml = importlib.import_module("pynvml")
        nvml.nvmlInit()
        return nvml, nvml.nvmlDeviceGetHandleByIndex(0)
    except Exception:  # noqa: BLE001 - whatever NVML lacks, the clocks are only an observation
        return None
