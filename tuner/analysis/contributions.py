"""Gain of each knob of an exported trial over a baseline.

The gain of a knob is the gain between two trials of the study that differ only in that knob. Pure
functions.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING, Any

from results.records import Purpose
from search_spaces.configuration import NO_SPECULATION, Speculation
from search_spaces.metrics import OUTPUT_TOK_S
from search_spaces.nccl.all_reduce import NCCL_UNUSED, without_nccl
from search_spaces.nccl.variables import VARIABLES
from tuner.analysis.knobs import (
    SPECULATION,
    Kind,
    Knob,
    Knobs,
    differing,
    knobs_of,
    shown_value,
    value_of_knob,
)
from tuner.verdict.scores import Reference, comparable, value_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from results.records import Trial
    from results.studies import StoredMeasurement
    from search_spaces.metrics import Metric
    from tuner.verdict.scores import Leaderboard

AGAINST = ("production", "default", "none")
"""Baselines to compare with; the first measured one is the default."""


class Basis(StrEnum):
    """Evidence for the gain of a change."""

    ALONE = "alone"
    """The exported trial against one that has the baseline's value there, and all else equal."""
    ELSEWHERE = "elsewhere"
    """Two such trials, which differ from the exported one in other knobs."""
    NEXT_BEST = "next_best"
    """The exported trial against the best that has any other value there, and all else equal."""
    UNMEASURED = "unmeasured"
    """No two trials differ in it alone."""
    INACTIVE = "inactive"
    """It does nothing in the exported server: what it did in others says nothing of this one."""


_NONE = (NO_SPECULATION, None, None)


@dataclass(frozen=True, slots=True)
class Worth:
    """Gain of a change and its evidence.

    Attributes:
        basis: The evidence.
        gain: Ratio of the study's metric with the new value to that without; `None` if not
            measured.
        trials: The trial with the new value, and the trial without.
        other: The value of the other trial, if it is not the baseline's.
        lowest: Smallest gain of all pairs of trials that differ only in this knob.
        highest: Largest gain of these pairs.
        pairs: Number of these pairs.
        together: Trials with another value that also differ in other knobs.
    """

    basis: Basis
    gain: float | None = None
    trials: tuple[int, int] | None = None
    other: Any = None
    lowest: float | None = None
    highest: float | None = None
    pairs: int = 0
    together: int = 0


@dataclass(frozen=True, slots=True)
class Change:
    """A knob that the exported configuration sets differently from the baseline.

    Attributes:
        knob: The knob.
        before: Value of the baseline (a `Speculation` for algorithm and steps); `None`: not set.
        after: Value of the exported configuration; `None`: not set.
        worth: Gain of the change.
    """

    knob: Knob
    before: Any
    after: Any
    worth: Worth


@dataclass(frozen=True, slots=True)
class Contributions:
    """Changes of an exported configuration against a baseline, and their gains.

    Attributes:
        trial: Number of the exported trial.
        baseline: Name of the baseline; `None` if none was measured.
        baseline_trial: Number of its trial.
        changes: One per knob that differs; the largest known gain comes first.
        speculation: Gain of the exported speculation over none, if the baseline speculates too.
        total: Gain of the trial over the baseline; `None` if one has no results.
        noise: Largest relative difference of two windows of one configuration in different
            launches; `None` without repeated launches.
        metric: Metric of the gains.
        points: Operating points over which the gains are means.
    """

    trial: int
    baseline: str | None = None
    baseline_trial: int | None = None
    changes: tuple[Change, ...] = ()
    speculation: Change | None = None
    total: float | None = None
    noise: float | None = None
    metric: Metric = OUTPUT_TOK_S
    points: int = 1

    def within_noise(self, gain: float) -> bool:
        """Whether repeated launches of one configuration differ by as much."""
        return self.noise is not None and max(gain, 1 / gain) - 1 <= self.noise


def contributions(
    leaderboard: Leaderboard,
    trial: Trial,
    *,
    fixed_flags: Mapping[str, Any],
    fixed_env: Mapping[str, Any],
    against: str | None = None,
    windows: Iterable[StoredMeasurement] = (),
) -> Contributions:
    """Compare a trial with a baseline and find the gain of each change.

    Args:
        leaderboard: Trials and baselines of the study.
        trial: The exported trial.
        fixed_flags: Server flags of the study, which a configuration may override.
        fixed_env: Variables of the study, which a configuration may override.
        against: Name of the baseline; `None`: the first measured one of `AGAINST`.
        windows: All windows of the study, with repeats.
    """
    name = against or _reference_name(leaderboard)
    base = leaderboard.baselines.get(name) if name is not None else None
    noise = spread(windows, leaderboard.metric)
    if name is None or base is None:
        return Contributions(trial.number, noise=noise)
    known = {
        t.number: knobs_of(t.configuration, fixed_flags, fixed_env)
        for t in (*leaderboard.trials, base, trial)
    }
    measured = [t for t in leaderboard.trials if comparable(t)]
    view = _View(measured, known, leaderboard.metric, _unused(leaderboard.trials, trial))
    changes = [
        Change(
            knob,
            shown_value(knob, value_of_knob(known[base.number], knob)),
            shown_value(knob, value_of_knob(known[trial.number], knob)),
            view.worth(
                knob,
                value_of_knob(known[base.number], knob),
                value_of_knob(known[trial.number], knob),
                trial,
            ),
        )
        for knob in differing(known[base.number], known[trial.number])
    ]
    changes.sort(key=lambda change: (change.worth.gain is None, -(change.worth.gain or 0.0)))
    speculation = trial.configuration.speculation
    at_all: Change | None = None
    if speculation.enabled and base.configuration.speculation.enabled:
        drafted = value_of_knob(known[trial.number], SPECULATION)
        worth = view.worth(SPECULATION, _NONE, drafted, trial)
        at_all = Change(SPECULATION, Speculation(), speculation, worth)
    return Contributions(
        trial=trial.number,
        baseline=name,
        baseline_trial=base.number,
        changes=tuple(changes),
        speculation=at_all,
        total=leaderboard.gain_over(name, trial),
        noise=noise,
        metric=leaderboard.metric,
        points=len(trial.measurements),
    )


def spread(windows: Iterable[StoredMeasurement], metric: Metric) -> float | None:
    """Largest relative difference of windows of one trial at one point, between separate launches.

    A share of the smaller value; `None` without a second launch.
    """
    grouped: dict[tuple[int, str], dict[int, float]] = {}
    for stored in windows:
        if stored.purpose is Purpose.ANCHOR:
            continue  # of a server that may not be what a launch of its own is
        if not stored.measurement.invalid:
            key = (stored.trial, stored.measurement.point.name)
            value = value_of(stored.measurement, metric)
            grouped.setdefault(key, {})[stored.launch] = value
    ratios = [
        max(values.values()) / min(values.values()) - 1
        for values in grouped.values()
        if len(values) > 1
    ]
    return max(ratios, default=None)


@dataclass(frozen=True, slots=True)
class _View:
    """The measured trials by knob."""

    trials: Sequence[Trial]
    knobs: Mapping[int, Knobs]
    metric: Metric
    unused: frozenset[str] = frozenset()
    """Variables that do nothing in the exported server."""

    def worth(self, knob: Knob, before: Any, after: Any, chosen: Trial) -> Worth:  # noqa: ANN401
        """Find the gain of `chosen`'s value of a knob over another value."""
        if knob.kind is Kind.VARIABLE and knob.name in self.unused:
            return Worth(Basis.INACTIVE)
        having = [t for t in self.trials if self._value(t, knob) == after]
        others = [t for t in self.trials if self._value(t, knob) != after]
        pairs = [
            (a, b)
            for a in having
            for b in others
            if self._value(b, knob) == before and self._rest(a, knob) == self._rest(b, knob)
        ]
        if pairs:
            gains = {(a.number, b.number): self._gain(a, b) for a, b in pairs}
            own = [pair for pair in gains if pair[0] == chosen.number]
            pair = own[0] if own else min(gains, key=lambda p: self._distance(p[0], chosen))
            return Worth(
                Basis.ALONE if own else Basis.ELSEWHERE,
                gains[pair],
                pair,
                lowest=min(gains.values()),
                highest=max(gains.values()),
                pairs=len(gains),
            )
        rivals = [t for t in others if self._rest(t, knob) == self._rest(chosen, knob)]
        if rivals and comparable(chosen):
            rival = min(rivals, key=lambda t: self._gain(chosen, t))
            other = shown_value(knob, self._value(rival, knob))
            gain = self._gain(chosen, rival)
            return Worth(Basis.NEXT_BEST, gain, (chosen.number, rival.number), other, pairs=1)
        return Worth(Basis.UNMEASURED, together=len(others))

    def _value(self, trial: Trial, knob: Knob) -> Any:  # noqa: ANN401 - any knob's value
        return value_of_knob(self.knobs[trial.number], knob)

    def _rest(self, trial: Trial, knob: Knob) -> Knobs:
        """All values that `knob` does not decide."""
        decided = {Kind.DRAFT, Kind.SPECULATION, Kind.DRAFT_TP}
        knobs = self.knobs[trial.number]
        if knob.kind is Kind.SPECULATION:
            return {k: v for k, v in knobs.items() if k.kind not in decided}
        return {k: v for k, v in knobs.items() if k != knob}

    def _distance(self, number: int, chosen: Trial) -> int:
        return len(differing(self.knobs[number], self.knobs[chosen.number]))

    def _gain(self, trial: Trial, other: Trial) -> float:
        reference = Reference.of([other], self.metric)
        # Both trials are comparable, so a gain exists.
        return reference.gain(trial.measurements) if reference is not None else 1.0


def _unused(trials: Iterable[Trial], chosen: Trial) -> frozenset[str]:
    """NCCL variables of inactive points that otherwise equal the exported configuration."""

    def server(trial: Trial) -> tuple[object, object]:
        return trial.configuration.flags, without_nccl(trial.configuration).env

    alike = any(
        trial.failure is not None
        and trial.failure.kind == NCCL_UNUSED
        and server(trial) == server(chosen)
        for trial in trials
    )
    return frozenset(VARIABLES) if alike else frozenset()


def _reference_name(leaderboard: Leaderboard) -> str | None:
    found = [name for name in AGAINST if leaderboard.baselines.get(name) is not None]
    return found[0] if found else None
