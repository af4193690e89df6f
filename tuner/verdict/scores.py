"""Score of each trial: its gain over the best baseline, and whether it can win.

Scores are computed from stored measurements and never stored. The same holds for the state of a
trial with degenerate answers beside a good baseline (`Leaderboard.of`).
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from results.records import Failure, Trial, TrialState
from search_spaces.metrics import OUTPUT_TOK_S

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from results.records import Measurement
    from search_spaces.configuration import Configuration
    from search_spaces.metrics import Metric

DISTURBANCES = frozenset(
    {
        "client_late",
        "client_paused",
        "client_saturated",
        "compiled",
        "silent",
        "simulation_behind",
        "slower_than_clock",
        "unsteady",
    }
)
"""Checks of a window (`docs/validity.md`) that a moment's disturbance can fail: something else ran
on the machine, or the server compiled what it will not compile again."""

_DEGENERATE = "degenerate_output"

_CONSEQUENCES = frozenset({"chunk_tokens", "lock_step"})
"""Checks that fail because of a disturbance; alone they are none. A client that was stopped leaves
lanes in lock-step, and reads its backlog in pieces."""

CONSTRAINT = "constraint"
"""Kind of the failure of a trial that ran well, and broke a limit of the objective."""

_LEAST_WINDOW_S = 1e-3


@dataclass(frozen=True, slots=True)
class Reference:
    """Reference of all gains.

    Attributes:
        values: Value of the metric at each operating point, in the study's order.
        metric: The metric.
    """

    values: tuple[float, ...]
    metric: Metric = OUTPUT_TOK_S

    @classmethod
    def of(cls, trials: Iterable[Trial], metric: Metric) -> Reference | None:
        """The best of `trials` at each operating point; `None` where none can be compared.

        A baseline that breaks a limit of the objective is still what gains are measured against;
        one whose measurement is not believed, or that died at one of the points, is not.
        """
        measured = [t.measurements for t in trials if comparable(t)]
        if not measured:
            return None
        best = max if metric.larger_is_better else min
        return cls(
            tuple(
                best(value_of(m, metric) for m in point) for point in zip(*measured, strict=True)
            ),
            metric,
        )

    def gain(self, measurements: Sequence[Measurement]) -> float:
        """Weighted geometric mean of the gains at all operating points (design decision 10).

        A plain mean of tok/s would depend mostly on the highest concurrency. The gain of a latency
        is the factor by which it is shorter.
        """
        weights = [m.point.weight for m in measurements]
        sign = 1 if self.metric.larger_is_better else -1
        logs = [
            weight * sign * math.log(value_of(m, self.metric) / reference)
            for m, weight, reference in zip(measurements, weights, self.values, strict=True)
        ]
        return math.exp(sum(logs) / sum(weights))


def value_of(measurement: Measurement, metric: Metric) -> float:
    """Value of the metric, always above 0, so that every gain is finite.

    A window without a good request counts as half a request in its length. A latency without any
    value (TPOT if all answers have one token) counts as the whole window.
    """
    value = float(getattr(measurement, metric.name) or 0.0)
    if value > 0:
        return value
    window_s = max(measurement.window_s, _LEAST_WINDOW_S)
    return 0.5 / window_s if metric.larger_is_better else 1000 * window_s


@dataclass(frozen=True, slots=True)
class Leaderboard:
    """Trials of a study and its baselines.

    Attributes:
        trials: All trials by number, in the states that comparison with the baselines gives.
        baselines: Trial by baseline name; `None` until it is judged.
        reference: Best baseline at each point; `None` until every baseline is judged, and if none
            has valid results.
        metric: Metric of the study's objective.
    """

    trials: tuple[Trial, ...]
    baselines: Mapping[str, Trial | None]
    reference: Reference | None
    metric: Metric = OUTPUT_TOK_S

    @classmethod
    def of(
        cls,
        trials: Sequence[Trial],
        baselines: Mapping[str, Configuration],
        metric: Metric = OUTPUT_TOK_S,
        *,
        compare_answers: bool = True,
    ) -> Leaderboard:
        """Finds the baselines among `trials` by their canonical configuration.

        With `compare_answers` a trial with degenerate answers is invalid beside a baseline without,
        whichever of the two was judged first.
        """
        found: dict[str, Trial | None] = {}
        for name, configuration in baselines.items():
            # The last one that was judged: a baseline lost to the host is measured again.
            judged = [
                t
                for t in trials
                if t.configuration == configuration
                and t.state not in {TrialState.RUNNING, TrialState.FAILED}
            ]
            found[name] = judged[-1] if judged else None
        if compare_answers:
            known = [t for t in found.values() if t is not None]
            trials = [beside_baselines(t, known) for t in trials]
            by_number = {t.number: t for t in trials}
            found = {n: t if t is None else by_number[t.number] for n, t in found.items()}
        leaderboard = cls(tuple(trials), found, None, metric)
        if not leaderboard.baselines_are_judged:
            return leaderboard
        judged_ones = [t for t in found.values() if t is not None]
        return replace(leaderboard, reference=Reference.of(judged_ones, metric))

    @property
    def baselines_are_judged(self) -> bool:
        """Whether every baseline is judged."""
        return all(trial is not None for trial in self.baselines.values())

    def score(self, trial: Trial) -> float | None:
        """Gain over the best baseline; `None` unless the trial is complete and comparable."""
        if trial.state is not TrialState.COMPLETE or self.reference is None:
            return None
        return self.reference.gain(trial.measurements)

    def gain_over(self, baseline: str, trial: Trial) -> float | None:
        """Gain of `trial` over one baseline, as the same weighted mean."""
        base = self.baselines.get(baseline)
        reference = Reference.of([base], self.metric) if base is not None else None
        if reference is None or not comparable(trial):
            return None
        return reference.gain(trial.measurements)

    def leads(self, trial: Trial) -> list[tuple[str, Trial, float]]:
        """Every other baseline trial with the gain over it, the fastest first."""
        found = [
            (name, base, gain)
            for name, base in self.baselines.items()
            if base is not None
            and base.number != trial.number
            and (gain := self.gain_over(name, trial)) is not None
        ]
        return sorted(found, key=lambda lead: lead[2])

    @property
    def best(self) -> Trial | None:
        """Best feasible trial, including baselines; the earlier of two equal trials.

        Until every baseline is judged, gains are relative to the first judged baseline.
        """
        complete = [t for t in self.trials if t.state is TrialState.COMPLETE]
        if not complete:
            return None
        reference = self.reference or Reference.of(complete[:1], self.metric)
        if reference is None:
            return None
        return max(complete, key=lambda t: (reference.gain(t.measurements), -t.number))


def was_disturbed(measurement: Measurement) -> bool:
    """Whether all reasons against a window are disturbances, so that a repeat may be valid."""
    codes = _codes(measurement.invalid)
    return bool(codes & DISTURBANCES) and codes <= DISTURBANCES | _CONSEQUENCES


def has_stalled(measurement: Measurement) -> bool:
    """Whether a stream stalled in a valid window.

    SGLang compiles Triton kernels at the first batch of a kind and never again (on an H200 with
    0.5.17: 0.3 to 1.9 s, a fifth of a window).
    """
    return "stalled" in _codes(measurement.warnings)


def _codes(reasons: Iterable[str]) -> set[str]:
    """Codes of the reasons; each reason begins with its code."""
    return {reason.partition(":")[0] for reason in reasons}


def judge(
    measurements: Sequence[Measurement], limits: Mapping[str, float]
) -> tuple[TrialState, Failure | None]:
    """State of a trial that was measured at every point.

    Args:
        measurements: One per operating point.
        limits: Upper bounds by metric (`ttft_p95_ms`, ...), from `objective.subject_to`.
    """
    reasons = [f"at {_at(m)}: {reason}" for m in measurements for reason in m.invalid]
    if reasons:
        return TrialState.INVALID, _invalid(reasons)
    broken = [
        f"{name} {value:.1f} > {limit:g} at {_at(m)}"
        if value > limit
        else f"{name} (limit {limit:g}) was not measured at {_at(m)}"
        for m in measurements
        for name, limit in limits.items()
        if not (value := getattr(m, name)) <= limit
    ]
    if broken:
        return TrialState.INFEASIBLE, Failure(
            CONSTRAINT, "load", "configuration", "; ".join(broken)
        )
    return TrialState.COMPLETE, None


def beside_baselines(trial: Trial, baselines: Iterable[Trial]) -> Trial:
    """Mark a trial `invalid` if its answers are degenerate and those of a baseline are not.

    Dummy weights give degenerate answers everywhere: without a good baseline at the same operating
    point the reason remains a warning.

    Args:
        trial: The judged trial.
        baselines: Baselines judged so far; the trial may be one of them.
    """
    if not comparable(trial) or not any(map(_is_degenerate, trial.measurements)):
        return trial
    clean = {
        measurement.point: baseline.number
        for baseline in baselines
        if comparable(baseline) and baseline.number != trial.number
        for measurement in baseline.measurements
        if not _is_degenerate(measurement)
    }
    reasons = [
        f"at {_at(m)}: {reason}; the answers of baseline trial {clean[m.point]} are not degenerate"
        for m in trial.measurements
        if m.point in clean
        for reason in m.warnings
        if _DEGENERATE in _codes([reason])
    ]
    if not reasons:
        return trial
    return replace(trial, state=TrialState.INVALID, failure=_invalid(reasons))


def _is_degenerate(measurement: Measurement) -> bool:
    return _DEGENERATE in _codes(measurement.warnings)


def _invalid(reasons: Iterable[str]) -> Failure:
    return Failure("invalid_measurement", "load", "configuration", "; ".join(reasons))


def comparable(trial: Trial) -> bool:
    """Whether a trial has valid measurements at every point."""
    return trial.state is TrialState.COMPLETE or (
        trial.state is TrialState.INFEASIBLE
        and trial.failure is not None
        and trial.failure.kind == CONSTRAINT
    )


def _at(measurement: Measurement) -> str:
    return measurement.point.name
