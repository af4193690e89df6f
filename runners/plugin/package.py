"""Our plugin inside SGLang, from the tuner's side: how it gets there, and what it can do there.

It is a folder (`inside_sglang`) that is put on the server's PYTHONPATH; SGLang finds it by its
entry point. Nothing is installed, and the exported command has none of it.
"""

from __future__ import annotations

import json
import math
import os
import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from runners.base import EnvironmentUnusableError
from runners.plugin.protocol import CLOCK_VARIABLE, NAME, STEPS_VARIABLE
from search_spaces.configuration import largest

if TYPE_CHECKING:
    from collections.abc import Mapping

    from results.records import LaunchIntent
    from runners.process.environment import ServerEnvironment
    from search_spaces.configuration import Configuration, Setting

FOLDER: Final = Path(__file__).parent / "inside_sglang"
"""What must be visible, under this very path, where the server runs."""

_ASK_AGAIN_S: Final = 60.0
"""Real seconds after which an environment that did not answer is asked again: it may have been the
network, or a machine that was busy."""

SWITCHABLE_ALGORITHMS: Final = frozenset({"EAGLE", "EAGLE3", "NEXTN", "STANDALONE"})
"""Whose steps and draft tokens can be switched (0.5.17, 0.5.23)."""

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
        if not is_switchable(configuration):
            return "only " + ", ".join(sorted(SWITCHABLE_ALGORITHMS))
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
        return a == b or (same_but_setting(a, b) and self.no_switch(a) is None)

    def variables(
        self, settings: tuple[Setting, ...], configuration: Configuration, *, clock: bool
    ) -> dict[str, str | None]:
        """What a launch has in its environment for it.

        Args:
            settings: Those that it has states for; empty where it is not switched.
            configuration: Its variables may name a PYTHONPATH of its own.
            clock: Whether it is to keep the cycle's clock.
        """
        if not settings and not clock:
            return {STEPS_VARIABLE: None, CLOCK_VARIABLE: None}
        given = {**self._env, **dict(configuration.env)}
        found = self.capabilities
        before = given.get("PYTHONPATH", found.path)
        allowed = given.get(_ALLOWED, found.allowed)
        variables: dict[str, str | None] = {
            "PYTHONPATH": f"{FOLDER}{os.pathsep}{before}" if before else str(FOLDER),
            STEPS_VARIABLE: ",".join(map(str, settings)) or None,
            CLOCK_VARIABLE: "1" if clock else None,
        }
        if allowed:
            variables[_ALLOWED] = f"{allowed},{NAME}"
        return variables


def is_switchable(configuration: Configuration) -> bool:
    """Whether a configuration has steps and draft tokens that could be switched.

    Trees in which no path of all steps fits are left alone: 0.5.23 dies of them in its warm-up
    (`_compact_accept_to_front`), and would take the others of a launch with it.
    """
    speculation = configuration.speculation
    steps, draft_tokens = speculation.num_steps, speculation.num_draft_tokens
    if speculation.algorithm not in SWITCHABLE_ALGORITHMS or speculation.topk is None:
        return False
    return steps is not None and draft_tokens is not None and draft_tokens > steps


def same_but_setting(a: Configuration, b: Configuration) -> bool:
    """Whether two that could be switched differ in their setting alone, if in anything."""
    return is_switchable(a) and is_switchable(b) and a.with_setting(b.setting) == b


def prepared_settings(intent: LaunchIntent) -> tuple[Setting, ...]:
    """The settings that a launch has states for, ascending; empty where it is not switched.

    The last one is what it is started at: the most steps and the most draft tokens of what is
    asked for, since buffers have the size of the start. Among trees it may be none of those.
    """
    asked = {setting for setting in intent.settings if setting.num_steps is not None}
    if len(asked) < 2:
        return ()
    return tuple(sorted({*asked, largest(asked)}, key=lambda setting: setting.size))


def started_at(intent: LaunchIntent) -> Configuration:
    """What the server of a launch is started at.

    0.5.17 dies in its start where a state needs more than it was started with.
    """
    prepared = prepared_settings(intent)
    return intent.configuration.with_setting(prepared[-1]) if prepared else intent.configuration


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


def _judged(found: Mapping[str, Any]) -> Capabilities:
    def reason(capability: str) -> str | None:
        if not found["entry"]:
            return f"{FOLDER} has no entry point that Python finds: the tuner is not whole"
        verified = found[capability]
        if found["sglang"] in verified:
            return None
        if found["sglang"] is None:
            return f"no SGLang was found (the plugin works with {' and '.join(verified)})"
        return f"it was verified with SGLang {', '.join(verified)}, and this is {found['sglang']}"

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
