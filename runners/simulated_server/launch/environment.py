"""Environment variables of the simulation."""

from __future__ import annotations

import json
import math
import os
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING

from runners.plugin.protocol import CLOCK_VARIABLE, STEPS_VARIABLE
from search_spaces.configuration import Setting

if TYPE_CHECKING:
    from collections.abc import Mapping

    from runners.simulated_server.faults.misbehaviour import Misbehaviour


@dataclass(frozen=True, slots=True)
class SimulationEnvironment:
    """Settings of the simulation.

    Attributes:
        profile: `TUNER_SIM_PROFILE`: name of a shipped profile, or a path.
        time_scale: `TUNER_SIM_TIME_SCALE`: simulated seconds per real second.
        seed: `TUNER_SIM_SEED`: seed of the noise.
        launch: Name of the launch for its noise: `TUNER_SIM_LAUNCH_INDEX`, else the launch's mark
            (`TUNER_LAUNCH`), else pid and time. Pid and time are not reproducible.
        switchable: `TUNER_SWITCHABLE_STEPS`: settings of the hot switch in ascending order.
        cycle_clock: `TUNER_CYCLE_CLOCK`: whether the cycle clock runs.
        mark: `TUNER_LAUNCH`: the launch's mark, which a switch must name.
        misbehave: `TUNER_SIM_MISBEHAVE`: a JSON list of faults, as in a profile.
    """

    profile: str
    time_scale: float
    seed: int
    launch: str
    switchable: tuple[Setting, ...]
    cycle_clock: bool
    mark: str
    misbehave: tuple[Misbehaviour, ...]


def read_environment(environ: Mapping[str, str] | None = None) -> SimulationEnvironment:
    """Read the variables.

    Raises:
        ValueError: A variable is invalid; the message names it.
    """
    env = os.environ if environ is None else environ
    scale = _number(env, "TUNER_SIM_TIME_SCALE", "1")
    if scale <= 0.0:
        raise ValueError(f"TUNER_SIM_TIME_SCALE={scale} is not above 0; use 1 or more")
    seed = _number(env, "TUNER_SIM_SEED", "0")
    steps = env.get(STEPS_VARIABLE, "")
    try:
        switchable = {_setting(word) for word in steps.split(",")} if steps else set()
    except ValueError:
        raise ValueError(
            f"{STEPS_VARIABLE}={steps!r} is invalid; use the form 1,2,3 or 2/4,3/6"
        ) from None
    clock = env.get(CLOCK_VARIABLE) or "0"
    if clock not in {"0", "1"}:
        raise ValueError(f"{CLOCK_VARIABLE}={clock!r} is invalid; use 1 or 0")
    mark = env.get("TUNER_LAUNCH", "")
    launch = env.get("TUNER_SIM_LAUNCH_INDEX") or mark
    return SimulationEnvironment(
        profile=env.get("TUNER_SIM_PROFILE") or "kimi",
        time_scale=scale,
        seed=int(seed),
        launch=launch or f"{os.getpid()}@{time.time_ns()}",
        switchable=tuple(sorted(switchable, key=lambda setting: setting.size)),
        cycle_clock=clock == "1",
        mark=mark,
        misbehave=_misbehaviour(env.get("TUNER_SIM_MISBEHAVE", "")),
    )


def _setting(word: str) -> Setting:
    """Read a setting as strictly as the plugin does."""
    steps, slash, draft_tokens = word.partition("/")
    if not all(part.isascii() and part.isdigit() for part in (steps, draft_tokens or "0")):
        raise ValueError(word)
    return Setting(int(steps), int(draft_tokens) if slash else None)


def _number(env: Mapping[str, str], name: str, default: str) -> float:
    text = env.get(name) or default
    try:
        number = float(text)
    except ValueError:
        number = math.nan
    if not math.isfinite(number):
        raise ValueError(f"{name}={text!r} is not a number; use a finite number")
    return number


def _misbehaviour(text: str) -> tuple[Misbehaviour, ...]:
    if not text.strip():
        return ()
    from runners.simulated_server.faults.misbehaviour import (  # noqa: PLC0415 - rarely needed
        Misbehaviour,
    )

    try:
        entries = json.loads(text)
        return tuple(Misbehaviour.model_validate(entry) for entry in entries)
    except (ValueError, TypeError) as error:
        raise ValueError(f"TUNER_SIM_MISBEHAVE is not a JSON list of faults: {error}") from error
