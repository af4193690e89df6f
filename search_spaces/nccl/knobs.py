"""NCCL's variables as the knobs of a study."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from search_spaces.nccl.variables import VARIABLES

if TYPE_CHECKING:
    from search_spaces.configuration import Configuration
    from search_spaces.study_file.study import Study


def nccl_knobs(study: Study) -> tuple[str, ...]:
    """NCCL's variables of which a study has several choices."""
    return tuple(
        name
        for name, choices in study.space.env.items()
        if name in VARIABLES and len(set(choices)) > 1
    )


def without_nccl(configuration: Configuration) -> Configuration:
    """The configuration with none of NCCL's variables set.

    Equal for those that differ in nothing else: SGLang's handling of arguments refuses none of
    them for such a variable (0.5.9 to 0.5.23).
    """
    env = tuple((n, None if n in VARIABLES else value) for n, value in configuration.env)
    return replace(configuration, env=env)
