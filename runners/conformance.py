"""Tests that the test class of a runner inherits.

    class TestMyRunner(RunnerConformance):
        @pytest.fixture
        def runner(self, tmp_path): return MyRunner(...)

Fixtures to define: `runner`; `configurations`, which are legal; `points` to measure; `failing`, a
configuration whose server does not start, or `None`. A runner with the capability `HotSwitch`
inherits `HotSwitchConformance`, and some of its `configurations` share a launch.
"""

from __future__ import annotations

import itertools
import uuid
from typing import TYPE_CHECKING

import psutil

from results.records import LaunchIntent
from runners.base import HotSwitch, RunnerError, SwitchableSession, differences, switch
from runners.process.processes import MARK

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

    from results.records import ProcessIdentity
    from runners.base import LaunchCommand, Runner, Session
    from search_spaces.configuration import Configuration, Setting
    from search_spaces.workload import OperatingPoint


class Launcher:
    """Starts launches of a runner and records their callbacks."""

    def __init__(self, runner: Runner, logs: Path) -> None:
        self.runner = runner
        self.logs = logs
        self.processes: list[ProcessIdentity] = []
        self.commands: list[LaunchCommand] = []
        self.phases: list[str] = []
        self.marks: list[str] = []

    def start(self, configuration: Configuration, settings: Sequence[Setting] = ()) -> Session:
        """Start one launch."""
        mark = uuid.uuid4().hex
        self.marks.append(mark)
        log = str(self.logs / f"{mark}.log")
        intent = LaunchIntent(configuration, tuple(settings), mark, log)
        return self.runner.start(
            intent, self._on_process, lambda progress: self.phases.append(progress.phase)
        )

    def _on_process(self, process: ProcessIdentity, command: LaunchCommand) -> None:
        self.processes.append(process)
        self.commands.append(command)

    def assert_nothing_left(self) -> None:
        """Assert that no process carries the mark of a launch."""
        assert not [mark for mark in self.marks if marked_pids(mark)]


def marked_pids(mark: str) -> list[int]:
    """Pids of living processes that carry the mark of a launch."""
    found = []
    for process in psutil.process_iter():
        try:
            if process.environ().get(MARK) == mark and process.status() != psutil.STATUS_ZOMBIE:
                found.append(process.pid)
        except psutil.Error:
            continue
    return found


class RunnerConformance:
    """Tests of every runner."""

    def test_check_finds_nothing_missing(self, runner: Runner) -> None:
        assert runner.check() is None

    def test_commands_are_reproducible_and_distinct(
        self, runner: Runner, configurations: tuple[Configuration, ...]
    ) -> None:
        commands = [runner.command(configuration) for configuration in configurations]
        assert commands == [runner.command(configuration) for configuration in configurations]
        assert len(set(commands)) == len(configurations)

    def test_launch_is_measured_and_stopped(
        self,
        runner: Runner,
        configurations: tuple[Configuration, ...],
        points: tuple[OperatingPoint, ...],
        tmp_path: Path,
    ) -> None:
        launcher = Launcher(runner, tmp_path)
        asked = configurations[0]
        before = runner.now()
        with launcher.start(asked) as session:
            assert len(launcher.processes) == 1
            assert launcher.processes[0].mark == launcher.marks[0]
            assert launcher.phases, "no progress was reported"
            assert session.ready_s >= 0
            assert sum(seconds for _, seconds in session.phases) <= session.ready_s + 1e-6
            assert differences(asked, session.resolved.configuration) == ()
            assert session.resolved.simulated == runner.simulated
            for point in points:
                measurement = session.measure(point)
                assert measurement.point == point
                assert measurement.simulated == runner.simulated
                assert measurement.output_tok_s > 0
                assert (measurement.accept_length is not None) == asked.speculation.enabled
            now = runner.now()
            assert now > before
        assert runner.now() >= now
        session.close()
        assert runner.end_leftover(launcher.processes[0]) == ()
        launcher.assert_nothing_left()

    def test_failing_launch_names_the_cause_and_leaves_nothing(
        self, runner: Runner, failing: Configuration | None, tmp_path: Path
    ) -> None:
        if failing is None:
            return
        launcher = Launcher(runner, tmp_path)
        failure = None
        try:
            launcher.start(failing)
        except RunnerError as error:
            failure = error.failure
        assert failure is not None, "it started"
        assert failure.kind
        assert failure.phase
        assert failure.message
        launcher.assert_nothing_left()

    def test_error_inside_a_launch_stops_the_server(
        self, runner: Runner, configurations: tuple[Configuration, ...], tmp_path: Path
    ) -> None:
        launcher = Launcher(runner, tmp_path)
        raised = False
        try:
            with launcher.start(configurations[0]):
                raise KeyboardInterrupt  # noqa: TRY301 - what a user does
        except KeyboardInterrupt:
            raised = True
        assert raised
        launcher.assert_nothing_left()

    def test_error_in_the_callback_stops_the_server(
        self, runner: Runner, configurations: tuple[Configuration, ...], tmp_path: Path
    ) -> None:
        mark = uuid.uuid4().hex
        intent = LaunchIntent(configurations[0], (), mark, str(tmp_path / "callback.log"))

        def fail(_process: ProcessIdentity, _command: LaunchCommand) -> None:
            raise LookupError(mark)

        raised = False
        try:
            runner.start(intent, fail)
        except LookupError:
            raised = True
        assert raised
        assert not marked_pids(mark)


class HotSwitchConformance(RunnerConformance):
    """Tests of a runner whose servers can change their setting."""

    def test_can_switch_is_an_equivalence_relation(
        self, runner: Runner, configurations: tuple[Configuration, ...]
    ) -> None:
        can = _can_switch(runner)
        assert all(can(a, a) for a in configurations)
        for a, b in itertools.product(configurations, repeat=2):
            assert can(a, b) == can(b, a)
        for a, b, c in itertools.product(configurations, repeat=3):
            assert can(a, c) or not (can(a, b) and can(b, c))

    def test_own_setting_needs_no_switch(
        self, runner: Runner, configurations: tuple[Configuration, ...], tmp_path: Path
    ) -> None:
        with Launcher(runner, tmp_path).start(configurations[0]) as session:
            assert isinstance(session, SwitchableSession)
            before = session.resolved
            assert switch(session, configurations[0].setting) == before

    def test_switchable_configurations_share_a_launch(
        self,
        runner: Runner,
        configurations: tuple[Configuration, ...],
        points: tuple[OperatingPoint, ...],
        tmp_path: Path,
    ) -> None:
        together = [c for c in configurations if _can_switch(runner)(configurations[0], c)]
        settings = [configuration.setting for configuration in together]
        launcher = Launcher(runner, tmp_path)
        with launcher.start(together[0], settings) as session:
            for wanted in (*together, *reversed(together)):
                resolved = switch(session, wanted.setting).configuration
                assert differences(wanted, resolved) == ()
                assert session.resolved.configuration == resolved
                assert session.measure(points[0]).output_tok_s > 0
        assert len(launcher.processes) == 1
        launcher.assert_nothing_left()


def _can_switch(runner: Runner) -> Callable[[Configuration, Configuration], bool]:
    assert isinstance(runner, HotSwitch)
    return runner.can_switch
