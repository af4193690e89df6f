"""Flushes, aborts, slow readers and noise of a serving process."""

import json
import re
import socket
import threading
import time
from concurrent.futures import ThreadPoolExecutor

import pytest
import yaml

from runners.simulated_server.engine import tokens
from runners.simulated_server.engine.profile import Noise, NoiseSource

pytestmark = pytest.mark.slow

LONG = 4000


@pytest.fixture(scope="module")
def slow(start, speculation):
    """A server whose long answers take a minute."""
    return start(*speculation(3), "--enable-metrics", scale=1.0).wait_ready()


def gauge(served, name):
    page = served.client.get("/metrics").text
    (value,) = re.findall(rf"^sglang:{name}\{{.*\}} (.*)$", page, re.MULTILINE)
    return float(value)


def wait_until(condition):
    deadline = time.monotonic() + 60
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.01)


def wait_running(served, count):
    # A health check uses fewer tokens.
    wait_until(lambda: gauge(served, "num_used_tokens") > 3000 * count)


def parts(text):
    assert text.endswith("data: [DONE]\n\n")
    return [json.loads(part[6:]) for part in text.split("\n\n") if part and "[DONE]" not in part]


CHAT = {
    "model": "m",
    "messages": [{"role": "user", "content": "Tell me all."}],
    "max_tokens": LONG,
    "ignore_eos": True,
}
COMPLETION = {"model": "m", "prompt": "All of it: ", "max_tokens": LONG, "ignore_eos": True}
GENERATE = {"text": "All", "sampling_params": {"max_new_tokens": LONG, "ignore_eos": True}}
USAGE = {"stream": True, "stream_options": {"include_usage": True}}


def answer(served, path, body, begun):
    """Return the whole body; set `begun` at its first piece."""
    with served.client.stream("POST", path, json=body) as reply:
        pieces = []
        for piece in reply.iter_bytes():
            begun.set()
            pieces.append(piece)
    return b"".join(pieces).decode()


def test_aborted_answers(slow, recorded):
    asked = {
        "abort_generate": ("/generate", {**GENERATE, "rid": "r1"}),
        "abort_generate_stream": ("/generate", {**GENERATE, "rid": "r2", "stream": True}),
        "abort_completions": ("/v1/completions", COMPLETION),
        "abort_completions_stream": ("/v1/completions", {**COMPLETION, **USAGE}),
        "abort_chat": ("/v1/chat/completions", CHAT),
        "abort_chat_stream": ("/v1/chat/completions", {**CHAT, **USAGE}),
    }
    begun = {name: threading.Event() for name in asked}
    with ThreadPoolExecutor(len(asked)) as pool:
        waiting = {
            name: pool.submit(answer, slow, path, body, begun[name])
            for name, (path, body) in asked.items()
        }
        wait_running(slow, len(asked))
        # A stream that is aborted in its prefill has only one event.
        assert all(begun[name].wait(60) for name in asked if name.endswith("stream"))
        assert slow.client.post("/abort_request", json={"rid": "r"}).status_code == 200
        assert slow.client.post("/abort_request", json={}).status_code == 200
        assert gauge(slow, "num_running_reqs") == len(
            asked
        )  # neither "r" nor an empty id names a request
        assert slow.client.post("/abort_request", json={"rid": "r1"}).status_code == 200
        first = json.loads(waiting["abort_generate"].result(60))["meta_info"]
        assert first["finish_reason"]["type"] == "abort"
        assert gauge(slow, "num_running_reqs") >= len(asked) - 1
        assert slow.client.post("/abort_request", json={"abort_all": True}).status_code == 200
        texts = {name: reply.result(60) for name, reply in waiting.items()}
    real = {entry["name"]: entry for entry in json.loads(recorded("exchanges_standalone.json"))}
    for name, text in texts.items():
        if name.endswith("stream"):
            ours, theirs = parts(text)[-2:], parts(real[name]["body"])[-2:]
        else:
            ours, theirs = [json.loads(text)], [json.loads(real[name]["body"])]
        for our, their in zip(ours, theirs, strict=True):
            assert list(our) == list(their)
            for choice, wanted in zip(
                our.get("choices", []), their.get("choices", []), strict=True
            ):
                assert list(choice) == list(wanted)
                assert choice["finish_reason"] == wanted["finish_reason"]
    wait_until(lambda: gauge(slow, "num_running_reqs") == 0)
    page = slow.client.get("/metrics").text
    (counted,) = (line for line in page.splitlines() if line.startswith("sglang:num_aborted"))
    assert float(counted.rsplit(" ", 1)[1]) == len(asked)


def test_a_flush_waits_for_its_timeout(slow, recorded):
    slow.client.get("/health")  # no health check must run later
    wait_until(lambda: gauge(slow, "num_running_reqs") == 0)
    worker = threading.Thread(
        target=slow.client.post, args=("/generate",), kwargs={"json": GENERATE}
    )
    worker.start()
    wait_running(slow, 1)
    refused = slow.client.post("/flush_cache")
    assert (refused.status_code, refused.text) == (400, recorded("flush_while_busy.txt"))
    refused = slow.client.post("/flush_cache?timeout=0.05")
    assert (refused.status_code, refused.text) == (400, "Timed out waiting for idle state.")
    with ThreadPoolExecutor(1) as pool:
        flushed = pool.submit(slow.client.post, "/flush_cache?timeout=50")
        slow.client.post("/abort_request", json={"abort_all": True})
        assert flushed.result(60).status_code == 200
    worker.join(60)


def test_a_duplicate_id_is_refused(slow):
    body = {**GENERATE, "rid": "once"}
    with ThreadPoolExecutor(1) as pool:
        running = pool.submit(slow.client.post, "/generate", json=body)
        wait_running(slow, 1)
        again = slow.client.post("/generate", json=body)
        assert again.status_code == 400
        assert again.json() == {"error": {"message": "Duplicate request ID detected: once"}}
        slow.client.post("/abort_request", json={"rid": "once"})
        assert running.result(60).status_code == 200


def raw_request(served, body, version):
    data = json.dumps(body).encode()
    head = (
        f"POST /generate HTTP/{version}\r\nHost: x\r\nContent-Type: application/json\r\n"
        f"Content-Length: {len(data)}\r\nConnection: close\r\n\r\n"
    )
    return head.encode() + data


def test_a_slow_reader_gets_the_latest_state(start):
    """The server buffers little for a slow reader, and the answer is complete."""
    served = start("--enable-metrics", scale=5000.0).wait_ready()
    tokens = 4000  # cumulative: 100 MB in total with an event per token
    body = {
        "text": "long",
        "stream": True,
        "sampling_params": {"max_new_tokens": tokens, "ignore_eos": True},
    }
    with socket.create_connection(("127.0.0.1", served.port)) as sock:
        sock.sendall(raw_request(served, body, "1.0"))
        finished = re.compile(r'sglang:num_requests_total{.*is_streaming="true"')
        wait_until(lambda: finished.search(served.client.get("/metrics").text))
        received = b""
        while piece := sock.recv(1 << 20):
            received += piece
    found = parts(received.partition(b"\r\n\r\n")[2].decode())
    assert len(found[-1]["output_ids"]) == tokens
    assert len(found) < tokens / 2


def test_http_1_0_streams_have_no_chunks(slow):
    body = {**GENERATE, "stream": True, "sampling_params": {"max_new_tokens": 40}}
    with socket.create_connection(("127.0.0.1", slow.port)) as sock:
        sock.sendall(raw_request(slow, body, "1.0"))
        received = b""
        while piece := sock.recv(1 << 16):
            received += piece
    head, _, text = received.partition(b"\r\n\r\n")
    assert b"transfer-encoding" not in head.lower()
    assert parts(text.decode())[-1]["meta_info"]["completion_tokens"] == 40


def test_prefix_cache_and_flush(start, recorded):
    served = start().wait_ready()
    first, again = (served.generate("the same prompt").json()["meta_info"] for _ in range(2))
    assert first["cached_tokens"] == 0
    assert again["cached_tokens"] == first["prompt_tokens"] - 1
    flushed = served.client.post("/flush_cache")
    assert (flushed.status_code, flushed.text) == (200, recorded("standalone_flush_cache.txt"))
    assert served.generate("the same prompt").json()["meta_info"]["cached_tokens"] == 0
    assert served.client.get("/flush_cache").status_code == 200


def test_a_disconnect_aborts_the_request(slow):
    body = {"text": "bye", "stream": True, "sampling_params": {"max_new_tokens": 4000}}
    with slow.client.stream("POST", "/generate", json=body) as reply:
        next(reply.iter_raw())
    wait_until(lambda: gauge(slow, "num_running_reqs") == 0)


def test_noise_of_prompts(start, kimi, tmp_path):
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
