"""What switching running servers brought a study: launches saved, cost of states, checks."""

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
"""Of a study in which nothing is to be switched."""


@dataclass(frozen=True, slots=True)
class SwitchedLaunch:
    """A launch that was prepared for several settings.

    Attributes:
        id: Its number.
        judged: Trials that were judged in it.
        lost: Whether a kill or the host took it.
        states_s: Seconds of its start-up that went into states beside the one that it started
            with; `None` where it did not say.
        states_gb: GPU memory of those, in GiB; `None` likewise.
    """

    id: int
    judged: int
    lost: bool
    states_s: float | None = None
    states_gb: float | None = None

    @property
    def saved(self) -> int:
        """Launches that it spared: one for each judged trial, but for itself.

        One that was lost before it judged anything was nobody's choice, and is made again.
        """
        return 0 if self.lost and not self.judged else self.judged - 1


@dataclass(frozen=True, slots=True)
class HotSwitchReport:
    """All that a report says of switching.

    Attributes:
        asked: Whether the study was to switch.
        switching: What its launches have shown.
        launches: Those that were prepared for several settings.
    """

    asked: bool
    switching: Switching
    launches: tuple[SwitchedLaunch, ...]

    @property
    def saved(self) -> int:
        """Launches that were spared in all; below 0 where switching cost more than it brought."""
        return sum(launch.saved for launch in self.launches)

    @property
    def states_s(self) -> float | None:
        """Seconds of all start-ups that went into states, as far as servers said."""
        return _total(launch.states_s for launch in self.launches)

    @property
    def states_gb(self) -> float | None:
        """GPU memory of the states of the server that had most, in GiB."""
        told = [launch.states_gb for launch in self.launches if launch.states_gb is not None]
        return max(told, default=None)

    def to_dict(self) -> dict[str, Any]:
        """`hot_switch` of a report's JSON."""
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
        """The same for a terminal; nothing where nothing was switched."""
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
                f"(launch {check.own}): {check.comparison}"
            )
        if self.switching.gave_up is not None:
            yield f"hot switch off, every setting got its own launch: {self.switching.gave_up}"

    def _measured(self) -> Iterator[str]:
        """Settings, the launches that measured them, those that measured none, and the saving."""
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
            yield _spared(self.saved)


def _spared(saved: int) -> str:
    if saved < 0:
        return f"{counted(-saved, 'launch')} more than without hot switching"
    return f"{counted(saved, 'launch')} saved"


def _total(values: Iterator[float | None]) -> float | None:
    told = [value for value in values if value is not None]
    return sum(told) if told else None


def hot_switch_report(
    store: Store, stored: StoredStudy, trials: Sequence[Trial], launches: Sequence[Launch]
) -> HotSwitchReport:
    """Works it out from what is stored; launches taken over or still running saved nothing."""
    judged: dict[int, list[int]] = {}
    for trial in trials:
        # One that was set aside without a server of its own needed no launch either way.
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
    if stored.hot_switch and switching.silent is not None and _was_wanted(trials):
        switching = replace(switching, gave_up=switching.gave_up or switching.silent)
    return HotSwitchReport(stored.hot_switch, switching, tuple(switched))


def _was_wanted(trials: Sequence[Trial]) -> bool:
    """Whether two trials that had launches of their own could have been switched between."""
    judged = [t.configuration for t in trials if t.judged_in is not None]
    return any(same_but_setting(a, b) for a, b in combinations(judged, 2))


def _check_dict(check: Check) -> dict[str, Any]:
    found = check.comparison
    return {
        "algorithm": check.drafter.algorithm,
        "topk": check.drafter.topk,
        "anchor": check.anchor,
        "own_launch": check.own,
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
        "own": difference.own,
        "switched": difference.switched,
        "difference": difference.size,
        "allowed": difference.allowed,
    }
