"""What a study's winner is compared with."""

from __future__ import annotations

from typing import TYPE_CHECKING

from search_spaces.algorithms import ALGORITHMS
from search_spaces.configuration import NO_SPECULATION, Configuration, Speculation
from search_spaces.rules.defaults import default_speculation, model_family
from search_spaces.rules.legality import canonical, violations
from search_spaces.space.production import production_configuration

if TYPE_CHECKING:
    from search_spaces.study_file.study import Study

PRODUCTION = "production"
"""The name of the baseline that runs today."""


def baselines(study: Study) -> dict[str, Configuration]:
    """The baselines of a study, canonical, by name.

    `"none"` is no speculation. `"default"` is SGLang's own defaults (0.5.23) for the study's first
    algorithm other than none, at the target's tp-size; it is absent where there is no such
    algorithm, or where the study's server flags do not let its defaults run.

    Flags and variables that the study varies are not set in these two, also where "not set" is
    not among their choices: a baseline need not be a point of the space.

    `"production"` is `production.command`, where the study has one: it is in whether our rules
    call it legal or not, since it runs today. Two names can be one configuration: they are one
    trial then.
    """
    out = {"none": canonical(Configuration.of(Speculation()), study)}
    default = default_baseline(study)
    if default is not None and not violations(default, study):
        out["default"] = default
    production = production_configuration(study)
    if production is not None:
        out[PRODUCTION] = production
    return out


def default_baseline(study: Study) -> Configuration | None:
    """SGLang's defaults for the study's first algorithm, legal or not; `None` without one."""
    for part in study.space.speculation:
        algorithm = part.canonical_algorithm
        if algorithm != NO_SPECULATION and algorithm in ALGORITHMS:
            speculation = default_speculation(algorithm, model_family(study.model))
            return canonical(Configuration.of(speculation), study)
    return None
