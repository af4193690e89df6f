"""When a study goes back to a launch per setting, as its switched launches have shown. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING

from results.records import LaunchState
from tuner.blame import KILLED
from tuner.scoring import comparable
from tuner.switch_faults import ANCHOR_DISTURBED, SWITCH_FAULTS, unfaithful
from tuner.words import counted, shorten

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping, Sequence

    from results.records import Launch, Trial
    from search_spaces.configuration import Configuration, Drafter
    from tuner.faithful import Comparison
    from tuner.switching import Check

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
            return f"launch {launch.id}, at its anchor: {failure.kind}: {shorten(failure.message)}"
        if failure.fault == "configuration" and _run_alone(launch, trials, launches):
            many = counted(len(launch.intent.settings), "setting")
            return (
                f"launch {launch.id}, for {many}, failed ({failure.kind}: "
                f"{shorten(failure.message)}), and each of them runs in a launch of its own"
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
