"""Base class of the real and the simulated runner: one SGLang server process per launch."""

from __future__ import annotations

import abc
import functools
import os
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from results.records import Failure
from runners.base import Runner, RunnerError
from runners.load.generator import LoadGenerator
from runners.load.prompts.prompts import NotEnoughPromptsError, PromptFileError
from runners.load.prompts.rendering import IdentityRenderer
from runners.load.prompts.selection import select_prompts
from runners.load.prompts.sources import prompt_source
from runners.load.schedule.arrivals import ArrivalTraceError, arrivals_of
from runners.load.window.measurement import fingerprint
from runners.load.window.watches import LogWatch, ServerIdentityWatch
from runners.plugin.cycle_times import CycleWatch, NoClock, PluginWatch
from runners.plugin.package import prepared_settings, without_plugin
from runners.plugin.protocol import CLOCK_VARIABLE
from runners.plugin.status import prove_ready, status_of
from runners.process.ports import NoFreePortError, free_port_block
from runners.process.processes import end_leftover, marks, start_or_refuse
from runners.server_info import read_server_info, version_note
from runners.sglang.command import tp_size
from runners.sglang.failure_rules import clock_refused
from runners.sglang.failures import PostMortem
from runners.sglang.readback import effective_environment, resolved_of
from runners.sglang.server_log import READY
from runners.sglang.session import ProcessSession, ServerClient, prove_port_free
from runners.sglang.startup import StartTimeouts, Startup
from search_spaces.prompt_names import parse_prompt_name
from search_spaces.simulated_acceptance import simulation_variables

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from results.records import Fault, LaunchIntent, ProcessIdentity, Resolved
    from runners.base import LaunchCommand, Session, StartProgress
    from runners.load.prompts.prompts import PromptSource
    from runners.load.prompts.rendering import Renderer
    from runners.load.prompts.server_python import ServerPython
    from runners.process.environment import ServerEnvironment
    from search_spaces.configuration import Configuration, Setting
    from search_spaces.study_file.study import Study
    from search_spaces.workload import OperatingPoint

_CLOCK_LOST = (
    "the server does not report it; check that the command prefix passes PYTHONPATH and "
    f"{CLOCK_VARIABLE} on"
)

_FAILED_GRACE_S = 5.0
"""Short, because a server that hung in its start-up would use up any time."""


def without_clock(reason: str) -> str:
    """Remark on launches without cycle times."""
    return f"the plugin's cycle clock is off: {reason}"


def _flags_set(configuration: Configuration) -> frozenset[tuple[str, Any]]:
    return frozenset((name, value) for name, value in configuration.flags if value is not None)


class ProcessRunner(Runner):
    """Starts one server process per launch, in a server environment.

    Attributes:
        environment: Where the servers run.
    """

    environment: ServerEnvironment

    def __init__(
        self,
        study: Study,
        *,
        seed: int,
        log_dir: Path | str,
        timeouts: StartTimeouts | None = None,
    ) -> None:
        """Prepare launches without starting anything.

        Args:
            study: Fixed part of every command, and the workload.
            seed: Selects the prompts, the same for every configuration.
            log_dir: Folder of a log whose intent names no folder.
            timeouts: Longest time per start-up phase.
        """
        self._study = study
        self._seed = seed
        self._log_dir = Path(log_dir)
        self._timeouts = timeouts or StartTimeouts()
        self._workload = study.to_workload()
        self._clock_refused: dict[frozenset[tuple[str, Any]], str] = {}
        self._noticed: dict[str, None] = {}
        self._varied_flags = frozenset(study.space.tuned_flags)
        if simulation := simulation_variables(os.environ):
            self.notice(
                f"{', '.join(simulation)} in your shell would make SGLang simulate acceptance, so "
                "servers start without it. To simulate acceptance, set the variable under "
                "`server.env` with `simulated_acceptance: true`"
            )

    @abc.abstractmethod
    def can_switch(self, a: Configuration, b: Configuration) -> bool:
        """See `HotSwitch.can_switch`."""

    @abc.abstractmethod
    def launch_command(self, intent: LaunchIntent, *, host: str, port: int) -> LaunchCommand:
        """Build the command of one launch with its own port and mark."""

    def no_clock(self, configuration: Configuration) -> str | None:
        """Why a launch of this configuration has no cycle clock; `None`: it has one.

        A refusal holds only for configurations with the same flags. `TUNER_CYCLE_CLOCK=0` in the
        tuner's environment turns the clock off.
        """
        if os.environ.get(CLOCK_VARIABLE) == "0":
            return f"{CLOCK_VARIABLE}=0 is set"
        refused = self._clock_refused
        return refused.get(_flags_set(configuration)) or refused.get(frozenset())

    def remarks(self) -> tuple[str, ...]:
        """See `Remarks.remarks`."""
        return tuple(self._noticed)

    def notice(self, remark: str) -> None:
        """Add a remark for the user; equal remarks are shown once."""
        self._noticed[remark] = None

    def notice_version(self, resolved: Resolved) -> None:
        """Add a remark if the meaning of this SGLang version's figures is unknown."""
        note = None if resolved.simulated else version_note(resolved.sglang_version)
        if note is not None:
            self.notice(note)

    def _go_without_clock(self, configuration: Configuration, reason: str) -> None:
        self._clock_refused[_flags_set(configuration)] = reason
        self.notice(without_clock(reason))

    def without_instruments(
        self, environ: Mapping[str, str], configuration: Configuration
    ) -> dict[str, str]:
        """Remove the variables that only a measurement needs."""
        del configuration
        return without_plugin(environ)

    def renderer(self) -> Renderer:
        """Renderer that applies the model's chat template to the prompts."""
        return IdentityRenderer()

    def server_python(self) -> ServerPython | None:
        """Python that loads SGLang's own data sets; `None` without SGLang."""
        return None

    @functools.cached_property
    def prompts(self) -> PromptSource:
        """Prompts of the study; files are read once for all launches."""
        workload = self._workload
        return prompt_source(
            workload.prompts,
            base_dir=workload.base_dir,
            server=self.server_python(),
            shared_prefix=workload.shared_prefix,
        )

    def check_data_sets(self) -> str | None:
        """Load the SGLang data sets that the study names; return the error, or `None`.

        Only SGLang's environment can load them. All other files are checked with the study file.
        """
        workload = self._workload
        if not any(parse_prompt_name(name).scheme == "sglang" for name, _ in workload.prompts):
            return None
        try:
            for point in workload.points:
                self.prompts.select(workload.prompts_at(point), self._seed)
        except (NotEnoughPromptsError, PromptFileError) as error:
            return f"workload.prompts: {error}"
        return None

    def load_fingerprint(self, point: OperatingPoint) -> str | None:
        """See `LoadFingerprint.load_fingerprint`; renders the prompts in the server environment."""
        workload = self._workload
        try:
            selected = select_prompts(workload, point, self.prompts, self.renderer(), self._seed)
            times = arrivals_of(point, workload, self._seed).times if point.is_open else ()
        except (NotEnoughPromptsError, PromptFileError, ArrivalTraceError, RunnerError):
            return None  # the first window reports the error
        return fingerprint(selected.window, workload, times)

    def end_leftover(self, process: ProcessIdentity) -> tuple[int, ...]:
        """See `Runner.end_leftover`."""
        return end_leftover(process)

    def start(
        self,
        intent: LaunchIntent,
        on_process: Callable[[ProcessIdentity, LaunchCommand], None],
        on_progress: Callable[[StartProgress], None] | None = None,
    ) -> Session:
        """See `Runner.start`. If only the cycle clock is refused, start again without the clock.

        A refusal of the plugin ends the server before the weights are loaded.
        """
        _check_intent(self, self._study, intent)
        try:
            return self._start(intent, on_process, on_progress)
        except RunnerError as error:
            configuration = intent.configuration
            refused = clock_refused(error.failure, intent)
            if self.no_clock(configuration) is not None or not refused:
                raise
            self._go_without_clock(configuration, error.failure.message)
        return self._start(intent, on_process, on_progress)

    def _start(
        self,
        intent: LaunchIntent,
        on_process: Callable[[ProcessIdentity, LaunchCommand], None],
        on_progress: Callable[[StartProgress], None] | None,
    ) -> Session:
        try:
            port = free_port_block()
        except NoFreePortError as error:
            raise _refusal("no_free_port", "host", str(error)) from error
        # Only the exported command has the study's keys and TLS.
        host = self.environment.trial_host(self._study)
        base_url = f"http://{f'[{host}]' if ':' in host else host}:{port}"
        try:
            # Before the process starts, so that nothing can fail between its start and `try`.
            client = ServerClient(base_url)
        except ValueError as error:
            message = f"{error}; correct `host` under `server.flags`"
            raise _refusal("bad_address", "study", message) from error
        command = self.launch_command(intent, host=host, port=port)
        if not self.environment.sees_processes:
            # A prefix does not pass variables on. With the mark, servers that are visible here
            # (docker on this machine) can be found after the prefix has ended.
            command = replace(command, env=(*command.env, *marks(intent.mark)))
        command = self.environment.wrap(command)
        log = Path(intent.log)
        if log.parent == Path():
            log = self._log_dir / log
        process = start_or_refuse(command, mark=intent.mark, port=port, log=log)
        # The production command may have flags that the space does not vary.
        own = {name for name, _ in intent.configuration.flags}
        post_mortem = PostMortem(process, log, self._varied_flags | own)
        try:
            on_process(process.identity, command)
            startup = Startup(
                client,
                post_mortem,
                sees_processes=self.environment.sees_processes,
                timeouts=self._timeouts.with_states(len(prepared_settings(intent))),
                time_scale=self.time_scale,
                on_progress=on_progress or (lambda _: None),
            )
            return self._session(intent, client, post_mortem, phases=startup.wait())
        except BaseException:
            # Also for an interrupt: no process may outlive a failed start.
            client.close()
            process.stop(_FAILED_GRACE_S)
            if not self.environment.sees_processes:
                # The server may outlive the prefix command.
                prove_port_free(port, host)
            raise

    def _session(
        self,
        intent: LaunchIntent,
        client: ServerClient,
        post_mortem: PostMortem,
        *,
        phases: tuple[tuple[str, float], ...],
    ) -> ProcessSession:
        """Read the configuration of a ready server back, and make its session.

        Raises:
            RunnerError: The server does not report its configuration, or reports another one.
        """
        process, log = post_mortem.process, post_mortem.log

        def read_back() -> Resolved:
            info = read_server_info(client.base_url)
            environ = process.environ() if self.environment.sees_processes else {}
            environ = self.without_instruments(environ, intent.configuration)
            return resolved_of(intent.configuration, self._study, info, environ)

        try:
            resolved = read_back()
        except RunnerError as error:
            raise post_mortem.explain(error, READY) from error
        _check_kind(self, resolved)
        self.notice_version(resolved)
        prepared = prepared_settings(intent)
        if prepared:
            prove_ready(log, status_of(resolved.server_info), prepared)
        # Also behind a prefix: processes of docker on this machine carry the mark.
        effective = effective_environment(process.members())
        effective = self.without_instruments(effective, intent.configuration)
        resolved = replace(resolved, environment=effective)

        def in_force() -> Setting | None:
            return session.resolved.configuration.setting if prepared else None

        watch = self.cycle_watch(client.base_url, resolved, in_force)
        identity = ServerIdentityWatch(client.base_url, launched=resolved.server_info)
        load = LoadGenerator(
            client.base_url,
            self._workload,
            self.prompts,
            self.renderer(),
            seed=self._seed,
            time_scale=resolved.time_scale,
            simulated=resolved.simulated,
            watches=(LogWatch(log), identity, watch),
        )
        session = ProcessSession(
            client,
            post_mortem,
            resolved,
            load,
            cycle_of=watch.cycle_of,
            read_back=read_back,
            phases=tuple((name, s * resolved.time_scale) for name, s in phases),
            sees_processes=self.environment.sees_processes,
            host=self.environment.trial_host(self._study),
        )
        status = status_of(resolved.server_info)
        if self.no_clock(intent.configuration) is None and (status is None or not status.has_clock):
            # The next launch uses SGLang's device timer, if that is allowed.
            self._go_without_clock(intent.configuration, _CLOCK_LOST)
        return session

    def cycle_watch(
        self, base_url: str, resolved: Resolved, in_force: Callable[[], Setting | None]
    ) -> CycleWatch:
        """Watch that measures the cycles of a window and checks the setting in force.

        Args:
            base_url: Address of the server.
            resolved: Reported configuration.
            in_force: Returns the expected setting; `None` if the server cannot switch.
        """
        if status_of(resolved.server_info) is None:
            return NoClock()
        return PluginWatch(
            base_url,
            in_force,
            time_scale=resolved.time_scale,
            on_failed=lambda reason: self.notice(without_clock(f"it failed: {reason}")),
        )


def _check_intent(runner: ProcessRunner, study: Study, intent: LaunchIntent) -> None:
    """Check that a runner supports a launch.

    Raises:
        RunnerError: The runner cannot place the draft, or cannot switch between the settings.
    """
    draft_tp = intent.configuration.draft_tp
    # The production command may have another tp-size than the study, and a space may vary it.
    own = tp_size(study, intent.configuration)
    if draft_tp not in {None, own}:
        message = (
            f"draft_tp {draft_tp} is not supported; SGLang runs the draft at the target's "
            f"tp-size {own}"
        )
        raise _refusal("unsupported_draft_tp", "configuration", message)
    for setting in intent.settings:
        if setting == intent.configuration.setting:
            continue
        other = intent.configuration.with_setting(setting)
        if not runner.can_switch(intent.configuration, other):
            message = f"this runner cannot switch a running server to {setting}"
            raise _refusal("cannot_switch", "client", message)


def _check_kind(runner: Runner, resolved: Resolved) -> None:
    """Check that a simulated runner started a simulated server, and a real one a real server.

    Raises:
        RunnerError: The server is of the other kind.
    """
    if resolved.simulated != runner.simulated:
        wrong = "a simulated" if resolved.simulated else "a real"
        message = f"the {runner.name} runner started {wrong} server; check `server.python`"
        raise _refusal("wrong_server", "study", message, phase="ready")


def _refusal(kind: str, fault: Fault, message: str, phase: str = "arguments") -> RunnerError:
    """Error of a launch that is not started."""
    return RunnerError(Failure(kind, phase, fault, message))
