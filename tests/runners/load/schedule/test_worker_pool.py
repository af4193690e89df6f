"""A load that is shared by several processes."""

from __future__ import annotations

import asyncio
import errno
import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import psutil
import pytest

from runners.base import RunnerError
from runners.load.generator import LoadGenerator
from runners.load.prompts.prompts import BuiltInPrompts
from runners.load.schedule import worker_pool
from runners.load.schedule.arrivals import poisson
from runners.load.schedule.worker import INDEX_BYTES, next_index
from runners.load.schedule.worker_pool import processes_for
from search_spaces.configuration import Speculation
from search_spaces.workload import OperatingPoint, Workload

pytestmark = pytest.mark.slow

NONE = Speculation()
PATIENCE_S = 60.0


def load_of(point, **more):
    settings = {"output_tokens": 8, "warmup_requests": 0, "requests": 6, **more}
    return Workload(prompts=(("chat", 1.0),), points=(point,), **settings)


def generator(server, point, *, processes=2, options=None, **more):
    load = load_of(point, **more)
    prompts = BuiltInPrompts(load.prompts)
    return LoadGenerator(server.url, load, prompts, processes=processes, **(options or {}))


def until(condition, what):
    deadline = time.monotonic() + PATIENCE_S
    while not condition():
        assert time.monotonic() < deadline, what
        time.sleep(0.02)


def endless(answer):
    """A stream that goes on until nobody listens, which only a writer notices."""
    return answer(4000, wait_s=0.02)


def workers(parent=None):
    """Worker processes of this test, or of another process."""
    found = []
    for child in psutil.Process(parent).children():
        try:
            if "runners.load.schedule.worker" in child.cmdline():
                found.append(child)
        except psutil.NoSuchProcess:
            pass
    return found


def test_prompts_are_dealt_in_order_and_none_twice(server, answer):
    server.generate = lambda _n, _b: answer(8, wait_s=0.01)
    point = OperatingPoint(4, requests=17)
    measurement = generator(server, point, processes=3).measure(point, speculation=NONE)
    assert (measurement.requests, measurement.failed_requests) == (17, 0)
    assert server.most_in_flight == 4
    selected = BuiltInPrompts((("chat", 1.0),)).select(17 + 4, 0)
    assert [sample.prompt for sample in measurement.samples] == [p.id for p in selected[:17]]
    texts = [body["text"] for body in server.bodies("/generate")]
    assert sorted(texts) == sorted(p.text for p in selected)


def test_it_agrees_with_one_process(server, answer):
    server.generate = lambda _n, _b: answer(8, wait_s=0.02)
    point = OperatingPoint(2, requests=8)
    one = generator(server, point, processes=1).measure(point, speculation=NONE)
    two = generator(server, point, processes=2).measure(point, speculation=NONE)
    assert one.workload_fingerprint == two.workload_fingerprint
    assert [s.prompt for s in one.samples] == [s.prompt for s in two.samples]
    assert [s.chunks for s in two.samples] == [8] * 8
    assert 0 < two.output_tokens <= 64
    assert 0 < two.client_cpu_share < 1.2
    assert abs(two.started_at - time.time()) < PATIENCE_S


def test_an_open_loop_is_dealt_out_too(server, answer):
    point = OperatingPoint(request_rate=50.0, requests=10)
    measurement = generator(server, point, processes=2).measure(point, speculation=NONE)
    assert measurement.requests == 10
    # One process may be late where another is not, but each request is sent when it is due.
    due = [sample.sent_s - sample.late_s for sample in measurement.samples]
    assert [time - due[0] for time in due] == pytest.approx(poisson(50.0, 10, 0).times, abs=1e-6)
    assert all(0 <= sample.late_s < 5 for sample in measurement.samples)


def test_more_processes_than_lanes(server):
    point = OperatingPoint(1, requests=3)
    measurement = generator(server, point, processes=4).measure(point, speculation=NONE)
    assert measurement.requests == 3
    assert server.most_in_flight == 1


def test_no_worker_is_left(server):
    point = OperatingPoint(2)
    generator(server, point).measure(point, speculation=NONE)
    assert workers() == []


def test_a_machine_that_starts_no_more_processes_is_named(server, monkeypatch):
    start = asyncio.create_subprocess_exec
    started = []

    async def no_second(*argv, **how):
        if started:
            raise OSError(errno.EAGAIN, "Resource temporarily unavailable")
        started.append(await start(*argv, **how))
        return started[0]

    monkeypatch.setattr(asyncio, "create_subprocess_exec", no_second)
    point = OperatingPoint(2)
    with pytest.raises(RunnerError, match=r"could not be started .*unavailable") as caught:
        generator(server, point).measure(point, speculation=NONE)
    assert (caught.value.failure.kind, caught.value.failure.fault) == ("worker_lost", "client")
    assert workers() == []


def test_a_server_that_dies_is_told_by_whichever_process_sees_it(server, answer):
    server.generate = lambda n, _b: (200, [*answer(8)[1][:3], "drop"] if n == 5 else answer(8)[1])
    point = OperatingPoint(2, requests=8)
    with pytest.raises(RunnerError) as caught:
        generator(server, point).measure(point, speculation=NONE)
    assert caught.value.failure.kind == "server_gone"
    assert workers() == []
    assert server.paths()[-1] == "/abort_request"


def test_a_stall_is_found_over_all_processes(server, answer):
    server.generate = lambda _n, _b: (200, [*answer(8)[1][:3], "hang"])
    point = OperatingPoint(2, requests=8)
    with pytest.raises(RunnerError) as caught:
        generator(server, point, options={"stall_timeout_s": 1.0}).measure(point, speculation=NONE)
    assert (caught.value.failure.kind, caught.value.failure.fault) == ("stall", "configuration")
    assert workers() == []


def test_a_worker_that_is_killed(server, answer):
    server.generate = lambda _n, _b: endless(answer)
    point = OperatingPoint(2, requests=8)

    def kill():
        until(lambda: server.in_flight == 2, "the load did not begin")
        workers()[0].send_signal(signal.SIGKILL)

    thread = threading.Thread(target=kill)
    thread.start()
    with pytest.raises(RunnerError) as caught:
        generator(server, point).measure(point, speculation=NONE)
    thread.join()
    assert (caught.value.failure.kind, caught.value.failure.fault) == ("worker_lost", "client")
    assert workers() == []
    until(lambda: server.in_flight == 0, "a request was left")


def test_ctrl_c_ends_the_workers_and_aborts(server, answer):
    server.generate = lambda _n, _b: endless(answer)
    point = OperatingPoint(2, requests=8)

    def interrupt():
        until(lambda: server.in_flight == 2, "the load did not begin")
        os.kill(os.getpid(), signal.SIGINT)

    thread = threading.Thread(target=interrupt)
    thread.start()
    with pytest.raises(KeyboardInterrupt):
        generator(server, point).measure(point, speculation=NONE)
    thread.join()
    assert workers() == []
    assert {"rid": "", "abort_all": True} in server.bodies("/abort_request")
    until(lambda: server.in_flight == 0, "a request was left")


def test_workers_do_not_outlive_a_killed_parent(server, answer, tmp_path):
    server.generate = lambda _n, _b: endless(answer)
    script = tmp_path / "parent.py"
    script.write_text(
        "from runners.load.prompts.prompts import BuiltInPrompts\n"
        "from runners.load.generator import LoadGenerator\n"
        "from search_spaces.configuration import Speculation\n"
        "from search_spaces.workload import OperatingPoint, Workload\n"
        "point = OperatingPoint(2, requests=8)\n"
        "load = Workload((('chat', 1.0),), 8, (point,), warmup_requests=0)\n"
        "prompts = BuiltInPrompts(load.prompts)\n"
        f"generator = LoadGenerator({server.url!r}, load, prompts, processes=2)\n"
        "generator.measure(point, speculation=Speculation())\n"
    )
    root = str(Path(worker_pool.__file__).parents[2])
    parent = subprocess.Popen([sys.executable, str(script)], env=os.environ | {"PYTHONPATH": root})
    try:
        until(lambda: server.in_flight == 2, "the load did not begin")
        left = workers(parent.pid)
        assert len(left) == 2
    finally:
        parent.kill()
        parent.wait(PATIENCE_S)
    until(lambda: not any(process.is_running() for process in left), "a worker lives on")
    # Each has asked the server to forget its requests before it went.
    assert {"rid": "", "abort_all": True} in server.bodies("/abort_request")
    until(lambda: server.in_flight == 0, "a request was left")


def test_how_many_processes(monkeypatch):
    monkeypatch.setattr(os, "sched_getaffinity", lambda _pid: range(6), raising=False)
    assert processes_for(0.0) == 1
    assert processes_for(0.6) == 1
    assert processes_for(0.7) == 2
    assert processes_for(1.0) == 3
    assert processes_for(0.9, 4) == 6  # no more than cores
    assert processes_for(0.5, 4) == 4


def test_a_busy_warmup_brings_more_processes(server, answer, monkeypatch):
    asked = []
    monkeypatch.setattr(
        "runners.load.generator.processes_for",
        lambda share, processes=1: asked.append((share, processes)) or 2,
    )
    server.generate = lambda _n, _b: answer(8, wait_s=0.005)
    point = OperatingPoint(2)
    measurement = generator(server, point, processes=None, warmup_requests=1).measure(
        point, speculation=NONE
    )
    assert measurement.requests == 8
    (warm, before), (window, with_processes) = asked
    assert 0 < warm < 1.2
    assert before == 1
    assert window == measurement.client_cpu_share
    assert with_processes == 2


def test_the_queue_is_shared_without_a_lock(tmp_path):
    path = tmp_path / "queue"
    numbers = list(range(2000))
    path.write_bytes(b"".join(n.to_bytes(INDEX_BYTES) for n in numbers))
    queue = os.open(path, os.O_RDONLY)
    program = (
        "import sys; from runners.load.schedule.worker import next_index\n"
        "while (n := next_index(int(sys.argv[1]))) is not None: print(n)\n"
    )
    argv = [sys.executable, "-c", program, str(queue)]
    both = [
        subprocess.Popen(argv, pass_fds=(queue,), stdout=subprocess.PIPE, text=True)
        for _ in range(2)
    ]
    taken = [[int(line) for line in one.communicate(timeout=PATIENCE_S)[0].split()] for one in both]
    assert sorted(taken[0] + taken[1]) == numbers
    assert all(part == sorted(part) for part in taken)
    assert next_index(queue) is None
    os.close(queue)
