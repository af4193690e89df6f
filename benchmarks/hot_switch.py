"""Compare one study with hot switching and with a separate launch per setting.

    python -m benchmarks.hot_switch --study kimi-demo --storage sqlite:///both.db --output both.md

Runs `tuner sweep` twice into one database, as NAME-switched and NAME-alone; `--order` sets the
order. The same command continues an interrupted run; `--report` only reads. The table shows cost
and result of each way, and the difference of each configuration's figures.
"""

from __future__ import annotations

import argparse
import json
import math
import shlex
import statistics
import subprocess
import sys
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from results.errors import StoreError, StudyNotFound
from results.records import TrialState
from results.store import Store
from search_spaces.problems import StudyFileError
from search_spaces.study_file.load import load_study
from tuner.formatting import describe
from tuner.reports.build_report import make_report
from tuner.studies import assembly

if TYPE_CHECKING:
    from collections.abc import Sequence

    from results.records import Measurement, Trial
    from search_spaces.study_file.study import Study
    from tuner.reports.report import StudyReport

WAYS = {"switched": "--hot-switch", "alone": "--no-hot-switch"}


@dataclass(frozen=True, slots=True)
class Way:
    """Cost and result of a study, with or without hot switching.

    Attributes:
        way: One of `WAYS`.
        study: Stored name.
        simulated: Whether all figures are simulated.
        stopped: Reason for the end.
        launches: Started servers, including failed ones.
        windows: Measured windows, including those of reference runs.
        trials: Configurations with a result.
        clock_s: Working time on the server's clock.
        real_s: Real time from the first launch to the end of the last one, including pauses of an
            interrupted study.
        starts_s: Part of `clock_s` until servers were ready.
        states_s: Part of `starts_s` for further settings; `None` if servers report none.
        gave_up: Reason for the return to separate launches; empty if there was none.
        anchor: Result of the reference check.
        best: Description of the best configuration.
        best_tok_s: Its speed at the first operating point.
        gain: Its speed-up over the baseline without speculation.
    """

    way: str
    study: str
    simulated: bool
    stopped: str | None
    launches: int
    windows: int
    trials: int
    clock_s: float
    real_s: float
    starts_s: float
    states_s: float | None
    gave_up: str | None
    anchor: str | None
    best: str | None
    best_tok_s: float | None
    gain: float | None


@dataclass(frozen=True, slots=True)
class Pair:
    """One configuration at one operating point, measured both ways.

    Attributes:
        configuration: Description of the configuration.
        point: Name of the operating point.
        alone: Output tok/s in a separate launch.
        switched: Output tok/s in the other study.
        cycle_alone_ms: Median time per cycle of the most frequent batch size, or per verify, in a
            separate launch.
        cycle_switched_ms: The same in the other study.
        was_switched: Whether the other study measured it in a launch for several settings.
    """

    configuration: str
    point: str
    alone: float
    switched: float
    cycle_alone_ms: float | None
    cycle_switched_ms: float | None
    was_switched: bool

    @property
    def difference(self) -> float:
        """Return the relative difference of the speeds, based on the separate launch."""
        return self.switched / self.alone - 1


def run(args: argparse.Namespace, study: Study, way: str) -> int:
    """Start or continue one way; return its exit status."""
    name = f"{study.name}-{way}"
    with Store.open(args.storage) as store:
        try:
            stored = store.study(name)
            options = ["resume", "--study", name]
            if stored.stopped in {"exhausted", "budget", "converged"}:
                return 0
        except StudyNotFound:
            options = ["sweep", "--study", args.study, "--name", name, WAYS[way]]
            options += ["--planner", "exhaustive", "--launches", str(args.launches)]
            options += [] if args.runner is None else ["--runner", args.runner]
    command = [*shlex.split(args.tuner), *options, "--storage", args.storage, "--json"]
    sys.stderr.write(f"# {shlex.join(command)}\n")
    return subprocess.run(command, stdout=subprocess.DEVNULL, check=False).returncode


def read(store: Store, study: Study, way: str) -> tuple[Way, StudyReport]:
    """Return the stored result of one way."""
    stored = store.study(f"{study.name}-{way}")
    servers = assembly.reopen_servers(store, stored, study)
    report = make_report(store, stored.name, study, servers)
    return spent(store, report, way, servers.time_scale), report


def spent(store: Store, report: StudyReport, way: str, time_scale: float = 1.0) -> Way:
    """Return cost and result of one way.

    Args:
        store: Store of the study.
        report: Report of the study.
        way: Name of the way.
        time_scale: Server seconds per real second.
    """
    stored, launches, best = report.study, report.launches, report.leaderboard.best
    windows = sum(len(store.measurements(stored.id, t.number)) for t in report.leaderboard.trials)
    begun = ended = 0.0
    if launches:
        begun = launches[0].created or 0.0
        ended = (launches[-1].created or 0.0) + (launches[-1].seconds or 0.0) / time_scale
    switching = report.hot_switch
    checks = switching.switching.checks if switching is not None else ()
    return Way(
        way=way,
        study=stored.name,
        simulated=stored.simulated,
        stopped=stored.stopped,
        launches=len(launches),
        windows=windows,
        trials=sum(t.state is not TrialState.RUNNING for t in report.leaderboard.trials),
        clock_s=stored.work_s,
        real_s=ended - begun,
        starts_s=sum(launch.ready_s or 0.0 for launch in launches),
        states_s=switching.states_s if switching is not None else None,
        gave_up=switching.switching.gave_up if switching is not None else None,
        anchor=str(checks[0].comparison) if checks else None,
        best=describe(best.configuration, report.fixed) if best is not None else None,
        best_tok_s=best.measurements[0].output_tok_s if best is not None else None,
        gain=report.leaderboard.gain_over("none", best) if best is not None else None,
    )


def pairs(alone: StudyReport, switched: StudyReport) -> list[Pair]:
    """Return all configurations that both ways measured, one row per operating point."""
    many = {launch.id for launch in switched.launches if launch.intent.settings}
    others = {t.configuration: t for t in switched.leaderboard.trials if t.measurements}
    found = []
    for trial in sorted(alone.leaderboard.trials, key=_order):
        other = others.get(trial.configuration)
        if other is None or TrialState.COMPLETE not in {trial.state} & {other.state}:
            continue
        for mine, theirs in zip(trial.measurements, other.measurements, strict=True):
            found.append(
                Pair(
                    describe(trial.configuration, alone.fixed),
                    mine.point.name,
                    mine.output_tok_s,
                    theirs.output_tok_s,
                    cycle_ms(mine),
                    cycle_ms(theirs),
                    other.judged_in in many,
                )
            )
    return found


def _order(trial: Trial) -> tuple[str, str, int, tuple[int, int]]:
    configuration = trial.configuration
    return (
        str(configuration.env),
        str(configuration.flags),
        configuration.speculation.topk or 0,
        configuration.setting.size,
    )


def cycle_ms(measurement: Measurement) -> float | None:
    """Return the time per cycle by the server's clock, else per verify by the client."""
    cycles = measurement.cycle.batches if measurement.cycle is not None else ()
    if cycles:
        commonest = max(cycles, key=lambda batch: batch.cycle.count).cycle
        if commonest.median_s is not None:
            return 1000 * commonest.median_s
    verified = sum(measurement.histogram)
    users = measurement.point.concurrency
    return 1000 * measurement.window_s * users / verified if verified and users else None


def tables(ways: Sequence[Way], rows: Sequence[Pair]) -> str:
    """Return the result as Markdown."""
    mark = "simulated " if any(way.simulated for way in ways) else ""
    lines = [f"| | {' | '.join(way.way for way in ways)} |", "|---" * (len(ways) + 1) + "|"]
    told = {
        "launches": [str(w.launches) for w in ways],
        "configurations judged": [str(w.trials) for w in ways],
        "windows": [str(w.windows) for w in ways],
        f"time at work, {mark}s": [f"{w.clock_s:.0f}" for w in ways],
        "of it until servers were ready": [f"{w.starts_s:.0f}" for w in ways],
        "of that for further states": [_shown(w.states_s, ".0f") for w in ways],
        "time that passed here, s": [f"{w.real_s:.0f}" for w in ways],
        "best": [w.best or "" for w in ways],
        f"its {mark}tok/s": [_shown(w.best_tok_s, ".1f") for w in ways],
        "its gain on no speculation": [
            _shown(w.gain and 100 * (w.gain - 1), "+.1f", " %") for w in ways
        ],
        "anchor": [w.anchor or "" for w in ways],
        "given up": [w.gave_up or "" for w in ways],
    }
    lines += [f"| {name} | {' | '.join(cells)} |" for name, cells in told.items() if any(cells)]
    if len(ways) == len(WAYS) and all(way.launches and way.real_s for way in ways):
        by = {way.way: way for way in ways}
        switched, alone = by["switched"], by["alone"]
        ratios = (
            f"Switched / alone: launches {switched.launches / alone.launches:.2f}, time at work "
            f"{switched.clock_s / alone.clock_s:.2f}, time that passed "
            f"{switched.real_s / alone.real_s:.2f}."
        )
        lines += ["", ratios]
    if rows:
        lines += ["", *_pair_table(rows, mark)]
    return "\n".join(lines) + "\n"


def _pair_table(rows: Sequence[Pair], mark: str) -> list[str]:
    heads = ["configuration", "at", f"{mark}tok/s alone", "other study", "difference"]
    heads += ["ms per cycle alone", "other study", "switched"]
    lines = [f"| {' | '.join(heads)} |", "|---" * len(heads) + "|"]
    lines += [
        f"| {r.configuration} | {r.point} | {r.alone:.1f} | {r.switched:.1f} "
        f"| {100 * r.difference:+.1f} % | {_shown(r.cycle_alone_ms, '.2f')} "
        f"| {_shown(r.cycle_switched_ms, '.2f')} | {'yes' if r.was_switched else ''} |"
        for r in rows
    ]
    sizes = [abs(r.difference) for r in rows if r.was_switched]
    again = [abs(r.difference) for r in rows if not r.was_switched]
    for what, found in (("switched", sizes), ("launched alone in both", again)):
        if found:
            apart = f"{100 * statistics.median(found):.1f} % in the median"
            line = f"{len(found)} {what}: tok/s apart by {apart}, {100 * max(found):.1f} % at most."
            lines += ["", line]
    return lines


def _shown(value: float | None, form: str, unit: str = "") -> str:
    return "" if value is None or math.isnan(value) else f"{value:{form}}{unit}"


def main() -> None:
    """Run the command."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--study", default="kimi-demo", help="a shipped name or a file")
    parser.add_argument("--storage", default="sqlite:///hot-switch.db")
    parser.add_argument("--runner", help="runner [default: from the study]")
    parser.add_argument("--launches", type=int, default=1000, help="budget of each way")
    parser.add_argument(
        "--order", default="switched,alone", help="order of the ways; one name runs only this way"
    )
    parser.add_argument("--tuner", default=shlex.join([sys.executable, "-m", "tuner"]))
    parser.add_argument("--report", action="store_true", help="print stored results without a run")
    parser.add_argument("--json", action="store_true", help="print JSON")
    parser.add_argument("--output", type=Path, help="output file [default: stdout]")
    args = parser.parse_args()
    order = args.order.split(",")
    if unknown := set(order) - WAYS.keys():
        parser.error(f"--order {args.order}: {', '.join(unknown)} is none of {', '.join(WAYS)}")
    try:
        study = load_study(args.study)
        # What one way found is worth as much where the other one failed.
        statuses = [run(args, study, way) for way in ([] if args.report else order)]
        with Store.open_to_read(args.storage) as store:
            known = {stored.name for stored in store.studies()}
            found = {w: read(store, study, w) for w in WAYS if f"{study.name}-{w}" in known}
    except (StoreError, StudyFileError) as error:
        parser.error(str(error))
    ways = [found[w][0] for w in WAYS if w in found]
    rows = pairs(found["alone"][1], found["switched"][1]) if len(found) == len(WAYS) else []
    text = tables(ways, rows)
    if args.json:
        data = {"ways": [asdict(w) for w in ways], "pairs": [asdict(r) for r in rows]}
        text = json.dumps(data, indent=2) + "\n"
    if args.output is None:
        sys.stdout.write(text)
    else:
        args.output.write_text(text)
    if failed := [status for status in statuses if status]:
        raise SystemExit(failed[0])


if __name__ == "__main__":
    main()
