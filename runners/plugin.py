"""Our plugin inside SGLang, from the tuner's side: how it gets there, and what it can do there.

It is a folder (`inside_sglang`) that is put on the server's PYTHONPATH; SGLang finds it by its
entry point. Nothing is installed, and the exported command has none of it.
"""

from __future__ import annotations

import json
import math
import os
import time
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from runners.plugin_protocol import CLOCK_VARIABLE, NAME, STEPS_VARIABLE
from runners.server_environment import EnvironmentUnusableError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from results.records import LaunchIntent
    from runners.server_environment import ServerEnvironment
    from search_spaces.configuration import Configuration

FOLDER: Final = Path(__file__).parent / "inside_sglang"
"""What must be visible, under this very path, where the server runs."""

_ASK_AGAIN_S: Final = 60.0
"""Real seconds after which an environment that did not answer is asked again: it may have been the
network, or a machine that was busy."""

CHAIN_ALGORITHMS: Final = frozenset({"EAGLE", "EAGLE3", "NEXTN", "STANDALONE"})
"""Whose chains (topk 1) have steps that can be switched (0.5.17, 0.5.23)."""

_ALLOWED = "SGLANG_PLUGINS"
"""SGLang's own list of the plugins that it may load (0.5.17, 0.5.23); all where it is empty."""

# Runs in the server's interpreter. What it imports of the plugin imports the standard library only.
_PROBE = """
import importlib.metadata, json, os, sys
folder, name = sys.argv[1:]
found = {"there": os.path.isdir(os.path.join(folder, name)),
         "path": os.environ.get("PYTHONPATH"), "allowed": os.environ.get("SGLANG_PLUGINS")}
try:
    found["sglang"] = importlib.metadata.version("sglang")
except importlib.metadata.PackageNotFoundError:
    found["sglang"] = None
if found["there"]:
    sys.path.insert(0, folder)
    group = importlib.metadata.entry_points(group="sglang.srt.plugins")
    found["entry"] = any(point.name == name for point in group)
    from tuner_sglang_plugin import conditions
    from tuner_sglang_plugin.clock import DEVICES, CycleClock
    from tuner_sglang_plugin.hot_switch import HotSwitch
    found["hot_switch"] = sorted(HotSwitch((1,)).points)
    found["clock"] = sorted(CycleClock().points)
    found["never"] = sorted(conditions.NEVER)
    found["one"] = sorted(conditions.ONE)
    found["devices"] = list(DEVICES)
print(json.dumps(found))
"""


@dataclass(frozen=True, slots=True)
class Capabilities:
    """What the plugin can do in one server environment.

    Attributes:
        no_switch: Why it cannot switch there; `None`: it can.
        no_clock: Why it cannot keep the cycle's clock there; `None`: it can.
        never: Flags beside which nothing is switched, by their destination.
        one: Sizes that must be 1 for it, likewise.
        devices: Those on which it keeps the clock.
        sglang: The version of SGLang there; `None` where it is not known.
        path: PYTHONPATH of the environment itself.
        allowed: Its list of the plugins that SGLang may load.
    """

    no_switch: str | None
    no_clock: str | None
    never: frozenset[str] = frozenset()
    one: frozenset[str] = frozenset()
    devices: frozenset[str] = frozenset()
    sglang: str | None = None
    path: str | None = None
    allowed: str | None = None


class Plugin:
    """The plugin, delivered into one server environment.

    Args:
        environment: Where the servers run.
        server_flags: Flags of every server of the study, without dashes.
        server_env: Variables of every server of the study.
    """

    def __init__(
        self,
        environment: ServerEnvironment,
        server_flags: Mapping[str, Any],
        server_env: Mapping[str, str | None],
    ) -> None:
        self._environment = environment
        self._flags = server_flags
        self._env = server_env
        self._asked: tuple[Capabilities, float] | None = None

    @property
    def capabilities(self) -> Capabilities:
        """What it can do there; asks the server's interpreter, until that answers."""
        if self._asked is None or time.monotonic() >= self._asked[1]:
            found, answered = self._ask()
            self._asked = (found, math.inf if answered else time.monotonic() + _ASK_AGAIN_S)
        return self._asked[0]

    def _ask(self) -> tuple[Capabilities, bool]:
        """What it can do, and whether the environment answered."""
        try:
            done = self._environment.run(["-c", _PROBE, str(FOLDER), NAME], variables=self._env)
            found: dict[str, Any] = json.loads(done.stdout.strip().splitlines()[-1])
            if not found["there"]:
                where = (
                    f"{FOLDER} is not there where the server runs: make it visible under this "
                    f"path (docker: -v {FOLDER}:{FOLDER}:ro)"
                )
                return Capabilities(where, where, sglang=found["sglang"]), True
            return _judged(found), True
        except EnvironmentUnusableError as error:
            return Capabilities(str(error), str(error)), False
        except (IndexError, ValueError, KeyError, TypeError):
            salient = (done.stderr.strip().splitlines() or ["no output"])[-1]
            reason = f"{self._environment.python} does not load the plugin: {salient}"
            return Capabilities(reason, reason), False

    def no_switch(self, configuration: Configuration) -> str | None:
        """Why a server of this configuration cannot be switched; `None`: it can."""
        if not is_chain(configuration):
            return "only chains (topk 1) of " + ", ".join(sorted(CHAIN_ALGORITHMS))
        found = self.capabilities
        if found.no_switch is not None:
            return found.no_switch
        given = {**self._flags, **dict(configuration.flags)}
        flags = {name.replace("-", "_"): (name, value) for name, value in given.items()}
        if given.get("device") == "cpu" and not given.get("disable-cuda-graph"):
            return "on a CPU it needs --disable-cuda-graph"
        for destination in sorted(found.never & flags.keys()):
            name, value = flags[destination]
            if value not in {None, False}:
                return f"--{name} is set"
        for destination in sorted(found.one & flags.keys()):
            name, value = flags[destination]
            if value is not None and str(value) != "1":
                return f"--{name} is {value}"
        return None

    def no_clock(self, configuration: Configuration) -> str | None:
        """Why a server of this configuration goes without the cycle's clock; `None`: it has it.

        What the plugin would refuse is known from the flags: a refusal costs a start.
        """
        found = self.capabilities
        if found.no_clock is not None:
            return found.no_clock
        given = {**self._flags, **dict(configuration.flags)}
        if (device := given.get("device")) not in {None, *found.devices}:
            return f"--device is {device}"
        if (stages := given.get("pp-size")) is not None and str(stages) != "1":
            return f"--pp-size is {stages}"
        return None

    def can_switch(self, a: Configuration, b: Configuration) -> bool:
        """See `Runner.can_switch`."""
        return a == b or (same_but_steps(a, b) and self.no_switch(a) is None)

    def variables(
        self, steps: tuple[int, ...], configuration: Configuration, *, clock: bool
    ) -> dict[str, str | None]:
        """What a launch has in its environment for it.

        Args:
            steps: Between which it is to be switched; empty where it is not.
            configuration: Its variables may name a PYTHONPATH of its own.
            clock: Whether it is to keep the cycle's clock.
        """
        if not steps and not clock:
            return {STEPS_VARIABLE: None, CLOCK_VARIABLE: None}
        given = {**self._env, **dict(configuration.env)}
        found = self.capabilities
        before = given.get("PYTHONPATH", found.path)
        allowed = given.get(_ALLOWED, found.allowed)
        variables: dict[str, str | None] = {
            "PYTHONPATH": f"{FOLDER}{os.pathsep}{before}" if before else str(FOLDER),
            STEPS_VARIABLE: ",".join(map(str, steps)) or None,
            CLOCK_VARIABLE: "1" if clock else None,
        }
        if allowed:
            variables[_ALLOWED] = f"{allowed},{NAME}"
        return variables


def is_chain(configuration: Configuration) -> bool:
    """Whether a configuration has steps that could be switched."""
    speculation = configuration.speculation
    return (
        speculation.algorithm in CHAIN_ALGORITHMS
        and speculation.topk == 1
        and speculation.num_steps is not None
    )


def same_but_steps(a: Configuration, b: Configuration) -> bool:
    """Whether two chains differ in their steps alone, if in anything."""
    return is_chain(a) and is_chain(b) and _without_steps(a) == _without_steps(b)


def switched_steps(intent: LaunchIntent) -> tuple[int, ...]:
    """Between which draft steps a launch is to be switched, ascending; empty for none or one."""
    found = {s.num_steps for s in intent.settings if s.num_steps is not None}
    return tuple(sorted(found)) if len(found) > 1 else ()


def started_at(intent: LaunchIntent) -> Configuration:
    """What the server of a launch is started at: SGLang sizes buffers by it, so the most steps.

    0.5.17 dies in its start where a state needs more than it was started with.
    """
    steps = switched_steps(intent)
    if not steps:
        return intent.configuration
    largest = next(s for s in intent.settings if s.num_steps == steps[-1])
    return intent.configuration.with_setting(largest)


def without_plugin(environ: Mapping[str, str]) -> dict[str, str]:
    """A server's environment as it would be without the plugin."""
    found = dict(environ)
    for name, separator, ours in (("PYTHONPATH", os.pathsep, str(FOLDER)), (_ALLOWED, ",", NAME)):
        words = found.get(name, "").split(separator)
        if ours in words:
            words.remove(ours)
            found[name] = separator.join(words)
            if not words:
                del found[name]
    return found


def _without_steps(configuration: Configuration) -> Configuration:
    speculation = replace(configuration.speculation, num_steps=None, num_draft_tokens=None)
    return replace(configuration, speculation=speculation)


def _judged(found: Mapping[str, Any]) -> Capabilities:
    def reason(capability: str) -> str | None:
        if not found["entry"]:
            return f"{FOLDER} has no entry point that Python finds: the tuner is not whole"
        verified = found[capability]
        if found["sglang"] in verified:
            return None
        return (
            f"it was verified with SGLang {', '.join(verified)}, and this is "
            f"{found['sglang'] or 'none'}"
        )

    return Capabilities(
        no_switch=reason("hot_switch"),
        no_clock=reason("clock"),
        never=frozenset(found["never"]),
        one=frozenset(found["one"]),
        devices=frozenset(found["devices"]),
        sglang=found["sglang"],
        path=found["path"],
        allowed=found["allowed"],
    )
