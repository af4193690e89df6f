"""Load generator and simulated server against what the profile implies, at concurrency 1 to 256.

The expectation is a small discrete-event walk of the simulated machine's rules, written here from
its documentation; nothing of the server's own model is imported. The rules:

* A forward runs for the whole batch. Prefill goes before decoding and takes all that wait:
  `base + token * uncached tokens`; it yields one token each.
* A cycle drafts, verifies and extends: `steps * step + extend + verify.base + verify.per_token *
  width + batch.token * width * (batch - 1) + rest`.
* A prompt is cut into tokens of four characters; its own number in [0, 1) comes from their
  hashes. A verify call n of it has as many correct drafts as there are chances above
  `(number + n * stride) mod 1`; the last bit of the number's 32 chooses one of two strides.
* A client of a closed loop answers at once: its next request is in the next prefill.
"""

from __future__ import annotations

import contextlib
import hashlib
import itertools
import os
import signal
import socket
import struct
import subprocess
import sys
import time
from dataclasses import dataclass

import httpx
import pytest
import yaml

from runners.load.generator import LoadGenerator
from runners.load.prompts.prompts import Prompt, PromptSource
from search_spaces.configuration import Speculation
from search_spaces.workload import OperatingPoint, Workload

STEPS = 3
PROFILE = {
    "name": "agreement",
    "decode_ms": 60.0,
    "verify": {"base_ms": 60.0, "per_token_ms": 2.5},
    "draft": {"step_ms": {1: 2.0}, "extend_ms": 5.0},
    "rest_ms": 3.0,
    "batch": {"token_ms": 0.05},
    "acceptance": {"at_least": [0.6, 0.35, 0.2]},
    "prefill": {"token_ms": 0.05},
    "startup": dict.fromkeys(
        [
            *("imports_s", "distributed_s", "load_weight_s", "load_draft_s", "kv_cache_s"),
            *("cuda_graph_s", "draft_cuda_graph_s", "switchable_step_s", "warmup_s"),
        ],
        0.0,
    ),
}
FLAGS = (
    *("--model-path", "target", "--speculative-algorithm", "EAGLE3"),
    *("--speculative-draft-model-path", "draft", "--speculative-num-steps", str(STEPS)),
    *("--speculative-eagle-topk", "1", "--speculative-num-draft-tokens", str(STEPS + 1)),
    # Nothing is cut or kept waiting: 256 prompts fit one prefill.
    *("--max-running-requests", "512"),
    *("--chunked-prefill-size", "65536", "--max-prefill-tokens", "65536"),
)
SPECULATION = Speculation("EAGLE3", STEPS, 1, STEPS + 1)
STRIDES = (0.7320508075688772, 0.6180339887498949)
TOLERANCE = 0.01
SLOWER = (1, 2, 4)
"""How much slower the simulated time runs in each attempt. What a busy machine's transport costs in
real time is then so much less of the simulated: the figures must agree once it can keep up. (Not on
a machine that takes the memory of what sleeps: a client that needs over 50 ms to wake up after a
long forward misses the next one. So this is no part of `make test`.)"""


class NumberedPrompts(PromptSource):
    """As many prompts as wanted, of different lengths, none beginning like another."""

    def select(self, count, seed):
        return tuple(
            Prompt(f"numbered/{n:04d}", f"{n:04d}{9999 - n}" + "abcd" * (20 + n * 7 % 41))
            for n in range(count)
        )


# --- What the profile implies ----------------------------------------------------------------


def digest(data):
    return int.from_bytes(hashlib.blake2b(data, digest_size=8).digest())


def tokens_of(text):
    pieces = [text[i : i + 4].encode() for i in range(0, len(text), 4)]
    return [digest(piece) % 160_000 for piece in pieces]


def number_of(tokens):
    packed = struct.pack(f"={len(tokens)}q", *tokens)
    name = hashlib.blake2b(packed, digest_size=16).hexdigest()
    return (digest(b"offset" + name.encode()) & 0xFFFFFFFF) / 2**32


@dataclass
class Walked:
    sent: float
    prompt_tokens: int
    number: float
    first: float = 0.0
    last: float = 0.0
    tokens: int = 0
    verify_calls: int = 0
    correct: int = 0


def cycle_ms(batch):
    width = STEPS + 1
    drafting = STEPS * PROFILE["draft"]["step_ms"][1] + PROFILE["draft"]["extend_ms"]
    verify = PROFILE["verify"]["base_ms"] + PROFILE["verify"]["per_token_ms"] * width
    return drafting + verify + PROFILE["batch"]["token_ms"] * width * (batch - 1) + 3.0


def walk(prompts, concurrency, output_tokens, prefill_ms):
    """A closed loop whose lanes all begin at 0: its requests in the order of sending, when each
    forward ended (ms) and how many tokens it brought, and when a lane first found no more work.
    """
    made = []
    for prompt in prompts:
        tokens = tokens_of(prompt.text)
        made.append(Walked(0.0, len(tokens), number_of(tokens)))
    waiting, later = made[:concurrency], made[concurrency:]
    running, brought, now = [], [], 0.0
    idle = None
    while waiting or running:
        if waiting:
            uncached = sum(request.prompt_tokens for request in waiting)
            now += prefill_ms + PROFILE["prefill"]["token_ms"] * uncached
            for request in waiting:
                request.first, request.tokens = now, 1
            running += waiting
            brought.append((now, len(waiting)))
            waiting = []
        else:
            now += cycle_ms(len(running))
            count = 0
            for request in running:
                u = (
                    request.number + request.verify_calls * STRIDES[int(request.number * 2**32) % 2]
                ) % 1.0
                correct = sum(p > u for p in PROFILE["acceptance"]["at_least"])
                request.verify_calls += 1
                request.correct += correct
                count += min(correct + 1, output_tokens - request.tokens)
                request.tokens = min(request.tokens + correct + 1, output_tokens)
                request.last = now
            brought.append((now, count))
        for _ in [request for request in running if request.tokens >= output_tokens]:
            if later:
                later[0].sent = now
                waiting.append(later.pop(0))
            elif idle is None:
                idle = now
        running = [request for request in running if request.tokens < output_tokens]
    return made, brought, idle


def percentile_50(values):
    ordered = sorted(values)
    middle = len(ordered) // 2
    return ordered[middle] if len(ordered) % 2 else sum(ordered[middle - 1 : middle + 1]) / 2


def implied(prompts, concurrency, output_tokens, prefill_ms):
    """The figures, of the window from the first requests to the first idle lane."""
    made, brought, closed = walk(prompts, concurrency, output_tokens, prefill_ms)
    tokens = sum(count for at, count in brought if at <= closed)
    # Requests that began in the window, up to the first that was still on its way at its end. By
    # their order, not by their times: successors of lanes that end together are sent one after the
    # other, at one instant of the walk.
    inside = [request for request in made if request.sent <= closed]
    whole = list(itertools.takewhile(lambda request: request.last <= closed, inside))
    return {
        "output_tok_s": 1000 * tokens / closed,
        "ttft_p50_ms": percentile_50([r.first - r.sent for r in whole]),
        "tpot_p50_ms": percentile_50([(r.last - r.first) / (r.tokens - 1) for r in whole]),
        "accept_length": 1 + sum(r.correct for r in made) / sum(r.verify_calls for r in made),
    }


# --- What is measured ------------------------------------------------------------------------


@contextlib.contextmanager
def simulated_server(folder, time_scale, prefill_ms):
    profile = folder / "profile.yaml"
    prefill = {"base_ms": prefill_ms, **PROFILE["prefill"]}
    profile.write_text(yaml.safe_dump(PROFILE | {"prefill": prefill}))
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    env = {k: v for k, v in os.environ.items() if not k.startswith("TUNER_")}
    env |= {
        "TUNER_SIM_TIME_SCALE": str(time_scale),
        "TUNER_SIM_PROFILE": str(profile),
        "PYTHONPATH": os.pathsep.join(sys.path),
    }
    argv = [sys.executable, "-m", "runners.simulated_server", "--port", str(port), *FLAGS]
    log = folder / "log"
    with log.open("wb") as out:
        process = subprocess.Popen(
            argv, env=env, stdout=out, stderr=subprocess.STDOUT, start_new_session=True
        )
    url = f"http://127.0.0.1:{port}"
    try:
        deadline = time.monotonic() + 120
        while True:
            assert process.poll() is None, log.read_text()
            assert time.monotonic() < deadline, log.read_text()
            with contextlib.suppress(httpx.TransportError):
                if httpx.get(url + "/health", timeout=60, trust_env=False).is_success:
                    break
            time.sleep(0.05)
        yield url
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait(30)


@dataclass(frozen=True)
class Case:
    """A closed loop; its prefill is long beside what so many requests that come at once cost a
    client and a server in Python."""

    concurrency: int
    requests: int
    output_tokens: int
    time_scale: float
    prefill_ms: float


CASES = (
    Case(1, 4, 32, 1.5, 3000.0),
    Case(8, 24, 12, 1.0, 3000.0),
    Case(64, 192, 12, 0.5, 1500.0),
    Case(256, 768, 12, 0.25, 3000.0),
)


@pytest.mark.alone
@pytest.mark.timeout(900)
@pytest.mark.parametrize("case", CASES, ids=lambda case: str(case.concurrency))
def test_figures_are_what_the_profile_implies(tmp_path, case):
    concurrency, requests = case.concurrency, case.requests
    point = OperatingPoint(concurrency, requests=requests)
    # Without a ramp all lanes begin at once with whole answers: no arrival can fall on either side
    # of a forward's end, and the walk is exact for every single request.
    load = Workload((("numbered", 1.0),), case.output_tokens, (point,), warmup_requests=0)
    prompts = NumberedPrompts()
    seen = []
    for slower in SLOWER:
        scale = case.time_scale / slower
        with simulated_server(tmp_path, scale, case.prefill_ms) as url:
            generator = LoadGenerator(
                url, load, prompts, time_scale=scale, simulated=True, burst=True
            )
            measurement = generator.measure(point, speculation=SPECULATION)
        sent = prompts.select(requests, 0)
        expected = implied(sent, concurrency, case.output_tokens, case.prefill_ms)
        got = {name: getattr(measurement, name) for name in expected}
        off = {name: got[name] / expected[name] - 1 for name in expected}
        seen.append({name: f"{share:+.2%}" for name, share in off.items()})
        assert (measurement.requests, measurement.failed_requests) == (requests, 0)
        # The counts do not depend on how busy this machine is.
        assert abs(off["accept_length"]) < TOLERANCE
        print(f"concurrency {concurrency}, {scale:g} of life's speed: {seen[-1]}")  # noqa: T201
        if all(abs(share) < TOLERANCE for share in off.values()):
            return
    pytest.fail(f"concurrency {concurrency}, off at every speed: {seen}")
