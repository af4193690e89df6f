"""State of hot switching in a study, derived from its stored launches and measurements.

Because nothing else is kept, a resumed or forked study reaches the same conclusions: which drafters
passed the reference check, and why the study returned to one launch per setting.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING

from results.records import LaunchState, Purpose, TrialState
from runners.plugin.protocol import CLOCK_VARIABLE
from runners.plugin.status import status_of
from tuner.formatting import counted, shorten
from tuner.hot_switch.faithful import Comparison, compare
from tuner.hot_switch.switch_faults import ANCHOR_DISTURBED, SWITCH_FAULTS, UNFAITHFUL, unfaithful
from tuner.loop.failure_policy import KILLED
from tuner.verdict.scores import comparable, has_stalled, was_disturbed

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping, Sequence

    from results.records import Launch, Trial
    from results.store import Store
    from search_spaces.configuration import Configuration, Drafter


@dataclass(frozen=True, slots=True)
class Check:
    """An anchor's two measurements.

    Attributes:
        launch: The one that was switched.
        anchor: The trial that was measured in it again.
        own: The launch of its own.
        drafter: Of which the check holds: what holds for a chain is no proof of a tree.
        comparison: What was found.
    """

    launch: int
    anchor: int
    own: int
    drafter: Drafter
    comparison: Comparison


@dataclass(frozen=True, slots=True)
class Switching:
    """What is known of hot switching in a study.

    Attributes:
        checks: The anchors that were measured at every point, by launch.
        alone: Trials with figures that are believed, of launches of their own.
        gave_up: Why the study went back to a launch per setting; `None`: it did not.
        cannot_run: What failed in a launch of its own.
        spoilt: Of servers whose anchor was disturbed too often: their settings are launched by
            themselves.
        silent: Why no server can be switched, as servers of single settings have told: to be
            heeded before the first that would be; `None`: nothing speaks against it.
    """

    checks: tuple[Check, ...] = ()
    alone: tuple[Trial, ...] = ()
    gave_up: str | None = None
    cannot_run: tuple[Configuration, ...] = ()
    silent: str | None = None
    spoilt: tuple[Configuration, ...] = ()

    def is_faithful(self, drafter: Drafter) -> bool:
        """Whether figures of its switched servers may be scored."""
        return any(c.drafter == drafter and c.comparison.faithful for c in self.checks)

    def is_spoilt(self, configuration: Configuration) -> bool:
        """Whether the server that is to be switched to it cannot be anchored."""
        return any(c.with_setting(configuration.setting) == configuration for c in self.spoilt)


def read_switching(
    store: Store, study_id: int, trials: Sequence[Trial], launches: Sequence[Launch]
) -> Switching:
    """Works it out from what is stored."""
    by_number = {trial.number: trial for trial in trials}
    by_id = {launch.id: launch for launch in launches}
    switched = [launch for launch in launches if launch.intent.settings]
    checks = tuple(
        check
        for launch in switched
        if (check := _check(store, study_id, launch, by_number, by_id)) is not None
    )
    alone = tuple(t for t in trials if was_alone(t, by_id))
    return Switching(
        checks,
        alone,
        why_given_up(switched, checks, by_number, by_id),
        tuple(t.configuration for t in trials if _failed_alone(t, by_id)),
        _silent(store, study_id, trials, by_id),
        spoilt_servers(switched),
    )


def _failed_alone(trial: Trial, launches: Mapping[int, Launch]) -> bool:
    """Whether it ran nowhere, and failed where nothing else ran."""
    if trial.state is not TrialState.INFEASIBLE or trial.judged_in is None:
        return False
    return not comparable(trial) and not launches[trial.judged_in].intent.settings


def _silent(
    store: Store, study_id: int, trials: Sequence[Trial], launches: Mapping[int, Launch]
) -> str | None:
    """What servers say that were asked for the plugin's clock and have no plugin: any of them.

    What delivers the clock delivers the switch, so that a start for many settings would be wasted.
    """
    silent: list[int] = []
    for trial in trials:
        launch = launches[trial.judged_in] if trial.judged_in is not None else None
        # What a fork took over ran elsewhere, perhaps.
        if launch is None or launch.imported_from is not None:
            continue
        if dict(launch.environment).get(CLOCK_VARIABLE) is None:
            continue
        info = store.server_info(study_id, trial.number)
        if info is not None:
            if status_of(info) is not None:
                return None
            silent.append(launch.id)
    if not silent:
        return None
    return f"the server of launch {min(silent)} runs without the tuner's plugin"


def checked(
    store: Store, study_id: int, launch: Launch, anchor: Trial, own: Launch
) -> Comparison | None:
    """An anchor's figures in a switched launch beside its own.

    `None` where some are missing, or a moment's disturbance spoiled them: that says nothing.
    """
    known = store.measurements(study_id, anchor.number, samples=True)
    windows = [
        s.measurement for s in known if s.launch == launch.id and s.purpose is Purpose.ANCHOR
    ]
    again = {window.point: window for window in windows}
    first = {
        s.measurement.point: s.measurement
        for s in known
        if s.launch == own.id and s.purpose is not Purpose.ANCHOR
    }
    if not first or not first.keys() <= again.keys() or any(map(was_disturbed, again.values())):
        return None
    # Who is killed before a stalled window was repeated knows no more than of a disturbed one.
    met = Counter(window.point for window in windows)
    if any(has_stalled(window) and met[point] == 1 for point, window in again.items()):
        return None
    found = compare(
        list(first.values()), [again[point] for point in first], on_gpu=have_gpu(launch, own)
    )
    return found if found.unexplained is None else None


def have_gpu(*launches: Launch) -> bool:
    """Whether GPUs did the work of any of them, so that times mean something."""
    return any(launch.machine is not None and launch.machine.gpus for launch in launches)


def _check(
    store: Store,
    study_id: int,
    launch: Launch,
    trials: Mapping[int, Trial],
    launches: Mapping[int, Launch],
) -> Check | None:
    anchor = trials.get(launch.trials[0]) if launch.trials else None
    # An anchor comes first, and was judged before.
    if anchor is None or anchor.judged_in in {None, launch.id}:
        return None
    own = launches.get(anchor.judged_in)
    if own is None or own.intent.settings or own.id > launch.id:
        return None
    comparison = checked(store, study_id, launch, anchor, own)
    if comparison is None:
        return None
    failure = launch.failure
    later = (s for n in launch.trials[1:] for s in store.measurements(study_id, n, samples=False))
    went_on = any(s.launch == launch.id for s in later)
    if failure is not None and failure.kind == UNFAITHFUL and comparison.faithful and not went_on:
        # It ran something else than it was told; the figures cannot say that.
        comparison = Comparison((), None, failure.message)
    drafter = anchor.configuration.speculation.drafter
    return Check(launch.id, anchor.number, own.id, drafter, comparison)


_DISTURBED_AT_MOST = 2
"""Launches in which an anchor may be disturbed before it is no longer tried, for its drafter or,
where that was found faithful, for servers of these flags: each costs as much as one that measures
something."""

_KILLED_AT_MOST = 2
"""Switched servers that somebody may kill before launches have one setting again."""

_OF_ONE_GROUP = frozenset({"hot_switch_memory", "plugin_refused"})
"""Switch faults that may be of the one server's flags: where others of its drafter were switched
and found faithful, they say nothing of those."""


def was_alone(trial: Trial, launches: Mapping[int, Launch]) -> bool:
    """Whether a trial's figures are believed, and of a launch that measured nothing else."""
    if not comparable(trial) or not trial.measurements or trial.judged_in is None:
        return False
    return not launches[trial.judged_in].intent.settings


def spoilt_servers(switched: Sequence[Launch]) -> tuple[Configuration, ...]:
    """A configuration of each server whose anchor was disturbed as often as it is tried."""
    disturbed = [
        launch.intent.configuration
        for launch in switched
        if launch.failure is not None and launch.failure.kind == ANCHOR_DISTURBED
    ]
    return tuple(
        c
        for c in disturbed
        if sum(c.with_setting(other.setting) == other for other in disturbed) >= _DISTURBED_AT_MOST
    )


def why_given_up(
    switched: Sequence[Launch],
    checks: Sequence[Check],
    trials: Mapping[int, Trial],
    launches: Mapping[int, Launch],
) -> str | None:
    """Why every setting has a launch of its own from now on; `None`: it has not."""
    found = {check.launch: check.comparison for check in checks}
    faithful = {check.drafter for check in checks if check.comparison.faithful}
    repeated = _repeated(switched, faithful)
    for launch in switched:
        comparison = found.get(launch.id)
        if comparison is not None and not comparison.faithful:
            return unfaithful(launch, str(comparison))
        failure = launch.failure
        if launch.state is not LaunchState.FAILED or failure is None:
            continue
        drafter = launch.intent.configuration.speculation.drafter
        if failure.kind in _OF_ONE_GROUP and drafter in faithful:
            continue
        if launch.id in repeated:
            return repeated[launch.id]
        if failure.kind in SWITCH_FAULTS:
            return f"launch {launch.id}: {shorten(failure.message)}"
        if failure.fault == "configuration" and _died_at_anchor(launch, trials, found):
            what = f"{failure.kind}: {shorten(failure.message)}"
            return f"launch {launch.id}, in its reference run: {what}"
        if failure.fault == "configuration" and _run_alone(launch, trials, launches):
            many = counted(len(launch.intent.settings), "setting")
            return (
                f"launch {launch.id} with {many} failed ({failure.kind}: "
                f"{shorten(failure.message)}), but each setting runs when launched separately"
            )
    return None


def _repeated(switched: Sequence[Launch], faithful: Collection[Drafter]) -> dict[int, str]:
    """Why the study goes back, by the launch that was one too many."""
    found: dict[int, str] = {}
    disturbed: dict[Drafter, list[Launch]] = {}
    killed: list[Launch] = []
    for launch in switched:
        failure = launch.failure
        if launch.state is not LaunchState.FAILED or failure is None:
            continue
        drafter = launch.intent.configuration.speculation.drafter
        if failure.kind == ANCHOR_DISTURBED and drafter not in faithful:
            disturbed.setdefault(drafter, []).append(launch)
            if len(disturbed[drafter]) == _DISTURBED_AT_MOST:
                found[launch.id] = (
                    f"launches {_numbers(disturbed[drafter])}: {shorten(failure.message)}"
                )
        # States take memory of the host, too, and who kills for it leaves no word.
        if failure.kind in KILLED and failure.fault == "host":
            killed.append(launch)
            if len(killed) == _KILLED_AT_MOST:
                found[launch.id] = (
                    f"the switched servers of launches {_numbers(killed)} were killed"
                )
    return found


def _numbers(launches: Sequence[Launch]) -> str:
    return " and ".join(str(launch.id) for launch in launches)


def _died_at_anchor(
    launch: Launch, trials: Mapping[int, Trial], found: Mapping[int, Comparison]
) -> bool:
    """Whether a server that was ready failed at what runs in a launch of its own."""
    anchor = trials.get(launch.trials[0]) if launch.trials else None
    if anchor is None or anchor.judged_in is None or anchor.judged_in >= launch.id:
        return False
    return launch.ready_s is not None and launch.id not in found


def _run_alone(launch: Launch, trials: Mapping[int, Trial], launches: Mapping[int, Launch]) -> bool:
    """Whether everything that a failed launch was for was measured in launches of their own."""
    met = [trials[number] for number in launch.trials]
    later = [t for t in met if t.judged_in is not None and t.judged_in > launch.id]
    return (
        bool(later)
        and all(comparable(t) for t in met)
        and all(was_alone(t, launches) for t in later)
    )
