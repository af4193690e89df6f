"""An independent client with its own clock and definitions, on `http.client` and threads.

It shares no code with the load generator, so that a figure on which both agree is the server's.
"""

from __future__ import annotations

import bisect
import contextlib
import http.client
import itertools
import json
import random
import re
import statistics
import threading
import time
from dataclasses import dataclass, field
from urllib.parse import urlsplit

PROMPT_TOKENS = 128
BEGINNINGS = ("together", "evenly", "random")


@dataclass
class Seen:
    """One request; times in seconds of the clock."""

    sent: float
    reads: list[tuple[float, bytes]] = field(default_factory=list)
    arrivals: list[tuple[float, int]] = field(default_factory=list)  # (time, tokens so far)

    @property
    def ttft(self):
        return self.arrivals[0][0] - self.sent

    @property
    def tpot(self):
        (first, one), (last, all_) = self.arrivals[0], self.arrivals[-1]
        return (last - first) / (all_ - one)


@dataclass(frozen=True)
class Verdict:
    """Tokens per second, and medians in milliseconds, of a steady load; in the server's time."""

    tok_s: float
    ttft_ms: float
    tpot_ms: float


def judge(url, users, requests_each, *, mean=128, scale=1.0, begin="together", life_s=1.0, seed=0):
    """Loads a server with `users` that each send one request after the other.

    Args:
        begin: Whether users begin together, evenly spread over `life_s`, or at random in it.
        life_s: About what a request takes, in real seconds.
    """
    rng = random.Random(seed)
    waits = {
        "together": [0.0] * users,
        "evenly": [life_s * user / users for user in range(users)],
        "random": [life_s * rng.random() for _ in range(users)],
    }[begin]
    bodies = [
        [_body(rng, rng.randint(mean // 2, mean + mean // 2)) for _ in range(requests_each)]
        for _ in range(users)
    ]
    seen = [[] for _ in range(users)]
    with contextlib.closing(_connect(url)) as connection:
        _post(connection, "/flush_cache", b"").read()
    start = time.monotonic() + 0.2
    threads = [
        threading.Thread(target=_user, args=(url, start + wait, mine, notes), daemon=True)
        for wait, mine, notes in zip(waits, bodies, seen, strict=True)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(120)
    assert all(len(notes) == requests_each for notes in seen)
    for one in itertools.chain.from_iterable(seen):
        one.arrivals = _arrivals(one.reads)
    # Three answers of each user bring the load up; it goes on until the first user has no more.
    begun = max(notes[3].sent for notes in seen)
    ended = min(notes[-1].arrivals[-1][0] for notes in seen)
    assert ended > begun, "more requests_each"
    tokens = sum(
        now - before
        for notes in seen
        for one in notes
        for (_, before), (at, now) in zip([(0.0, 0), *one.arrivals], one.arrivals, strict=False)
        if begun < at <= ended
    )
    # Until here also the longest answers end in time.
    longest = max(one.arrivals[-1][0] - one.sent for notes in seen for one in notes)
    steady = [o for notes in seen for o in notes if begun <= o.sent <= ended - longest]
    return Verdict(
        tokens / (ended - begun) / scale,
        1000 * scale * statistics.median(one.ttft for one in steady),
        1000 * scale * statistics.median(one.tpot for one in steady),
    )


def _body(rng, tokens):
    return json.dumps(
        {
            "input_ids": [rng.randrange(1000, 100_000) for _ in range(PROMPT_TOKENS)],
            "sampling_params": {"max_new_tokens": tokens, "temperature": 0, "ignore_eos": True},
            "stream": True,
        }
    ).encode()


def _connect(url):
    return http.client.HTTPConnection(urlsplit(url).netloc, timeout=60)


def _post(connection, path, body):
    connection.request("POST", path, body, {"Content-Type": "application/json"})
    response = connection.getresponse()
    assert response.status == 200, response.read()
    return response


def _arrivals(reads):
    """Times and token counts of the events that the reads hold; an event is there at its end."""
    text = b"".join(data for _, data in reads)
    ends = list(itertools.accumulate(len(data) for _, data in reads))
    arrivals = []
    for event in re.finditer(rb'data: \{.*?"completion_tokens":(\d+).*\n', text):
        now, _ = reads[bisect.bisect_left(ends, event.end())]
        arrivals.append((now, int(event[1])))
    return arrivals


def _user(url, begin, bodies, notes):
    connection = _connect(url)
    connection.connect()
    time.sleep(max(0.0, begin - time.monotonic()))
    for body in bodies:
        one = Seen(time.monotonic())
        response = _post(connection, "/generate", body)
        # Read as it comes and decoded when the load is over: `http.client` takes so long to read
        # a chunk that 64 threads send their next requests late.
        while not one.reads or not one.reads[-1][1].endswith(b"0\r\n\r\n"):
            data = response.fp.read1()
            one.reads.append((time.monotonic(), data))
            assert data, "the server closed the connection"
        response.close()
        notes.append(one)
    connection.close()
