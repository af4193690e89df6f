"""The plugin from the tuner's side: how it reaches SGLang, and what it can do there.

The plugin is a folder (`inside_sglang`) on the server's PYTHONPATH, found by its entry point.
Nothing is installed, and exported commands do not contain it.
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
"""Folder that must be visible under this path where the server runs."""

_ASK_AGAIN_S: Final = 60.0
"""Real seconds until an environment that did not answer is asked again (network, busy machine)."""

SWITCHABLE_ALGORITHMS: Final = frozenset({"EAGLE", "EAGLE3", "NEXTN", "STANDALONE"})
"""Algorithms whose steps and draft tokens can be switched (0.5.17, 0.5.23)."""

_ALLOWED = "SGLANG_PLUGINS"
"""SGLang's list of plugins to load (0.5.17, 0.5.23); empty: all."""

# Runs in the server's interpreter, with the standard library and the plugin only.
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
    """Capabilities of the plugin in one server environment.

    Attributes:
        no_switch: Why it cannot switch; `None` if it can.
        no_clock: Why it cannot record cycle times; `None` if it can.
        never: Flags that prevent switching, by destination.
        one: Sizes that must be 1 for switching, by destination.
        devices: Devices with cycle times.
        sglang: Version of SGLang; `None` if unknown.
        path: PYTHONPATH of the environment.
        allowed: The environment's list of plugins that SGLang may load.
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
    """The plugin in one server environment.

    Args:
        environment: Environment of the servers.
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
        """Capabilities there; asks the server's interpreter until it answers."""
        if self._asked is None or time.monotonic() >= self._asked[1]:
            found, answered = self._ask()
            self._asked = (found, math.inf if answered else time.monotonic() + _ASK_AGAIN_S)
        return self._asked[0]

    def _ask(self) -> tuple[Capabilities, bool]:
        """Capabilities, and whether the environment answered."""
        try:
            done = self._environment.run(["-c", _PROBE, str(FOLDER), NAME], variables=self._env)
            found: dict[str, Any] = json.loads(done.stdout.strip().splitlines()[-1])
            if not found["there"]:
                where = (
                    f"{FOLDER} does not exist where the server runs; make it visible under this "
                    f"path (docker: -v {FOLDER}:{FOLDER}:ro)"
                )
                return Capabilities(where, where, sglang=found["sglang"]), True
            return _capabilities(found), True
        except EnvironmentUnusableError as error:
            return Capabilities(str(error), str(error)), False
        except (IndexError, ValueError, KeyError, TypeError):
            salient = (done.stderr.strip().splitlines() or ["no output"])[-1]
            reason = f"{self._environment.python} does not load the plugin: {salient}"
            return Capabilities(reason, reason), False

    def no_switch(self, configuration: Configuration) -> str | None:
        """Why a server of this configuration cannot be switched; `None` if it can."""
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
        """Why a server of this configuration has no cycle times; `None` if it has.

        Follows from the flags what the plugin would refuse, because a refusal costs a start.
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
        return a == b or (same_but_setting(a, b) and self.no_switch(a) is None)

    def variables(
        self, settings: tuple[Setting, ...], configuration: Configuration, *, clock: bool
    ) -> dict[str, str | None]:
        """Environment variables of a launch for the plugin.

        Args:
            settings: Settings to build states for; empty if not switched.
            configuration: Its variables may contain a PYTHONPATH.
            clock: Whether to record cycle times.
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
    """Whether a configuration has steps and draft tokens that can be switched.

    Trees with fewer draft tokens than a path of all steps are excluded: 0.5.23 crashes on them in
    warm-up (`_compact_accept_to_front`), which would fail the whole launch.
    """
    speculation = configuration.speculation
    steps, draft_tokens = speculation.num_steps, speculation.num_draft_tokens
    if speculation.algorithm not in SWITCHABLE_ALGORITHMS or speculation.topk is None:
        return False
    return steps is not None and draft_tokens is not None and draft_tokens > steps


def same_but_setting(a: Configuration, b: Configuration) -> bool:
    """Whether two switchable configurations differ at most in their setting."""
    return is_switchable(a) and is_switchable(b) and a.with_setting(b.setting) == b


def prepared_settings(intent: LaunchIntent) -> tuple[Setting, ...]:
    """Settings for which a launch builds states, ascending; empty if not switched.

    The server starts at the last one: the most steps and the most draft tokens of the requested
    settings, because buffers have the size of the start. For trees this may be none of them.
    """
    asked = {setting for setting in intent.settings if setting.num_steps is not None}
    if len(asked) < 2:
        return ()
    return tuple(sorted({*asked, largest(asked)}, key=lambda setting: setting.size))


def started_at(intent: LaunchIntent) -> Configuration:
    """Configuration with which the server of a launch starts.

    0.5.17 crashes at start if a state needs more than the first one.
    """
    prepared = prepared_settings(intent)
    return intent.configuration.with_setting(prepared[-1]) if prepared else intent.configuration


def without_plugin(environ: Mapping[str, str]) -> dict[str, str]:
    """Environment of a server without the plugin."""
    found = dict(environ)
    for name, separator, ours in (("PYTHONPATH", os.pathsep, str(FOLDER)), (_ALLOWED, ",", NAME)):
        words = found.get(name, "").split(separator)
        if ours in words:
            words.remove(ours)
            found[name] = separator.join(words)
            if not words:
                del found[name]
    return found


def _capabilities(found: Mapping[str, Any]) -> Capabilities:
    def reason(capability: str) -> str | None:
        if not found["entry"]:
            return f"{FOLDER} has no entry point that Python finds; reinstall the tuner"
        verified = found[capability]
        if found["sglang"] in verified:
            return None
        if found["sglang"] is None:
            return f"no SGLang was found (the plugin works with {' and '.join(verified)})"
        return f"it was verified with SGLang {', '.join(verified)} only; this is {found['sglang']}"

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
