"""Measure the noise between measurements, on any machine with SGLang.

    python -m benchmarks.noise --study STUDY --output FOLDER/NAME
        [--configuration none EAGLE3:2,1,3] [--concurrency 1 8 32]
        [--launches 3] [--blocks 8] [--requests 8] [--output-tokens 64]
        [--drift-minutes 5] [--minutes 9]
        [--disturb idle_server imports busy_core pinned_client unstreamed] [--cycles 4]
        [--resume] [--runner simulated] [--json]

Launches each configuration several times with the runner of `tuner sweep`; the configurations take
turns. Each launch measures blocks of the same prompts; the operating points take turns. Then the
variance of tok/s and of the time per verify is split into the parts of prompts, blocks and launches
(`benchmarks/noise/variance.py`).

A launch takes its start-up and `points x blocks x (one window + its warm-up)`. A run begins no
launch that does not fit into --minutes; the same command with --resume continues the run.
`benchmarks/noise/files.py` describes the files, `docs/noise.md` the results.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import math
import signal
import sys
import time
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING

from benchmarks.noise.disturbances import DISTURBANCES, IDLE_SERVER, NoDisturbanceError
from benchmarks.noise.document import document
from benchmarks.noise.files import QUIET, Files
from benchmarks.noise.rows import DamagedFileError
from benchmarks.noise.sitting import Sitting, TooManyFailuresError
from benchmarks.noise.study import UsageError, configuration_of, is_of, label, study_of
from benchmarks.noise.summary import summarize
from benchmarks.noise.tables import tables
from runners.base import RunnerError, devices_of, machine_of
from runners.process.gpu_locks import DeviceBusyError, DeviceLocks
from runners.registry import make_runner, runner_names
from runners.sglang.process_runner import ProcessRunner

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from search_spaces.configuration import Configuration
    from search_spaces.study_file.study import Study


def launches_left(
    configurations: Sequence[Configuration], launches: int, blocks: int, files: Files
) -> list[Configuration]:
    """Return the remaining launches in order; the configurations take turns.

    The order is reversed in each turn, so that drift between launches affects all configurations.

    Args:
        configurations: Configurations to launch.
        launches: Launches of each configuration, including those in the files.
        blocks: Blocks that a launch must have, over all points, to count.
        files: Files of earlier runs.
    """
    found = files.read_blocks()
    aside = {block.launch for block in found if block.condition != QUIET}
    made = Counter(
        (block.configuration.key, block.launch) for block in found if block.launch not in aside
    )
    # One that was cut short is made again.
    done = Counter(key for (key, _), count in made.items() if count >= blocks)
    return [
        configuration
        for round_ in range(launches)
        for configuration in (configurations if round_ % 2 == 0 else configurations[::-1])
        if done[configuration.key] <= round_
    ]


def check_files(args: argparse.Namespace, files: Files) -> None:
    """Check that the options fit the existing files.

    Raises:
        UsageError: Files are missing, or exist without --resume.
    """
    if args.report:
        if not files.exist():
            raise UsageError(f"{files.blocks} does not exist; measure first, or correct --output")
        return
    if args.study is None:
        raise UsageError("no study; name it with --study, or print stored results with --report")
    if files.exist() and not args.resume:
        raise UsageError(f"{files.blocks} exists; continue it with --resume, or change --output")


def check_same(files: Files, study: Study, runner: ProcessRunner) -> None:
    """Check that the files belong to the same study, machine and load.

    Raises:
        UsageError: The files were measured with another study, version or load.
    """
    facts = files.facts()
    machine = machine_of(runner)
    now = {
        "study": study.name,
        "sglang": machine.sglang or "",
        "provenance": "simulated" if runner.simulated else "measured",
    }
    for key, value in now.items():
        if facts and facts[key] != value:
            raise UsageError(
                f"{files.blocks} was measured with {key} {facts[key]!r}, not {value!r}; change "
                "--output"
            )
    points = {point.concurrency: point for point in study.to_workload().points}
    for block in files.read_blocks():
        point = points.get(block.concurrency)
        if point is not None and (load := runner.load_fingerprint(point)) not in {
            None,
            block.fingerprint,
        }:
            raise UsageError(
                f"{files.blocks} was measured with another load at concurrency "
                f"{block.concurrency} (fingerprint {block.fingerprint}, now {load}); use the same "
                "--requests, --output-tokens, --output-spread and --seed, or change --output"
            )
        points.pop(block.concurrency, None)


def process_runner(args: argparse.Namespace, study: Study, files: Files) -> ProcessRunner:
    """Make the runner of the launches.

    Raises:
        UsageError: The runner cannot be used on this machine, or for these disturbances.
    """
    runner = make_runner(
        args.runner or study.runner,
        study,
        seed=args.seed,
        log_dir=args.logs,
        first_launch=files.next_launch(),
    )
    if not isinstance(runner, ProcessRunner):
        raise UsageError(f"the runner {runner.name} starts no server processes; use sglang")
    if (missing := runner.check()) is not None:
        raise UsageError(missing)
    if IDLE_SERVER in args.disturb and not runner.environment.sees_processes:
        raise UsageError(
            "--disturb idle_server cannot pause a server behind a command prefix; remove it"
        )
    return runner


def measure(args: argparse.Namespace, files: Files, began: float) -> int:
    """Run all launches; return the exit code.

    Raises:
        UsageError: The configurations cannot be launched.
    """
    study = study_of(args)
    configurations = [configuration_of(text, study) for text in args.configuration]
    beside = configuration_of(args.beside, study)
    for configuration in configurations:
        if not is_of(configuration, study):
            say(f"note: {label(configuration)} is neither in the study's space nor a baseline")
    runner = process_runner(args, study, files)
    check_same(files, study, runner)
    with DeviceLocks(devices_of(runner), study.name) as locks:
        sitting = Sitting(
            runner,
            study,
            files,
            study.to_workload().points,
            args.logs.absolute(),
            say,
            locks.announce,
            seed=args.seed,
            seconds=60 * args.minutes if args.minutes else float("inf"),
            began=began,
        )
        blocks = args.blocks * len(sitting.points)
        left = launches_left(configurations, args.launches, blocks, files)
        for number, configuration in enumerate(left):
            if not sitting.quiet(configuration, args.blocks):
                say(f"{len(left) - number} launches left; continue with --resume")
                return 0
        if args.drift_minutes and not sitting.drift(configurations[0], args.drift_minutes):
            say("skipped the drift: no time left")
        for configuration in configurations if args.disturb else []:
            if not sitting.disturbed(configuration, args.disturb, args.cycles, beside):
                say(f"skipped the disturbances of {label(configuration)}: no time left")
    return 0


def say(text: str) -> None:
    """Write a message to stderr."""
    sys.stderr.write(f"{text}\n")
    sys.stderr.flush()


def whole_number(least: int) -> Callable[[str], int]:
    """Return a parser of whole numbers of at least `least`."""

    def read(text: str) -> int:
        if (number := int(text)) < least:
            raise argparse.ArgumentTypeError(f"{number} is below {least}")
        return number

    read.__name__ = "whole number"
    return read


def minutes(text: str) -> float:
    """Parse a duration of 0 or more."""
    if not 0 <= (number := float(text)) < math.inf:
        raise argparse.ArgumentTypeError(f"{text} is no length of time")
    return number


def share(text: str) -> float:
    """Parse a number of at least 0 and less than 1."""
    if not 0 <= (number := float(text)) < 1:
        raise argparse.ArgumentTypeError(f"{text} is not from 0 to below 1")
    return number


def parser() -> argparse.ArgumentParser:
    """Return the parser of the command line."""
    made = argparse.ArgumentParser(
        prog="python -m benchmarks.noise",
        description=(__doc__ or "").splitlines()[0],
    )
    add = made.add_argument
    add("--study", help="study file, or name of a shipped one")
    add("--output", type=Path, required=True, help="files to write: FOLDER/NAME")
    add("--configuration", nargs="+", default=["none", "default"], metavar="C")
    add(
        "--concurrency",
        nargs="+",
        type=whole_number(1),
        help="operating points [default: from the study]",
    )
    add(
        "--launches",
        type=whole_number(0),
        default=3,
        help="launches per configuration, including stored ones",
    )
    add("--blocks", type=whole_number(1), default=8, help="blocks per launch and operating point")
    add(
        "--requests",
        type=whole_number(1),
        help="prompts of a block at concurrency 1 (at c: at least 4 c)",
    )
    add("--output-tokens", type=whole_number(1), help="mean tokens of an answer")
    add("--output-spread", type=share, help="spread of answer lengths, as a share of their mean")
    add("--seed", type=int, default=0, help="select the prompts")
    add(
        "--drift-minutes",
        type=minutes,
        default=0.0,
        help="also measure one long launch of the first C",
    )
    add(
        "--disturb",
        nargs="+",
        default=[],
        choices=tuple(DISTURBANCES),
        metavar="D",
        help="; ".join(f"{name}: {what}" for name, what in DISTURBANCES.items()),
    )
    add(
        "--cycles",
        type=whole_number(1),
        default=4,
        help="cycles per point: quiet, disturbed, ..., quiet",
    )
    add("--beside", default="none", metavar="C", help="configuration of the idle second server")
    add("--minutes", type=minutes, help="time limit of this run")
    add("--resume", action="store_true", help="continue existing files")
    add("--runner", choices=runner_names(), help="runner [default: from the study]")
    add("--logs", type=Path, default=Path("tuner-logs/noise"))
    add("--report", action="store_true", help="print stored results without measuring")
    add("--json", action="store_true")
    return made


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command; return the exit code."""
    began = time.monotonic()
    args = parser().parse_args(arguments)
    files = Files(args.output)
    code = 0

    # Ended by a time limit, it ends its servers as for Ctrl-C.
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        check_files(args, files)
        if not args.report:
            code = measure(args, files, began)
    except (UsageError, DamagedFileError) as error:
        say(f"error: {error}")
        return 2
    except (DeviceBusyError, NoDisturbanceError, RunnerError, TooManyFailuresError) as error:
        say(f"error: {error}")
        code = 4
    except KeyboardInterrupt:
        say("interrupted; continue with --resume")
        code = 130
    try:
        summary = summarize(files.read_blocks(), files.read_requests())
        facts = files.facts()
    except DamagedFileError as error:
        say(f"error: {error}")
        return 2
    if args.json:
        print(json.dumps(document(summary, facts), indent=1))
    else:
        for key, value in facts.items():
            print(f"{key:<12}{value}")
        print(tables(summary))
    return code


if __name__ == "__main__":
    with contextlib.suppress(BrokenPipeError):
        sys.exit(main())
