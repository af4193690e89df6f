"""Measure the cost of streaming, including the load generator: the same load without streams.

Without streams the client does little work while the server makes an answer. The server does less
work too: it detokenizes and sends once per answer, not once per forward. So the difference to a
streamed block is an upper bound of the load generator's cost.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import orjson

from runners.load.generator import LoadGenerator
from runners.load.http.endpoint import Endpoint, MalformedStreamError, StreamReader
from runners.load.http.generate import GenerateEndpoint, answer_of, completion_tokens

if TYPE_CHECKING:
    from runners.base import Session
    from runners.load.http.endpoint import Answer
    from runners.load.prompts.prompts import Prompt
    from runners.sglang.process_runner import ProcessRunner
    from search_spaces.workload import Workload


class WholeReader(StreamReader):
    """Read an answer that is one JSON object; its tokens are known at its end."""

    def __init__(self) -> None:
        self._pieces: list[bytes] = []

    def feed(self, raw: bytes) -> int | None:
        """See `StreamReader.feed`: `meta_info` comes last (0.5.9 to 0.5.23)."""
        self._pieces.append(raw)
        whole = b"".join(self._pieces)
        return completion_tokens(whole) if whole.rstrip().endswith(b"}") else None

    def answer(self) -> Answer:
        """See `StreamReader.answer`."""
        try:
            found = orjson.loads(b"".join(self._pieces))
        except orjson.JSONDecodeError as error:
            raise MalformedStreamError(f"the answer is not JSON: {error}") from error
        if not isinstance(found, dict):
            raise MalformedStreamError("the answer is not a JSON object")
        return answer_of(found)


class WholeEndpoint(Endpoint):
    """The endpoint `/generate` without streams."""

    name = "generate"
    path = "/generate"

    def body(self, prompt: Prompt, workload: Workload) -> bytes:
        """See `Endpoint.body`."""
        return orjson.dumps(
            {**orjson.loads(GenerateEndpoint().body(prompt, workload)), "stream": False}
        )

    def reader(self) -> WholeReader:
        """See `Endpoint.reader`."""
        return WholeReader()


def unstreamed(
    base_url: str, workload: Workload, runner: ProcessRunner, session: Session, *, seed: int
) -> LoadGenerator:
    """Make a load generator that sends the session's load without streams."""
    return LoadGenerator(
        base_url,
        workload,
        runner.prompts,
        runner.renderer(),
        seed=seed,
        time_scale=session.resolved.time_scale,
        simulated=session.resolved.simulated,
        endpoint=WholeEndpoint(),
    )
