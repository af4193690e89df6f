"""What another value of a knob was measured to do to the cycle, all else equal."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from results.records import PARTS
from tuner.explain.differences import only_difference, server_knobs
from tuner.explain.mean_cycle import mean_cycle
from tuner.scoring import comparable

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from results.records import Trial
    from search_spaces import Study
    from tuner.explain.levers import Lever
    from tuner.explain.mean_cycle import MeanCycle


@dataclass(frozen=True, slots=True)
class Seen:
    """Another trial, which differs in one knob alone.

    Attributes:
        trial: Its number.
        value: The value that it has there.
        gains: How much faster it decodes at each operating point that is explained; below 0 where
            it is slower, `None` where it has no clock. It has one at the first of them.
        parts: How the seconds of each part changed at the first point, as a share of what they
            were; parts that took no time before are left out.
    """

    trial: int
    value: Any
    gains: tuple[float | None, ...]
    parts: dict[str, float]

    @property
    def gain(self) -> float:
        """That at the first point."""
        return self.gains[0] or 0.0


def best_seen(
    levers: Iterable[Lever],
    trial: Trial,
    trials: Iterable[Trial],
    study: Study,
    points: Sequence[int],
) -> dict[str, Seen]:
    """The value of each lever that is the fastest other one at the first of the points.

    Args:
        levers: The levers; those of which no other value was measured are left out of the result.
        trial: The trial that is explained.
        trials: All of the study's.
        study: The study.
        points: Numbers of the operating points that are explained; the trial has a clock at each.
    """
    names = {lever.name for lever in levers}
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
    """Tokens per second of a request that decodes, at one operating point."""
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
