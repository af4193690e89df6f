"""What a failed launch means: for the trials that it met, for the launch, and for the study."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from results.records import LOSING_FAULTS, Failure, LaunchState, TrialState

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping, Sequence

    from results.records import Launch, Trial

KILLED = frozenset({"scheduler_killed", "server_killed"})
"""Kinds of failure of which nobody can say whether the host or the configuration is to blame."""

HOST_PAUSES_S = (10.0, 60.0)
"""Before a launch that the host lost is tried again: GPU memory and ports take a while to come
back."""

HOST_FAULTS = len(HOST_PAUSES_S) + 1
"""Launches in a row that the host may lose before the study pauses."""


@dataclass(frozen=True, slots=True)
class Blame:
    """What follows from a failure.

    Attributes:
        failure: The failure, as it is stored.
        launch: State of the launch.
        trials: State of the trials that it met; `None` leaves them to another launch.
        stop: The reason to stop the study with it.
        pause_s: What to wait before the next launch.
    """

    failure: Failure
    launch: LaunchState
    trials: TrialState | None = None
    stop: str | None = None
    pause_s: float = 0.0


def blame(
    failure: Failure,
    *,
    study: str,
    log: str,
    switched: bool,
    is_reference: bool,
    host_faults: int,
) -> Blame:
    """Says who is to blame, and what to do next.

    Args:
        failure: Why the launch failed.
        study: The study's name, for the advice.
        log: The server's log.
        switched: Whether the launch was to measure several settings.
        is_reference: Whether it met the baseline without which nothing can be said.
        host_faults: Launches in a row that were lost before this one.
    """
    if failure.fault == "study":
        return Blame(
            failure,
            LaunchState.FAILED,
            TrialState.FAILED,
            f"{failure.message} ({failure.kind}). If the study file is to blame, correct it "
            f"and begin again under another name: `tuner sweep --study FILE --name NAME`",
        )
    if failure.fault in LOSING_FAULTS:
        lost = host_faults + 1
        if lost < HOST_FAULTS:
            return Blame(failure, LaunchState.FAILED, pause_s=HOST_PAUSES_S[lost - 1])
        return Blame(
            failure,
            LaunchState.FAILED,
            stop=f"{lost} launches in a row were lost to this machine, not to a configuration: "
            f"{failure.message} Mend it, then run `tuner resume --study {study}`",
        )
    if switched:
        # A server for many settings needs more memory than any one of them, and may refuse to be
        # switched: nobody is blamed, the agenda starts what is left of them one by one.
        return Blame(failure, LaunchState.FAILED)
    if is_reference:
        return Blame(
            failure,
            LaunchState.FAILED,
            TrialState.FAILED,
            "the baseline without speculation does not run, so nothing can be compared with it: "
            f"{failure.message}; log: {log}",
        )
    return Blame(failure, LaunchState.INFEASIBLE, TrialState.INFEASIBLE)


def killed_again(
    failure: Failure,
    launch: Launch,
    met: Collection[int],
    launches: Sequence[Launch],
    trials: Mapping[int, Trial],
) -> Failure:
    """The failure, or `unstable` where the server was killed before at one of the same trials.

    Once may be anybody's doing; again, at the same configuration, is its own.

    Args:
        failure: Why the launch failed.
        launch: The launch.
        met: Numbers of the trials that it was at.
        launches: All of the study.
        trials: Likewise, by number.
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
            message = f"its server was killed again: {failure.message}"
            return Failure("unstable", failure.phase, "configuration", message)
    return failure


def _was_at(launch: Launch, trials: Mapping[int, Trial], *, switched: bool) -> set[int]:
    """The trials that a killed launch was at.

    Args:
        launch: The launch.
        trials: All of the study, by number.
        switched: Whether it is compared with another launch for many settings.
    """
    if not launch.intent.settings:
        return set(launch.trials)
    if launch.ready_s is None:
        # The start of a server for many settings says nothing of one of them by itself.
        return set(launch.trials) if switched else set()
    judged = [n for n in launch.trials if trials[n].judged_in == launch.id]
    for number in launch.trials:
        before = trials[number].judged_in
        is_anchor = before is not None and before < launch.id
        if number not in judged and not (is_anchor and judged):
            return {number}
    return set()
