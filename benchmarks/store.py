"""What the store costs: a study of 24 trials, one launch and one measurement each.

    python benchmarks/store.py

The in-memory store is the one that replays go through (hundreds of studies); the file is what a
sweep writes, where each of the writes is an fsync.
"""

from __future__ import annotations

import statistics
import tempfile
import time
from pathlib import Path

from results.records import (
    LaunchIntent,
    LaunchState,
    Measurement,
    ProcessIdentity,
    Purpose,
    RequestSample,
    Resolved,
    TrialState,
)
from results.store import Store
from results.studies import NewStudy
from search_spaces.configuration import Configuration, Speculation
from search_spaces.workload import OperatingPoint

TRIALS = 24
STUDIES = 20


def measurement(requests: int) -> Measurement:
    return Measurement(
        OperatingPoint(1),
        *(time.time(), 10.0, requests, 0, 900, 94.0, 1.526),
        *(60.0, 71.0, 10.0, 11.0, 2000.0, 2100.0),
        *(400, 0, (10, 5, 1), "f", True),
        samples=tuple(RequestSample(f"chat/{n}", n, 0.1, 2, 100, 256) for n in range(requests)),
    )


def write_study(store: Store, name: str, requests: int) -> int:
    study = store.create_study(NewStudy(name, "text", "d", "s", "replay", simulated=True))
    for n in range(TRIALS):
        configuration = Configuration.of(Speculation("EAGLE3", n + 1, 1, n + 2))
        launch = store.add_launch(
            study.id,
            LaunchIntent(configuration, (), f"{name}-{n}", "log"),
            [(configuration, Purpose.SEARCH)],
        )
        process = ProcessIdentity(1, 1.0, f"{name}-{n}", 30000)
        store.set_process(study.id, launch.id, process, ("python",))
        store.launch_ready(study.id, launch.id, 41.0, (("weights", 3.0),), "0.5.23")
        store.add_measurement(study.id, n, launch.id, measurement(requests), Purpose.SEARCH)
        store.finish_trial(study.id, n, TrialState.COMPLETE, Resolved(configuration, "0.5.23"))
        store.finish_launch(study.id, launch.id, LaunchState.COMPLETE, 70.0)
    store.stop_study(study.id, "exhausted", "every point is judged")
    return study.id


def report(title: str, address: str, requests: int) -> None:
    began = time.perf_counter()
    store = Store.open(address)
    opened = time.perf_counter() - began
    writing, reading = [], []
    for n in range(STUDIES):
        began = time.perf_counter()
        study_id = write_study(store, f"study-{n}", requests)
        writing.append(time.perf_counter() - began)
        began = time.perf_counter()
        assert len(store.trials(study_id)) == TRIALS
        reading.append(time.perf_counter() - began)
    store.close()
    print(
        f"{title:<34} open {opened * 1e3:6.1f} ms   "
        f"write a study {statistics.median(writing) * 1e3:6.1f} ms "
        f"(first {writing[0] * 1e3:.1f})   "
        f"read its trials {statistics.median(reading) * 1e3:5.1f} ms"
    )


def main() -> None:
    print(f"{TRIALS} trials a study, median of {STUDIES} studies")
    report("in memory", "sqlite://", 0)
    report("in memory, 16 requests a window", "sqlite://", 16)
    with tempfile.TemporaryDirectory() as folder:
        report("file", f"sqlite:///{Path(folder) / 'tuner.db'}", 0)
        report("file, 16 requests a window", f"sqlite:///{Path(folder) / 'tuner.db'}2", 16)


if __name__ == "__main__":
    main()
