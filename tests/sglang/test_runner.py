"""The SGLang runner against the real thing: three launches, as short as they can be."""

from __future__ import annotations

import json
import os
import signal
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import psutil
import pytest

from runners import RunnerError, differences
from runners.conformance import marked_pids
from runners.ports import is_free
from runners.sglang import SGLangRunner
from search_spaces.configuration import Configuration, Speculation

pytestmark = [pytest.mark.sglang, pytest.mark.timeout(600)]

PLAIN = Configuration()
SPECULATIVE = Configuration.of(Speculation("STANDALONE", 3, 1, 4), draft_tp=1)


def test_plain_start_measure_and_stop_with_proof(tiny, tmp_path, intent):
    runner = SGLangRunner(tiny, seed=0, log_dir=tmp_path)
    assert runner.check() is None
    processes, phases = [], []
    wanted = intent(PLAIN)
    session = runner.start(
        wanted, lambda process, _: processes.append(process), lambda p: phases.append(p.phase)
    )
    with session:
        # Renamed by SGLang (`sglang::scheduler`), and still known by the mark in their environment.
        marked = {psutil.Process(pid).name() for pid in marked_pids(wanted.mark)}
        assert {"sglang::scheduler", "sglang::detokenizer"} <= marked
        assert not is_free(processes[0].port)
        assert phases[:4] == ["arguments", "distributed", "weights", "kv_cache"]
        assert session.resolved.configuration == PLAIN
        assert session.resolved.sglang_version == "0.5.23"
        assert not session.resolved.simulated
        assert sum(seconds for _, seconds in session.phases) == pytest.approx(session.ready_s)
        measurement = session.measure(tiny.workload.to_workload().points[0])
        assert measurement.invalid == ()
        assert measurement.accept_length is None
        assert measurement.output_tokens == 6 * 32
        # The client's clock: one request after the other fills the window.
        assert measurement.output_tok_s == measurement.output_tokens / measurement.window_s
        spent = sum(sample.e2e_s for sample in measurement.samples)
        assert spent == pytest.approx(measurement.window_s, rel=0.1)
    assert marked_pids(wanted.mark) == []
    assert is_free(processes[0].port)
    log = Path(wanted.log).read_text()
    assert "crashed" not in log, "it was asked to end, not shot"


def test_speculation_with_a_draft_of_partial_acceptance(tiny, tmp_path, intent):
    runner = SGLangRunner(tiny, seed=0, log_dir=tmp_path)
    processes = []
    wanted = intent(SPECULATIVE)
    with runner.start(wanted, lambda process, _: processes.append(process)) as session:
        assert differences(SPECULATIVE, session.resolved.configuration) == ()
        assert session.resolved.configuration == SPECULATIVE
        measurement = session.measure(tiny.workload.to_workload().points[0])
        assert measurement.invalid == ()
        verify_calls = sum(sample.verify_calls for sample in measurement.samples)
        correct_drafts = sum(sample.correct_drafts for sample in measurement.samples)
        assert measurement.accept_length == 1 + correct_drafts / verify_calls
        assert 1 < measurement.accept_length < 4, "partial acceptance"
        assert sum(measurement.histogram) == verify_calls
        assert sum(k * n for k, n in enumerate(measurement.histogram)) == correct_drafts
        assert measurement.output_tok_s == measurement.output_tokens / measurement.window_s
        # The tuner's server is killed: what is left of it must be found without its leader.
        os.kill(processes[0].pid, signal.SIGKILL)
        deadline = time.monotonic() + 10
        while psutil.pid_exists(processes[0].pid) and time.monotonic() < deadline:
            if psutil.Process(processes[0].pid).status() == psutil.STATUS_ZOMBIE:
                break
            time.sleep(0.05)
        runner.end_leftover(processes[0])
        assert marked_pids(wanted.mark) == []


class _Impostor(BaseHTTPRequestHandler):
    """Says yes to everything."""

    def _answer(self) -> None:
        body = json.dumps(
            {
                "model_path": "x",
                "is_generation": True,
                "text": "yes",
                "meta_info": {"completion_tokens": 8},
            }
        ).encode()
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def do_GET(self) -> None:
        self._answer()

    def do_POST(self) -> None:
        self.rfile.read(int(self.headers.get("Content-Length") or 0))
        self._answer()

    def log_message(self, *_: object) -> None:
        pass


def test_a_taken_port_is_the_hosts_fault_whatever_the_log_says(tiny, tmp_path, intent, monkeypatch):
    """SGLang 0.5.23 binds last, and calls itself ready when its warm-up reached the other one."""
    impostor = ThreadingHTTPServer(("127.0.0.1", 0), _Impostor)
    thread = threading.Thread(target=impostor.serve_forever)
    thread.start()
    try:
        port = impostor.server_address[1]
        monkeypatch.setattr("runners.process_runner.free_port_block", lambda: port)
        wanted = intent(PLAIN)
        with pytest.raises(RunnerError) as caught:
            SGLangRunner(tiny, seed=0, log_dir=tmp_path).start(wanted, lambda *_: None)
    finally:
        impostor.shutdown()
        thread.join()
        impostor.server_close()
    failure = caught.value.failure
    assert (failure.kind, failure.fault) == ("port_taken", "host")
    assert marked_pids(wanted.mark) == []
    assert "fired up and ready to roll" in Path(wanted.log).read_text()


@pytest.mark.sglang_long
def test_an_unknown_flag_is_the_studys_fault(tiny, tmp_path, intent):
    flags = tiny.server.flags | {"speculative-eagle-topkk": 2}
    server = tiny.server.model_copy(update={"flags": flags})
    runner = SGLangRunner(tiny.model_copy(update={"server": server}), seed=0, log_dir=tmp_path)
    with pytest.raises(RunnerError) as caught:
        runner.start(intent(PLAIN), lambda *_: None)
    failure = caught.value.failure
    assert (failure.kind, failure.phase, failure.fault) == ("unknown_flag", "arguments", "study")
