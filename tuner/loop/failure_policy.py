"""Decide what a failed launch means for its trials, the launch and the study."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from results.records import KILLED, LOSING_FAULTS, Failure, LaunchState, TrialState

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping, Sequence

    from results.records import Launch, Trial

HOST_PAUSES_S = (10.0, 60.0)
"""Pauses before a retry after a host fault: GPU memory and ports take time to become free."""

HOST_FAULTS = len(HOST_PAUSES_S) + 1
"""Consecutive host faults after which the study stops."""


@dataclass(frozen=True, slots=True)
class Consequences:
    """Consequences of a failure.

    Attributes:
        failure: The failure to store.
        launch: State of the launch.
        trials: State of its trials; `None`: another launch will measure them.
        stop: Why the study stops; `None`: it continues.
        pause_s: Seconds to wait before the next launch.
    """

    failure: Failure
    launch: LaunchState
    trials: TrialState | None = None
    stop: str | None = None
    pause_s: float = 0.0


def consequences_of(
    failure: Failure,
    *,
    study: str,
    log: str,
    switched: bool,
    is_reference: bool,
    host_faults: int,
) -> Consequences:
    """Decide the consequences of a failure.

    Args:
        failure: Why the launch failed.
        study: Name of the study, for the advice.
        log: Path of the server's log, for the advice.
        switched: Whether the launch was to measure several settings.
        is_reference: Whether the failed trial is the baseline without speculation.
        host_faults: Number of consecutive host faults before this one.
    """
    if failure.fault == "study":
        return Consequences(
            failure,
            LaunchState.FAILED,
            TrialState.FAILED,
            f"{failure.message} ({failure.kind}). If the study file causes this, correct the file "
            "and create another study: `tuner sweep --study FILE --name NAME`",
        )
    if failure.fault in LOSING_FAULTS:
        lost = host_faults + 1
        if lost < HOST_FAULTS:
            return Consequences(failure, LaunchState.FAILED, pause_s=HOST_PAUSES_S[lost - 1])
        return Consequences(
            failure,
            LaunchState.FAILED,
            stop=f"{lost} consecutive launches failed because of this machine: "
            f"{failure.message} Fix the machine, then run `tuner resume --study {study}`",
        )
    if switched:
        # A server for several settings needs more memory than a server for one of them, and may
        # refuse to switch. The remaining settings are launched separately.
        return Consequences(failure, LaunchState.FAILED)
    if is_reference:
        return Consequences(
            failure,
            LaunchState.FAILED,
            TrialState.FAILED,
            "the baseline without speculation does not run, so no gain can be computed: "
            f"{failure.message}; log: {log}",
        )
    return Consequences(failure, LaunchState.INFEASIBLE, TrialState.INFEASIBLE)


def killed_again(
    failure: Failure,
    launch: Launch,
    met: Collection[int],
    launches: Sequence[Launch],
    trials: Mapping[int, Trial],
) -> Failure:
    """Return `failure`, or `unstable` if a server was killed before at one of the same trials.

    One kill may have any cause. A second kill at the same configuration is blamed on it.

    Args:
        failure: Why the launch failed.
        launch: The failed launch.
        met: Numbers of the trials that were being measured.
        launches: All launches of the study.
        trials: All trials of the study, by number.
    """
    if failure.kind not in KILLED:
        return failure
    switched = bool(launch.intent.settings)
    for earlier in launches:
        before = earlier.failure
        if earlier.id == launch.id or before is None:
            continue
        killed = before.kind in KILLED | {"unstable"}
        if killed and set(met) & _was_at(earlier, trials, switched=switched):
            message = f"the server was killed twice at this configuration: {failure.message}"
            return Failure("unstable", failure.phase, "configuration", message)
    return failure


def _was_at(launch: Launch, trials: Mapping[int, Trial], *, switched: bool) -> set[int]:
    """Numbers of the trials that a killed launch was measuring.

    Args:
        launch: The launch.
        trials: All trials of the study, by number.
        switched: Whether the launch to compare with measures several settings.
    """
    if not launch.intent.settings:
        return set(launch.trials)
    if launch.ready_s is None:
        # A failed start of a server for several settings does not blame a single setting.
        return set(launch.trials) if switched else set()
    judged = [n for n in launch.trials if trials[n].judged_in == launch.id]
    for number in launch.trials:
        before = trials[number].judged_in
        is_anchor = before is not None and before < launch.id
        if number not in judged and not (is_anchor and judged):
            return {number}
    return set()
