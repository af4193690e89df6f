"""Variables that make SGLang accept as many drafts as they say, whatever the model would accept.

`SGLANG_SIMULATE_ACC_LEN` and its companions (0.5.23, `srt/environ.py`) are for benchmarks: accept
lengths are made up, and the answers are wrong text. SGLang also reads them with the prefix `SGL_`,
and older versions without a prefix.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from search_spaces.study_file.study import Study
    from search_spaces.study_file.yaml_nodes import Path

KEY = "simulated_acceptance"
"""Key of a study that may set them."""

MARK = "acceptance is simulated (SGLANG_SIMULATE_ACC_*)"
"""What every output of such a study says."""

CAUTION = (
    f"{MARK}: accept lengths are made up, and the answers are wrong text. Do not serve with these "
    "variables, and do not expect these speeds without them"
)

_NAME = re.compile(r"(?:SGLANG_|SGL_)?SIMULATE_ACC_[A-Z_]+")
_ASSIGNMENT = re.compile(rf"(?<![A-Za-z0-9_])({_NAME.pattern})=")


def simulation_variables(names: Iterable[str]) -> tuple[str, ...]:
    """Those of the variables that simulate acceptance."""
    return tuple(name for name in names if _NAME.fullmatch(name))


def simulates_acceptance(study: Study) -> bool:
    """Whether a study says that its acceptance is simulated, or sets a variable that does it."""
    return study.simulated_acceptance or any(True for _ in _set_in(study))


def undeclared_simulation(study: Study) -> Iterator[tuple[Path, str]]:
    """Variables that simulate acceptance in a study that does not say so, each with its key."""
    if study.simulated_acceptance:
        return
    for path, name in _set_in(study):
        message = (
            f"{name} simulates acceptance: accept lengths are made up, and the answers are wrong "
            f"text. Leave it out, or write `{KEY}: true` at the top of the study"
        )
        yield path, message


def _set_in(study: Study) -> Iterator[tuple[Path, str]]:
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
