"""Send prepared streams: one chunk per request and tick.

The server supports the parts of SGLang's and OpenAI's API that `tuner bench`,
`sglang.bench_serving` and guidellm use. It is one process with one thread and no framework, so it
needs little CPU time beside the clients.
"""

from __future__ import annotations

import collections
import functools
import json
import selectors
import socket
import sys
import time
from dataclasses import dataclass, field
from typing import Any

MODEL = "cannon"
TOKENS_PER_CHUNK = 2
_EVENT_STREAM = (
    b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream; charset=utf-8\r\n"
    b"transfer-encoding: chunked\r\n\r\n"
)
_END = b"0\r\n\r\n"


def counts(tokens: int) -> list[int]:
    """Return the tokens after each chunk: one from the prefill, then those of each verify."""
    return [1, *range(1 + TOKENS_PER_CHUNK, tokens, TOKENS_PER_CHUNK), tokens]


def chunks_of(tokens: int) -> int:
    """Return the number of chunks with tokens in one answer."""
    return len(counts(tokens))


def text(tokens: int) -> str:
    """Return text with four bytes per token and quotes to escape."""
    return 'tok "' * (tokens * 4 // 5)


def generate_events(tokens: int) -> list[dict[str, Any]]:
    """Return a cumulative stream, as `/generate` of SGLang 0.5.23 sends it."""
    return [
        {
            "text": text(count),
            "output_ids": [1000 + n % 30000 for n in range(count)],
            "meta_info": {
                "id": "54668d8026e146c89e030981f783b010",
                "finish_reason": {"type": "length", "length": tokens} if count == tokens else None,
                "prompt_tokens": 7,
                "weight_version": "default",
                "num_retractions": 0,
                "forward_entry_time": 1795978601.7862265,
                "prefill_finished_time": 1795978601.8043509,
                "queue_time": 0.0004014700000425364,
                "reasoning_tokens": 0,
                "completion_tokens": count,
                "cached_tokens": 0,
                "cached_tokens_details": None,
                "dp_rank": None,
            },
        }
        for count in counts(tokens)
    ]


def openai_events(tokens: int, *, chat: bool, usage_of: str) -> list[dict[str, Any]]:
    """Return a stream of deltas, with usage in all chunks, in a last chunk, or in none."""
    head = {
        "id": "18e2c10dd64c4381b9b687c17bc9fda7",
        "object": "chat.completion.chunk" if chat else "text_completion",
        "created": 1795978606,
        "model": MODEL,
    }
    events = []
    before = 0
    for count in counts(tokens):
        piece = text(count)[len(text(before)) :] or " "
        before = count
        choice = {
            "index": 0,
            **({"delta": {"role": "assistant", "content": piece}} if chat else {"text": piece}),
            "logprobs": None,
            "finish_reason": "length" if count == tokens else None,
            "matched_stop": None,
        }
        usage = {"prompt_tokens": 7, "completion_tokens": count, "total_tokens": count + 7}
        events.append({**head, "choices": [choice], "usage": usage if usage_of == "all" else None})
    if usage_of == "none":
        return events
    usage = {"prompt_tokens": 7, "completion_tokens": tokens, "total_tokens": tokens + 7}
    return [*events, {**head, "choices": [], "usage": usage}]


@functools.cache
def packets(path: str, tokens: int, usage_of: str) -> tuple[bytes, ...]:
    """Return the HTTP chunks of one answer."""
    if path == "/generate":
        events = generate_events(tokens)
    else:
        events = openai_events(tokens, chat="chat" in path, usage_of=usage_of)
    bodies = [b"data: " + json.dumps(e, separators=(",", ":")).encode() + b"\n\n" for e in events]
    bodies.append(b"data: [DONE]\n\n")
    return tuple(b"%x\r\n%s\r\n" % (len(body), body) for body in bodies)


_INFO = {"model_path": MODEL, "version": "0.5.23", "internal_states": [{}], "max_model_len": 8192}
_GET = {
    "/health": {},
    "/health_generate": {},
    "/v1/models": {
        "object": "list",
        "data": [{"id": MODEL, "object": "model", "created": 0, "owned_by": "x", "root": MODEL}],
    },
    "/get_model_info": {"model_path": MODEL, "is_generation": True},
    "/model_info": {"model_path": MODEL, "is_generation": True},
    "/server_info": _INFO,
    "/get_server_info": _INFO,
    "/flush_cache": {},
    "/abort_request": {},
}


@dataclass(eq=False, slots=True)
class Peer:
    """One connection with its received and unsent bytes."""

    sock: socket.socket
    came: bytes = b""
    out: bytes = b""
    queue: collections.deque[bytes] = field(default_factory=collections.deque)


class Cannon:
    """The server; `pace_s` is the time between two chunks of a stream, 0 for full speed."""

    def __init__(self, pace_s: float) -> None:
        self._pace_s = pace_s
        self._selector = selectors.DefaultSelector()
        self._listener = socket.create_server(("127.0.0.1", 0), backlog=1024)
        self._listener.settimeout(0)
        self._selector.register(self._listener, selectors.EVENT_READ)
        self._streaming: set[Peer] = set()
        self._chunks = 0
        self.port = self._listener.getsockname()[1]

    def run(self) -> None:
        tick = time.monotonic()
        while True:
            now = time.monotonic()
            wait = max(tick - now, 0) if self._streaming else None
            for key, events in self._selector.select(wait):
                if key.data is None:
                    self._accept()
                else:
                    self._serve(key.data, events)
            if self._streaming and time.monotonic() >= tick:
                tick = max(tick + self._pace_s, time.monotonic())
                for peer in tuple(self._streaming):
                    self._next(peer)

    def _accept(self) -> None:
        sock, _ = self._listener.accept()
        sock.settimeout(0)
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._selector.register(sock, selectors.EVENT_READ, Peer(sock))

    def _serve(self, peer: Peer, events: int) -> None:
        if events & selectors.EVENT_WRITE:
            self._send(peer, b"")
        if events & selectors.EVENT_READ:
            try:
                raw = peer.sock.recv(1 << 16)
            except ConnectionError:
                raw = b""
            if not raw:
                self._close(peer)
                return
            peer.came += raw
            self._request(peer)

    def _request(self, peer: Peer) -> None:
        head, found, rest = peer.came.partition(b"\r\n\r\n")
        if not found:
            return
        lines = head.decode("latin-1").split("\r\n")
        fields = dict(line.lower().split(": ", 1) for line in lines[1:])
        length = int(fields.get("content-length", 0))
        if len(rest) < length:
            return
        peer.came = rest[length:]
        path = lines[0].split()[1].split("?")[0]
        if path in {"/generate", "/v1/completions", "/v1/chat/completions"}:
            self._stream(peer, path, json.loads(rest[:length]))
            return
        known = path in _GET or path == "/sent"
        reply_body = {"chunks": self._chunks} if path == "/sent" else _GET.get(path, {})
        body = json.dumps(reply_body).encode()
        status = b"200 OK" if known else b"404 Not Found"
        reply = b"HTTP/1.1 %s\r\ncontent-type: application/json\r\ncontent-length: %d\r\n\r\n%s"
        self._send(peer, reply % (status, len(body), body))

    def _stream(self, peer: Peer, path: str, body: dict[str, Any]) -> None:
        sampling = body.get("sampling_params", {})
        tokens = sampling.get("max_new_tokens") or body.get("max_tokens")
        tokens = int(tokens or body.get("max_completion_tokens") or 16)
        options = body.get("stream_options") or {}
        if not body.get("stream"):
            event = (
                generate_events(tokens)[-1]
                if path == "/generate"
                else {"choices": [{"index": 0, "text": "x", "message": {"content": "x"}}]}
            )
            reply = json.dumps(event).encode()
            self._send(peer, b"HTTP/1.1 200 OK\r\ncontent-length: %d\r\n\r\n" % len(reply) + reply)
            return
        usage_of = "last" if options.get("include_usage") else "none"
        if options.get("continuous_usage_stats"):
            usage_of = "all"
        peer.queue.extend(packets(path, tokens, usage_of))
        self._send(peer, _EVENT_STREAM)
        self._streaming.add(peer)

    def _next(self, peer: Peer) -> None:
        if peer.out:
            return  # the client does not keep up
        self._chunks += 1
        packet = peer.queue.popleft()
        if len(peer.queue) == 1:
            packet += peer.queue.popleft() + _END  # [DONE] comes with the last chunk
        if not peer.queue:
            self._streaming.discard(peer)
        self._send(peer, packet)

    def _send(self, peer: Peer, data: bytes) -> None:
        waited = bool(peer.out)
        peer.out += data
        try:
            sent = peer.sock.send(peer.out)
        except BlockingIOError:
            sent = 0
        except ConnectionError:
            self._close(peer)
            return
        peer.out = peer.out[sent:]
        if bool(peer.out) != waited:
            events = selectors.EVENT_READ | (selectors.EVENT_WRITE if peer.out else 0)
            self._selector.modify(peer.sock, events, peer)

    def _close(self, peer: Peer) -> None:
        self._streaming.discard(peer)
        self._selector.unregister(peer.sock)
        peer.sock.close()


if __name__ == "__main__":
    cannon = Cannon(float(sys.argv[1]))
    print(cannon.port, flush=True)
    cannon.run()
