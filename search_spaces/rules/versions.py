"""Rules of a single SGLang version.

The rules of `RULES` define the space of a study. The rules here apply only if the SGLang version is
known.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from search_spaces.rules.legality import candidate, canonical
from search_spaces.rules.rule import Rules

if TYPE_CHECKING:
    from search_spaces.configuration import Configuration
    from search_spaces.rules.candidate import Candidate
    from search_spaces.rules.rule import Violation
    from search_spaces.study_file.study import Study

_rules_0_5_17 = Rules("SGLang 0.5.17")

_DEEPEST_0_5_17 = 7
"""Of the candidates that it has without a file of its own
(`speculative/adaptive_spec_params.py:22-48`)."""


@_rules_0_5_17.add(
    "model_executor/model_runner.py:763-767, model_executor/graph_shared_output.py:55-59: the "
    "graphs' logits buffer has rows for the steps that it starts with"
)
def _adaptive_starts_deepest(server: Candidate) -> str | None:
    if not server.flags.get("speculative-adaptive") or server.drops_adaptive:
        return None
    if server.flags.get("disable-cuda-graph") or server.flags.get("device") == "cpu":
        return None
    # Candidates in a configuration file are unknown here.
    if "speculative-adaptive-config" in server.flags or not server.is_chain:
        return None
    steps = server.speculation.num_steps
    if steps is None or steps >= _DEEPEST_0_5_17:
        return None
    return (
        f"speculative-adaptive starts in 0.5.17 only at its deepest candidate, num_steps "
        f"{_DEEPEST_0_5_17}, not at {steps}: the graphs of deeper ones find no room for their "
        "logits"
    )


VERSION_RULES = {"0.5.17": _rules_0_5_17.all}
"""By version, what it does not start with although its arguments pass."""


def version_violations(
    configuration: Configuration, study: Study, version: str | None
) -> tuple[Violation, ...]:
    """Rules of a version that a configuration breaks in a study, without the general rules."""
    rules = VERSION_RULES.get(version or "", ())
    if not rules:
        return ()
    server = candidate(canonical(configuration, study), study)
    found = (rule.violation(server) for rule in rules)
    return tuple(violation for violation in found if violation is not None)
