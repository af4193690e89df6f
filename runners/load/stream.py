"""Reading `/generate`'s event stream at a small, constant cost per chunk.

SGLang's chunks are cumulative: each repeats the whole text and all token ids so far, so decoding
every chunk costs time quadratic in the answer's length, on the cores that feed the server. Of a
chunk that is not the last only the count of tokens is needed, and it is found by a search from
the chunk's end.
"""

from __future__ import annotations

import re
from typing import Any

import orjson

_KEY = b'"completion_tokens":'
_NUMBER = re.compile(rb"\s*(\d+)")
_DATA = b"data:"
_DONE = b"[DONE]"


class MalformedStreamError(ValueError):
    """The server sent something that is not a `/generate` stream."""


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


class StreamReader:
    """Takes the pieces of one response body as they arrive, cut anywhere."""

    __slots__ = ("_last", "_parts")

    def __init__(self) -> None:
        self._parts: list[bytes] = []
        self._last = b""

    def feed(self, raw: bytes) -> int | None:
        """Takes a piece of the body.

        Returns:
            Tokens generated so far by the newest event that this piece completes; `None` where it
            completes none, or one without a count (an error).
        """
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
            self._last = line
            return completion_tokens(line)
        return None

    def last(self) -> dict[str, Any]:
        """The last event, decoded in full.

        Raises:
            MalformedStreamError: There was none, or it is not a JSON object.
        """
        if not self._last:
            raise MalformedStreamError("the stream ended without a single event")
        try:
            event = orjson.loads(self._last[len(_DATA) :])
        except orjson.JSONDecodeError as error:
            raise MalformedStreamError(f"the stream's last event is not JSON: {error}") from error
        if not isinstance(event, dict):
            raise MalformedStreamError("the stream's last event is not a JSON object")
        return event
