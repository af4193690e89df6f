"""Values of each knob that a study has not launched yet."""

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
    from tuner.analysis.knob_effects import KnobEffect


def values_left(
    knob_effects: Iterable[KnobEffect], own: Configuration, trials: Iterable[Trial], space: Space
) -> dict[str, tuple[Any, ...]]:
    """List the values of each knob that no judged point has, with all other knobs equal.

    Draft tokens may differ together with steps and topk. If the rules allow no point that differs
    in only one flag or variable, its values remain while any point with another value remains.

    Args:
        knob_effects: The knobs. A knob that the study does not vary has no remaining values.
        own: The explained configuration.
        trials: All trials of the study.
        space: Points of the study.
    """
    study = space.study
    own = canonical(own, study)
    judged = {
        canonical(trial.configuration, study)
        for trial in trials
        if trial.state.is_verdict or trial.state is TrialState.INACTIVE
    }
    return {
        knob_effect.name: _left(knob_effect, own, judged, space)
        for knob_effect in knob_effects
        if knob_effect.varied
    }


def _left(
    knob_effect: KnobEffect, own: Configuration, judged: set[Configuration], space: Space
) -> tuple[Any, ...]:
    alone = [
        (value, point)
        for value, point in _others(knob_effect, own, space)
        if point != own and point in space
    ]
    if not alone and knob_effect.knob.kind is not DRAFT.kind:
        now = _value(knob_effect, own)
        anywhere = any(_value(knob_effect, p) != now and p not in judged for p in space)
        return knob_effect.choices if anywhere else ()
    met = dict.fromkeys(value for value, point in alone if point not in judged)
    return tuple(value for value in knob_effect.choices if value in met)


def _others(
    knob_effect: KnobEffect, own: Configuration, space: Space
) -> Iterator[tuple[Any, Configuration]]:
    """Configurations that differ in one knob; some may not be points of the space."""
    if knob_effect.knob.kind is DRAFT.kind:
        for other in space.speculations:
            same = other.algorithm == own.speculation.algorithm
            if same and draft_difference(own.speculation, other) == knob_effect.name:
                value = getattr(other, knob_effect.name)
                yield value, canonical(replace(own, speculation=other), space.study)
        return
    for value in knob_effect.choices:
        yield value, canonical(_with(knob_effect, own, value), space.study)


def _with(knob_effect: KnobEffect, own: Configuration, value: Any) -> Configuration:  # noqa: ANN401 - any
    if knob_effect.knob.kind is Kind.DRAFT_TP:
        return replace(own, draft_tp=value)
    flags, env = dict(own.flags), dict(own.env)
    (flags if knob_effect.knob.kind is Kind.FLAG else env)[knob_effect.name] = value
    return type(own).of(own.speculation, draft_tp=own.draft_tp, flags=flags, env=env)


def _value(knob_effect: KnobEffect, point: Configuration) -> Any:  # noqa: ANN401 - any knob's value
    if knob_effect.knob.kind is Kind.DRAFT_TP:
        return point.draft_tp
    held = point.flags if knob_effect.knob.kind is Kind.FLAG else point.env
    return dict(held).get(knob_effect.name)
