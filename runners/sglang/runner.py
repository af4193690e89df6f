"""The runner of real SGLang servers."""

from __future__ import annotations

import functools
import os
from typing import TYPE_CHECKING

from runners.base import EnvironmentUnusableError
from runners.load.prompts.rendering import ChatTemplateRenderer
from runners.plugin import device_timer
from runners.plugin.device_timer import DeviceTimerWatch, has_timer
from runners.plugin.package import SWITCHABLE_ALGORITHMS, Plugin, prepared_settings, started_at
from runners.plugin.status import status_of
from runners.process.environment import server_environment, server_python
from runners.sglang.command import server_flags, sglang_command
from runners.sglang.file_caches import bytecode_variables, read_ahead
from runners.sglang.machine import device_names, gpus_used, read_machine
from runners.sglang.process_runner import ProcessRunner, without_clock
from search_spaces.space.version_flags import unsupported_flags

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from pathlib import Path

    from results.records import LaunchIntent, Machine, ProcessIdentity, Resolved
    from runners.base import LaunchCommand, Session, StartProgress
    from runners.load.prompts.rendering import Renderer
    from runners.load.prompts.server_python import ServerPython
    from runners.plugin.cycle_times import CycleWatch
    from runners.process.environment import ServerEnvironment
    from runners.sglang.startup import StartTimeouts
    from search_spaces.configuration import Configuration, Setting
    from search_spaces.study_file.study import Study

_STANDS_IN = f"SGLang's device timer replaces the plugin's clock, as {device_timer.ASKED} requests"

_WITHOUT_GPU = "use `--runner simulated` to try the tuner without SGLang or a GPU"


class SGLangRunner(ProcessRunner):
    """Starts `python -m sglang.launch_server` in the study's server environment."""

    name = "sglang"
    simulated = False

    def __init__(
        self,
        study: Study,
        *,
        seed: int,
        log_dir: Path | str,
        first_launch: int = 0,
        timeouts: StartTimeouts | None = None,
    ) -> None:
        """See `ProcessRunner`; `first_launch` changes nothing."""
        del first_launch
        super().__init__(study, seed=seed, log_dir=log_dir, timeouts=timeouts)
        self.environment = server_environment(study)
        self.plugin = Plugin(self.environment, study.server.flags, study.server.env)
        self._renderer: Renderer | None = None

    def check(self) -> str | None:
        """Look for SGLang, its flags, the models and the GPUs in the server environment."""
        models = {"model.path": self._study.model.path, "model.draft": self._study.model.draft}
        local = {key: path for key, path in models.items() if path and _looks_local(path)}
        try:
            facts = self.environment.facts(tuple(local.values()))
        except EnvironmentUnusableError as error:
            return (
                f"{error}; check `server.python`, TUNER_SGLANG_PYTHON and `server.prefix`, "
                f"or {_WITHOUT_GPU}"
            )
        if facts.sglang_version is None:
            return (
                f"SGLang is not installed for {self.environment.python}; name the interpreter that "
                f"has it as `server.python` or in TUNER_SGLANG_PYTHON, or {_WITHOUT_GPU}"
            )
        for key, path in local.items():
            if path in facts.missing_paths:
                return f"{key} {path} does not exist; correct the study, or {_WITHOUT_GPU}"
        needed = len(gpus_used(self._study.server.flags))
        if facts.gpus < needed:
            return (
                f"the study needs {needed} GPU(s), but {facts.gpus} were found; use a machine with "
                f"{needed}, set `server.flags.device` if the study needs none, or {_WITHOUT_GPU}"
            )
        if (lacking := unsupported_flags(self._study, facts.sglang_version)) is not None:
            return lacking
        return self.check_data_sets()

    def can_switch(self, a: Configuration, b: Configuration) -> bool:
        """Whether only steps and draft tokens differ and the plugin can switch them."""
        return self.plugin.can_switch(a, b)

    def no_switch(self) -> str | None:
        """See `HotSwitch.no_switch`."""
        asked = any(
            part.canonical_algorithm in SWITCHABLE_ALGORITHMS
            for part in self._study.space.speculation
        )
        return self.plugin.capabilities.no_switch if asked else None

    def remarks(self) -> tuple[str, ...]:
        """See `Remarks.remarks`."""
        found = []
        if (no_switch := self.no_switch()) is not None:
            found.append(f"every number of draft steps needs a launch: {no_switch}")
        if (no_clock := self.plugin.capabilities.no_clock) is not None:
            found.append(without_clock(no_clock))
        found += super().remarks()
        return tuple(dict.fromkeys(found))

    def command(self, configuration: Configuration) -> LaunchCommand:
        """See `Runner.command`."""
        return sglang_command(self._study, configuration, python=self.environment.python)

    def launch_command(self, intent: LaunchIntent, *, host: str, port: int) -> LaunchCommand:
        """See `ProcessRunner.launch_command`."""
        configuration = started_at(intent)
        no_clock = self.no_clock(configuration)
        if no_clock is not None:
            self.notice(without_clock(no_clock))
        instruments = self.plugin.variables(
            prepared_settings(intent), configuration, clock=no_clock is None
        )
        words = self.environment.ownership_flags(intent.mark)
        if self._device_timer(configuration):
            self.notice(_STANDS_IN)
            instruments[device_timer.VARIABLE] = "1"
            words = (*words, device_timer.FLAG)
        return sglang_command(
            self._study,
            configuration,
            python=self.environment.python,
            host=host,
            port=port,
            extra=words,
            env={**self._bytecode, **instruments},
        )

    def cycle_watch(
        self, base_url: str, resolved: Resolved, in_force: Callable[[], Setting | None]
    ) -> CycleWatch:
        """See `ProcessRunner.cycle_watch`."""
        timer = self._device_timer(resolved.configuration)
        if timer and status_of(resolved.server_info) is None:
            return DeviceTimerWatch(base_url, time_scale=resolved.time_scale)
        return super().cycle_watch(base_url, resolved, in_force)

    def no_clock(self, configuration: Configuration) -> str | None:
        """See `ProcessRunner.no_clock`; some flags exclude the clock."""
        return super().no_clock(configuration) or self.plugin.no_clock(configuration)

    def without_instruments(
        self, environ: Mapping[str, str], configuration: Configuration
    ) -> dict[str, str]:
        """See `ProcessRunner.without_instruments`."""
        found = super().without_instruments(environ, configuration)
        given = {**self._study.server.env, **dict(configuration.env)}
        if self._device_timer(configuration) and device_timer.VARIABLE not in given:
            found.pop(device_timer.VARIABLE, None)
        return found

    def _device_timer(self, configuration: Configuration) -> bool:
        """Whether SGLang's own timer replaces the plugin's clock: only on request."""
        if os.environ.get(device_timer.ASKED) != "1" or self.no_clock(configuration) is None:
            return False
        flags = {**self._study.server.flags, **dict(configuration.flags)}
        version = self.plugin.capabilities.sglang
        return version is not None and has_timer(version, flags.get("device"))

    def start(
        self,
        intent: LaunchIntent,
        on_process: Callable[[ProcessIdentity, LaunchCommand], None],
        on_progress: Callable[[StartProgress], None] | None = None,
    ) -> Session:
        """See `Runner.start`; the page cache is filled with weights while the server imports."""
        with read_ahead(self._weights(intent.configuration)):
            return super().start(intent, on_process, on_progress)

    def _weights(self, configuration: Configuration) -> list[str]:
        """Folders of the weights that a launch reads from this machine."""
        flags = server_flags(self._study, configuration)
        if not self.environment.sees_processes or flags.get("load-format") == "dummy":
            return []
        paths = (flags.get("model-path"), flags.get("speculative-draft-model-path"))
        return [str(path) for path in paths if path]

    def renderer(self) -> Renderer:
        """Renderer with the chat template of the server environment's `transformers`."""
        if self._renderer is None:
            self._renderer = ChatTemplateRenderer(self.server_python())
        return self._renderer

    def server_python(self) -> ServerPython:
        """See `ProcessRunner.server_python`."""
        return server_python(self._study, self.environment)

    @property
    def preflight_environment(self) -> ServerEnvironment:
        """See `Preflight`."""
        return self.environment

    def machine(self) -> Machine:
        """See `MachineFacts.machine`."""
        return self._machine[0]

    def devices(self) -> tuple[str, ...]:
        """See `ExclusiveDevices.devices`."""
        return device_names(self._study, self._machine[1])

    @functools.cached_property
    def _bytecode(self) -> dict[str, str | None]:
        return bytecode_variables(self.environment, self._study.server.env)

    @functools.cached_property
    def _machine(self) -> tuple[Machine, tuple[str, ...]]:
        return read_machine(self.environment, self._study.server.env)


def _looks_local(path: str) -> bool:
    """Whether a model is a folder, not `owner/name` on a hub."""
    return path.startswith(("/", "./", "../", "~", ".")) or path.count("/") != 1
