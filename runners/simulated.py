"""Runner of simulated servers: real processes and HTTP, with the times of a cost model."""

from __future__ import annotations

import platform
import socket
import sys
from typing import TYPE_CHECKING

from results.records import Machine
from runners.plugin.package import prepared_settings, same_but_setting, started_at
from runners.plugin.protocol import CLOCK_VARIABLE, STEPS_VARIABLE
from runners.process.environment import LocalEnvironment, server_environment, server_python
from runners.sglang.command import sglang_command
from runners.sglang.process_runner import ProcessRunner
from runners.simulated_server.engine.profile import load_profile
from runners.simulated_server.launch.flags import MODELLED_ALGORITHMS
from search_spaces.configuration import NO_SPECULATION
from search_spaces.space.version_flags import unsupported_flags

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from results.records import LaunchIntent
    from runners.base import LaunchCommand
    from runners.load.prompts.server_python import ServerPython
    from runners.sglang.startup import StartTimeouts
    from search_spaces.configuration import Configuration
    from search_spaces.study_file.study import Study

SIMULATED_MODULE = "runners.simulated_server"

MUST_BE_ONE = ("attn-dp-size", "dp-size", "pp-size")
"""Sizes that exclude hot switching; `conditions` in the plugin has the reasons."""
MUST_BE_UNSET = (
    "enable-dp-attention",
    "enable-hisparse",
    "enable-multi-layer-eagle",
    "enable-pdmux",
    "enable-two-batch-overlap",
    "speculative-adaptive",
)
"""Flags that exclude hot switching."""


class SimulatedRunner(ProcessRunner):
    """Starts the simulated server with SGLang's own flags and the study's environment.

    `command` is the real SGLang command, because a study exports it.
    """

    name = "simulated"
    simulated = True

    def __init__(
        self,
        study: Study,
        *,
        seed: int,
        log_dir: Path | str,
        profile: str | None = None,
        time_scale: float | None = None,
        first_launch: int = 0,
        timeouts: StartTimeouts | None = None,
        env: Mapping[str, str] | None = None,
    ) -> None:
        """See `ProcessRunner`.

        Args:
            study: Also has the default profile and time scale.
            seed: Also the seed of the simulated noise.
            log_dir: See `ProcessRunner`.
            profile: Name or path of the cost model.
            time_scale: Simulated seconds per real second.
            first_launch: Number of the first launch, so that a resumed study has fresh noise.
            timeouts: See `ProcessRunner`.
            env: Further variables of the server (faults to simulate).
        """
        super().__init__(study, seed=seed, log_dir=log_dir, timeouts=timeouts)
        self._profile = profile or str(study.simulated.profile)
        self.profile = _played(self._profile)
        self.time_scale = float(time_scale or study.simulated.time_scale)
        self._next_launch = first_launch
        self._env = dict(env or {})
        self.environment = LocalEnvironment(sys.executable)
        # Environment of a real run, for `command` and SGLang's data sets.
        self._real = server_environment(study, default_python="python")

    def check(self) -> str | None:
        """Check the profile, the algorithms and the flags; nothing else is needed."""
        try:
            profile = load_profile(self._profile)
        except (OSError, ValueError) as error:
            return f"simulated.profile {self._profile!r} cannot be used: {error}"
        asked = {part.canonical_algorithm for part in self._study.space.speculation}
        unknown = sorted(asked - MODELLED_ALGORITHMS - {NO_SPECULATION})
        if unknown:
            return (
                f"the simulated server does not support {', '.join(unknown)}; remove this from "
                f"`space.speculation`, or use `--runner sglang`"
            )
        return unsupported_flags(self._study, profile.sglang) or self.check_data_sets()

    def machine(self) -> Machine:
        """Machine of the profile. No GPU of this machine is used."""
        profile = load_profile(self._profile)
        return Machine(
            host=socket.gethostname(),
            sglang=profile.sglang,
            python=platform.python_version(),
            gpus=profile.gpus,
            topology=_nvlink_topology(len(profile.gpus)) if profile.nvlink else None,
            kernel=platform.release(),
        )

    def can_switch(self, a: Configuration, b: Configuration) -> bool:
        """Whether only steps and draft tokens differ and the plugin would switch them."""
        if a == b:
            return True
        flags = {**self._study.server.flags, **dict(a.flags)}
        several = any((flags.get(name) or 1) not in {1, "1"} for name in MUST_BE_ONE)
        refused = several or any(flags.get(name) for name in MUST_BE_UNSET)
        return same_but_setting(a, b) and not refused

    def no_switch(self) -> str | None:
        """The simulated server always has the plugin."""
        return None

    def command(self, configuration: Configuration) -> LaunchCommand:
        """Build the real SGLang command; see `simulated_command` for the other."""
        return sglang_command(self._study, configuration, python=self._real.python)

    def server_python(self) -> ServerPython:
        """Python of a real run, since only the real SGLang loads its data sets."""
        return server_python(self._study, self._real)

    def simulated_command(self, configuration: Configuration) -> LaunchCommand:
        """See `Simulation.simulated_command`."""
        return sglang_command(
            self._study,
            configuration,
            python=sys.executable,
            module=SIMULATED_MODULE,
            env=self._variables,
        )

    def launch_command(self, intent: LaunchIntent, *, host: str, port: int) -> LaunchCommand:
        """See `ProcessRunner.launch_command`; the server starts at the largest setting."""
        variables: dict[str, str | None] = {
            **self._variables,
            "TUNER_SIM_LAUNCH_INDEX": str(self._next_launch),
            STEPS_VARIABLE: ",".join(map(str, prepared_settings(intent))) or None,
            CLOCK_VARIABLE: "1" if self.no_clock(intent.configuration) is None else None,
        }
        self._next_launch += 1
        return sglang_command(
            self._study,
            started_at(intent),
            python=sys.executable,
            module=SIMULATED_MODULE,
            host=host,
            port=port,
            extra=self.environment.ownership_flags(intent.mark),
            env={**variables, **self._env},
        )

    @property
    def _variables(self) -> dict[str, str]:
        return {
            "TUNER_SIM_PROFILE": self._profile,
            "TUNER_SIM_TIME_SCALE": f"{self.time_scale:g}",
            "TUNER_SIM_SEED": str(self._seed),
        }


def _played(profile: str) -> str:
    """`"kimi (8 x NVIDIA RTX PRO 6000 Blackwell)"`; only the name if it cannot be read."""
    try:
        gpus = load_profile(profile).gpus
    except (OSError, ValueError):
        return profile
    counted = ", ".join(f"{gpus.count(name)} x {name}" for name in dict.fromkeys(gpus))
    return f"{profile} ({counted})" if counted else profile


def _nvlink_topology(gpus: int) -> str:
    """Output of `nvidia-smi topo -m` with NVLink between all GPUs, without CPUs and cards."""
    names = [f"GPU{n}" for n in range(gpus)]
    rows = [[name, *("X" if name == other else "NV18" for other in names)] for name in names]
    return "\n".join("\t".join(row) for row in [["", *names], *rows])
