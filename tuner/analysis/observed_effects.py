"""Measured effect of one changed knob on the cycle, with all other knobs equal."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from results.records import PARTS
from tuner.analysis.knobs import DRAFT, differing, knobs_of
from tuner.analysis.mean_cycle import mean_cycle
from tuner.verdict.scores import comparable

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from results.records import Trial
    from search_spaces.configuration import Configuration, Speculation
    from search_spaces.study_file.study import Study
    from tuner.analysis.knob_effects import KnobEffect
    from tuner.analysis.knobs import Knobs
    from tuner.analysis.mean_cycle import MeanCycle


def server_knobs(configuration: Configuration, study: Study) -> Knobs:
    """Knobs of a configuration with the study's fixed part."""
    return knobs_of(configuration, study.server.flags, study.server.env)


def only_difference(own: Knobs, theirs: Knobs) -> tuple[str | None, Any]:
    """The only knob in which two servers differ, with its other value; `None` if several differ."""
    knobs = differing(own, theirs)
    if len(knobs) != 1:
        return None, None
    [knob] = knobs
    if knob != DRAFT:
        return knob.name, theirs.get(knob)
    after = theirs[DRAFT]
    name = draft_difference(own[DRAFT], after)
    return name, None if name is None else getattr(after, name)


def draft_difference(before: Speculation, after: Speculation) -> str | None:
    """The number of the draft that differs. Draft tokens may differ together with steps or topk."""
    if before.topk != after.topk:
        return "topk" if before.num_steps == after.num_steps else None
    if before.num_steps != after.num_steps:
        return "num_steps"
    return "num_draft_tokens" if before.num_draft_tokens != after.num_draft_tokens else None


@dataclass(frozen=True, slots=True)
class Seen:
    """A trial that differs in one knob.

    Attributes:
        trial: Its number.
        value: Its value of the knob.
        gains: Decoding gain at each explained operating point; negative if slower, `None` without
            cycle times. The first point has cycle times.
        parts: Relative change of each part's seconds at the first point, without parts that took no
            time before.
    """

    trial: int
    value: Any
    gains: tuple[float | None, ...]
    parts: dict[str, float]

    @property
    def gain(self) -> float:
        """Gain at the first point."""
        return self.gains[0] or 0.0


def best_seen(
    knob_effects: Iterable[KnobEffect],
    trial: Trial,
    trials: Iterable[Trial],
    study: Study,
    points: Sequence[int],
) -> dict[str, Seen]:
    """Find the fastest other value of each knob at the first point.

    Args:
        knob_effects: The knobs. The result has only knobs with another measured value.
        trial: The trial to explain.
        trials: All trials of the study.
        study: The study.
        points: Numbers of the explained operating points; the trial has cycle times at each.
    """
    names = {knob_effect.name for knob_effect in knob_effects}
    own = server_knobs(trial.configuration, study)
    mine = [_speed(trial, index) for index in points]
    found: dict[str, Seen] = {}
    for other in trials:
        if other.number == trial.number or not comparable(other):
            continue
        if _source(other) != _source(trial):
            continue  # GPU time is not the time that passes
        name, value = only_difference(own, server_knobs(other.configuration, study))
        if name is None or name not in names:
            continue
        theirs = [_speed(other, index) for index in points]
        first, ours = theirs[0], mine[0]
        if first is None or ours is None:
            continue
        gains = tuple(
            None if a is None or b is None else b[0] / a[0] - 1.0
            for a, b in zip(mine, theirs, strict=True)
        )
        seen = Seen(other.number, value, gains, _changes(ours[1], first[1]))
        if name not in found or seen.gain > found[name].gain:
            found[name] = seen
    return found


def _source(trial: Trial) -> str | None:
    cycle = trial.measurements[0].cycle if trial.measurements else None
    return None if cycle is None else cycle.source


def _speed(trial: Trial, index: int) -> tuple[float, MeanCycle] | None:
    """Tokens per second of one decoding request at one operating point."""
    measurement = trial.measurements[index]
    cycle = mean_cycle(measurement.cycle) if measurement.cycle is not None else None
    if cycle is None:
        return None
    return (measurement.accept_length or 1.0) / cycle.total_s, cycle


def _changes(before: MeanCycle, after: MeanCycle) -> dict[str, float]:
    return {
        name: after.parts[name] / before.parts[name] - 1.0
        for name in PARTS
        if before.parts[name] > 0
    }
