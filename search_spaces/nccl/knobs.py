"""NCCL variables that a study varies."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from search_spaces.nccl.variables import VARIABLES

if TYPE_CHECKING:
    from search_spaces.configuration import Configuration
    from search_spaces.study_file.study import Study


def nccl_knobs(study: Study) -> tuple[str, ...]:
    """NCCL variables with several values in a study."""
    return tuple(
        name
        for name, choices in study.space.env.items()
        if name in VARIABLES and len(set(choices)) > 1
    )


def without_nccl(configuration: Configuration) -> Configuration:
    """The configuration without NCCL variables.

    Equal for configurations that differ only in NCCL variables: SGLang's argument checks do not
    depend on these variables (0.5.9 to 0.5.23).
    """
    env = tuple((n, None if n in VARIABLES else value) for n, value in configuration.env)
    return replace(configuration, env=env)
