"""SGLang's `/generate` endpoint: requests, and a stream reader with a small cost per chunk.

SGLang's chunks are cumulative: each repeats the whole text and all token ids so far. Decoding every
chunk would cost time quadratic in the answer's length, on the cores that feed the server. The
reader needs only the token count of a chunk, and finds it by a search from the chunk's end. Only
the last chunk is decoded. With `--incremental-streaming-output` each chunk has only new tokens;
then the reader keeps and decodes all chunks.
"""

from __future__ import annotations

import re
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import orjson

from runners.load.http.acceptance import acceptance_of
from runners.load.http.endpoint import (
    Answer,
    Endpoint,
    MalformedStreamError,
    StreamReader,
    count_of,
    counts_of,
    first_value,
)

if TYPE_CHECKING:
    from runners.load.prompts.prompts import Prompt
    from search_spaces.workload import Workload

_KEY = b'"completion_tokens":'
_NUMBER = re.compile(rb"\s*(\d{1,18})(?!\d)")
_DATA = b"data:"
_DONE = b"[DONE]"
# Newest first: 0.5.17 and 0.5.23, then 0.5.9. All are counts of one request.
_RETRACTIONS = ("num_retractions", "total_retractions")


def completion_tokens(chunk: bytes) -> int | None:
    r"""Return the cumulative `meta_info.completion_tokens` of a chunk without decoding it.

    Generated text cannot forge the count: a JSON string escapes its quotes (`\"`), so the key with
    both quotes and the colon is always a key. The last match is used, because `meta_info` follows
    `text` and `output_ids` (0.5.9 to 0.5.23).
    """
    at = chunk.rfind(_KEY)
    if at < 0:
        return None
    number = _NUMBER.match(chunk, at + len(_KEY))
    return int(number[1]) if number else None


class GenerateReader(StreamReader):
    """Read one `/generate` stream; see `StreamReader`."""

    __slots__ = ("_earlier", "_last", "_parts")

    def __init__(self) -> None:
        self._parts: list[bytes] = []
        self._last = b""
        self._earlier: list[bytes] | None = []
        """Earlier events of an incremental stream; `None` if the stream is cumulative."""

    def feed(self, raw: bytes) -> int | None:
        """See `StreamReader.feed`; the newest complete event counts."""
        if (
            raw.endswith(b"\n\n")
            and raw.startswith(_DATA)
            and raw.find(b"\n") == len(raw) - 2
            and not self._parts
        ):
            # Fast path: nearly every piece is one whole event, which needs no copy.
            if len(raw) < 32 and raw[len(_DATA) :].strip() == _DONE:
                return None
            self._keep(raw)
            return completion_tokens(raw)
        end = raw.rfind(b"\n")
        if end < 0:
            self._parts.append(raw)
            return None
        block = raw[:end]
        if self._parts:
            block = b"".join((*self._parts, block))
            self._parts.clear()
        if end + 1 < len(raw):
            self._parts.append(raw[end + 1 :])
        lines = [
            line
            for line in block.split(b"\n")
            if line.startswith(_DATA) and not (len(line) < 32 and line[5:].strip() == _DONE)
        ]
        if not lines:
            return None
        # A cumulative stream needs only its newest event. All events of a piece arrived together.
        for line in lines if self._earlier is not None else lines[-1:]:
            self._keep(line)
        return completion_tokens(lines[-1])

    def _keep(self, line: bytes) -> None:
        if self._earlier is not None and self._last:
            # The second event shows the kind of stream.
            if self._earlier or _is_increment(line):
                self._earlier.append(self._last)
            else:
                self._earlier = None
        self._last = line

    def answer(self) -> Answer:
        """See `StreamReader.answer`."""
        if not self._last:
            raise MalformedStreamError("the stream ended without a single event")
        answer = answer_of(decode_event(self._last[len(_DATA) :]))
        if not self._earlier:
            return answer
        events = [decode_event(line[len(_DATA) :]) for line in self._earlier]
        ids = [n for event in events for n in counts_of(event.get("output_ids"), "output_ids")]
        text = "".join(str(event.get("text") or "") for event in events)
        return replace(answer, output_ids=(*ids, *answer.output_ids), text=text + answer.text)


def decode_event(data: bytes) -> dict[str, Any]:
    """Decode the JSON object of one event.

    Raises:
        MalformedStreamError: The data is not a JSON object.
    """
    try:
        event = orjson.loads(data)
    except orjson.JSONDecodeError as error:
        raise MalformedStreamError(f"an event of the stream is not JSON: {error}") from error
    if not isinstance(event, dict):
        raise MalformedStreamError("an event of the stream is not a JSON object")
    return event


def _is_increment(line: bytes) -> bool:
    """Whether an event after the first one has fewer ids than there are tokens so far."""
    try:
        ids = decode_event(line[len(_DATA) :]).get("output_ids")
    except MalformedStreamError:
        return False
    return isinstance(ids, list) and len(ids) < (completion_tokens(line) or 0)


class GenerateEndpoint(Endpoint):
    """SGLang's own endpoint."""

    name = "generate"
    path = "/generate"

    def body(self, prompt: Prompt, workload: Workload) -> bytes:
        """See `Endpoint.body`."""
        body: dict[str, object] = {
            "sampling_params": {
                **dict(workload.sampling),
                "temperature": workload.temperature,
                "max_new_tokens": prompt.output_tokens or workload.output_tokens,
                "ignore_eos": not workload.natural_length,
            },
            "stream": True,
        }
        if prompt.input_ids is not None:
            body["input_ids"] = prompt.input_ids
        else:
            body["text"] = prompt.text
        return orjson.dumps(body)

    def reader(self) -> GenerateReader:
        """See `Endpoint.reader`."""
        return GenerateReader()


def answer_of(event: dict[str, Any]) -> Answer:
    """Read the report in a `/generate` answer, or in the last event of its stream.

    Raises:
        MalformedStreamError: A value that must be a count is not a count.
    """
    if (error := event.get("error")) is not None:
        message = error.get("message", error) if isinstance(error, dict) else error
        return Answer(error=str(message))
    meta = event.get("meta_info")
    if not isinstance(meta, dict):
        return Answer(error="the last event has no meta_info")
    reason = meta.get("finish_reason")
    problem = None
    if not isinstance(reason, dict):
        problem = "the stream ended before the answer was complete"
    elif reason.get("type") == "abort":
        problem = f"aborted by the server: {reason.get('message')}"
    retractions = first_value(meta, _RETRACTIONS)
    return Answer(
        completion_tokens=count_of(meta.get("completion_tokens"), "completion_tokens"),
        prompt_tokens=count_of(meta.get("prompt_tokens"), "prompt_tokens"),
        cached_tokens=count_of(meta.get("cached_tokens"), "cached_tokens"),
        finish_reason=str(reason.get("type")) if isinstance(reason, dict) else None,
        retractions=count_of(retractions, _RETRACTIONS[0]) or 0,
        output_ids=counts_of(event.get("output_ids"), "output_ids"),
        text=str(event.get("text") or ""),
        error=problem,
        **acceptance_of(meta)._asdict(),
    )
