"""Measure the parts of a launch's time, from exec to the end of all processes.

    python -m benchmarks.launch_cost --study FILE [--launches 3] [--ways exec,cold-caches] [...]

Launches the study's first configuration with the runner of `tuner sweep`. The ways take turns
(exec, cold-caches, cold-caches, exec, ...):

- `exec`: `python -m sglang.launch_server`, as in a sweep.
- `cold-caches`: all kernel caches are empty, as in a new container for each launch.
- `no-bytecode`: Python compiles modules at each import, as in an image without `__pycache__`.

`--importtime` shows the import time of each package. Figures are real time; on a busy machine
compare CPU seconds.
"""

from __future__ import annotations

import argparse
import re
import signal
import statistics
import subprocess
import sys
import tempfile
import time
import uuid
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING

from benchmarks.launch_stages import STAGES, StartWatch
from benchmarks.launch_table import LaunchCost, table, write
from benchmarks.table import of_measurement
from results.records import LaunchIntent
from runners.base import RunnerError
from runners.sglang.machine import CACHE_VARIABLES
from runners.sglang.runner import SGLangRunner
from runners.sglang.session import ServerClient
from search_spaces.problems import StudyFileError
from search_spaces.space.space import Space, SpaceTooLargeError
from search_spaces.study_file.load import load_study

if TYPE_CHECKING:
    from results.records import ProcessIdentity
    from runners.base import LaunchCommand, Session
    from search_spaces.configuration import Configuration
    from search_spaces.study_file.study import Study

WAYS = ("exec", "cold-caches", "no-bytecode")
_IMPORTED = "import sglang.srt.server_args, sglang.srt.entrypoints.http_server"
_IMPORT_LINE = re.compile(r"import time:\s+(\d+) \|\s+(\d+) \|\s*([\w.]+)")
_HEALTH_S = 30.0


class Bench:
    """Launches of one configuration, in several ways."""

    def __init__(self, study: Study, configuration: Configuration, logs: Path, blocks: int) -> None:
        self._study = study
        self._configuration = configuration
        self._logs = logs
        self._blocks = blocks
        self._runners: dict[str, SGLangRunner] = {}
        self._empty = tempfile.TemporaryDirectory(prefix="launch-cost-")

    def close(self) -> None:
        """Remove the empty cache folders."""
        self._empty.cleanup()

    def launch(self, way: str, number: int) -> LaunchCost:
        """Launch once, from the start to the proof that all processes have ended.

        Raises:
            RunnerError: The launch failed.
        """
        runner = self._runner(way)
        mark = uuid.uuid4().hex
        log = self._logs / f"{number:02d}-{way}.log"
        intent = LaunchIntent(self._configuration, (), mark, str(log))
        watches: list[StartWatch] = []

        def on_process(process: ProcessIdentity, _: LaunchCommand) -> None:
            watches.append(StartWatch(log, process.pid))

        begun = time.monotonic()
        stages: dict[str, float] = {}
        try:
            session = runner.start(intent, on_process)
        finally:
            for watch in watches:
                stages = watch.end()
        start_s = time.monotonic() - begun
        # What comes after `ready` is none of the server's start.
        late = start_s - session.ready_s
        last = max((name for name in stages if stages[name] > 0), key=list(STAGES).index)
        stages[last] = max(0.0, stages[last] - late)
        try:
            cpu_s = {
                f"{p.name or 'python'}:{pid}": p.cpu_s for pid, p in watches[0].processes.items()
            }
            health_s = self._health(session)
            measured = time.monotonic()
            speeds, cycles = self._windows(session)
            measure_s = time.monotonic() - measured
        except BaseException:
            session.close()
            raise
        closing = time.monotonic()
        session.close()
        stop_s = time.monotonic() - closing
        return LaunchCost(
            way,
            number,
            stages,
            session.ready_s,
            start_s,
            health_s,
            measure_s,
            stop_s,
            cpu_s,
            speeds,
            cycles,
        )

    def _windows(self, session: Session) -> tuple[list[float], list[float]]:
        point = self._study.to_workload().points[0]
        speeds, cycles = [], []
        for _ in range(self._blocks):
            measurement = session.measure(point)
            for reason in measurement.invalid:
                print(f"  invalid: {reason}", file=sys.stderr)
            speeds.append(measurement.output_tok_s or 0.0)
            cycles.append(of_measurement(measurement)["cycle_ms"] or 0.0)
        return speeds, cycles

    @staticmethod
    def _health(session: Session) -> float:
        info = session.resolved.server_info
        with closing(ServerClient(f"http://{info['host']}:{info['port']}")) as client:
            begun = time.monotonic()
            client.healthy(_HEALTH_S)
            return time.monotonic() - begun

    def _runner(self, way: str) -> SGLangRunner:
        if way == "cold-caches":
            self._runners.pop(way, None)  # emptied before every launch
        if way not in self._runners:
            study = self._study
            if env := self._variables(way):
                server = study.server.model_copy(update={"env": {**study.server.env, **env}})
                study = study.model_copy(update={"server": server})
            self._runners[way] = SGLangRunner(study, seed=0, log_dir=self._logs)
        return self._runners[way]

    def _variables(self, way: str) -> dict[str, str]:
        folder = tempfile.mkdtemp(dir=self._empty.name)
        if way == "cold-caches":
            return dict.fromkeys(CACHE_VARIABLES, folder)
        if way == "no-bytecode":
            return {"PYTHONDONTWRITEBYTECODE": "1", "PYTHONPYCACHEPREFIX": folder}
        return {}


def import_times(python: str, env: dict[str, str]) -> dict[str, float]:
    """Return the launcher's import seconds of each package (`-X importtime`)."""
    done = subprocess.run(
        (python, "-X", "importtime", "-c", _IMPORTED),
        env=env,
        capture_output=True,
        text=True,
        errors="replace",
        check=True,
    )
    seconds: dict[str, float] = {}
    for own, _, module in _IMPORT_LINE.findall(done.stderr):
        package = module.split(".")[0]
        seconds[package] = seconds.get(package, 0.0) + int(own) / 1e6
    return dict(sorted(seconds.items(), key=lambda item: -item[1]))


def order(ways: list[str], launches: int) -> list[str]:
    """Return the ways in turns, forwards and backwards, so that drift affects all ways equally."""
    return [way for turn in range(launches) for way in (ways if turn % 2 == 0 else ways[::-1])]


def show_imports(study: Study, configuration: Configuration, logs: Path) -> None:
    """Print the launcher's import time by package."""
    command = SGLangRunner(study, seed=0, log_dir=logs).command(configuration)
    found = import_times(command.argv[0], command.environment())
    print(f"imports of the launcher: {sum(found.values()):.1f} s, of which")
    for package, seconds in list(found.items())[:12]:
        print(f"  {package:24}{seconds:8.2f} s")


def parser() -> argparse.ArgumentParser:
    """Return the parser of the command line."""
    made = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    made.add_argument("--study", default="tiny", help="a study file, or the name of a shipped one")
    made.add_argument("--launches", type=int, default=3, help="launches of each way")
    made.add_argument(
        "--ways", default="exec", help=f"ways, separated by commas: {', '.join(WAYS)}"
    )
    made.add_argument("--blocks", type=int, default=2, help="windows in each launch")
    made.add_argument(
        "--point", type=int, default=0, help="position of the configuration in the study"
    )
    made.add_argument("--minutes", type=float, default=1e9, help="start no launch after this time")
    made.add_argument("--importtime", action="store_true")
    made.add_argument("--output", type=Path, default=Path("build/launch-cost"))
    return made


def asked(
    command_line: argparse.ArgumentParser, args: argparse.Namespace
) -> tuple[Study, Configuration]:
    """Return the study and the configuration to launch; exit if there is none."""
    if args.launches < 1 or args.blocks < 0:
        command_line.error("--launches: at least 1, --blocks: at least 0")
    try:
        study = load_study(args.study)
        points = list(Space(study))
    except (StudyFileError, SpaceTooLargeError) as error:
        command_line.error(str(error))
    if not 0 <= args.point < len(points):
        command_line.error(f"--point {args.point}: the study has points 0 to {len(points) - 1}")
    return study, points[args.point]


def main() -> int:
    command_line = parser()
    args = command_line.parse_args()
    ways = args.ways.split(",")
    if unknown := set(ways) - set(WAYS):
        command_line.error(
            f"--ways: unknown {', '.join(sorted(unknown))}; there are {', '.join(WAYS)}"
        )
    # Also under nohup, and where a time limit ends it: servers are stopped.
    for ending in (signal.SIGINT, signal.SIGTERM):
        signal.signal(ending, signal.default_int_handler)
    study, configuration = asked(command_line, args)
    if (missing := SGLangRunner(study, seed=0, log_dir=args.output).check()) is not None:
        command_line.error(missing)
    args.output.mkdir(parents=True, exist_ok=True)
    print(f"{study.name}: {configuration.key}", file=sys.stderr)
    bench = Bench(study, configuration, args.output, args.blocks)
    begun, costs, longest = time.monotonic(), [], 0.0
    try:
        if args.importtime:
            show_imports(study, configuration, args.output)
        for number, way in enumerate(order(ways, args.launches)):
            if time.monotonic() - begun + longest > 60 * args.minutes:
                break
            since = time.monotonic()
            try:
                cost = bench.launch(way, number)
            except RunnerError as error:
                print(f"launch {number} ({way}): {error}", file=sys.stderr)
                continue
            longest = max(longest, time.monotonic() - since)
            costs.append(cost)
            print(
                f"launch {number} ({cost.way}): ready {cost.ready_s:.1f} s, stop {cost.stop_s:.1f} "
                f"s, {statistics.median(cost.output_tok_s or [0]):.1f} tok/s",
                file=sys.stderr,
            )
    finally:
        bench.close()
        if costs:
            write(args.output, costs, study, configuration)
    if not costs:
        return 1
    print(table(costs))
    return 0


if __name__ == "__main__":
    sys.exit(main())
