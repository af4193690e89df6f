"""The effect of each of a study's conditions on its space."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from search_spaces.rules.legality import candidate
from search_spaces.space.conditions import StudyCondition, study_conditions
from search_spaces.space.space import Space, SpaceTooLargeError

if TYPE_CHECKING:
    from search_spaces.study_file.study import Study


@dataclass(slots=True)
class Effect:
    """The effect of one condition alone on the configurations that obey SGLang's rules.

    Attributes:
        condition: The condition.
        applies: Whether its `when` matches any configuration.
        excludes: Whether it excludes any configuration.
        keeps: Whether it keeps any configuration.
    """

    condition: StudyCondition
    applies: bool = False
    excludes: bool = False
    keeps: bool = False


def condition_effects(study: Study) -> tuple[Effect, ...]:
    """Compute the effects; empty for a space that is too large without its conditions."""
    effects = tuple(Effect(condition) for condition in study_conditions(study.space))
    space = study.space.model_copy(update={"conditions": ()})
    try:
        points = Space(study.model_copy(update={"space": space})) if effects else ()
    except SpaceTooLargeError:
        return ()
    for point in points:
        found = candidate(point, study)
        for effect in effects:
            effect.applies |= effect.condition.applies(found)
            broken = effect.condition.violation(found) is not None
            effect.excludes |= broken
            effect.keeps |= not broken
    return effects


def ineffective_conditions(study: Study) -> tuple[str, ...]:
    """Warnings about conditions that exclude nothing."""
    out = []
    for effect in condition_effects(study):
        place, when = effect.condition.place, effect.condition.when or "any value"
        if not effect.applies:
            out.append(
                f"{place} never applies: no configuration matches `when` ({when}); correct or "
                "remove it"
            )
        elif not effect.excludes:
            out.append(
                f"{place} excludes nothing: every match of `when` ({when}) matches `then`; "
                "correct or remove it"
            )
    return tuple(out)
