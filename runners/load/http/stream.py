"""Reading `/generate`'s event stream at a small, constant cost per chunk.

SGLang's chunks are cumulative: each repeats the whole text and all token ids so far, so decoding
every chunk costs time quadratic in the answer's length, on the cores that feed the server. Of a
chunk that is not the last only the count of tokens is needed, and it is found by a search from
the chunk's end. With `--incremental-streaming-output` each has what is new only: then all are kept.
"""

from __future__ import annotations

import re
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import orjson

from runners.load.http.answer import Answer, count_of, counts_of, first_of
from runners.load.http.endpoint import Endpoint, MalformedStreamError, StreamReader
from runners.load.window.acceptance import acceptance_of

if TYPE_CHECKING:
    from runners.load.prompts.prompts import Prompt
    from search_spaces.workload import Workload

_KEY = b'"completion_tokens":'
_NUMBER = re.compile(rb"\s*(\d{1,18})(?!\d)")
_DATA = b"data:"
_DONE = b"[DONE]"
# Newest first: 0.5.17 and 0.5.23; 0.5.9, where it is a request's own count all the same.
_RETRACTIONS = ("num_retractions", "total_retractions")


def completion_tokens(chunk: bytes) -> int | None:
    r"""The cumulative `meta_info.completion_tokens` of a chunk, without decoding it.

    Safe against any generated text: within a JSON string a quote is escaped (`\"`), so the key
    with both its quotes and its colon can only be a key. The last one is taken: `meta_info` comes
    after `text` and `output_ids` (0.5.9 to 0.5.23).
    """
    at = chunk.rfind(_KEY)
    if at < 0:
        return None
    number = _NUMBER.match(chunk, at + len(_KEY))
    return int(number[1]) if number else None


class GenerateReader(StreamReader):
    """Reads one `/generate` stream; see `StreamReader`."""

    __slots__ = ("_earlier", "_last", "_parts")

    def __init__(self) -> None:
        """Starts before the first byte."""
        self._parts: list[bytes] = []
        self._last = b""
        self._earlier: list[bytes] | None = []
        """Events before the last, of a stream of increments; `None` once it is known to be none."""

    def feed(self, raw: bytes) -> int | None:
        """See `StreamReader.feed`; the newest event that the piece completes counts."""
        if (
            raw.endswith(b"\n\n")
            and raw.startswith(_DATA)
            and raw.find(b"\n") == len(raw) - 2
            and not self._parts
        ):
            # One whole event, as nearly every piece is: nothing to cut, nothing to copy.
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
        if self._earlier is not None:
            return self._read_all(block)
        # Events of one piece arrived at one time: only the newest matters.
        stop = len(block)
        while stop > 0:
            start = block.rfind(b"\n", 0, stop) + 1
            line = block[start:stop]
            stop = start - 1
            if not line.startswith(_DATA):
                continue
            if len(line) < 32 and line[len(_DATA) :].strip() == _DONE:
                continue
            self._keep(line)
            return completion_tokens(line)
        return None

    def _read_all(self, block: bytes) -> int | None:
        count = None
        for line in block.split(b"\n"):
            if line.startswith(_DATA) and line[len(_DATA) :].strip() != _DONE:
                self._keep(line)
                count = completion_tokens(line)
        return count

    def _keep(self, line: bytes) -> None:
        if self._earlier is not None and self._last:
            # The second event shows which kind of stream it is.
            if self._earlier or _is_increment(line):
                self._earlier.append(self._last)
            else:
                self._earlier = None
        self._last = line

    def answer(self) -> Answer:
        """See `StreamReader.answer`; the last event is decoded in full."""
        answer = answer_of(self._event())
        if not self._earlier:
            return answer
        events = [_decoded(line) for line in self._earlier]
        ids = [n for event in events for n in counts_of(event.get("output_ids"), "output_ids")]
        text = "".join(str(event.get("text") or "") for event in events)
        return replace(answer, output_ids=(*ids, *answer.output_ids), text=text + answer.text)

    def _event(self) -> dict[str, Any]:
        if not self._last:
            raise MalformedStreamError("the stream ended without a single event")
        return _decoded(self._last)


def _decoded(line: bytes) -> dict[str, Any]:
    try:
        event = orjson.loads(line[len(_DATA) :])
    except orjson.JSONDecodeError as error:
        raise MalformedStreamError(f"an event of the stream is not JSON: {error}") from error
    if not isinstance(event, dict):
        raise MalformedStreamError("an event of the stream is not a JSON object")
    return event


def _is_increment(line: bytes) -> bool:
    """Whether an event that is not the first has fewer ids than there are tokens so far."""
    try:
        ids = _decoded(line).get("output_ids")
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
    """The accounts in a `/generate` answer, or in the last event of its stream.

    Raises:
        MalformedStreamError: What should be a count is none.
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
        problem = "the stream ended before the answer did"
    elif reason.get("type") == "abort":
        problem = f"aborted by the server: {reason.get('message')}"
    accepted = acceptance_of(meta)
    retractions = first_of(meta, _RETRACTIONS)
    return Answer(
        completion_tokens=count_of(meta.get("completion_tokens"), "completion_tokens"),
        prompt_tokens=count_of(meta.get("prompt_tokens"), "prompt_tokens"),
        cached_tokens=count_of(meta.get("cached_tokens"), "cached_tokens"),
        finish_reason=str(reason.get("type")) if isinstance(reason, dict) else None,
        verify_calls=accepted.verify_calls,
        correct_drafts=accepted.correct_drafts,
        proposed_drafts=accepted.proposed_drafts,
        histogram=accepted.histogram,
        retractions=count_of(retractions, _RETRACTIONS[0]) or 0,
        output_ids=counts_of(event.get("output_ids"), "output_ids"),
        text=str(event.get("text") or ""),
        error=problem,
    )
