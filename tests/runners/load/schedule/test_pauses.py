"""A client that is stopped or starved: how much its window can be off, and that it is noticed."""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from runners.load.schedule.pauses import BEAT_S, ClientPauses, Pause
from runners.load.window.measurement import reasons_against, warnings_about

from ..windows import PLAIN, Load

pytestmark = pytest.mark.slow

WINDOW_S = 20.0


def resumed(now, on_s, off_s):
    """When a process that is stopped for `off_s` after every `on_s` notices what happens `now`."""
    into = now % (on_s + off_s)
    return now if into < on_s else now + on_s + off_s - into


def beats(on_s, off_s):
    """The late beats of such a process."""
    draw, now, found = random.Random(7), 0.0, []
    while now < WINDOW_S:
        due = now + BEAT_S * draw.uniform(0.5, 1.5)
        now = resumed(due, on_s, off_s)
        if now - due > 0.0015:
            found.append(Pause(due, now, 0.0))
    return ClientPauses.of([ClientPauses(tuple(found))], 0.0, 0.0, WINDOW_S)


def lost_share(on_s, off_s, request_s):
    """What lanes of such a client really lose on average, at requests of about `request_s`."""
    draw, now, served = random.Random(3), 0.0, 0.0
    while now < 20 * WINDOW_S:
        this_s = request_s * draw.uniform(0.8, 1.2)
        now = resumed(now + this_s, on_s, off_s)
        served += this_s
    return 1 - served / now


DUTY_CYCLES = [
    (0.005, 0.005), (0.02, 0.005), (0.02, 0.02), (0.2, 0.02), (0.1, 0.05), (0.9, 0.1),
    (0.3, 0.3), (0.4, 0.6), (1.3, 1.0), (5.0, 0.4),
]  # fmt: skip


@pytest.mark.parametrize(("on_s", "off_s"), DUTY_CYCLES)
@pytest.mark.parametrize("request_s", [0.11, 0.47, 1.9])
def test_the_estimate_covers_what_is_lost(on_s, off_s, request_s):
    pauses = beats(on_s, off_s)
    lost = lost_share(on_s, off_s, request_s)
    assert pauses.lost_share(request_s) >= 0.7 * lost
    assert pauses.paused_share() == pytest.approx(off_s / (on_s + off_s), abs=0.2)


@pytest.mark.parametrize(("on_s", "off_s"), DUTY_CYCLES)
def test_a_stopped_client_is_not_believed(on_s, off_s):
    load = Load(PLAIN, more={"client_pauses": beats(on_s, off_s)})
    for request in load.requests:
        request.first = 0.01
    evidence = load.evidence()
    found = [reason.split(":")[0] for reason in reasons_against(evidence)]
    warned = [reason.split(":")[0] for reason in warnings_about(evidence)]
    # Short stops leave tok/s as it is, and make latencies longer.
    assert found == ["client_paused"] or (off_s <= 0.02 and "client_delayed" in warned)


@pytest.mark.parametrize("late_s", [0.002, 0.01])
def test_a_few_late_beats_are_no_reason(late_s):
    late = [Pause(float(at), at + late_s, 0.0) for at in range(0, 20, 5)]
    pauses = ClientPauses.of([ClientPauses(tuple(late))], 0.0, 0.0, WINDOW_S)
    assert reasons_against(Load(PLAIN, more={"client_pauses": pauses}).evidence()) == ()


def test_pauses_outside_ramp_and_window_do_not_count():
    late = (Pause(1.0, 3.0, 0.0), Pause(9.0, 15.0, 0.0), Pause(20.0, 21.0, 0.0))
    pauses = ClientPauses.of([ClientPauses(late)], 2.0, 4.0, 10.0)
    assert [(pause.due, pause.ran) for pause in pauses.pauses] == [(2.0, 3.0), (9.0, 10.0)]
    assert pauses.seconds == 6.0


def test_processes_share_a_window():
    late = ClientPauses((Pause(1.0, 2.0, 0.0),))
    both = ClientPauses.of([late, ClientPauses()], 0.0, 0.0, 10.0)
    assert both.paused_share() == pytest.approx(
        ClientPauses.of([late], 0, 0, 10).paused_share() / 2
    )


@pytest.mark.parametrize(
    ("pauses", "cause"),
    [
        (ClientPauses((Pause(0, 1, 0.0),)), "stopped"),
        (ClientPauses((Pause(0, 1, 0.0),), queued_s=0.8), "other processes"),
        (ClientPauses((Pause(0, 1, 0.0),), throttled_s=0.8), "CPU limit"),
        (ClientPauses((Pause(0, 1, 0.9),), queued_s=0.1), "itself was busy"),
    ],
)
def test_the_cause_is_named(pauses, cause):
    assert cause in pauses.cause()


def children_of(pid):
    return [int(child) for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]


@pytest.mark.skipif(not Path("/proc/self/task").exists(), reason="reads Linux's /proc")
@pytest.mark.parametrize("processes", [1, 2])
def test_a_stopped_process_is_noticed(server, answer, processes):
    server.server_info = {"version": "0.5.23", "model_path": "target"}
    server.generate = lambda _n, _body: answer(41, wait_s=0.005)
    argv = [
        *(sys.executable, "-m", "tuner", "bench", "--url", server.url, "--json"),
        *("--requests", "16", "--concurrency", "2", "--output-tokens", "41"),
        *("--processes", str(processes)),
    ]
    with subprocess.Popen(argv, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL) as bench:
        try:
            deadline = time.monotonic() + 60
            while "/flush_cache" not in server.paths() or server.paths()[-1] == "/flush_cache":
                assert time.monotonic() < deadline
                time.sleep(0.01)
            time.sleep(0.5)
            pids = children_of(bench.pid) if processes > 1 else [bench.pid]
            for _ in range(3):
                os.kill(pids[0], signal.SIGSTOP)
                time.sleep(0.2)
                os.kill(pids[0], signal.SIGCONT)
                time.sleep(0.1)
            out = bench.communicate(timeout=60)[0]
        finally:
            bench.kill()
    invalid = json.loads(out)["invalid"]
    assert "client_paused" in {reason.split(":")[0] for reason in invalid}


def test_a_stop_in_the_ramp_moves_no_latency_of_the_window():
    late = ClientPauses((Pause(0.5, 3.5, 0.0), Pause(5.0, 5.1, 0.0)))
    pauses = ClientPauses.of([late], 0.0, 4.0, 6.0)
    assert pauses.paused_share() == pytest.approx(0.1 / 2.0, rel=0.5)
    assert pauses.lost_share(2.0) > 0.5
