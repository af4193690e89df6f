"""The same load with answers in one piece: what streaming costs, load generator included.

The client then has next to nothing to do while an answer is made. The server is spared work too
(it detokenizes and sends once per answer instead of once per forward), so the difference to a
streamed block is the most that the load generator can have taken.
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
    """Reads an answer that is one JSON object; its tokens are there once its end is."""

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
    """`/generate` without a stream."""

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
    """A load generator that sends what the session's own does, and asks for whole answers."""
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
