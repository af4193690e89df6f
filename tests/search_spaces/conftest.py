from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
import yaml

from search_spaces.rules.legality import candidate, canonical
from search_spaces.space.conditions import study_conditions
from search_spaces.study_file.load import parse_study

if TYPE_CHECKING:
    from collections.abc import Callable

    from search_spaces.configuration import Configuration
    from search_spaces.rules.rule import Violation
    from search_spaces.study_file.study import Study


def study_dict(**changes: Any) -> dict[str, Any]:
    """A small study as a file holds it; `changes` replace whole sections."""
    data: dict[str, Any] = {
        "study": "small",
        "model": {"path": "org/target", "draft": "org/draft", "family": "other"},
        "server": {"flags": {"tp-size": 8}},
        "space": {
            "speculation": [
                {"algorithm": "none"},
                {
                    "algorithm": "EAGLE3",
                    "num_steps": [1, 2, 3],
                    "topk": [1, 2],
                    "num_draft_tokens": [4, 8],
                },
            ]
        },
        "workload": {"prompts": {"chat": 1.0}, "output_tokens": 16},
        "budget": {"launches": 4},
    }
    return data | changes


def broken_conditions(configuration: Configuration, study: Study) -> tuple[Violation, ...]:
    """The study's conditions that a configuration breaks."""
    server = candidate(canonical(configuration, study), study)
    found = (condition.violation(server) for condition in study_conditions(study.space))
    return tuple(violation for violation in found if violation is not None)


@pytest.fixture
def make_study() -> Callable[..., Study]:
    def make(**changes: Any) -> Study:
        return parse_study(yaml.safe_dump(study_dict(**changes), sort_keys=False), "small.yaml")

    return make
