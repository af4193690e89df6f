"""Explain where the cycle time of a trial goes, and which knobs are worth a launch."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from results.records import PARTS
from search_spaces.space.space import Space
from tuner.analysis.bounds import Chain, break_even, decode_forward_s, gain_if_instant, widest_gain
from tuner.analysis.knob_effects import DRAFTING, Limit, collective_parts, knob_effects
from tuner.analysis.mean_cycle import FORWARDS, mean_cycle, part_name
from tuner.analysis.observed_effects import best_seen
from tuner.analysis.remaining_values import values_left
from tuner.analysis.selected_trial import choose, given, has_clock, no_clock
from tuner.verdict.scores import comparable

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from results.records import BatchCycles, CycleTimes, Measurement, Trial
    from search_spaces.study_file.study import Study
    from tuner.analysis.bounds import BreakEven
    from tuner.analysis.knob_effects import KnobEffect
    from tuner.analysis.mean_cycle import MeanCycle
    from tuner.analysis.observed_effects import Seen
    from tuner.analysis.selected_trial import Choice
    from tuner.reports.report import StudyReport


WORTH = 0.05
"""Gain below which a launch is not worth it: launches of one configuration differ by about as
much (docs/noise.md)."""


@dataclass(frozen=True, slots=True)
class PointExplanation:
    """Explanation of one operating point.

    Attributes:
        measurement: The measurement.
        times: Cycle times of the measurement.
        cycle: Mean cycle.
        told: Parts that the clock separates. The draft of NGRAM, DFLASH and multi-layer EAGLE is
            included in the rest.
        bounds: Largest possible gain by knob, if known. For steps: among remaining values, or among
            all other values if none remains.
        depth: Number of steps with the largest possible gain among these.
        instant: Gain if a part took no time, by part.
        break_even: Comparison with the baseline without speculation; `None` if unknown.
        notes: Notes on the figures.
    """

    measurement: Measurement
    times: CycleTimes
    cycle: MeanCycle
    told: tuple[str, ...]
    bounds: dict[str, float]
    depth: int | None
    instant: dict[str, float]
    break_even: BreakEven | None
    notes: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Explanation:
    """Explanation of one trial.

    Attributes:
        report: The study.
        choice: The trial, and why it was selected.
        knob_effects: Knobs of the study, and draft placement.
        points: Operating points with cycle times, in the study's order; at least one.
        seen: Measured effect of another value of a knob, with all other knobs equal.
        left: Values of each knob that are not judged yet, with all other knobs equal.
        untouched: Parts with collectives, if the study varies no knob that affects collectives.
    """

    report: StudyReport
    choice: Choice
    knob_effects: tuple[KnobEffect, ...]
    points: tuple[PointExplanation, ...]
    seen: dict[str, Seen]
    left: Mapping[str, tuple[Any, ...]]
    untouched: tuple[str, ...]

    @property
    def trial(self) -> Trial:
        """The trial that is explained."""
        return self.choice.trial

    def bound(self, knob_effect: KnobEffect) -> float | None:
        """Largest possible gain of a knob at any of the points; `None` if unknown."""
        return max(
            (p.bounds[knob_effect.name] for p in self.points if knob_effect.name in p.bounds),
            default=None,
        )

    def is_done(self, knob_effect: KnobEffect) -> bool:
        """Whether the study varies the knob and has launched all its values at this point."""
        return knob_effect.varied and not self.left[knob_effect.name]

    def is_worth(self, knob_effect: KnobEffect) -> bool | None:
        """Whether the knob is worth a launch of this study; `None` if unknown."""
        if not knob_effect.varied or self.is_done(knob_effect):
            return False
        bound = self.bound(knob_effect)
        return None if bound is None else bound >= WORTH

    def is_worth_varying(self, knob_effect: KnobEffect) -> bool:
        """Whether a knob that this study does not vary could gain something."""
        bound = self.bound(knob_effect)
        return not knob_effect.varied and bound is not None and bound >= WORTH


@dataclass(frozen=True, slots=True)
class _Plain:
    """Trials without speculation: the baseline, and the trial with otherwise equal settings."""

    baseline: Trial | None
    alike: Trial | None


def explain(
    report: StudyReport, study: Study, trial: Trial | None = None, space: Space | None = None
) -> Explanation:
    """Explain a trial, by default the best speculative trial at default system settings.

    Args:
        report: Report of the study.
        study: The study.
        trial: The trial.
        space: Points of the study, if its runner does not support all of them.

    Raises:
        NothingToExplain: Required cycle times were not recorded.
    """
    leaderboard = report.leaderboard
    choice = choose(leaderboard, study, report) if trial is None else given(report, trial)
    trial = choice.trial
    found = knob_effects(study, trial, leaderboard.trials)
    left: dict[str, tuple[Any, ...]] = {knob_effect.name: () for knob_effect in found}
    if report.study.stopped != "exhausted":
        space = space if space is not None else Space(study)
        left |= values_left(found, trial.configuration, leaderboard.trials, space)
    parts = collective_parts(study, trial.configuration)
    compared = _Plain(leaderboard.baselines.get("none"), _plain(trial, leaderboard.trials))
    points = {
        index: point
        for index in range(len(trial.measurements))
        if (point := _point(trial, index, found, left, parts, compared)) is not None
    }
    if not points:
        raise no_clock(report, trial)
    missing = [m.point.name for n, m in enumerate(trial.measurements) if n not in points]
    if missing:
        note = f"cycle times are missing at {' and '.join(missing)}"
        choice = replace(choice, notes=(*choice.notes, note))
    acting = any(knob_effect.collective for knob_effect in found)
    return Explanation(
        report=report,
        choice=choice,
        knob_effects=found,
        points=tuple(points.values()),
        seen=best_seen(found, trial, leaderboard.trials, study, tuple(points)),
        left=left,
        untouched=() if acting else parts,
    )


def _plain(trial: Trial, trials: Iterable[Trial]) -> Trial | None:
    """Find the trial without speculation and with otherwise equal settings."""
    ours = trial.configuration
    for other in trials:
        theirs = other.configuration
        same = (theirs.flags, theirs.env) == (ours.flags, ours.env)
        if same and not theirs.speculation.enabled and comparable(other) and has_clock(other):
            return other
    return None


def _point(  # noqa: PLR0917 - all that a point is made of
    trial: Trial,
    index: int,
    found: tuple[KnobEffect, ...],
    left: Mapping[str, tuple[Any, ...]],
    collectives: tuple[str, ...],
    plain: _Plain,
) -> PointExplanation | None:
    measurement = trial.measurements[index]
    times = measurement.cycle
    cycle = mean_cycle(times) if times is not None else None
    if times is None or cycle is None:
        return None
    speculates = trial.configuration.speculation.enabled
    drafts = any(cycle.parts[name] for name in DRAFTING)
    told = PARTS if drafts or not speculates else tuple(n for n in PARTS if n not in DRAFTING)
    instant = {name: gain_if_instant(cycle.share((name,))) for name in told}
    if collectives:
        instant["collective"] = gain_if_instant(cycle.share(collectives))
    chain = _chain(measurement, trial, cycle, decode_forward_s(plain.alike, index, measurement))
    bounds: dict[str, float] = {}
    depth = None
    for knob_effect in found:
        if knob_effect.limit is Limit.PARTS:
            # A part that is not told apart is somewhere in the rest.
            parts = {name if name in told else "rest" for name in knob_effect.parts}
            bounds[knob_effect.name] = gain_if_instant(cycle.share(parts))
        elif knob_effect.limit is Limit.NOTHING:
            bounds[knob_effect.name] = 0.0
        elif chain is not None and knob_effect.limit is Limit.WIDTH:
            bounds[knob_effect.name] = widest_gain(chain.steps, chain.accept_length)
        elif chain is not None and knob_effect.limit is Limit.DEPTH:
            best = chain.best_gain(left[knob_effect.name] or knob_effect.choices)
            if best is not None:
                depth, bounds[knob_effect.name] = best
    return PointExplanation(
        measurement=measurement,
        times=times,
        cycle=cycle,
        told=told,
        bounds=bounds,
        depth=depth,
        instant=instant,
        break_even=break_even(trial, index, plain.baseline),
        notes=point_notes(measurement, times, cycle, speculates=speculates, drafts=drafts),
    )


def _chain(
    measurement: Measurement, trial: Trial, cycle: MeanCycle, decode_s: float | None
) -> Chain | None:
    speculation = trial.configuration.speculation
    if measurement.accept_length is None or speculation.topk != 1 or not speculation.num_steps:
        return None
    return Chain.of(
        speculation.num_steps, measurement.accept_length, measurement.histogram, cycle, decode_s
    )


EAGER = 0.95
"""Below this share of CUDA graphs a part is said to run without them."""

UNEVEN = 1.5
"""From this ratio of mean and median on some cycles are said to take far longer than others."""

_MATTERS = 0.1
"""Share of a cycle below which that is not worth a word."""

_DRAFT_IN_REST = (
    "the cycle clock cannot separate this draft (NGRAM, DFLASH, multi-layer EAGLE); its time is "
    "part of rest"
)


def point_notes(
    measurement: Measurement,
    times: CycleTimes,
    cycle: MeanCycle,
    *,
    speculates: bool,
    drafts: bool,
) -> tuple[str, ...]:
    """Notes on the figures of a point as sentences, the most important first."""
    return (
        *(f"invalid: {reason}" for reason in measurement.invalid),
        *_of_source(times, cycle),
        *((_DRAFT_IN_REST,) if speculates and not drafts else ()),
        *_of_graphs(times, speculates=speculates),
        *_of_spread(times, cycle, speculates=speculates),
    )


def _of_source(times: CycleTimes, cycle: MeanCycle) -> Iterator[str]:
    if times.source == "device_timer" and not cycle.rest_known:
        yield (
            "SGLang's device timer measures only the GPU time of the forwards, so shares and "
            "bounds are larger than those of whole cycles"
        )
    elif times.source == "device_timer":
        yield (
            "SGLang's device timer measures the GPU time of the forwards; rest is the remaining "
            "wall time, including gaps between the forwards"
        )
    elif not cycle.rest_known:
        yield "the time between the forwards was not measured; rest is missing"


def _of_graphs(times: CycleTimes, *, speculates: bool) -> Iterator[str]:
    lowest: dict[str, float] = {}
    highest = 0.0
    for batch in times.batches:
        for name in FORWARDS:
            share = part.graph_share if (part := batch.parts.get(name)) is not None else None
            if share is not None:
                lowest[name] = min(share, lowest.get(name, 1.0))
                highest = max(highest, share)
    if lowest and not highest:
        yield "no forward ran as a CUDA graph"
        return
    eager = [part_name(n, speculates=speculates) for n, share in lowest.items() if share < EAGER]
    if eager:
        yield f"{' and '.join(eager)} did not always run as CUDA graphs"


def _of_spread(times: CycleTimes, cycle: MeanCycle, *, speculates: bool) -> Iterator[str]:
    """Note on a few long cycles, which shift the shares because shares are means."""
    busiest = max(times.batches, key=_seconds)
    for name, part in busiest.parts.items():
        if not part.median_s or not part.count or cycle.shares[name] < _MATTERS:
            continue
        ratio = part.total_s / part.count / part.median_s
        if ratio >= UNEVEN:
            yield (
                f"the mean of {part_name(name, speculates=speculates)} is {ratio:.1f} times its "
                "median: some cycles took far longer, for example because of another process"
            )


def _seconds(batch: BatchCycles) -> float:
    return sum(part.total_s for part in batch.parts.values())
