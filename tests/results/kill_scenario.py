"""One study's life as a list of writes, and a process that dies by SIGKILL in the middle of it.

    python kill_scenario.py FOLDER POINT=ADDRESS...

For each POINT a forked process plays the scenario on the database at ADDRESS, in which the study
has begun, and kills itself before the POINTth thing that SQLAlchemy sends (a statement or a commit,
ours or Optuna's). What was acknowledged before is counted in FOLDER/POINT.acknowledged, one byte
per write.
"""

from __future__ import annotations

import itertools
import os
import signal
import sys
import threading
from pathlib import Path
from typing import TYPE_CHECKING

from sqlalchemy import Engine, event

from results.optuna_mirror import MirrorParameter, MirrorTrial, OptunaMirror
from results.records import (
    Failure,
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

if TYPE_CHECKING:
    from collections.abc import Callable

    Write = Callable[[Store, OptunaMirror], object]

STEPS = (1, 2, 3, 4, 5)


def configuration(steps: int) -> Configuration:
    return Configuration.of(Speculation("EAGLE3", steps, 1, steps + 1))


def measurement(value: float) -> Measurement:
    samples = tuple(RequestSample(f"chat/{n}", 0.5 * n, 0.1, 2.0, 100, 256) for n in range(8))
    return Measurement(
        point=OperatingPoint(1),
        started_at=1.8e9,
        window_s=10.0,
        requests=8,
        failed_requests=0,
        output_tokens=2048,
        output_tok_s=value,
        accept_length=1.5,
        **dict.fromkeys(("ttft_p50_ms", "ttft_p95_ms", "tpot_p50_ms", "tpot_p95_ms"), 70.0),
        **dict.fromkeys(("e2e_p50_ms", "e2e_p95_ms"), 2000.0),
        prompt_tokens=800,
        cached_tokens=0,
        histogram=(5, 4),
        workload_fingerprint="f",
        simulated=True,
        samples=samples,
    )


def mirror_trials(store: Store) -> list[MirrorTrial]:
    return [
        MirrorTrial(
            trial.number,
            trial.state,
            (
                MirrorParameter(
                    "num_steps", STEPS, trial.configuration.speculation.num_steps, ordered=True
                ),
            ),
            value=trial.measurements[0].output_tok_s if trial.measurements else None,
            worst=0.0,
        )
        for trial in store.trials(1)
    ]


def sync(store: Store, mirror: OptunaMirror) -> object:
    return mirror.sync(mirror_trials(store))


def writes() -> list[Write]:
    """The study's life: three launches of two trials each, one of which cannot run."""
    out: list[Write] = []
    for launch, (first, second) in enumerate(((1, 2), (3, 4), (5, 1))):
        intent = LaunchIntent(configuration(first), (), f"mark-{launch}", "log")
        planned = [(configuration(first), Purpose.SEARCH), (configuration(second), Purpose.SEARCH)]
        out += [
            lambda s, _, i=intent, p=planned: s.add_launch(1, i, p),
            sync,
            lambda s, _, n=launch: s.set_process(
                1, n, ProcessIdentity(7, 1.5, f"mark-{n}", 3000, "box"), ("python",)
            ),
            lambda s, _, n=launch: s.launch_ready(1, n, 41.0, (("weights", 3.0),), "0.5.23"),
            lambda s, _, n=launch: s.add_measurement(
                1, 2 * n, n, measurement(90.0 + n), Purpose.SEARCH
            ),
            lambda s, _, n=launch, c=first: s.finish_trial(
                1, 2 * n, TrialState.COMPLETE, Resolved(configuration(c), "0.5.23")
            ),
            sync,
            lambda s, _, n=launch: s.finish_trial(
                1,
                2 * n + 1,
                TrialState.INFEASIBLE,
                failure=Failure("cuda_oom", "load", "configuration", "no memory"),
            ),
            sync,
            lambda s, _, n=launch: s.finish_launch(1, n, LaunchState.COMPLETE, 70.0),
            lambda s, _: s.add_work(1, 70.0),
        ]
    out.append(lambda s, _: s.stop_study(1, "exhausted", "every point is judged"))
    return out


def begin(store: Store) -> None:
    store.create_study(NewStudy("kimi", "text", "d", "s", "simulated", simulated=True))


def die_before(point: int, *, armed: threading.Event) -> None:
    counter = itertools.count()

    def count(*_: object) -> None:
        if armed.is_set() and next(counter) == point:
            os.kill(os.getpid(), signal.SIGKILL)

    for name in ("before_cursor_execute", "commit"):
        event.listen(Engine, name, count)


def play(folder: Path, point: int, address: str) -> None:
    armed = threading.Event()
    # Before there is an engine: those that exist do not hear of it.
    die_before(point, armed=armed)
    store = Store.open(address)
    mirror = OptunaMirror(store.url, "kimi")
    store.claim(1)
    armed.set()
    with (folder / f"{point}.acknowledged").open("wb", buffering=0) as acknowledged:
        for write in writes():
            write(store, mirror)
            acknowledged.write(b".")


def main() -> None:
    folder = Path(sys.argv[1])
    for argument in sys.argv[2:]:
        point, _, address = argument.partition("=")
        if not (pid := os.fork()):
            play(folder, int(point), address)
            os._exit(0)
        _, status = os.waitpid(pid, 0)
        killed = os.WTERMSIG(status) if os.WIFSIGNALED(status) else 0
        sys.stdout.write(f"{point} {killed}\n")
        sys.stdout.flush()


if __name__ == "__main__":
    main()
