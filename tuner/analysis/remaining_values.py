"""What a study has left to launch, all else equal, of each knob."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from results.records import TrialState
from search_spaces.rules.legality import canonical
from tuner.analysis.knobs import DRAFT, Kind
from tuner.analysis.observed_effects import draft_difference

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from results.records import Trial
    from search_spaces.configuration import Configuration
    from search_spaces.space.space import Space
    from tuner.analysis.knob_effects import Lever


def values_left(
    levers: Iterable[Lever], own: Configuration, trials: Iterable[Trial], space: Space
) -> dict[str, tuple[Any, ...]]:
    """The other values of each lever that a point which was not judged has, all else equal.

    Draft tokens may differ with steps and topk. Where the study's rules let no point differ in a
    flag or variable alone, all of its values are left as long as any point has another one.

    Args:
        levers: The levers; of one that the study does not vary nothing is left.
        own: What is explained.
        trials: All of the study's.
        space: The study's points.
    """
    study = space.study
    own = canonical(own, study)
    judged = {
        canonical(trial.configuration, study)
        for trial in trials
        if trial.state.is_verdict or trial.state is TrialState.INACTIVE
    }
    return {lever.name: _left(lever, own, judged, space) for lever in levers if lever.varied}


def _left(
    lever: Lever, own: Configuration, judged: set[Configuration], space: Space
) -> tuple[Any, ...]:
    alone = [
        (value, point)
        for value, point in _others(lever, own, space)
        if point != own and point in space
    ]
    if not alone and lever.knob.kind is not DRAFT.kind:
        now = _value(lever, own)
        anywhere = any(_value(lever, p) != now and p not in judged for p in space)
        return lever.choices if anywhere else ()
    met = dict.fromkeys(value for value, point in alone if point not in judged)
    return tuple(value for value in lever.choices if value in met)


def _others(lever: Lever, own: Configuration, space: Space) -> Iterator[tuple[Any, Configuration]]:
    """What differs from a configuration in one lever; some may be no points."""
    if lever.knob.kind is DRAFT.kind:
        for other in space.speculations:
            same = other.algorithm == own.speculation.algorithm
            if same and draft_difference(own.speculation, other) == lever.name:
                value = getattr(other, lever.name)
                yield value, canonical(replace(own, speculation=other), space.study)
        return
    for value in lever.choices:
        yield value, canonical(_with(lever, own, value), space.study)


def _with(lever: Lever, own: Configuration, value: Any) -> Configuration:  # noqa: ANN401 - any
    if lever.knob.kind is Kind.DRAFT_TP:
        return replace(own, draft_tp=value)
    flags, env = dict(own.flags), dict(own.env)
    (flags if lever.knob.kind is Kind.FLAG else env)[lever.name] = value
    return type(own).of(own.speculation, draft_tp=own.draft_tp, flags=flags, env=env)


def _value(lever: Lever, point: Configuration) -> Any:  # noqa: ANN401 - any knob's value
    if lever.knob.kind is Kind.DRAFT_TP:
        return point.draft_tp
    held = point.flags if lever.knob.kind is Kind.FLAG else point.env
    return dict(held).get(lever.name)
