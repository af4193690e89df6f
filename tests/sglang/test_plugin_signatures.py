"""What the plugin hooks and calls, held against SGLang's real sources.

Read, not imported: it takes a second, and what a source of 0.5.17 needs is not installed here.
`TUNER_SGLANG_SOURCES` names folders of further versions (`0.5.17=/path/to/sglang,...`), where
`srt` lies.
"""

from __future__ import annotations

import ast
import os
from pathlib import Path

import pytest

from runners.plugin.inside_sglang.tuner_sglang_plugin.clock import CycleClock
from runners.plugin.inside_sglang.tuner_sglang_plugin.hot_switch import HotSwitch
from runners.plugin.inside_sglang.tuner_sglang_plugin.status import Status

from .servers import VERSION

pytestmark = pytest.mark.sglang

CAPABILITIES = (HotSwitch(()), CycleClock(), Status(VERSION, ()))


def shape(function: ast.FunctionDef) -> str:
    """Format a signature like `hooks.shape`."""
    given = function.args
    positional = [*given.posonlyargs, *given.args]
    bare = len(positional) - len(given.defaults)
    parts = [one.arg + ("=" if place >= bare else "") for place, one in enumerate(positional)]
    if given.vararg or given.kwonlyargs:
        parts.append(f"*{given.vararg.arg if given.vararg else ''}")
    parts += [
        one.arg + ("=" if default is not None else "")
        for one, default in zip(given.kwonlyargs, given.kw_defaults, strict=True)
    ]
    if given.kwarg:
        parts.append(f"**{given.kwarg.arg}")
    return f"({', '.join(parts)})"


def find(sglang: Path, target: str) -> ast.FunctionDef:
    """Definition of a dotted path."""
    words = target.split(".")[1:]
    place = 1
    while not (path := sglang.joinpath(*words[:place]).with_suffix(".py")).exists():
        place += 1
        assert place <= len(words), f"no module of {target}"
    body = ast.parse(path.read_text()).body
    for word in words[place:]:
        (found,) = (
            one
            for one in body
            if isinstance(one, (ast.ClassDef, ast.FunctionDef)) and one.name == word
        )
        body = found.body
    assert isinstance(found, ast.FunctionDef)
    return found


def sources(cpu_server) -> dict[str, Path]:
    (installed,) = cpu_server.python.parents[1].glob("lib/python3*/site-packages/sglang")
    named = os.environ.get("TUNER_SGLANG_SOURCES")
    further = [word.split("=") for word in named.split(",")] if named else []
    return {VERSION: installed} | {version: Path(path) for version, path in further}


@pytest.mark.parametrize("capability", CAPABILITIES, ids=lambda one: one.name)
def test_hooked_functions_have_the_verified_signatures(cpu_server, capability):
    for version, sglang in sources(cpu_server).items():
        points = capability.points[version]
        found = {point.target: shape(find(sglang, point.target)) for point in points}
        assert found == {point.target: point.signature for point in points}, version
