"""Write the measurements of studies as a table for benchmarks and the replay runner.

    python benchmarks/table.py --storage sqlite:///tuner.db --study NAME... --output FILE.csv

The table has one row per configuration, operating point and repeat; `benchmarks/data/README.md`
describes the columns. A failed trial has one row without an operating point. All measurements are
written; the reason of an invalid window is in `failure`. Open loops (a request rate or a trace)
have no column and are refused.
"""

from __future__ import annotations

import argparse
import csv
import json
import math
from collections import Counter
from typing import TYPE_CHECKING, Any, TextIO

from results.errors import StoreError
from results.records import Purpose
from results.store import Store
from runners.replay.table import COLUMNS as OF_REPLAYS
from tuner.analysis.mean_cycle import mean_cycle

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from results.records import CycleTimes, Launch, Machine, Measurement, Trial
    from results.studies import StoredStudy
    from search_spaces.configuration import Configuration

COLUMNS = (
    *OF_REPLAYS,
    *("window_s", "study", "machine", "gpus", "sglang", "provenance", "trial", "launch", "state"),
    *("algorithm", "num_steps", "topk", "num_draft_tokens", "draft_tp", "flags", "env"),
    *("prompt_tokens", "output_tokens", "user_tok_s", "ttft_p50_ms", "tpot_p50_ms"),
    *("correct_drafts_histogram", "verify_calls", "cycle_ms"),
    *("draft_ms", "draft_extend_ms", "verify_ms", "rest_ms", "ready_s", "fingerprint"),
)


class OpenLoopError(ValueError):
    """An operating point has no concurrency, so its rows cannot be identified."""


def of_configuration(configuration: Configuration) -> dict[str, Any]:
    """Return the columns of the configuration."""
    speculation = configuration.speculation
    return {
        "configuration": configuration.key,
        "algorithm": speculation.algorithm,
        "num_steps": speculation.num_steps,
        "topk": speculation.topk,
        "num_draft_tokens": speculation.num_draft_tokens,
        "draft_tp": configuration.draft_tp,
        "flags": json.dumps(dict(configuration.flags)),
        "env": json.dumps(dict(configuration.env)),
    }


def of_machine(machine: Machine | None) -> dict[str, Any]:
    """Return the columns of the machine; empty if the machine was not recorded."""
    if machine is None:
        return {}
    named = [f"{count}x {gpu}" for gpu, count in Counter(machine.gpus).items()]
    return {
        "machine": " + ".join(named) or machine.cpu,
        "gpus": len(machine.gpus),
        "sglang": machine.sglang,
    }


def of_measurement(measurement: Measurement) -> dict[str, Any]:
    """Return the columns of a window; the cycle needs its requests.

    `cycle_ms` is the client's view of a cycle: the time from a request's first to its last token,
    per verify (per token after the first without speculation). The parts are those of the mean
    cycle by the server's clock; a part that never ran is empty.
    """
    good = [sample for sample in measurement.samples if sample.error is None]
    verify_calls = sum(sample.verify_calls for sample in good)
    cycles = verify_calls or sum(sample.completion_tokens - 1 for sample in good)
    decoding_s = sum(sample.e2e_s - sample.ttft_s for sample in good)
    return {
        "concurrency": measurement.point.concurrency,
        "output_tok_s": measurement.output_tok_s,
        "accept_length": measurement.accept_length,
        "window_s": measurement.window_s,
        "prompt_tokens": measurement.prompt_tokens,
        "output_tokens": measurement.output_tokens,
        "user_tok_s": measurement.user_tok_s,
        "ttft_p50_ms": measurement.ttft_p50_ms,
        "tpot_p50_ms": measurement.tpot_p50_ms,
        "correct_drafts_histogram": ";".join(str(count) for count in measurement.histogram),
        "verify_calls": verify_calls or None,
        "cycle_ms": 1000 * decoding_s / cycles if cycles else None,
        **of_cycle(measurement.cycle),
        "fingerprint": measurement.workload_fingerprint,
        "provenance": "simulated" if measurement.simulated else "measured",
        "failure": measurement.invalid[0].split(":")[0] if measurement.invalid else "",
    }


def of_cycle(times: CycleTimes | None) -> dict[str, float | None]:
    """Return the parts of a cycle in ms; empty without a clock."""
    if times is None or (cycle := mean_cycle(times)) is None:
        return {}
    return {f"{name}_ms": 1000 * seconds or None for name, seconds in cycle.parts.items()}


def of_launch(launch: Launch) -> dict[str, Any]:
    """Return the columns of a start; a failed launch has its own duration."""
    launch_s = launch.ready_s if launch.ready_s is not None else launch.seconds
    return of_machine(launch.machine) | {
        "launch": launch.id,
        "launch_s": launch_s,
        "ready_s": launch.ready_s,
    }


def rows(store: Store, name: str) -> Iterator[dict[str, Any]]:
    """Return all rows of a study, in the order of its trials.

    Raises:
        StoreError: The study does not exist.
        OpenLoopError: The study has points without a concurrency.
    """
    study = store.study(name)
    launches = {launch.id: launch for launch in store.launches(study.id)}
    repeats: Counter[tuple[str, int | None]] = Counter()
    for trial in store.trials(study.id):
        about = of_configuration(trial.configuration) | {
            "study": name,
            "trial": trial.number,
            "state": trial.state.value,
        }
        measured = store.measurements(study.id, trial.number, samples=True)
        for found in measured:
            if found.purpose is Purpose.ANCHOR:
                continue  # a check of the server, not of the configuration
            if (point := found.measurement.point).is_open:
                raise OpenLoopError(f"study {name}: a table has no open loops ({point.name})")
            key = (trial.configuration.key, found.measurement.point.concurrency)
            yield (
                about
                | of_launch(launches[found.launch])
                | of_measurement(found.measurement)
                | {"repeat": repeats[key]}
            )
            repeats[key] += 1
        if not measured and trial.failure is not None:
            yield about | _of_failure(study, trial, launches)


def _of_failure(study: StoredStudy, trial: Trial, launches: Mapping[int, Launch]) -> dict[str, Any]:
    of_last = of_launch(launches[trial.launches[-1]]) if trial.launches else {"launch_s": 0.0}
    return of_last | {
        "repeat": 0,
        "provenance": "simulated" if study.simulated else "measured",
        "failure": trial.failure.kind if trial.failure else None,
    }


def write(file: TextIO, table: Iterable[Mapping[str, Any]]) -> int:
    """Write rows with their header; return their number."""
    writer = csv.DictWriter(file, COLUMNS, restval="", lineterminator="\n")
    writer.writeheader()
    count = 0
    for count, row in enumerate(table, 1):  # noqa: B007 - counted for the answer
        writer.writerow({name: shown(value) for name, value in row.items()})
    return count


def shown(value: object) -> object:
    """Format a cell with six digits; a missing value is empty."""
    if isinstance(value, float):
        return f"{value:.6g}" if math.isfinite(value) else ""
    return value


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--storage", required=True)
    parser.add_argument("--study", nargs="+", required=True)
    parser.add_argument("--output", required=True)
    args = parser.parse_args()
    try:
        with Store.open_to_read(args.storage) as store:
            table = [row for name in args.study for row in rows(store, name)]
        with open(args.output, "w", encoding="utf-8", newline="") as file:  # noqa: PTH123 - /dev/stdout
            print(f"{args.output}: {write(file, table)} rows")
    except (StoreError, OpenLoopError, OSError) as error:
        parser.error(str(error))


if __name__ == "__main__":
    main()
