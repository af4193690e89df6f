"""Calm progress on stderr: a line per event, a status line where a person watches."""

from __future__ import annotations

import contextlib
import sys
import time
from typing import TYPE_CHECKING, Protocol

from tuner.errors import copyable
from tuner.formatting import counted, describe, describe_speeds, shorten
from tuner.hot_switch.switch_faults import describe_fault

if TYPE_CHECKING:
    from collections.abc import Collection

    from rich.status import Status
    from rich.text import Text

    from results.records import Failure, Launch, Trial
    from runners.base import StartProgress
    from tuner.planners.base import LaunchPlan


class Progress(Protocol):
    """What the sweep loop tells about itself; every method returns at once."""

    def message(self, text: str) -> None: ...
    def launching(self, launch: Launch, plan: LaunchPlan, eta_s: float | None) -> None: ...
    def starting(self, phase: StartProgress) -> None: ...
    def measuring(self, what: str) -> None: ...
    def judged(self, trial: Trial) -> None: ...
    def launch_failed(self, launch: Launch, failure: Failure) -> None: ...
    def done(self) -> None: ...


class Silent:
    """Says nothing: for replays and tests."""

    def message(self, text: str) -> None: ...
    def launching(self, launch: Launch, plan: LaunchPlan, eta_s: float | None) -> None: ...
    def starting(self, phase: StartProgress) -> None: ...
    def measuring(self, what: str) -> None: ...
    def judged(self, trial: Trial) -> None: ...
    def launch_failed(self, launch: Launch, failure: Failure) -> None: ...
    def done(self) -> None: ...


class Lines:
    """One line per launch and per judged trial; a live status line on a terminal."""

    def __init__(self, *, simulated: bool, fixed: Collection[str] = ()) -> None:
        self._fixed = fixed
        self._mark = "simulated " if simulated else ""
        self._status: Status | None = None
        self._began = time.monotonic()
        self._told: Failure | None = None
        if sys.stderr.isatty():
            from rich.console import Console  # noqa: PLC0415 - only where a person watches

            self._status = Console(stderr=True).status("")
            self._status.start()

    def message(self, text: str) -> None:
        """A line of its own."""
        text = copyable(text)
        if self._status is not None:
            # Through the console that draws the status line, or the two would mix.
            self._status.console.print(text.rstrip(), soft_wrap=True, markup=False, highlight=False)
            return
        # Nobody reads any more (`2>&1 | head`, a closed terminal): no reason to lose a sweep.
        with contextlib.suppress(OSError):
            sys.stderr.write(text.rstrip() + "\n")
            sys.stderr.flush()

    def _now(self, text: str, elapsed_s: float = 0.0) -> None:
        if self._status is not None:
            with contextlib.suppress(OSError):
                self._status.update(Since(text, elapsed_s))

    def launching(self, launch: Launch, plan: LaunchPlan, eta_s: float | None) -> None:
        """A launch begins."""
        trials = [describe(t.configuration, self._fixed) for t in plan.trials]
        also = f" and {counted(len(trials) - 1, 'more setting')}" if len(trials) > 1 else ""
        also += f" (reference run: trial {plan.anchor.trial})" if plan.anchor else ""
        eta = f", about {_duration(eta_s)} left" if eta_s is not None else ""
        self.message(f"{self._clock()} launch {launch.id}: {trials[0]}{also}{eta}")
        self._now(f"starting launch {launch.id}")

    def starting(self, phase: StartProgress) -> None:
        """A phase of the start-up begins."""
        self._now(f"starting: {phase.phase.replace('_', ' ')}", phase.elapsed_s)

    def measuring(self, what: str) -> None:
        """A window begins."""
        self._now(f"measuring {what}")

    def judged(self, trial: Trial) -> None:
        """A trial has its state."""
        described = describe(trial.configuration, self._fixed)
        line = f"{self._clock()}   trial {trial.number}: {described}"
        if trial.measurements:
            accept = trial.measurements[0].accept_length
            line += f": {describe_speeds(trial.measurements, self._mark)}"
            line += f", accept length {accept:.2f}" if accept is not None else ""
        if trial.failure is not None:
            line += f" [{trial.state}: {shorten(trial.failure.message)}]"
            self._told = trial.failure
        self.message(line)

    def launch_failed(self, launch: Launch, failure: Failure) -> None:
        """A launch ended without a server. What its trial's line has said is not said again."""
        why = "" if failure == self._told else f": {shorten(failure.message)}"
        self.message(
            f"{self._clock()}   launch {launch.id} failed in {failure.phase} "
            f"({failure.kind}, {describe_fault(launch, failure)}){why}; log: {launch.intent.log}"
        )

    def done(self) -> None:
        """Nothing more comes."""
        if self._status is not None:
            with contextlib.suppress(OSError):
                self._status.stop()

    def _clock(self) -> str:
        elapsed = int(time.monotonic() - self._began)
        return f"[{elapsed // 60:02d}:{elapsed % 60:02d}]"


class Since:
    """A line whose seconds go on while it stands there: drawn anew with every frame.

    Args:
        text: What goes on.
        elapsed_s: Seconds that it has taken already.
    """

    def __init__(self, text: str, elapsed_s: float = 0.0) -> None:
        self._text = text
        self._began = time.monotonic() - elapsed_s

    def __rich__(self) -> Text:
        """See `rich.console.RichCast`."""
        from rich.text import Text  # noqa: PLC0415 - only where a person watches

        return Text(f"{self._text} ({time.monotonic() - self._began:.0f} s)")


def _duration(seconds: float) -> str:
    if seconds < 90:
        return f"{seconds:.0f} s"
    if seconds < 5400:
        return f"{seconds / 60:.0f} min"
    return f"{seconds / 3600:.1f} h"
