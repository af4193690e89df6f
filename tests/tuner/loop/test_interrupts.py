"""Ctrl-C at every line of the loop, on the replay runner: nothing torn, lost or repeated."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

import tuner.loop.interrupts
import tuner.loop.judging
import tuner.loop.launching
import tuner.loop.sweep
from results.records import LaunchState, TrialState
from results.store import Store
from runners.replay.runner import ReplayRunner
from runners.replay.table import ReplayEntry, ReplayRow, table_of
from search_spaces.space.baselines import baselines
from search_spaces.space.space import Space
from tuner.loop.interrupts import Interrupts
from tuner.loop.progress import Silent
from tuner.studies import assembly

from ...examples import TIMES

pytestmark = pytest.mark.slow

TRACED = {
    m.__file__
    for m in (tuner.loop.interrupts, tuner.loop.judging, tuner.loop.launching, tuner.loop.sweep)
}


class Watched(ReplayRunner):
    """Knows its open sessions."""

    def __init__(self, study) -> None:
        points = {*Space(study).points, *baselines(study).values()}
        rows = {1: (ReplayRow(90.0),)}
        super().__init__(table_of((p, ReplayEntry(1.0, rows)) for p in points), study)
        self.open: dict[str, object] = {}

    def start(self, intent, on_process, on_progress=None):
        self.open[intent.mark] = intent
        session = super().start(intent, on_process, on_progress)
        close = session.close

        def closing():
            close()
            self.open.pop(intent.mark, None)

        session.close = closing
        return session

    def end_leftover(self, process):
        return () if self.open.pop(process.mark, None) is None else (1,)


def loop_of(study, store, runner, shielded):
    problem = assembly.build_problem(study, runner, hot_switch=False)
    options = {"seed": 0, "planner": "exhaustive", "hot_switch": False}
    if not store.studies():
        new = assembly.describe_new(problem, runner, name="s", launches=None, hours=None, **options)
        store.create_study(new)
    loop, _ = assembly.make_sweep(
        problem, store.study("s"), store, runner, Silent(), mirror=None, shielded=shielded
    )
    return loop


def run_interrupted(loop, at: tuple[str, ...] | None) -> dict[tuple[str, ...], None]:
    """Runs it with a SIGINT at one line; returns all lines, with the lines that called them."""
    seen: dict[tuple[str, ...], None] = {}

    def trace(frame, event, _argument):
        if at in seen:
            sys.settrace(None)  # it has happened: on at full speed
            return None
        if frame.f_code.co_filename not in TRACED:
            return None
        if event == "line":
            stack = []
            caller = frame
            while caller is not None and caller.f_code is not run_interrupted.__code__:
                if caller.f_code.co_filename in TRACED:
                    stack.append(f"{Path(caller.f_code.co_filename).name}:{caller.f_lineno}")
                caller = caller.f_back
            key = tuple(stack)
            if key == at and key not in seen:
                os.kill(os.getpid(), signal.SIGINT)
            seen[key] = None
        return trace

    before = sys.gettrace()
    sys.settrace(trace)
    try:
        loop.run()
    finally:
        sys.settrace(before)
    return seen


def test_an_interrupt_at_any_line_leaves_nothing_behind(small, capfd):
    # The budget allows the two baselines.
    study = small(steps="[1]", protos="[null]", launches=2)
    with Store.open("sqlite://") as store, Interrupts(lambda: None) as interrupts:
        runner = Watched(study)
        lines = run_interrupted(loop_of(study, store, runner, interrupts.shielded), None)
        assert {t.state for t in store.trials(1)} == {TrialState.COMPLETE}
    assert len(lines) > 100
    # Every third line, or every line with TUNER_TESTS_EXAMPLES above 1.
    for at in list(lines)[:: 1 if TIMES > 1 else 3]:
        runner = Watched(study)
        with Store.open("sqlite://") as store, Interrupts(lambda: None) as interrupts:
            loop = loop_of(study, store, runner, interrupts.shielded)
            try:
                run_interrupted(loop, at)
            except KeyboardInterrupt:
                # Only where the loop has its answer already, and is about to store it.
                pass
            else:
                assert store.study("s").stopped == "interrupted", at
                assert not store.unfinished(1).launches, at
            assert not runner.open, at
            before = [t for t in store.trials(1) if t.state is TrialState.COMPLETE]
            for launch in store.unfinished(1).launches:  # as `tuner resume` does
                store.finish_launch(1, launch.id, LaunchState.LOST)
            loop_of(study, store, runner, interrupts.shielded).run()
            after = store.trials(1)
            assert after[: len(before)] == tuple(before), at
            # A trial judged in the launch that was lost is kept, and costs the budget nothing.
            free = any(
                x.is_lost and after[n].launches[-1] == x.id
                for x in store.launches(1)
                for n in x.trials
            )
            assert [t.number for t in after] == list(range(3 if free else 2)), at
            assert {t.state for t in after} == {TrialState.COMPLETE}, at
            assert len({t.configuration.key for t in after}) == len(after), at
            assert store.launches_spent(1) == 2, at
            assert store.study("s").stopped == ("exhausted" if free else "budget"), at
    assert "press Ctrl-C again to end at once" in capfd.readouterr().err


def test_a_signal_in_a_shielded_section_waits_for_its_end(capfd):
    done = []
    with pytest.raises(KeyboardInterrupt), Interrupts(lambda: None) as interrupts:  # noqa: PT012
        with interrupts.shielded():
            with interrupts.shielded():
                os.kill(os.getpid(), signal.SIGTERM)
                done.append("inner")
            done.append("outer")
        done.append("after")
    assert done == ["inner", "outer"]
    assert "stopping the server" in capfd.readouterr().err


CHILD = """
import os, signal, sys
from tuner.loop.interrupts import Interrupts
def second():
    print("second", flush=True)
    raise RuntimeError("it went wrong")
with Interrupts(second):
    try:
        print("ready", flush=True)
        signal.pause()
    except KeyboardInterrupt:
        print("first", flush=True)
    if "twice" in sys.argv:
        os.kill(os.getpid(), signal.SIGINT)
print("end", flush=True)
"""


def child(*arguments: str, prefix: tuple[str, ...] = ()) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [*prefix, sys.executable, "-c", CHILD, *arguments],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        cwd=Path(__file__).parents[3],
    )


def test_the_second_signal_leaves_at_once_even_if_its_clean_up_fails():
    process = child("twice")
    assert process.stdout.readline() == "ready\n"
    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=30)
    assert process.returncode == 130
    assert out.split() == ["first", "second"]
    assert "ended at once" in err
    assert "Traceback" not in err


def test_a_closed_terminal_is_an_interrupt():
    process = child()
    assert process.stdout.readline() == "ready\n"
    process.send_signal(signal.SIGHUP)
    out, _ = process.communicate(timeout=30)
    assert out.split() == ["first", "end"]


def test_a_hang_up_that_the_caller_ignores_stays_ignored():
    process = child(prefix=("sh", "-c", 'trap "" HUP; exec "$@"', "sh"))
    assert process.stdout.readline() == "ready\n"
    process.send_signal(signal.SIGHUP)
    process.send_signal(signal.SIGTERM)
    out, err = process.communicate(timeout=30)
    assert out.split() == ["first", "end"]
    assert err.count("stopping the server") == 1


DROPPED = """
import os, signal, sys, time
from tuner.loop.interrupts import Interrupts, repeat_dropped

class Destroyed:
    def __del__(self):
        os.kill(os.getpid(), signal.SIGINT)
        for _ in range(100):  # the handler runs between two instructions of this one
            pass

with repeat_dropped():
    try:
        if "before" in sys.argv:
            Destroyed()
        with Interrupts(lambda: print("second")):
            if "before" not in sys.argv:
                Destroyed()
            time.sleep(10)
        print("end")
    except KeyboardInterrupt:
        print("interrupted")
"""


@pytest.mark.parametrize("moment", ["before", "in"])
def test_an_interrupt_that_python_drops_is_not_lost(moment):
    """Python drops what a destructor raises."""
    command = [sys.executable, "-c", DROPPED, moment]
    folder = Path(__file__).parents[3]
    done = subprocess.run(
        command, capture_output=True, text=True, timeout=30, cwd=folder, check=False
    )
    assert done.stdout == "interrupted\n"
    assert "Traceback" not in done.stderr
