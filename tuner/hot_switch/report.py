"""Report of hot switching: launches saved, cost of preparing settings, reference checks."""

from __future__ import annotations

from dataclasses import dataclass, replace
from itertools import combinations
from typing import TYPE_CHECKING, Any

from results.records import LaunchState, TrialState
from runners.plugin.package import same_but_setting
from runners.plugin.status import status_of
from tuner.formatting import counted
from tuner.hot_switch.switching import Switching, read_switching

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from results.records import Launch, Trial
    from results.store import Store
    from results.studies import StoredStudy
    from tuner.hot_switch.faithful import Difference
    from tuner.hot_switch.switching import Check


NOT_ASKED = "hot switch: off (--no-hot-switch)"
"""Line for a study without hot switching."""


@dataclass(frozen=True, slots=True)
class SwitchedLaunch:
    """A launch for several settings.

    Attributes:
        id: Number of the launch.
        judged: Number of trials judged in the launch.
        lost: Whether a kill or the host ended the launch.
        states_s: Seconds of start-up for the settings besides that of the start; `None`: unknown.
        states_gb: GPU memory of these settings in GiB; `None`: unknown.
    """

    id: int
    judged: int
    lost: bool
    states_s: float | None = None
    states_gb: float | None = None

    @property
    def saved(self) -> int:
        """Launches saved: the judged trials minus this launch.

        A launch that was lost before its first result is repeated and saves 0.
        """
        return 0 if self.lost and not self.judged else self.judged - 1


@dataclass(frozen=True, slots=True)
class HotSwitchReport:
    """Hot switching in a report.

    Attributes:
        asked: Whether the study allows hot switching.
        switching: State of hot switching in the study.
        launches: Launches for several settings.
    """

    asked: bool
    switching: Switching
    launches: tuple[SwitchedLaunch, ...]

    @property
    def saved(self) -> int:
        """Launches saved in total; below 0 if hot switching cost launches."""
        return sum(launch.saved for launch in self.launches)

    @property
    def states_s(self) -> float | None:
        """Seconds of all start-ups spent on preparing settings, as far as known."""
        return _total(launch.states_s for launch in self.launches)

    @property
    def states_gb(self) -> float | None:
        """Largest GPU memory of the prepared settings of one server, in GiB."""
        known = [launch.states_gb for launch in self.launches if launch.states_gb is not None]
        return max(known, default=None)

    def to_dict(self) -> dict[str, Any]:
        """`hot_switch` in the JSON of a report."""
        return {
            "asked": self.asked,
            "gave_up": self.switching.gave_up,
            "launches": [launch.id for launch in self.launches],
            "launches_saved": self.saved,
            "states_s": self.states_s,
            "states_gb": self.states_gb,
            "checks": [_check_dict(check) for check in self.switching.checks],
        }

    def lines(self) -> Iterator[str]:
        """Lines for a terminal; none if no launch was switched."""
        if not self.asked:
            yield NOT_ASKED
        if self.launches:
            line = f"hot switch: {', '.join(self._measured())}"
            if self.states_s is not None:
                line += f"; preparing them took {self.states_s:.0f} s"
                line += f" and up to {self.states_gb:.1f} GiB" if self.states_gb else ""
            yield line
        for check in self.switching.checks:
            passed = "passed" if check.comparison.faithful else "failed"
            yield (
                f"reference check {passed} in launch {check.launch}: trial {check.anchor} "
                f"(launch {check.separate}): {check.comparison}"
            )
        if self.switching.gave_up is not None:
            yield f"hot switch off, every setting got its own launch: {self.switching.gave_up}"

    def _measured(self) -> Iterator[str]:
        """Measured settings, launches without a result, and launches saved."""
        measured = [launch for launch in self.launches if launch.judged]
        empty = [launch for launch in self.launches if not launch.judged]
        if measured:
            judged = sum(launch.judged for launch in measured)
            yield f"{counted(judged, 'setting')} measured in {counted(len(measured), 'launch')}"
        else:
            yield "nothing measured"
        for lost, what in ((True, "lost"), (False, "without a result")):
            numbers = [str(launch.id) for launch in empty if launch.lost is lost]
            if numbers:
                one = len(numbers) == 1
                which = f"launch{'' if one else 'es'} {', '.join(numbers)}"
                yield f"{which} {'was' if one else 'were'} {what}"
        if measured or self.saved:
            if self.saved < 0:
                yield f"{counted(-self.saved, 'launch')} more than without hot switching"
            else:
                yield f"{counted(self.saved, 'launch')} saved"


def _total(values: Iterator[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return sum(known) if known else None


def hot_switch_report(
    store: Store, stored: StoredStudy, trials: Sequence[Trial], launches: Sequence[Launch]
) -> HotSwitchReport:
    """Build the report from the stored records. Imported and running launches save nothing."""
    judged: dict[int, list[int]] = {}
    for trial in trials:
        # An inactive trial without a server needs no launch in any case.
        served = trial.state is TrialState.INACTIVE and trial.resolved is not None
        counts = trial.state.is_verdict or served
        if trial.judged_in is not None and counts:
            judged.setdefault(trial.judged_in, []).append(trial.number)
    switched = []
    for launch in launches:
        ended = launch.state is not LaunchState.RUNNING
        if not launch.intent.settings or launch.imported_from is not None or not ended:
            continue
        numbers = judged.get(launch.id, [])
        info = store.server_info(stored.id, numbers[0]) if numbers else None
        status = status_of(info or {})
        states = list(status.states.values()) if status is not None else []
        switched.append(
            SwitchedLaunch(
                launch.id,
                len(numbers),
                launch.is_lost,
                _total(state.build_s for state in states),
                _total(state.memory_gb for state in states),
            )
        )
    switching = read_switching(store, stored.id, trials, launches)
    if stored.hot_switch and switching.plugin_missing is not None and _was_wanted(trials):
        switching = replace(switching, gave_up=switching.gave_up or switching.plugin_missing)
    return HotSwitchReport(stored.hot_switch, switching, tuple(switched))


def _was_wanted(trials: Sequence[Trial]) -> bool:
    """Whether one server could have measured two of the separately launched trials."""
    judged = [t.configuration for t in trials if t.judged_in is not None]
    return any(same_but_setting(a, b) for a, b in combinations(judged, 2))


def _check_dict(check: Check) -> dict[str, Any]:
    found = check.comparison
    return {
        "algorithm": check.drafter.algorithm,
        "topk": check.drafter.topk,
        "anchor": check.anchor,
        "own_launch": check.separate,
        "launch": check.launch,
        "faithful": found.faithful,
        "clock": found.clock,
        "found": str(found),
        "differences": [_difference_dict(difference) for difference in found.differences],
    }


def _difference_dict(difference: Difference) -> dict[str, Any]:
    return {
        "what": difference.what,
        "point": difference.point,
        "own": difference.separate,
        "switched": difference.switched,
        "difference": difference.size,
        "allowed": difference.allowed,
    }
