"""Launches of `benchmarks.noise`, with the runner of `tuner sweep`, block by block."""

from __future__ import annotations

import contextlib
import statistics
import sys
import time
import uuid
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from benchmarks.noise.disturbances import (
    IDLE_SERVER,
    UNSTREAMED,
    PausedServer,
    made,
    nothing,
)
from benchmarks.noise.files import DRIFT, QUIET, about_launch
from benchmarks.noise.study import label
from benchmarks.noise.unstreamed import unstreamed
from results.records import LaunchIntent
from runners.base import RunnerError, machine_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from contextlib import AbstractContextManager
    from pathlib import Path
    from typing import Any

    from benchmarks.noise.files import Files
    from results.records import Measurement, ProcessIdentity
    from runners.base import LaunchCommand, Session
    from runners.load.generator import LoadGenerator
    from runners.sglang.process_runner import ProcessRunner
    from search_spaces.configuration import Configuration
    from search_spaces.study_file.study import Study
    from search_spaces.workload import OperatingPoint

IMPORTS = "import sglang.srt.entrypoints.http_server, sglang.srt.managers.scheduler"
"""What a server's start imports in its two largest processes (0.5.9 to 0.5.23)."""
SIMULATED_IMPORTS = "import runners.simulated_server.launch"

_MOST_FAILURES = 2
_STOPPING_S = 15.0
"""Left of a sitting for a server's end."""


class TooManyFailuresError(Exception):
    """Several launches in a row failed."""


@dataclass
class Sitting:
    """Launches of one call, within its time limit.

    Attributes:
        runner: Starts servers.
        study: Study of the servers.
        files: Files that receive the blocks.
        points: Operating points of each launch.
        logs: Folder of the server logs.
        say: Called with each message.
        announce: Called with the mark of a launch before its server starts.
        seed: Selects the prompts.
        seconds: Time limit; no launch begins that would exceed it.
        began: Start time on the monotonic clock.
    """

    runner: ProcessRunner
    study: Study
    files: Files
    points: tuple[OperatingPoint, ...]
    logs: Path
    say: Callable[[str], None]
    announce: Callable[[str], None] = lambda _: None
    seed: int = 0
    seconds: float = float("inf")
    began: float = field(default_factory=time.monotonic)
    _longest: dict[str, float] = field(default_factory=dict)
    _failed: int = 0

    def quiet(self, configuration: Configuration, blocks: int) -> bool:
        """Launch once and measure `blocks` blocks at each point; the points take turns.

        The order is reversed in each turn (1, 8, 8, 1, ...), so that drift affects all points
        alike.

        Returns:
            Whether there was enough time.
        """

        def measure(launch: _Launch) -> None:
            for block in range(blocks):
                points = self.points if block % 2 == 0 else self.points[::-1]
                for point in points:
                    launch.block(point, QUIET, quiet_launch=True)

        return self._carry_out("quiet", configuration, measure)

    def drift(self, configuration: Configuration, minutes: float) -> bool:
        """Launch once and measure blocks at the first point for a time."""

        def measure(launch: _Launch) -> None:
            end = time.monotonic() + 60 * minutes
            while time.monotonic() < end and not self._is_over():
                launch.block(self.points[0], DRIFT, quiet_launch=False)

        # Cut short, it is still a drift.
        return self._carry_out("drift", configuration, measure)

    def disturbed(
        self,
        configuration: Configuration,
        names: Sequence[str],
        cycles: int,
        beside: Configuration,
    ) -> bool:
        """Launch once and measure quiet and disturbed blocks in turn.

        A cycle at a point is `quiet, a, b, ..., quiet`; every other cycle is reversed.

        Args:
            configuration: Measured configuration.
            names: Disturbances.
            cycles: Cycles at each point.
            beside: Configuration of the idle second server.
        """
        with contextlib.ExitStack() as stack:
            second = None
            if IDLE_SERVER in names:
                self.say(f"second server: {label(beside)}")
                second = stack.enter_context(self._second(beside))
            ways: dict[str, Callable[[], AbstractContextManager[None]]] = {QUIET: nothing}
            imports, environment = self._imports()
            ways |= made(names, imports=imports, environment=environment, second=second)

            def measure(launch: _Launch) -> None:
                for cycle in range(cycles):
                    if self._is_over():
                        return
                    order = [QUIET, *names, QUIET]
                    for point in self.points:
                        for name in order if cycle % 2 == 0 else order[::-1]:
                            # At more users than one a window cuts answers, which are whole here.
                            if name == UNSTREAMED and point.concurrency != 1:
                                continue
                            with ways[name]():
                                launch.block(point, name, quiet_launch=False)

            return self._carry_out("disturbed", configuration, measure)

    def _is_over(self) -> bool:
        return time.monotonic() - self.began > self.seconds - _STOPPING_S

    @contextlib.contextmanager
    def _second(self, configuration: Configuration) -> Iterator[PausedServer]:
        processes: list[ProcessIdentity] = []
        with self._started(configuration, self.files.next_launch(), processes.append, "second-"):
            second = PausedServer(processes[0].pid)
            second.pause()
            try:
                yield second
            finally:
                second.wake()  # a stopped process can't end in order

    @contextlib.contextmanager
    def _started(
        self,
        configuration: Configuration,
        number: int,
        on_process: Callable[[ProcessIdentity], None] = lambda _: None,
        prefix: str = "",
    ) -> Iterator[Session]:
        mark = uuid.uuid4().hex
        log = self.logs / f"{prefix}launch-{number:03d}-{mark[:8]}.log"
        self.announce(mark)

        def born(process: ProcessIdentity, command: LaunchCommand) -> None:
            del command
            on_process(process)

        intent = LaunchIntent(configuration, (), mark, str(log))
        with self.runner.start(intent, born) as session:
            yield session

    def _carry_out(
        self, kind: str, configuration: Configuration, measure: Callable[[_Launch], None]
    ) -> bool:
        began = time.monotonic()
        if began - self.began + self._longest.get(kind, 0.0) > self.seconds:
            return False
        number = self.files.next_launch()
        self.say(f"launch {number}: {label(configuration)}, {kind}")
        about = about_launch(
            configuration,
            self.study.name,
            machine_of(self.runner),
            simulated=self.runner.simulated,
        ) | {"launch": number}
        processes: list[ProcessIdentity] = []
        try:
            with self._started(configuration, number, processes.append) as session:
                host = self.runner.environment.trial_host(self.study)
                base_url = f"http://{host}:{processes[0].port}"
                workload = self.study.to_workload()
                whole = unstreamed(base_url, workload, self.runner, session, seed=self.seed)
                launch = _Launch(session, whole, self.files, about)
                measure(launch)
        except RunnerError as error:
            if error.failure.phase == "stop":
                raise  # what follows would be measured beside what is left
            self.say(f"launch {number} failed: {error}")
            self.files.append_failure(about, error.failure.kind, time.monotonic() - began)
            self._failed += 1
            if self._failed >= _MOST_FAILURES:
                raise TooManyFailuresError(str(error)) from error
            return True
        self._failed = 0
        took = time.monotonic() - began
        self._longest[kind] = max(took, self._longest.get(kind, 0.0))
        self.say(
            f"launch {number}: ready after {session.ready_s:.1f} s, {took:.1f} s in all; "
            + launch.told()
        )
        return True

    def _imports(self) -> tuple[tuple[str, ...], dict[str, str] | None]:
        """Return the command that imports a server's modules, and its environment."""
        if self.runner.simulated:
            return (sys.executable, "-c", SIMULATED_IMPORTS), None
        python = self.runner.server_python()
        if python is None:
            raise ValueError("this runner has no Python of a server")
        environment = None if python.env is None else dict(python.env)
        return (*python.argv, "-c", IMPORTS), environment


class _Launch:
    """A running server and its blocks."""

    def __init__(
        self, session: Session, unstreamed: LoadGenerator, files: Files, about: dict[str, Any]
    ) -> None:
        self._session = session
        self._unstreamed = unstreamed
        self._files = files
        self._about = about | {"launch_s": session.ready_s, "ready_s": session.ready_s}
        self._block = 0
        self._seen: dict[str, list[Measurement]] = {}

    def block(self, point: OperatingPoint, condition: str, *, quiet_launch: bool) -> None:
        """Measure one block and write it."""
        if condition == UNSTREAMED:
            speculation = self._session.resolved.configuration.speculation
            measurement = self._unstreamed.measure(point, speculation=speculation)
        else:
            measurement = self._session.measure(point)
        about = self._about | {
            "sglang": self._session.resolved.sglang_version,
            "block": self._block,
            "repeat": self._files.repeats(self._about["configuration"], point.concurrency),
            "condition": condition,
        }
        self._files.append_block(measurement, about, quiet_launch=quiet_launch)
        self._seen.setdefault(point.name, []).append(measurement)
        self._block += 1

    def told(self) -> str:
        """Describe the mean speed at each point, and the reasons of invalid blocks."""
        words = []
        for name, measured in self._seen.items():
            mean = statistics.fmean(m.output_tok_s for m in measured)
            text = f"{name} {mean:.1f} tok/s in {len(measured)} blocks"
            reasons = {m.invalid[0].split(":")[0] for m in measured if m.invalid}
            words.append(text + (f" (invalid: {', '.join(sorted(reasons))})" if reasons else ""))
        return "; ".join(words)
