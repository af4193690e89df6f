"""Comparison of a simulated and a real answer to the same request.

Error texts must be equal. Answers must have equal keys, key order, types, and values that do not
depend on the model. Streams are compared event by event, with one event per chunk.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

from .shapes import Shape, differences

if TYPE_CHECKING:
    from collections.abc import Iterator

    from .exchange import Answer, Exchange

SOMETIMES = {"cached_tokens_details", "decode_moments", "accelerator", "prompt_tokens_details"}
"""Keys that are null on a cold cache or before the first decode."""

SAME = (
    *("completion_tokens", "finish_reason", "object", "role", "owned_by", "weight_version"),
    *("num_retractions", "reasoning_tokens", "dp_rank", "weight_versions"),
)
"""Keys whose values depend only on the request."""

OF_THEIR_OWN = ("server_info", "metrics", "prometheus")
"""Paths whose bodies other modules compare."""

DONE = b"data: [DONE]\n\n"


def compare(exchange: Exchange, real: Answer, simulated: Answer) -> list[str]:
    """Describe the differences; an empty list means equal."""
    if real.status != simulated.status:
        return [f"status {simulated.status}, not {real.status}: {simulated.text[:300]}"]
    return [*_headers(real, simulated), *_bodies(exchange, real, simulated)]


def _headers(real: Answer, simulated: Answer) -> Iterator[str]:
    if real.content_type != simulated.content_type:
        yield f"content-type {simulated.content_type}, not {real.content_type}"
    allowed = [set(re.split(r",\s*", one.headers.get("allow", ""))) for one in (real, simulated)]
    if allowed[0] != allowed[1]:
        yield f"allow {simulated.headers.get('allow')}, not {real.headers.get('allow')}"
    # A recorded answer has only the two headers above.
    if "date" in real.headers and real.headers.keys() != simulated.headers.keys():
        yield f"headers {sorted(simulated.headers)}, not {sorted(real.headers)}"


def _bodies(exchange: Exchange, real: Answer, simulated: Answer) -> Iterator[str]:
    if any(word in exchange.path for word in OF_THEIR_OWN):
        if bool(real.body) != bool(simulated.body):
            yield "one body is empty"
    elif real.is_stream:
        yield from _streams(real, simulated)
    elif real.content_type == "application/json" and real.status < 400 and real.body:
        yield from _values([real.json()], [simulated.json()])
    elif words(real.text) != words(simulated.text):
        yield f"{simulated.text[:3000]}\n\nnot\n\n{real.text[:3000]}"


def words(text: str) -> str:
    """Remove the parts of an error text that depend on the machine.

    Token counts depend on the tokenizer, and file names on the installation of SGLang.
    """
    text = re.sub(r'File \\"[^"]*/sglang/', r'File \\"sglang/', text)
    return re.sub(r"\d+ tokens", "N tokens", text)


def _values(real: list[Any], simulated: list[Any]) -> Iterator[str]:
    shapes = [Shape(), Shape()]
    for shape, values in zip(shapes, (real, simulated), strict=True):
        for value in values:
            shape.add(value)
    yield from differences(*shapes, ignored=SOMETIMES)
    if len(real) == len(simulated) == 1:
        theirs, ours = dict(_same(real[0])), dict(_same(simulated[0]))
        for place in theirs.keys() & ours.keys():
            if theirs[place] != ours[place]:
                yield f"{place}: {ours[place]!r}, not {theirs[place]!r}"


def _same(value: Any, place: str = "") -> Iterator[tuple[str, Any]]:
    """Yield the values of `SAME` by their places."""
    if isinstance(value, dict) and _aborted(value):
        yield (
            f"{place}.finish_reason",
            value["finish_reason"],
        )  # its length depends on timing
    elif isinstance(value, dict):
        for key, one in value.items():
            if key in SAME:
                yield f"{place}.{key}", one
            else:
                yield from _same(one, f"{place}.{key}")
    elif isinstance(value, list):
        for i, one in enumerate(value[:8]):
            yield from _same(one, f"{place}[{i}]")


def _aborted(value: dict[str, Any]) -> bool:
    reason = value.get("finish_reason")
    return isinstance(reason, dict) and reason.get("type") == "abort"


def _streams(real: Answer, simulated: Answer) -> Iterator[str]:
    try:
        theirs, ours = real.events(), simulated.events()
    except ValueError as error:
        yield str(error)
        return
    # First, middle and last events; the number of middle events depends on the acceptance.
    first = _with_tokens_of(theirs[0], ours[0])
    for name, one, other in (("first", first, ours[0]), ("last", theirs[-1], ours[-1])):
        yield from (f"{name} event: {what}" for what in _values([one], [other]))
    if bool(theirs[1:-1]) != bool(ours[1:-1]):
        if len(theirs) < 3 and len(ours) < 3:
            return
    elif theirs[1:-1]:
        yield from (f"an event between: {what}" for what in _kinds(theirs[1:-1], ours[1:-1]))
    if len(real.chunks) > 1:  # a live answer, not a recorded one
        yield from (f"frames: {what}" for what in _frames(real, simulated))


def _with_tokens_of(real: Any, simulated: Any) -> Any:
    """Limit the first event of the real server to the simulated event's number of tokens.

    A busy machine may send the first two tokens together (observed with NGRAM and in OpenAI's
    continuous usage).
    """
    for part in ("meta_info", "usage"):
        counts = [
            (one.get(part) or {}).get("completion_tokens", 0) if isinstance(one, dict) else 0
            for one in (real, simulated)
        ]
        if 0 < counts[1] < counts[0]:
            real = real | {part: real[part] | {"completion_tokens": counts[1]}}
    return real


def _kinds(theirs: list[Any], ours: list[Any]) -> Iterator[str]:
    yield from _values([*theirs, {}], [*ours, {}])


def _frames(real: Answer, simulated: Answer) -> Iterator[str]:
    """Compare the HTTP chunks, for clients that read chunk by chunk."""
    whole = [one_event_to_a_chunk(answer) for answer in (real, simulated)]
    if whole[0] != whole[1]:
        yield f"{'one event' if whole[1] else 'not one event'} to a chunk"
    apart = [answer.chunks[-1] == DONE for answer in (real, simulated)]
    if apart[0] != apart[1]:
        yield f"[DONE] {'in a chunk of its own' if apart[1] else 'with the last event'}"


def one_event_to_a_chunk(answer: Answer) -> bool:
    """Return whether every chunk except the last is one event."""
    return all(map(is_one_event, answer.chunks[:-1]))


def is_one_event(chunk: bytes) -> bool:
    """Return whether a chunk is exactly one server-sent event."""
    return chunk.startswith(b"data: ") and chunk.find(b"\n\n") == len(chunk) - 2
