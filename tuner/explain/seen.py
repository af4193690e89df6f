"""What another value of a knob was measured to do to the cycle, all else equal."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from results.records import PARTS, TrialState
from tuner.explain.levers import Limit
from tuner.explain.mean_cycle import mean_cycle
from tuner.knobs import DRAFT, differing, knobs_of
from tuner.scoring import comparable

if TYPE_CHECKING:
    from collections.abc import Iterable

    from results.records import Trial
    from search_spaces import Study
    from tuner.explain.levers import Lever
    from tuner.explain.mean_cycle import MeanCycle
    from tuner.knobs import Knobs


@dataclass(frozen=True, slots=True)
class Seen:
    """Another trial, which differs in one knob alone.

    Attributes:
        trial: Its number.
        value: The value that it has there.
        gain: How much faster it decodes at the first operating point; below 0 where it is slower.
        parts: How the seconds of each part changed, as a share of what they were; parts that took
            no time before are left out.
    """

    trial: int
    value: Any
    gain: float
    parts: dict[str, float]


def best_seen(
    levers: Iterable[Lever], trial: Trial, trials: Iterable[Trial], study: Study
) -> dict[str, Seen]:
    """The fastest other value of each lever; levers of which none was measured are left out."""
    mine = _speed(trial)
    if mine is None:
        return {}
    own = _knobs(trial, study)
    found: dict[str, Seen] = {}
    others = [t for t in trials if t.number != trial.number and comparable(t)]
    for other in others:
        theirs = _speed(other)
        if theirs is None or _source(other) != _source(trial):
            continue  # GPU time is not the time that passes
        name, value = _only_difference(own, _knobs(other, study))
        if name is None or all(name != lever.name for lever in levers):
            continue
        gain = theirs[0] / mine[0] - 1.0
        if name not in found or gain > found[name].gain:
            found[name] = Seen(other.number, value, gain, _changes(mine[1], theirs[1]))
    return found


def all_measured(
    levers: Iterable[Lever], trial: Trial, trials: Iterable[Trial], study: Study
) -> frozenset[str]:
    """The levers of which no choice is left that was not judged, all else equal.

    A tree's steps and width are not among them: its draft tokens differ with them.
    """
    own = _knobs(trial, study)
    met: dict[str, set[Any]] = {}
    for other in trials:
        if other.state.is_verdict or other.state is TrialState.INACTIVE:
            name, value = _only_difference(own, _knobs(other, study))
            if name is not None:
                met.setdefault(name, set()).add(value)
    return frozenset(
        lever.name
        for lever in levers
        if lever.choices
        and (lever.knob.kind is not DRAFT.kind or lever.limit is Limit.DEPTH)
        and set(lever.choices) <= met.get(lever.name, set())
    )


def _knobs(trial: Trial, study: Study) -> Knobs:
    return knobs_of(trial.configuration, study.server.flags, study.server.env)


def _source(trial: Trial) -> str | None:
    cycle = trial.measurements[0].cycle if trial.measurements else None
    return None if cycle is None else cycle.source


def _only_difference(own: Knobs, theirs: Knobs) -> tuple[str | None, Any]:
    """The one thing in which two servers differ, by the name of its lever."""
    knobs = differing(own, theirs)
    if len(knobs) != 1:
        return None, None
    [knob] = knobs
    if knob != DRAFT:
        return knob.name, theirs.get(knob)
    before, after = own[DRAFT], theirs[DRAFT]
    if before.topk != after.topk:
        same = before.num_steps == after.num_steps
        return ("topk", after.topk) if same else (None, None)
    if before.num_steps != after.num_steps:
        return "num_steps", after.num_steps
    return "num_draft_tokens", after.num_draft_tokens


def _speed(trial: Trial) -> tuple[float, MeanCycle] | None:
    """Tokens per second of a request that decodes, at the first operating point."""
    if not trial.measurements or (times := trial.measurements[0].cycle) is None:
        return None
    cycle = mean_cycle(times)
    if cycle is None:
        return None
    return (trial.measurements[0].accept_length or 1.0) / cycle.total_s, cycle


def _changes(before: MeanCycle, after: MeanCycle) -> dict[str, float]:
    return {
        name: after.parts[name] / before.parts[name] - 1.0
        for name in PARTS
        if before.parts[name] > 0
    }
