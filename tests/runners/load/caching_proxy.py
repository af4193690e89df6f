"""A proxy between the load generator and its server that caches whole answers."""

from __future__ import annotations

import http.server
import json
import threading
from typing import Any, Self

import httpx


class CachingProxy:
    """Caches every answer of `/generate`.

    Args:
        upstream: URL of the server.
        by_prompt: Whether equal prompts are cache hits; otherwise only equal bodies are.
    """

    def __init__(self, upstream: str, *, by_prompt: bool) -> None:
        known: dict[str, bytes] = {}
        client = httpx.Client(base_url=upstream, timeout=60, trust_env=False)

        class Handler(http.server.BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"
            disable_nagle_algorithm = True

            def do_GET(self) -> None:
                self._plain(client.get(self.path))

            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["content-length"]))
                if self.path != "/generate":
                    self._plain(client.post(self.path, content=body))
                    return
                asked = json.loads(body)
                key = str(asked["text"]) if by_prompt else body.decode()
                self.send_response(200)
                self.send_header("transfer-encoding", "chunked")
                self.end_headers()
                if key in known:
                    self._chunk(known[key])
                else:
                    pieces = []
                    with client.stream("POST", self.path, content=body) as answer:
                        for piece in answer.iter_raw():
                            pieces.append(piece)
                            self._chunk(piece)
                    known[key] = b"".join(pieces)
                self._chunk(b"")

            def _chunk(self, piece: bytes) -> None:
                self.wfile.write(b"%x\r\n%b\r\n" % (len(piece), piece))

            def _plain(self, answer: httpx.Response) -> None:
                self.send_response(answer.status_code)
                self.send_header("content-length", str(len(answer.content)))
                self.end_headers()
                self.wfile.write(answer.content)

            def log_message(self, *_: Any) -> None:
                pass

        class Server(http.server.ThreadingHTTPServer):
            daemon_threads = True
            request_queue_size = 128

        self._client = client
        self._server = Server(("127.0.0.1", 0), Handler)
        self._thread = threading.Thread(target=self._server.serve_forever)
        self.url = f"http://127.0.0.1:{self._server.server_address[1]}"

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._thread.join(10)
        self._server.server_close()
        self._client.close()
