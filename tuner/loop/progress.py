"""Progress on stderr: one line per event, and a status line on a terminal."""

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
    """Events of a sweep. Every method returns at once."""

    def message(self, text: str) -> None: ...
    def launching(self, launch: Launch, plan: LaunchPlan, eta_s: float | None) -> None: ...
    def starting(self, phase: StartProgress) -> None: ...
    def measuring(self, what: str) -> None: ...
    def judged(self, trial: Trial) -> None: ...
    def launch_failed(self, launch: Launch, failure: Failure) -> None: ...
    def done(self) -> None: ...


class Silent:
    """Prints nothing, for replays and tests."""

    def message(self, text: str) -> None: ...
    def launching(self, launch: Launch, plan: LaunchPlan, eta_s: float | None) -> None: ...
    def starting(self, phase: StartProgress) -> None: ...
    def measuring(self, what: str) -> None: ...
    def judged(self, trial: Trial) -> None: ...
    def launch_failed(self, launch: Launch, failure: Failure) -> None: ...
    def done(self) -> None: ...


class Lines:
    """Prints one line per launch and per judged trial, and a status line on a terminal."""

    def __init__(self, *, simulated: bool, fixed: Collection[str] = ()) -> None:
        self._fixed = fixed
        self._mark = "simulated " if simulated else ""
        self._status: Status | None = None
        self._began = time.monotonic()
        self._printed_failure: Failure | None = None
        if sys.stderr.isatty():
            from rich.console import Console  # noqa: PLC0415 - only on a terminal

            self._status = Console(stderr=True).status("")
            self._status.start()

    def message(self, text: str) -> None:
        """Print one line."""
        text = copyable(text)
        if self._status is not None:
            # The console that draws the status line must print, or the lines would mix.
            self._status.console.print(text.rstrip(), soft_wrap=True, markup=False, highlight=False)
            return
        # The sweep continues if nobody reads stderr (`2>&1 | head`, a closed terminal).
        with contextlib.suppress(OSError):
            sys.stderr.write(text.rstrip() + "\n")
            sys.stderr.flush()

    def _now(self, text: str, elapsed_s: float = 0.0) -> None:
        if self._status is not None:
            with contextlib.suppress(OSError):
                self._status.update(Since(text, elapsed_s))

    def launching(self, launch: Launch, plan: LaunchPlan, eta_s: float | None) -> None:
        """Print the start of a launch."""
        trials = [describe(t.configuration, self._fixed) for t in plan.trials]
        also = f" and {counted(len(trials) - 1, 'more setting')}" if len(trials) > 1 else ""
        also += f" (reference run: trial {plan.anchor.trial})" if plan.anchor else ""
        eta = f", about {_duration(eta_s)} left" if eta_s is not None else ""
        self.message(f"{self._clock()} launch {launch.id}: {trials[0]}{also}{eta}")
        self._now(f"starting launch {launch.id}")

    def starting(self, phase: StartProgress) -> None:
        """Show a phase of the start-up."""
        self._now(f"starting: {phase.phase.replace('_', ' ')}", phase.elapsed_s)

    def measuring(self, what: str) -> None:
        """Show the window that is measured."""
        self._now(f"measuring {what}")

    def judged(self, trial: Trial) -> None:
        """Print the result of a trial."""
        described = describe(trial.configuration, self._fixed)
        line = f"{self._clock()}   trial {trial.number}: {described}"
        if trial.measurements:
            accept = trial.measurements[0].accept_length
            line += f": {describe_speeds(trial.measurements, self._mark)}"
            line += f", accept length {accept:.2f}" if accept is not None else ""
        if trial.failure is not None:
            line += f" [{trial.state}: {shorten(trial.failure.message)}]"
            self._printed_failure = trial.failure
        self.message(line)

    def launch_failed(self, launch: Launch, failure: Failure) -> None:
        """Print the failure of a launch, without a reason that its trial's line has given."""
        why = "" if failure == self._printed_failure else f": {shorten(failure.message)}"
        self.message(
            f"{self._clock()}   launch {launch.id} failed in {failure.phase} "
            f"({failure.kind}, {describe_fault(launch, failure)}){why}; log: {launch.intent.log}"
        )

    def done(self) -> None:
        """Remove the status line."""
        if self._status is not None:
            with contextlib.suppress(OSError):
                self._status.stop()

    def _clock(self) -> str:
        elapsed = int(time.monotonic() - self._began)
        return f"[{elapsed // 60:02d}:{elapsed % 60:02d}]"


class Since:
    """A status line with a running count of seconds.

    Args:
        text: The current step.
        elapsed_s: Seconds since the step began.
    """

    def __init__(self, text: str, elapsed_s: float = 0.0) -> None:
        self._text = text
        self._began = time.monotonic() - elapsed_s

    def __rich__(self) -> Text:
        """See `rich.console.RichCast`."""
        from rich.text import Text  # noqa: PLC0415 - only on a terminal

        return Text(f"{self._text} ({time.monotonic() - self._began:.0f} s)")


def _duration(seconds: float) -> str:
    if seconds < 90:
        return f"{seconds:.0f} s"
    if seconds < 5400:
        return f"{seconds / 60:.0f} min"
    return f"{seconds / 3600:.1f} h"
