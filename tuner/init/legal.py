"""Remove sub-spaces without a legal configuration."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from search_spaces.algorithms import canonical_algorithm
from search_spaces.configuration import Configuration
from search_spaces.rules.defaults import default_speculation, model_family
from search_spaces.rules.legality import violations
from search_spaces.space.space import Space

if TYPE_CHECKING:
    from search_spaces.study_file.study import Study
    from tuner.init.study_text import Proposal


def without_illegal(proposal: Proposal, study: Study) -> Proposal:
    """Remove algorithms without a legal configuration, and note the reason.

    Args:
        proposal: The proposed study.
        study: The proposed study as parsed.
    """
    alive = {point.speculation.algorithm for point in Space(study)}
    speculations = proposal.speculations
    dead = [
        p.algorithm for p in speculations.parts if canonical_algorithm(p.algorithm) not in alive
    ]
    if not dead:
        return proposal
    notes = [_why(algorithm, study) for algorithm in dict.fromkeys(dead)]
    parts = tuple(part for part in speculations.parts if part.algorithm not in dead)
    kept = replace(speculations, parts=parts, remarks=(), notes=(*speculations.notes, *notes))
    return replace(proposal, speculations=kept)


def _why(algorithm: str, study: Study) -> str:
    speculation = default_speculation(canonical_algorithm(algorithm), model_family(study.model))
    broken = violations(Configuration.of(speculation), study)
    reason = str(broken[0]) if broken else "no setting of it is legal beside the other flags"
    return f"{algorithm} is left out: {reason}"
