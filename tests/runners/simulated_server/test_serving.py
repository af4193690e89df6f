"""Cache, aborts, concurrency, switching and noise of a serving process."""

import json
import re
import threading
import time
from concurrent.futures import ThreadPoolExecutor

import pytest
import yaml

from runners.plugin.protocol import token_of
from runners.simulated_server.engine import tokens
from runners.simulated_server.engine.profile import Noise, NoiseSource

pytestmark = pytest.mark.slow

MARK = "mark"
TOKEN = token_of(MARK)


@pytest.fixture(scope="module")
def slow(start):
    """Slow enough to be caught at work."""
    return start("--max-running-requests", "2", "--enable-metrics", scale=2.0).wait_ready()


def busy(served):
    page = served.client.get("/metrics").text
    return [
        float(line.rsplit(" ", 1)[1])
        for line in page.splitlines()
        if line.startswith(("sglang:num_running_reqs{", "sglang:num_queue_reqs{"))
    ]


def wait_until(condition):
    deadline = time.monotonic() + 60
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.01)


def test_prefix_cache_and_flush(start, recorded):
    served = start().wait_ready()
    first, again = (served.generate("the same prompt").json()["meta_info"] for _ in range(2))
    assert first["cached_tokens"] == 0
    assert again["cached_tokens"] == first["prompt_tokens"] - 1
    flushed = served.client.post("/flush_cache")
    assert (flushed.status_code, flushed.text) == (200, recorded("standalone_flush_cache.txt"))
    assert served.generate("the same prompt").json()["meta_info"]["cached_tokens"] == 0
    assert served.client.get("/flush_cache").status_code == 200


def test_no_prefix_cache(start):
    served = start("--disable-radix-cache").wait_ready()
    cached = [served.generate("again").json()["meta_info"]["cached_tokens"] for _ in range(2)]
    assert cached == [0, 0]


def test_flush_is_refused_while_busy_and_aborts_end_requests(slow, recorded):
    with ThreadPoolExecutor(4) as pool:
        waiting = [pool.submit(slow.generate, f"long {i}", 4000, rid=f"r{i}") for i in range(3)]
        wait_until(lambda: busy(slow) == [2.0, 1.0])  # max-running-requests is respected
        refused = slow.client.post("/flush_cache")
        assert (refused.status_code, refused.text) == (400, recorded("flush_while_busy.txt"))
        assert slow.client.post("/abort_request", json={"rid": "r1"}).status_code == 200
        theirs = json.loads(recorded("abort_inflight.json"))["meta_info"]
        ours = waiting[1].result(60).json()["meta_info"]
        assert ours["finish_reason"] == theirs["finish_reason"]
        assert slow.client.post("/abort_request", json={"abort_all": True}).status_code == 200
        for reply in waiting:
            assert reply.result(60).json()["meta_info"]["finish_reason"]["type"] == "abort"
    wait_until(lambda: busy(slow) == [0.0, 0.0])


def test_a_client_that_leaves_frees_the_server(slow):
    body = {"text": "bye", "stream": True, "sampling_params": {"max_new_tokens": 4000}}
    with slow.client.stream("POST", "/generate", json=body) as reply:
        next(reply.iter_raw())
    wait_until(lambda: busy(slow) == [0.0, 0.0])


@pytest.fixture(scope="module")
def switchable(start, speculation):
    env = {"TUNER_SWITCHABLE_STEPS": "1,2,5", "TUNER_LAUNCH": MARK}
    return start(*speculation(5), "--enable-metrics", env=env).wait_ready()


def switch(served, *, token=TOKEN, **server_args):
    server_args |= {} if token is None else {"tuner_token": token}
    reply = served.client.post("/set_internal_state", json={"server_args": server_args})
    assert reply.status_code == 200
    return reply.json()


def test_switching_the_steps(switchable):
    switchable.generate("at five", 64)
    assert switch(switchable, speculative_num_steps=2) == [True]
    info = switchable.client.get("/server_info").json()
    for where in (info, *info["internal_states"]):
        assert where["speculative_num_steps"] == 2
        assert where["speculative_num_draft_tokens"] == 3
    meta = switchable.generate("at two", 64).json()["meta_info"]
    assert len(meta["spec_correct_drafts_histogram"]) <= 3
    # As in SGLang, the rate still counts with the start-up width.
    assert meta["spec_num_proposed_drafts"] == 5 * meta["spec_verify_ct"]
    assert switch(switchable, speculative_num_steps=5) == [True]


def test_switching_is_refused(switchable, start, speculation):
    assert switch(switchable, speculative_num_steps=3) == [False]
    assert switch(switchable, speculative_eagle_topk=1) == [False]
    served = start(*speculation(5)).wait_ready()
    assert switch(served, token=None, speculative_num_steps=1) == [False]
    assert "Updating speculative_num_steps is not supported." in served.log


def test_switching_is_refused_while_busy(start, speculation):
    env = {"TUNER_SWITCHABLE_STEPS": "1,2", "TUNER_LAUNCH": MARK}
    served = start(*speculation(2), "--enable-metrics", env=env, scale=2.0).wait_ready()
    worker = threading.Thread(target=served.generate, args=("long", 4000))
    worker.start()
    # A health check also makes it busy, but not for long, and not with so many tokens.
    used = re.compile(r"^sglang:num_used_tokens\{.*\} (.*)$", re.MULTILINE)
    wait_until(lambda: float(used.search(served.client.get("/metrics").text)[1]) > 1000)
    assert switch(served, speculative_num_steps=1) == [False]
    served.client.post("/abort_request", json={"abort_all": True})
    worker.join(60)
    assert not worker.is_alive()


def test_a_prompt_has_its_own_speed(start, kimi, tmp_path):
    loud = dict(kimi, noise={"launch": 0.0, "block": 0.0, "prompt": 0.2})
    loud["startup"] = dict.fromkeys(kimi["startup"], 0.0)
    path = tmp_path / "loud.yaml"
    path.write_text(yaml.safe_dump(loud))
    source = NoiseSource(Noise(prompt=0.2), 7, "any")
    prompts = [f"prompt {i:02}" for i in range(40)]
    factor = {p: source.prompt(tokens.fingerprint(tokens.tokenize(p))) for p in prompts}
    quick, slow = min(prompts, key=factor.get), max(prompts, key=factor.get)
    assert factor[slow] > 1.6 * factor[quick]
    served = start(profile=path, scale=4.0, env={"TUNER_SIM_SEED": "7"}).wait_ready()
    latency = {
        prompt: min(served.generate(prompt).json()["meta_info"]["e2e_latency"] for _ in range(3))
        for prompt in (quick, slow)
    }
    assert latency[slow] > 1.2 * latency[quick]
