"""Options of faults, as a client sees them."""

from __future__ import annotations

import json
import signal
from concurrent.futures import ThreadPoolExecutor

import httpx
import pytest
from pydantic import ValidationError

from runners.simulated_server.faults.misbehaviour import Misbehaviour
from runners.simulated_server.launch.startup import nccl_refusal

pytestmark = pytest.mark.slow


@pytest.fixture
def misbehaving(start):
    """Start a server with one fault."""

    def begin(*flags, scale=200.0, **how):
        env = {"TUNER_SIM_MISBEHAVE": json.dumps([how])}
        return start(*flags, scale=scale, env=env).wait_ready()

    return begin


def _together(served, count, tokens=400):
    with ThreadPoolExecutor(count) as pool:
        sent = [pool.submit(served.generate, f"Question {i}?", tokens) for i in range(count)]
    return [one.exception() for one in sent]


@pytest.mark.parametrize(
    ("option", "harmless", "deadly"),
    [({"concurrency": 3}, (1, 2), 3), ({"padded": True}, (1, 2), 3)],
    ids=str,
)
def test_a_crash_only_at_some_batch_sizes(misbehaving, option, harmless, deadly):
    served = misbehaving(kind="exit", phase="serving", cause="illegal_instruction", **option)
    for count in harmless:
        assert _together(served, count) == [None] * count
    assert served.process.poll() is None
    assert any(isinstance(e, httpx.TransportError) for e in _together(served, deadly, 60_000))
    assert served.exit_status() == -signal.SIGKILL
    assert "CUDA error: an illegal instruction was encountered" in served.log


def test_a_crash_only_at_a_prefix_hit(misbehaving):
    served = misbehaving(kind="exit", phase="serving", cause="nan_logits", prefix_hit=True)
    text = "Please tell me what this long beginning of a prompt has to do with the weather. " * 8
    assert served.generate(text + "First.").status_code == 200
    assert served.generate("Another beginning. " * 20).status_code == 200
    with pytest.raises(httpx.TransportError):
        served.generate(text + "Second.")
    assert served.exit_status() == -signal.SIGKILL
    assert "NaN in the logits" in served.log


def test_the_watchdog_ends_a_hang_after_its_time(misbehaving):
    served = misbehaving(
        *("--watchdog-timeout", "600"),
        scale=2000.0,
        kind="exit",
        phase="serving",
        cause="watchdog",
        health="ok",
    )
    with pytest.raises(httpx.ReadTimeout):
        served.client.post("/generate", json={"text": "x"}, timeout=0.1)
    assert served.client.get("/health").status_code == 200
    assert served.exit_status() == -signal.SIGKILL
    assert "Scheduler watchdog timeout (self.watchdog_timeout=600.0, self.soft=False)" in served.log


def test_a_dead_scheduler_behind_a_living_http_server(misbehaving):
    served = misbehaving("--enable-metrics", kind="dead_scheduler", after_requests=1)
    assert served.generate().status_code == 200
    with pytest.raises(httpx.ReadTimeout):
        served.client.post("/generate", json={"text": "x"}, timeout=0.2)
    for path in ("/server_info", "/flush_cache"):
        with pytest.raises(httpx.ReadTimeout):
            served.client.get(path, timeout=0.1)
    assert served.client.get("/metrics").status_code == 200
    assert served.client.get("/health").status_code == 503
    assert "couldn't get a response from detokenizer for last 20 seconds" in served.log


def test_garbage_is_one_repeated_token(misbehaving, speculation):
    served = misbehaving(*speculation(2), kind="garbage", after_requests=1)
    assert "!!!!" not in served.generate().json()["text"]
    reply = served.generate(tokens=40).json()
    assert reply["text"] == "!" * 40
    assert len(set(reply["output_ids"])) == 1
    assert reply["meta_info"]["spec_num_correct_drafts"] == 0
    assert reply["meta_info"]["spec_verify_ct"] == 39


def test_a_restarted_server_has_the_same_port(misbehaving):
    served = misbehaving(kind="restart", after_requests=1)
    before = served.client.get("/server_info").json()["startup_time"]
    assert served.generate().status_code == 200
    with pytest.raises(httpx.TransportError):
        served.generate()
    served.wait_ready()
    assert served.client.get("/server_info").json()["startup_time"] != before
    for _ in range(3):
        assert served.generate().status_code == 200
    assert "starting it again" in served.log
    served.process.send_signal(signal.SIGTERM)
    assert served.exit_status() == 0


@pytest.mark.parametrize(
    "wrong",
    [
        {"kind": "exit"},
        {"kind": "exit", "phase": "kv_cache", "cause": "nan_logits"},
        {"kind": "hang", "phase": "flush"},
        {"kind": "garbage", "phase": "serving"},
        {"kind": "hang", "phase": "serving", "cause": "killed"},
        {"kind": "http_500", "share": 0.0},
        {"kind": "jit", "often": True},
    ],
    ids=str,
)
def test_an_invalid_fault_is_refused(wrong):
    with pytest.raises(ValidationError):
        Misbehaviour.model_validate(wrong)


@pytest.mark.parametrize(
    ("environment", "refused"),
    [
        ({}, None),
        ({"NCCL_PROTO": "LL,LL128,Simple"}, None),
        ({"NCCL_PROTO": "^LL"}, None),
        ({"NCCL_PROTO": "FOO"}, "nccl_protocol"),
        ({"NCCL_ALGO": "CollnetDirect"}, "nccl_algorithm"),
        ({"NCCL_ALGO": "Tree"}, "nccl_capture"),
        ({"NCCL_ALGO": "allreduce:tree"}, None),
        ({"NCCL_ALGO": "Ring"}, None),
    ],
    ids=str,
)
def test_variables_that_nccl_refuses(environment, refused):
    assert nccl_refusal(2, environment) == refused
    assert nccl_refusal(1, environment) is None
