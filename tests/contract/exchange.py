"""One HTTP exchange with a server, with the chunks of the answer."""

from __future__ import annotations

import json
import re
import socket
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

if TYPE_CHECKING:
    from threading import Event

_FEW_EVENTS = 3  # a verify has run by then
TIMEOUT_S = 240.0
"""Real seconds; the real server may share its CPU with other processes."""


@dataclass(frozen=True, slots=True)
class Exchange:
    """A request.

    Attributes:
        name: Name of the exchange.
        method: HTTP method.
        path: Path with the query.
        body: Body of the request; `None`: no body.
        headers: Headers in addition to the common ones.
    """

    name: str
    method: str
    path: str
    body: bytes | None = None
    headers: tuple[tuple[str, str], ...] = ()

    @classmethod
    def of(cls, entry: dict[str, Any]) -> Exchange:
        """Make the exchange of an entry of `exchanges_*.json`."""
        headers = dict(entry.get("headers", {}))
        body = None
        if "raw" in entry:
            body, headers = entry["raw"].encode(), {"content-type": "application/json"} | headers
        elif "json" in entry:
            body = json.dumps(entry["json"]).encode()
            headers["content-type"] = "application/json"
        return cls(entry["name"], entry["method"], entry["path"], body, tuple(headers.items()))


def post(name: str, path: str, body: dict[str, Any]) -> Exchange:
    """Make a request with a JSON body."""
    return Exchange.of({"name": name, "method": "POST", "path": path, "json": body})


def get(name: str, path: str) -> Exchange:
    """Make a request without a body."""
    return Exchange(name, "GET", path)


@dataclass(frozen=True, slots=True)
class Answer:
    """An answer.

    Attributes:
        status: HTTP status.
        headers: Headers with names in lower case.
        chunks: Chunks of HTTP's chunked encoding; one chunk for a body of known length.
    """

    status: int
    headers: dict[str, str]
    chunks: tuple[bytes, ...] = field(repr=False)

    @property
    def body(self) -> bytes:
        """The whole body."""
        return b"".join(self.chunks)

    @property
    def text(self) -> str:
        """The whole body as text."""
        return self.body.decode()

    @property
    def content_type(self) -> str | None:
        """The `content-type` header."""
        return self.headers.get("content-type")

    @property
    def is_stream(self) -> bool:
        """Whether the answer has server-sent events."""
        return (self.content_type or "").startswith("text/event-stream")

    def json(self) -> Any:
        """Return the decoded body."""
        return json.loads(self.body)

    def events(self) -> list[Any]:
        """Return the decoded events of a stream, without `[DONE]`."""
        parts = self.text.split("\n\n")
        if parts[-2:] != ["data: [DONE]", ""]:
            raise ValueError(f"the stream does not end with [DONE]: {parts[-2:]}")
        if strange := [part for part in parts[:-1] if not part.startswith("data: ")]:
            raise ValueError(f"not an event: {strange[0][:200]!r}")
        return [json.loads(part.removeprefix("data: ")) for part in parts[:-2]]

    @classmethod
    def recorded(cls, entry: dict[str, Any]) -> Answer:
        """Make the answer of an entry of `exchanges_*.json`, as one chunk."""
        headers = {"content-type": entry["content_type"], "allow": entry.get("allow")}
        kept = {name: value for name, value in headers.items() if value}
        return cls(entry["status"], kept, (entry["body"].encode(),))


def ask(
    url: str, exchange: Exchange, timeout_s: float = TIMEOUT_S, *, begun: Event | None = None
) -> Answer:
    """Send one request on a new connection; set `begun` after the first events of a stream."""
    place = urlsplit(url)
    body = exchange.body or b""
    headers = {"host": place.netloc, "connection": "close", "accept": "*/*"}
    headers |= dict(exchange.headers)
    if exchange.body is not None:
        headers["content-length"] = str(len(body))
    lines = [f"{exchange.method} {exchange.path} HTTP/1.1"]
    lines += [f"{name}: {value}" for name, value in headers.items()]
    with socket.create_connection((place.hostname, place.port), timeout_s) as sock:
        sock.sendall("\r\n".join([*lines, "", ""]).encode() + body)
        received = b""
        while piece := sock.recv(65536):
            received += piece
            if begun and not begun.is_set() and received.count(b"data: ") > _FEW_EVENTS:
                begun.set()
    return _parsed(received)


def _parsed(received: bytes) -> Answer:
    head, _, rest = received.partition(b"\r\n\r\n")
    first, *lines = head.decode("latin-1").split("\r\n")
    if not re.match(r"HTTP/1\.1 \d{3}", first):
        raise ConnectionError(f"no HTTP answer: {received[:200]!r}")
    pairs = (line.partition(": ") for line in lines)
    headers = {name.lower(): value for name, _, value in pairs}
    chunks = (rest,) if rest else ()
    if headers.get("transfer-encoding") == "chunked":
        chunks = tuple(_dechunked(rest))
    return Answer(int(first.split()[1]), headers, chunks)


def _dechunked(rest: bytes) -> list[bytes]:
    chunks = []
    while True:
        size, found, rest = rest.partition(b"\r\n")
        if not found:
            raise ConnectionError("the answer was cut off")
        length = int(size, 16)
        if not length:
            return chunks
        chunks.append(rest[:length])
        rest = rest[length + 2 :]
