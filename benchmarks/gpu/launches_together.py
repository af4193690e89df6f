"""Measure launches that start together, one at a time: noise, and our figures beside others'.

    python -m benchmarks.gpu.launches_together --study STUDY --output FOLDER/NAME \
        --launches 2 --arms steady steady equal --minutes 9

Starting one SGLang after another takes most of a short sitting. This command starts all launches
of `none` and `EAGLE3:2` at the same time and stops all but the one that it measures (SIGSTOP). The
launches take turns: in each round every launch measures every arm at every operating point.

Arms:
    steady  the tuner's window, as the study says
    equal   the same with answers of equal length (`output_spread: 0`) and half as many requests;
            not at one user, where it is the same
    burst   `tuner bench --burst --whole-run`: all lanes start at once, figures over the whole run
    theirs  `sglang.bench_serving`, `random-ids`, lengths uniform within +-50 % of the same means

Every round repeats the list of arms (without those of `--once`); the second round takes launches,
arms and points backwards. FOLDER/NAME.csv
receives one row per window, FOLDER/NAME-steady.csv and FOLDER/NAME-equal.csv what
`python -m benchmarks.noise --output FOLDER/NAME-steady --report` reads.
"""

from __future__ import annotations

import argparse
import concurrent.futures
import csv
import dataclasses
import json
import signal
import statistics
import subprocess
import sys
import time
import uuid
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from benchmarks.noise.disturbances import PausedServer
from benchmarks.noise.files import QUIET, Files, about_launch
from benchmarks.noise.study import configuration_of, label
from results.records import LaunchIntent
from runners.base import RunnerError, machine_of
from runners.load.generator import LoadGenerator
from runners.registry import make_runner
from runners.sglang.process_runner import ProcessRunner
from search_spaces.study_file.load import load_study

if TYPE_CHECKING:
    from results.records import Measurement, ProcessIdentity
    from runners.base import LaunchCommand, Session
    from search_spaces.configuration import Configuration
    from search_spaces.study_file.study import Study
    from search_spaces.workload import OperatingPoint, Workload

ARMS = ("steady", "equal", "burst", "theirs")
CONFIGURATIONS = ("none", "EAGLE3:2")
WINDOW_ABOUT_S = 17.0
"""No window begins with less time than this left."""

# Runs `sglang.bench_serving` as its command does, again and again: its imports take 8 s each time.
CHILD = """
import json, sys
from sglang.bench_serving import cli_main
print("ready", file=sys.stderr, flush=True)
for line in sys.stdin:
    sys.argv = ["bench_serving", *json.loads(line)]
    try:
        cli_main()
        print("done", file=sys.stderr, flush=True)
    except BaseException as error:
        print("failed", repr(error), file=sys.stderr, flush=True)
"""


@dataclass
class Launch:
    """A server that is stopped while another one is measured.

    Attributes:
        number: Number of the launch.
        configuration: Configuration of the server.
        session: Session of the server.
        paused: Stops and continues the server.
        url: `http://host:port`.
        about: Columns of the noise files.
        blocks: Number of windows so far, by arm.
        generators: Load generators by arm; a generator needs a shorter warm-up after its first
            window.
    """

    number: int
    configuration: Configuration
    session: Session
    paused: PausedServer
    url: str
    about: dict[str, Any]
    blocks: dict[str, int] = field(default_factory=dict)
    generators: dict[str, LoadGenerator] = field(default_factory=dict)


class TheirBench:
    """A process that runs `sglang.bench_serving` repeatedly.

    Args:
        python: Interpreter of an environment with SGLang.
        tokenizer: Folder of the served model.
        log: File of the output.
    """

    def __init__(self, python: str, tokenizer: str, log: Path) -> None:
        self._tokenizer = tokenizer
        self._result = log.with_suffix(".jsonl")
        self._log = log.open("ab")
        self._child = subprocess.Popen(
            [python, "-c", CHILD],
            stdin=subprocess.PIPE,
            stdout=self._log,
            stderr=subprocess.PIPE,
            text=True,
        )

    def run(
        self, url: str, workload: Workload, users: int, requests: int, seed: int
    ) -> dict[str, Any]:
        """Run it once and return what it wrote.

        Raises:
            RuntimeError: It failed.
        """
        self._result.unlink(missing_ok=True)
        # Lengths are uniform in [ratio * length, length]: a third of 1.5 means is half a mean.
        longest = [str(round(1.5 * mean)) for mean in (128, workload.output_tokens)]
        arguments = [
            *("--backend", "sglang", "--base-url", url, "--model", self._tokenizer),
            *("--tokenizer", self._tokenizer, "--dataset-name", "random-ids"),
            *("--random-input-len", longest[0], "--random-output-len", longest[1]),
            *("--random-range-ratio", "0.33334", "--num-prompts", str(requests)),
            *("--max-concurrency", str(users), "--warmup-requests", str(users), "--flush-cache"),
            *("--seed", str(seed), "--disable-tqdm", "--output-file", str(self._result)),
        ]
        assert self._child.stdin is not None
        assert self._child.stderr is not None
        self._child.stdin.write(json.dumps(arguments) + "\n")
        self._child.stdin.flush()
        for line in self._child.stderr:
            if line.startswith("failed"):
                raise RuntimeError(line.strip())
            if line.startswith("done"):
                found: dict[str, Any] = json.loads(self._result.read_text().splitlines()[-1])
                return found
        raise RuntimeError("bench_serving ended")

    def close(self) -> None:
        self._child.kill()
        self._child.wait()
        self._log.close()


class Sitting:
    """Launches of one call.

    Args:
        args: Command line.
        runner: Starts servers.
        study: Study of the servers.
    """

    def __init__(self, args: argparse.Namespace, runner: ProcessRunner, study: Study) -> None:
        self._args = args
        self._runner = runner
        self._study = study
        self._machine = machine_of(runner)
        self._workload = study.to_workload()
        self._points = self._workload.points
        self._files = {
            arm: Files(args.output.with_name(f"{args.output.name}-{arm}"))
            for arm in ("steady", "equal")
        }
        self._deadline = time.monotonic() + 60 * args.minutes
        self._theirs: TheirBench | None = None
        self._rows: list[dict[str, Any]] = []

    def run(self) -> None:
        """Start everything, measure until the time is up, stop everything."""
        names = [name for _ in range(self._args.launches) for name in self._args.configuration]
        configurations = [configuration_of(name, self._study) for name in names]
        began = time.monotonic()
        with ExitStack() as stack:
            if "theirs" in self._args.arms:
                self._theirs = TheirBench(
                    self._args.sglang_python,
                    str(Path(self._study.model.path).resolve()),
                    self._args.output.with_name("bench_serving.log"),
                )
                stack.callback(self._theirs.close)
            pool = stack.enter_context(concurrent.futures.ThreadPoolExecutor(len(names)))
            pending = []
            for number, configuration in enumerate(configurations, self._args.first_launch):
                pending.append(pool.submit(self._start, stack, number, configuration))
                time.sleep(0.3)
            launches = []
            for started in pending:
                try:
                    launches.append(started.result())
                except RunnerError as error:
                    say(f"a launch failed: {error}")
            say(f"{len(launches)} launches are ready after {time.monotonic() - began:.1f} s")
            for number in range(self._args.rounds):
                for launch in launches if number % 2 == 0 else launches[::-1]:
                    self._measure(launch, number)

    def _start(self, stack: ExitStack, number: int, configuration: Configuration) -> Launch:
        processes: list[ProcessIdentity] = []

        def born(process: ProcessIdentity, command: LaunchCommand) -> None:
            del command
            processes.append(process)

        mark = uuid.uuid4().hex
        log = self._args.logs / f"launch-{number:03d}-{mark[:8]}.log"
        session = self._runner.start(LaunchIntent(configuration, (), mark, str(log)), born)
        stack.callback(session.close)
        paused = PausedServer(processes[0].pid)
        stack.callback(paused.wake)  # before `close`: a stopped process cannot end
        paused.pause()
        about = about_launch(
            configuration,
            self._study.name,
            machine_of(self._runner),
            simulated=self._runner.simulated,
        )
        about |= {"launch": number, "launch_s": session.ready_s, "ready_s": session.ready_s}
        say(f"launch {number}: {label(configuration)}, ready after {session.ready_s:.1f} s")
        host = self._runner.environment.trial_host(self._study)
        url = f"http://{host}:{processes[0].port}"
        return Launch(number, configuration, session, paused, url, about)

    def _measure(self, launch: Launch, number: int) -> None:
        with launch.paused.awake():
            arms = [arm for arm in self._args.arms if number == 0 or arm not in self._args.once]
            arms = arms if number % 2 == 0 else arms[::-1]
            for arm in arms:
                for point in self._points if number % 2 == 0 else self._points[::-1]:
                    if time.monotonic() > self._deadline - WINDOW_ABOUT_S:
                        say("no time left for more windows")
                        return
                    try:
                        self._window(launch, arm, point, number)
                    except (RunnerError, RuntimeError, OSError) as error:
                        say(f"launch {launch.number}, {arm}, {point.name}: {error}")

    def _window(self, launch: Launch, arm: str, point: OperatingPoint, number: int) -> None:
        users, requests = point.concurrency or 1, self._requests(launch, point)
        point = dataclasses.replace(point, requests=requests)
        began = time.monotonic()
        if arm == "theirs":
            assert self._theirs is not None
            said = self._theirs.run(
                launch.url, self._workload, users, requests, seed=1000 * number + launch.number
            )
            figures = {
                "output_tok_s": said["output_throughput"],
                "ttft_p50_ms": said["median_ttft_ms"],
                "ttft_mean_ms": said["mean_ttft_ms"],
                "tpot_p50_ms": said["median_tpot_ms"],
                "accept_length": said["accept_length"],
                "window_s": said["duration"],
                "output_tokens": said["total_output_tokens"],
                "requests": said["completed"],
            }
        elif arm == "equal" and users == 1:
            return
        else:
            if arm == "equal":
                point = dataclasses.replace(point, requests=max(4 * users, requests // 2))
            if arm not in launch.generators:
                launch.generators[arm] = self._generator(launch, arm)
            measurement = launch.generators[arm].measure(
                point,
                speculation=launch.session.resolved.configuration.speculation,
                server_info=launch.session.resolved.server_info,
            )
            figures = _figures(measurement)
            if arm in self._files:
                self._append(launch, arm, measurement)
        row = {
            "launch": launch.number,
            "configuration": label(launch.configuration),
            "round": number,
            "arm": arm,
            "concurrency": users,
            **figures,
            "took_s": time.monotonic() - began,
        }
        self._rows.append(row)
        write(self._args.output.with_name(f"{self._args.output.name}.csv"), self._rows)
        say(" ".join(f"{v:.5g}" if isinstance(v, float) else str(v) for v in row.values()))

    def _requests(self, launch: Launch, point: OperatingPoint) -> int:
        """Return the number of requests of a window; faster servers get more."""
        requests = point.requests or 4 * (point.concurrency or 1)
        faster = launch.configuration.speculation.algorithm != "none"
        return round(requests * (self._args.faster if faster else 1.0))

    def _generator(self, launch: Launch, arm: str) -> LoadGenerator:
        workload = self._workload
        if arm == "equal":
            workload = dataclasses.replace(workload, output_spread=0.0)
        return LoadGenerator(
            launch.url,
            workload,
            self._runner.prompts,
            self._runner.renderer(),
            seed=self._args.seed,
            time_scale=launch.session.resolved.time_scale,
            simulated=launch.session.resolved.simulated,
            burst=arm == "burst",
            whole_run=arm == "burst",
        )

    def _append(self, launch: Launch, arm: str, measurement: Measurement) -> None:
        files, block = self._files[arm], launch.blocks.get(arm, 0)
        about = launch.about | {
            "sglang": launch.session.resolved.sglang_version,
            "block": block,
            "condition": QUIET,
            "repeat": files.repeats(launch.about["configuration"], measurement.point.concurrency),
        }
        files.append_block(measurement, about, quiet_launch=True)
        launch.blocks[arm] = block + 1


def _figures(measurement: Measurement) -> dict[str, Any]:
    good = [sample for sample in measurement.samples if sample.error is None]
    return {
        "output_tok_s": measurement.output_tok_s,
        "ttft_p50_ms": measurement.ttft_p50_ms,
        "ttft_mean_ms": 1000 * statistics.fmean(sample.ttft_s for sample in good),
        "tpot_p50_ms": measurement.tpot_p50_ms,
        "accept_length": measurement.accept_length,
        "window_s": measurement.window_s,
        "output_tokens": sum(sample.completion_tokens for sample in good),
        "requests": len(good),
        "invalid": "; ".join(measurement.invalid),
        "warnings": "; ".join(measurement.warnings),
    }


def write(path: Path, rows: list[dict[str, Any]]) -> None:
    names = list(dict.fromkeys(name for row in rows for name in row))
    with path.open("w", newline="") as file:
        writer = csv.DictWriter(file, names, lineterminator="\n")
        writer.writeheader()
        writer.writerows(rows)


def say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--study", required=True)
    parser.add_argument("--output", type=Path, required=True, help="FOLDER/NAME")
    parser.add_argument("--configuration", nargs="+", default=list(CONFIGURATIONS))
    parser.add_argument("--launches", type=int, default=2, help="of each configuration")
    parser.add_argument("--first-launch", type=int, default=0, help="number of the first launch")
    parser.add_argument("--arms", nargs="+", choices=ARMS, default=["steady"])
    parser.add_argument("--once", nargs="+", choices=ARMS, default=[], help="in round 0 only")
    parser.add_argument("--rounds", type=int, default=2)
    parser.add_argument(
        "--faster", type=float, default=1.0, help="times as many requests for EAGLE3"
    )
    parser.add_argument("--minutes", type=float, default=9.0)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--logs", type=Path, default=Path("logs"))
    parser.add_argument("--sglang-python", default=sys.executable, help="for the arm `theirs`")
    args = parser.parse_args()
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    args.output.parent.mkdir(parents=True, exist_ok=True)
    args.logs = args.logs.absolute()
    study = load_study(args.study)
    runner = make_runner(study.runner, study, seed=args.seed, log_dir=args.logs)
    if not isinstance(runner, ProcessRunner):
        sys.exit(f"the runner {runner.name} starts no server processes; use sglang")
    if (missing := runner.check()) is not None:
        sys.exit(missing)
    Sitting(args, runner, study).run()


if __name__ == "__main__":
    main()
