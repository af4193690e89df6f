"""What a study's conditions do to its space."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from search_spaces.space.checks import Checks
from search_spaces.space.conditions import StudyCondition, study_conditions
from search_spaces.space.environments import Environments
from search_spaces.space.legal_servers import LegalServers
from search_spaces.space.parameters import sub_space_trees

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
    """What each of a study's conditions does; a moment's work also in a large space."""
    conditions = study_conditions(study.space)
    effects = tuple(Effect(condition) for condition in conditions)
    if not effects:
        return ()
    checks = Checks(study, (), watched=conditions)
    servers = LegalServers(study, sub_space_trees(study), checks, lambda _size: True).kinds
    environments = Environments(study, checks).kinds
    for server in servers:
        for env in environments:
            if not checks.hold_together(server, env):
                continue
            seen = zip(effects, checks.watched_of(server), checks.watched_of(env), strict=True)
            for effect, of_server, of_env in seen:
                effect.applies |= of_server[0] and of_env[0]
                if effect.condition.holds(of_server, of_env):
                    effect.keeps = True
                else:
                    effect.excludes = True
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
