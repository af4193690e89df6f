"""What a study's conditions do to its space."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from search_spaces.rules.legality import candidate
from search_spaces.space.conditions import StudyCondition, study_conditions
from search_spaces.space.space import Space

if TYPE_CHECKING:
    from search_spaces.study_file.study import Study


@dataclass(slots=True)
class Effect:
    """What one condition, by itself, does to the configurations that SGLang and NCCL run.

    Attributes:
        condition: The condition.
        applies: Whether its `when` matches any.
        excludes: Whether it keeps any out of the space.
        keeps: Whether it leaves any in it.
    """

    condition: StudyCondition
    applies: bool = False
    excludes: bool = False
    keeps: bool = False


def condition_effects(study: Study) -> tuple[Effect, ...]:
    """What each of a study's conditions does to the configurations that obey SGLang's rules."""
    effects = tuple(Effect(condition) for condition in study_conditions(study.space))
    if not effects:
        return ()
    space = study.space.model_copy(update={"conditions": ()})
    for point in Space(study.model_copy(update={"space": space})):
        found = candidate(point, study)
        for effect in effects:
            applies = effect.condition.applies(found)
            effect.applies |= applies
            if applies and effect.condition.violation(found) is not None:
                effect.excludes = True
            else:
                effect.keeps = True
    return effects


def without_effect(study: Study) -> tuple[str, ...]:
    """Conditions that exclude nothing, in sentences for the study's author."""
    out = []
    for effect in condition_effects(study):
        place = effect.condition.place
        if not effect.applies:
            out.append(
                f"{place} never applies: no configuration is as its `when` says "
                f"({effect.condition.when}); correct it or leave it out"
            )
        elif not effect.excludes:
            out.append(
                f"{place} excludes nothing: where {effect.condition.when}, every configuration is "
                "as its `then` says; correct it or leave it out"
            )
    return tuple(out)


def what_empties(study: Study) -> tuple[int, ...]:
    """Indices of the conditions that leave nothing of the space, each by itself.

    Empty where it takes several of them, or where they are not to blame.
    """
    return tuple(i for i, effect in enumerate(condition_effects(study)) if not effect.keeps)
