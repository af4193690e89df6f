"""State of hot switching in a study, derived from its stored launches and measurements.

Because nothing else is kept, a resumed or forked study reaches the same conclusions: which drafters
passed the reference check, and why the study returned to one launch per setting.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING

from results.records import KILLED, LaunchState, Purpose, TrialState
from runners.plugin.protocol import CLOCK_VARIABLE
from runners.plugin.status import status_of
from tuner.formatting import counted, shorten
from tuner.hot_switch.faithful import Comparison, compare
from tuner.hot_switch.switch_faults import ANCHOR_DISTURBED, SWITCH_FAULTS, UNFAITHFUL, unfaithful
from tuner.verdict.scores import comparable, has_stalled, was_disturbed

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping, Sequence

    from results.records import Launch, Trial
    from results.store import Store
    from search_spaces.configuration import Configuration, Drafter


@dataclass(frozen=True, slots=True)
class Check:
    """Reference check of one switched launch.

    Attributes:
        launch: The switched launch.
        anchor: Trial of the reference run.
        separate: Its separate launch.
        drafter: Algorithm and topk that the check holds for.
        comparison: Result of the check.
    """

    launch: int
    anchor: int
    separate: int
    drafter: Drafter
    comparison: Comparison


@dataclass(frozen=True, slots=True)
class Switching:
    """State of hot switching in a study.

    Attributes:
        checks: Reference checks that measured every operating point, in the order of launches.
        separate: Trials with valid results of separate launches.
        gave_up: Why hot switching is off; `None`: it is on.
        cannot_run: Configurations that failed in separate launches.
        disturbed: Configurations of servers whose reference run was disturbed too often. The
            settings of these servers are launched separately.
        plugin_missing: Why no server can be switched, as shown by servers of single settings;
            `None`: no server shows this.
    """

    checks: tuple[Check, ...] = ()
    separate: tuple[Trial, ...] = ()
    gave_up: str | None = None
    cannot_run: tuple[Configuration, ...] = ()
    plugin_missing: str | None = None
    disturbed: tuple[Configuration, ...] = ()

    def is_faithful(self, drafter: Drafter) -> bool:
        """Whether results of switched servers of this drafter count."""
        return any(c.drafter == drafter and c.comparison.faithful for c in self.checks)

    def is_disturbed(self, configuration: Configuration) -> bool:
        """Whether the reference run of this server was disturbed too often."""
        return any(c.with_setting(configuration.setting) == configuration for c in self.disturbed)


def read_switching(
    store: Store, study_id: int, trials: Sequence[Trial], launches: Sequence[Launch]
) -> Switching:
    """Derive the state from the stored trials and launches."""
    by_number = {trial.number: trial for trial in trials}
    by_id = {launch.id: launch for launch in launches}
    switched = [launch for launch in launches if launch.intent.settings]
    checks = tuple(
        check
        for launch in switched
        if (check := _check(store, study_id, launch, by_number, by_id)) is not None
    )
    separate = tuple(t for t in trials if was_separate(t, by_id))
    return Switching(
        checks,
        separate,
        why_given_up(switched, checks, by_number, by_id),
        tuple(t.configuration for t in trials if _failed_separately(t, by_id)),
        _without_plugin(store, study_id, trials, by_id),
        disturbed_servers(switched),
    )


def _failed_separately(trial: Trial, launches: Mapping[int, Launch]) -> bool:
    """Whether the trial has no result and failed in a separate launch."""
    if trial.state is not TrialState.INFEASIBLE or trial.judged_in is None:
        return False
    return not comparable(trial) and not launches[trial.judged_in].intent.settings


def _without_plugin(
    store: Store, study_id: int, trials: Sequence[Trial], launches: Mapping[int, Launch]
) -> str | None:
    """Reason if every server that was asked for the plugin's clock runs without the plugin.

    The plugin delivers both the clock and the switch, so a shared launch would fail.
    """
    plugin_missing: list[int] = []
    for trial in trials:
        launch = launches[trial.judged_in] if trial.judged_in is not None else None
        # Launches that a fork reuses may have run on another machine.
        if launch is None or launch.imported_from is not None:
            continue
        if dict(launch.environment).get(CLOCK_VARIABLE) is None:
            continue
        info = store.server_info(study_id, trial.number)
        if info is not None:
            if status_of(info) is not None:
                return None
            plugin_missing.append(launch.id)
    if not plugin_missing:
        return None
    return f"the server of launch {min(plugin_missing)} runs without the tuner's plugin"


def checked(
    store: Store, study_id: int, launch: Launch, anchor: Trial, separate: Launch
) -> Comparison | None:
    """Compare the reference run in a switched launch with its separate launch.

    `None` if windows are missing or disturbed.
    """
    known = store.measurements(study_id, anchor.number, samples=True)
    windows = [
        s.measurement for s in known if s.launch == launch.id and s.purpose is Purpose.ANCHOR
    ]
    again = {window.point: window for window in windows}
    first = {
        s.measurement.point: s.measurement
        for s in known
        if s.launch == separate.id and s.purpose is not Purpose.ANCHOR
    }
    if not first or not first.keys() <= again.keys() or any(map(was_disturbed, again.values())):
        return None
    # A stalled window that was not repeated, because the tuner was killed, is like a disturbed one.
    repeats = Counter(window.point for window in windows)
    if any(has_stalled(window) and repeats[point] == 1 for point, window in again.items()):
        return None
    found = compare(
        list(first.values()), [again[point] for point in first], on_gpu=have_gpu(launch, separate)
    )
    return found if found.unexplained is None else None


def have_gpu(*launches: Launch) -> bool:
    """Whether any of the launches ran on a GPU, so that times can be compared."""
    return any(launch.machine is not None and launch.machine.gpus for launch in launches)


def _check(
    store: Store,
    study_id: int,
    launch: Launch,
    trials: Mapping[int, Trial],
    launches: Mapping[int, Launch],
) -> Check | None:
    anchor = trials.get(launch.trials[0]) if launch.trials else None
    # A reference run is the first trial of a launch and was judged in an earlier launch.
    if anchor is None or anchor.judged_in in {None, launch.id}:
        return None
    separate = launches.get(anchor.judged_in)
    if separate is None or separate.intent.settings or separate.id > launch.id:
        return None
    comparison = checked(store, study_id, launch, anchor, separate)
    if comparison is None:
        return None
    failure = launch.failure
    later = (s for n in launch.trials[1:] for s in store.measurements(study_id, n, samples=False))
    went_on = any(s.launch == launch.id for s in later)
    if failure is not None and failure.kind == UNFAITHFUL and comparison.faithful and not went_on:
        # The server ran another setting than requested, which the windows do not show.
        comparison = Comparison((), None, failure.message)
    drafter = anchor.configuration.speculation.drafter
    return Check(launch.id, anchor.number, separate.id, drafter, comparison)


_DISTURBED_AT_MOST = 2
"""Launches with a disturbed reference run before its drafter is launched separately. If the drafter
has passed a check, this applies only to servers with the same flags."""

_KILLED_AT_MOST = 2
"""Killed switched servers before hot switching is turned off."""

_OF_ONE_GROUP = frozenset({"hot_switch_memory", "plugin_refused"})
"""Faults that may depend on the flags of one server. They do not turn hot switching off if another
server of the drafter passed a check."""


def was_separate(trial: Trial, launches: Mapping[int, Launch]) -> bool:
    """Whether a trial has valid results of a separate launch."""
    if not comparable(trial) or not trial.measurements or trial.judged_in is None:
        return False
    return not launches[trial.judged_in].intent.settings


def disturbed_servers(switched: Sequence[Launch]) -> tuple[Configuration, ...]:
    """A configuration of each server whose reference run was disturbed too often."""
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
    """Why hot switching is off; `None`: it is on."""
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
        if failure.fault == "configuration" and _run_separately(launch, trials, launches):
            many = counted(len(launch.intent.settings), "setting")
            return (
                f"launch {launch.id} with {many} failed ({failure.kind}: "
                f"{shorten(failure.message)}), but each setting runs when launched separately"
            )
    return None


def _repeated(switched: Sequence[Launch], faithful: Collection[Drafter]) -> dict[int, str]:
    """Why repeated faults turn hot switching off, by the launch that reached the limit."""
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
        # Several settings also need more host memory, and the kernel kills without a message.
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
    """Whether a ready server failed in its reference run."""
    anchor = trials.get(launch.trials[0]) if launch.trials else None
    if anchor is None or anchor.judged_in is None or anchor.judged_in >= launch.id:
        return False
    return launch.ready_s is not None and launch.id not in found


def _run_separately(
    launch: Launch, trials: Mapping[int, Trial], launches: Mapping[int, Launch]
) -> bool:
    """Whether every setting of a failed launch was measured separately."""
    planned = [trials[number] for number in launch.trials]
    later = [t for t in planned if t.judged_in is not None and t.judged_in > launch.id]
    return (
        bool(later)
        and all(comparable(t) for t in planned)
        and all(was_separate(t, launches) for t in later)
    )
