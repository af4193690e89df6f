"""Runner that replays a table of measurements on a virtual clock, without processes.

Replays use the real sweep loop and store. Hundreds of studies run in seconds, which gives the error
rates of planners and verdicts.
"""

from __future__ import annotations

import random
from dataclasses import replace
from typing import TYPE_CHECKING

from results.records import Failure, Measurement, ProcessIdentity, Resolved
from runners.base import LaunchCommand, Runner, RunnerError, Session, StartProgress

if TYPE_CHECKING:
    from collections.abc import Callable

    from results.records import LaunchIntent
    from runners.replay.table import ReplayEntry, ReplayRow, ReplayTable
    from search_spaces.configuration import Configuration, Setting
    from search_spaces.study_file.study import Study
    from search_spaces.workload import OperatingPoint, Workload

_PREFILL_SHARE = 0.05
"""Assumed share of a request's time before its first token, since tables have no latencies."""

_SWITCH_S = 0.005
"""A switch of the draft steps took 3 to 5 ms on an H200 (0.5.17)."""

_STOP_S = 2.0


class ReplayRunner(Runner):
    """Answers from a table. Only launches, windows and waits advance the virtual clock.

    A configuration that the table lacks is a fault of the study.
    """

    name = "replay"
    simulated = True

    def __init__(
        self,
        table: ReplayTable,
        study: Study,
        *,
        seed: int = 0,
        noise: float = 0.0,
        can_switch: Callable[[Configuration, Configuration], bool] | None = None,
    ) -> None:
        """Make a runner at time 0.

        Args:
            table: Measurements to replay.
            study: Has the workload.
            seed: Seed of the noise.
            noise: Relative standard deviation of tok/s (0.01: 1 %).
            can_switch: Whether two configurations share a launch. [default: none do]
        """
        self._table = table
        self._workload = study.to_workload()
        self._random = random.Random(seed)  # noqa: S311 - noise, not a secret
        self._noise = noise
        self._can_switch = can_switch or (lambda a, b: a == b)
        self._now = 0.0
        self._measured: dict[tuple[str, int], int] = {}

    def check(self) -> str | None:
        """Nothing is needed."""
        return None

    def can_switch(self, a: Configuration, b: Configuration) -> bool:
        """See `HotSwitch.can_switch`."""
        return a == b or self._can_switch(a, b)

    def no_switch(self) -> str | None:
        """See `HotSwitch.no_switch`."""
        return None

    def supports_draft_tp(self, draft_tp: int) -> bool:
        """Every size; the table decides."""
        return draft_tp > 0

    def command(self, configuration: Configuration) -> LaunchCommand:
        """A placeholder with the key of the configuration, since nothing can be run."""
        return LaunchCommand(("replay", configuration.key))

    def wait(self, seconds: float) -> None:
        """Advance the clock."""
        self._now += seconds

    def now(self) -> float:
        """Virtual seconds."""
        return self._now

    def end_leftover(self, process: ProcessIdentity) -> tuple[int, ...]:  # noqa: ARG002 - contract
        """There are no processes."""
        return ()

    def start(
        self,
        intent: LaunchIntent,
        on_process: Callable[[ProcessIdentity, LaunchCommand], None],
        on_progress: Callable[[StartProgress], None] | None = None,
    ) -> Session:
        """See `Runner.start`."""
        entry = self._entry(intent.configuration)
        on_process(
            ProcessIdentity(pid=0, started=self._now, mark=intent.mark, port=0),
            self.command(intent.configuration),
        )
        if on_progress is not None:
            on_progress(StartProgress("arguments", 0.0))
        self._now += entry.launch_s
        if entry.failure is not None:
            raise RunnerError(entry.failure)
        return _ReplaySession(self, intent.configuration, entry.launch_s)

    def pass_time(self, seconds: float) -> None:
        """Advance the clock."""
        self._now += seconds

    def measured(self, configuration: Configuration, point: OperatingPoint) -> Measurement:
        """Next repeat of a configuration at a point.

        Raises:
            RunnerError: The table has no row for them.
        """
        concurrency = point.concurrency
        if concurrency is None:
            raise _absent(f"{configuration.key} at {point.name}: tables have closed loops only")
        repeats = self._entry(configuration).rows.get(concurrency, ())
        if not repeats:
            raise _absent(f"{configuration.key} at {point.name}")
        key = (configuration.key, concurrency)
        number = self._measured.get(key, 0)
        self._measured[key] = number + 1
        row = repeats[number % len(repeats)]
        if self._noise:
            factor = max(0.01, self._random.gauss(1.0, self._noise))
            row = replace(row, output_tok_s=row.output_tok_s * factor)
        measurement = _measurement(row, self._workload, point, self._now)
        self._now += measurement.window_s
        return measurement

    def _entry(self, configuration: Configuration) -> ReplayEntry:
        entry = self._table.entries.get(configuration.key)
        if entry is None:
            raise _absent(f"{configuration.key} ({configuration.to_dict()})")
        return entry


class _ReplaySession(Session):
    def __init__(self, runner: ReplayRunner, configuration: Configuration, ready_s: float) -> None:
        self.resolved = Resolved(configuration, "replay", simulated=True)
        self.phases = (("arguments", ready_s),)
        self.ready_s = ready_s
        self._runner = runner
        self._start = configuration
        self._closed = False

    def apply(self, setting: Setting) -> Resolved:
        wanted = self.resolved.configuration
        if setting != wanted.setting:
            wanted = wanted.with_setting(setting)
            if not self._runner.can_switch(self._start, wanted):
                message = f"the table does not allow a switch to {setting}"
                raise RunnerError(Failure("switch_refused", "load", "configuration", message))
            self._runner.pass_time(_SWITCH_S)
            self.resolved = replace(self.resolved, configuration=wanted)
        return self.resolved

    def measure(self, point: OperatingPoint) -> Measurement:
        return self._runner.measured(self.resolved.configuration, point)

    def close(self) -> None:
        if not self._closed:
            self._closed = True
            self._runner.pass_time(_STOP_S)


def _absent(what: str) -> RunnerError:
    message = f"the replayed table has no row for {what}; add one"
    return RunnerError(Failure("not_in_table", "arguments", "study", message))


def _measurement(
    row: ReplayRow, workload: Workload, point: OperatingPoint, now: float
) -> Measurement:
    requests = workload.requests_at(point)
    tokens = requests * workload.output_tokens
    window_s = row.window_s or tokens / row.output_tok_s
    e2e_ms = 1000.0 * workload.output_tokens * (point.concurrency or 1) / row.output_tok_s
    ttft_ms = e2e_ms * _PREFILL_SHARE
    tpot_ms = (e2e_ms - ttft_ms) / max(1, workload.output_tokens - 1)
    return Measurement(
        point=point,
        started_at=now,
        window_s=window_s,
        requests=requests,
        failed_requests=0,
        output_tokens=round(window_s * row.output_tok_s),
        output_tok_s=row.output_tok_s,
        accept_length=row.accept_length,
        ttft_p50_ms=ttft_ms,
        ttft_p95_ms=ttft_ms,
        tpot_p50_ms=tpot_ms,
        tpot_p95_ms=tpot_ms,
        e2e_p50_ms=e2e_ms,
        e2e_p95_ms=e2e_ms,
        prompt_tokens=0,
        cached_tokens=0,
        histogram=(),
        workload_fingerprint="replay",
        simulated=True,
    )
