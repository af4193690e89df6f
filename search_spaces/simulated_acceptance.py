"""Environment variables that make SGLang simulate accept lengths.

`SGLANG_SIMULATE_ACC_LEN` and related variables (0.5.23, `srt/environ.py`) are for benchmarks:
accept lengths are artificial, and answers are wrong. SGLang also reads the prefix `SGL_`; older
versions read no prefix.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from search_spaces.study_file.document import KeyPath
    from search_spaces.study_file.study import Study

KEY = "simulated_acceptance"
"""Study key that allows these variables."""

NOTICE = "acceptance is simulated (SGLANG_SIMULATE_ACC_*)"
"""Notice in every output of such a study."""

SERVING_WARNING = (
    f"{NOTICE}: accept lengths are artificial, and answers are wrong. Do not serve with these "
    "variables; speeds without them differ"
)

_NAME = re.compile(r"(?:SGLANG_|SGL_)?SIMULATE_ACC_[A-Z_]+")
_ASSIGNMENT = re.compile(rf"(?<![A-Za-z0-9_])({_NAME.pattern})=")


def simulation_variables(names: Iterable[str]) -> tuple[str, ...]:
    """Return the variables that simulate acceptance."""
    return tuple(name for name in names if _NAME.fullmatch(name))


def simulates_acceptance(study: Study) -> bool:
    """Return whether a study declares or sets simulated acceptance."""
    return study.simulated_acceptance or any(True for _ in _set_in(study))


def undeclared_simulation(study: Study) -> Iterator[tuple[KeyPath, str]]:
    """Find variables that simulate acceptance in a study that does not declare it."""
    if study.simulated_acceptance:
        return
    for path, name in _set_in(study):
        message = (
            f"{name} simulates acceptance: accept lengths are artificial, and answers are wrong. "
            f"Remove it, or write `{KEY}: true` at the top of the study"
        )
        yield path, message


def _set_in(study: Study) -> Iterator[tuple[KeyPath, str]]:
    server, space = study.server, study.space
    for name in simulation_variables(server.env):
        if server.env[name] is not None:
            yield ("server", "env", name), name
    for index, word in enumerate(server.prefix):
        for name in _ASSIGNMENT.findall(word):
            yield ("server", "prefix", index), name
    for name in simulation_variables(space.env):
        if any(value is not None for value in space.env[name]):
            yield ("space", "env", name), name
    if study.production is not None:
        for name in dict.fromkeys(_ASSIGNMENT.findall(study.production.command)):
            yield ("production", "command"), name
