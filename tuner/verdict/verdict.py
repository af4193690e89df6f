"""The verdict on the best trial of a study."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Literal

from results.records import TrialState
from tuner.formatting import shorten
from tuner.verdict.scores import CONSTRAINT, Reference, comparable

if TYPE_CHECKING:
    from collections.abc import Sequence

    from results.records import Measurement, Trial
    from search_spaces.metrics import Metric
    from tuner.verdict.scores import Leaderboard

VerdictKind = Literal["winner", "baseline", "tie", "unconfirmed", "infeasible"]

_AT_CEILING = 0.95
_TIED_BELOW = 1.01
_WITHIN_NOISE = 1.03
"""A lead below this is less than two runs of one configuration were seen to differ by: public
reports have up to 11 % at concurrency 1 (84.3 and 93.5 tok/s of one server)."""


@dataclass(frozen=True, slots=True)
class Verdict:
    """The verdict on a study, and its reason as a sentence."""

    kind: VerdictKind
    reason: str


def verdict(leaderboard: Leaderboard) -> Verdict:
    """Return the verdict that the search alone supports.

    A search selects the largest of many noisy results, so its best trial is `unconfirmed` until it
    is launched again beside the best baseline (design decision 5). The reason names each baseline
    that is missing from the comparison.
    """
    found = _verdict(leaderboard)
    if leaderboard.best is None:
        return found
    return replace(found, reason="; ".join((found.reason, *missing_baselines(leaderboard))))


def missing_baselines(leaderboard: Leaderboard) -> tuple[str, ...]:
    """One sentence for each baseline that was judged but has no comparable results."""
    names: dict[int, list[str]] = {}
    judged = {name: trial for name, trial in leaderboard.baselines.items() if trial is not None}
    lost = {trial.number: trial for trial in judged.values() if not comparable(trial)}
    for name, trial in judged.items():
        if trial.number in lost:
            names.setdefault(trial.number, []).append(f"'{name}'")
    return tuple(
        f"baseline {' and '.join(names[number])} is missing: trial {number} is {trial.state}"
        + (f": {shorten(trial.failure.message)}" if trial.failure is not None else "")
        for number, trial in lost.items()
    )


def _verdict(leaderboard: Leaderboard) -> Verdict:
    best = leaderboard.best
    if best is None:
        if not any(trial.state.is_verdict for trial in leaderboard.trials):
            return Verdict("unconfirmed", "no trial has a result yet")
        return Verdict("infeasible", f"no configuration {_lacking(leaderboard)}")
    baselines = {trial.number for trial in leaderboard.baselines.values() if trial is not None}
    others = [
        trial
        for trial in leaderboard.trials
        if trial.state is TrialState.COMPLETE
        and (trial.number in baselines) != (best.number in baselines)
    ]
    if _rate_is_the_loads(best, others, leaderboard.metric):
        return Verdict(
            "tie",
            "the request rate is too low to compare settings: nearly every request met the limits; "
            "raise request_rate or tighten goodput",
        )
    if best.number in baselines:
        return Verdict("unconfirmed", "no configuration was faster than this baseline so far")
    reason = "best measured so far; not yet confirmed against the baseline"
    if (leads := leaderboard.leads(best)) and (lead := leads[0])[2] < _WITHIN_NOISE:
        reason += (
            f"; its lead of {lead[2] - 1:.1%} over '{lead[0]}' is within the noise of single "
            f"windows: keep '{lead[0]}' until the lead is confirmed"
        )
    return Verdict("unconfirmed", reason)


def _lacking(leaderboard: Leaderboard) -> str:
    """Sentence for a study without a complete trial."""
    judged = [trial for trial in leaderboard.trials if trial.state.is_verdict]
    if any(t.failure is not None and t.failure.kind == CONSTRAINT for t in judged):
        return "meets the constraints"
    invalid = [trial.state is TrialState.INVALID for trial in judged]
    if all(invalid):
        return "has valid windows"
    return "runs with valid windows" if any(invalid) else "runs"


def _rate_is_the_loads(best: Trial, others: Sequence[Trial], metric: Metric) -> bool:
    """Whether the best rate equals the offered rate, and another trial reaches it too.

    In an open loop no server can answer more requests than arrive.
    """
    if metric.name != "goodput_request_s" or not all(map(_at_ceiling, best.measurements)):
        return False
    references = [Reference.of([trial], metric) for trial in others]
    return any(r is not None and r.gain(best.measurements) < _TIED_BELOW for r in references)


def _at_ceiling(measurement: Measurement) -> bool:
    good = measurement.goodput_request_s or 0.0
    return measurement.point.is_open and good >= _AT_CEILING * measurement.request_s > 0
