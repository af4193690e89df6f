"""Drifts: changes of a server that the contract must detect.

A drift changes a received answer, and has a pattern that the comparison must report.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from .comparison import DONE

if TYPE_CHECKING:
    from collections.abc import Callable

    from .exchange import Answer
    from .observation import Change


@dataclass(frozen=True, slots=True)
class Drift:
    """One drift.

    Attributes:
        name: Description of the change.
        change: Returns the changed answer, given the path and the answer.
        caught: Pattern that one of the breaches must contain.
    """

    name: str
    change: Change
    caught: str


def _json(paths: tuple[str, ...], edit: Callable[[Any], None]) -> Change:
    """Make a change that edits decoded bodies: a whole answer, or each event of a stream."""

    def change(path: str, answer: Answer) -> Answer:
        if not path.startswith(paths) or answer.status != 200:
            return answer
        if answer.is_stream:
            return replace(answer, chunks=tuple(_event(chunk) for chunk in answer.chunks))
        if answer.content_type != "application/json" or not answer.body:
            return answer
        value = answer.json()
        edit(value)
        return replace(answer, chunks=(json.dumps(value).encode(),))

    def _event(chunk: bytes) -> bytes:
        if not chunk.startswith(b"data: {"):
            return chunk
        value = json.loads(chunk.removeprefix(b"data: "))
        edit(value)
        return b"data: " + json.dumps(value).encode() + b"\n\n"

    return change


def _metas(value: Any) -> list[dict[str, Any]]:
    replies = value if isinstance(value, list) else [value]
    return [reply["meta_info"] for reply in replies if "meta_info" in reply]


def _of_meta(edit: Callable[[dict[str, Any]], None]) -> Change:
    """Make a change that edits `meta_info` of finished answers with acceptance counts."""

    def each(value: Any) -> None:
        for meta in _metas(value):
            if "spec_verify_ct" in meta:
                edit(meta)

    return _json(("/generate",), each)


def _of_state(edit: Callable[[dict[str, Any]], None]) -> Change:
    return _json(("/server_info",), lambda info: edit(info["internal_states"][0]))


def _chunks(edit: Callable[[tuple[bytes, ...]], tuple[bytes, ...]]) -> Change:
    def change(_: str, answer: Answer) -> Answer:
        return replace(answer, chunks=edit(answer.chunks)) if answer.is_stream else answer

    return change


def _page(pattern: str, by: str) -> Change:
    def change(path: str, answer: Answer) -> Answer:
        if path != "/metrics":
            return answer
        return replace(answer, chunks=(re.sub(pattern, by, answer.text).encode(),))

    return change


def _refusal(path: str, refused: int, /, **changes: Any) -> Change:
    def change(asked: str, answer: Answer) -> Answer:
        hit = asked.startswith(path) and answer.status == refused
        return replace(answer, **changes) if hit else answer

    return change


def _only_new(value: Any) -> None:
    """Keep only the new tokens, as `--incremental-streaming-output` does."""
    if any(meta["finish_reason"] is None for meta in _metas(value)):
        value["output_ids"] = value["output_ids"][-1:]


def _as_0_5_9(meta: dict[str, Any]) -> None:
    meta["spec_accept_token_num"] = meta.pop("spec_num_correct_drafts")


def _counts_the_prefill(meta: dict[str, Any]) -> None:
    meta["spec_verify_ct"] += 1


def _unbiased(meta: dict[str, Any]) -> None:
    meta["spec_accept_length"] = 1 + meta["spec_num_correct_drafts"] / meta["spec_verify_ct"]


def _with_the_bonus(meta: dict[str, Any]) -> None:
    meta["spec_num_correct_drafts"] += meta["spec_verify_ct"]


def _kept_average(state: dict[str, Any]) -> None:
    state.setdefault("avg_spec_accept_length", 2.0)


def _times_1000(name: str) -> Callable[[dict[str, Any]], None]:
    def edit(meta: dict[str, Any]) -> None:
        if name in meta:
            meta[name] *= 1000

    return edit


def _more(name: str) -> Callable[[dict[str, Any]], None]:
    def edit(value: dict[str, Any]) -> None:
        value[name] += 1

    return edit


DRIFTS = (
    Drift("a key is gone", _of_meta(lambda m: m.pop("spec_verify_ct")), "spec_verify_ct: missing"),
    Drift("a key is new", _of_meta(lambda m: m.update(spec_new=1)), "spec_new: int, not missing"),
    Drift("a key has its old name", _of_meta(_as_0_5_9), "spec_accept_token_num: int, not missing"),
    Drift(
        "a type has changed",
        _json(("/v1/completions",), lambda v: v.update(created=str(v["created"]))),
        "created: str, not int",
    ),
    Drift(
        "a number became null",
        _json(("/generate",), lambda v: [m.update(queue_time=None) for m in _metas(v)]),
        "queue_time: NoneType, not float",
    ),
    Drift(
        "the limit is another reason",
        _json(("/v1/chat",), lambda v: [c.update(finish_reason="stop") for c in v["choices"]]),
        "finish_reason: 'stop', not 'length'",
    ),
    Drift("the whole time is in milliseconds", _of_meta(_times_1000("e2e_latency")), "it lasted"),
    Drift("the wait is in milliseconds", _of_meta(_times_1000("queue_time")), "queue time"),
    Drift(
        "the first token's time is in milliseconds",
        _of_meta(_times_1000("first_token_latency")),
        "first token",
    ),
    Drift(
        "the speed is a time",
        _of_meta(lambda m: m.update(decode_throughput=1 / m["decode_throughput"])),
        "decode throughput",
    ),
    Drift("verify calls count the prefill", _of_meta(_counts_the_prefill), "verify calls in the"),
    Drift("correct drafts count the bonus", _of_meta(_with_the_bonus), "correct drafts in it"),
    Drift("accept length lost its bias", _of_meta(_unbiased), r"accept length: .*, not"),
    Drift(
        "drafts proposed are those of the steps",
        _of_meta(lambda m: m.update(spec_num_proposed_drafts=m["spec_verify_ct"])),
        "proposed drafts",
    ),
    Drift("the average outlives a flush", _of_state(_kept_average), "outlives a flush"),
    Drift(
        "the average is of the last window",
        _of_state(lambda s: "avg_spec_accept_length" in s and s.update(avg_spec_accept_length=9.0)),
        "the average is 9.0",
    ),
    Drift(
        "the gauge is of another window",
        _page(r"(spec_accept_length\{[^}]*\}) \S+", r"\1 1.234"),
        "the gauge says 1.234",
    ),
    Drift(
        "tokens are not counted",
        _page(r"(:generation_tokens_total\{[^}]*\}) \S+", r"\1 0.0"),
        "generation_tokens_total .* grew by 0",
    ),
    Drift("a family has another name", _page("verify_calls", "verify_ct"), "calls_total: missing"),
    Drift("a label has another name", _page("is_streaming=", "streaming="), "labels"),
    Drift("a gauge became a counter", _page("_reqs gauge", "_reqs counter"), "kind counter"),
    Drift(
        "a flag is resolved otherwise",
        _json(("/server_info",), _more("speculative_num_draft_tokens")),
        r"speculative_num_draft_tokens: \d, not \d",
    ),
    Drift(
        "the scheduler runs something else",
        _of_state(_more("speculative_num_steps")),
        r"internal_states.speculative_num_steps: \d, not \d",
    ),
    Drift(
        "[DONE] comes with the last event",
        _chunks(lambda c: (*c[:-2], b"".join(c[-2:])) if c[-1] == DONE else c),
        r"\[DONE\] with the last event",
    ),
    Drift(
        "two events to a chunk",
        _chunks(lambda c: (b"".join(c[:2]), *c[2:])),
        "not one event to a chunk",
    ),
    Drift("no [DONE]", _chunks(lambda c: c[:-1]), r"does not end with \[DONE\]"),
    Drift("events have what is new only", _json(("/generate",), _only_new), "ids of an event do"),
    Drift(
        "a refusal has other words",
        _refusal("/generate", 400, chunks=(b'{"error":{"message":"no"}}',)),
        "\n\nnot\n\n",
    ),
    Drift("a refusal has another status", _refusal("/v1/", 400, status=422), "status 422, not 400"),
    Drift("a busy server is flushed", _refusal("/flush", 400, status=200), "status 200, not 400"),
    Drift("nothing is not found", _refusal("/nothing", 404, status=200), "status 200, not 404"),
    Drift(
        "streams are plain text",
        lambda _, a: (
            replace(a, headers=a.headers | {"content-type": "text/plain"}) if a.is_stream else a
        ),
        "content-type text/plain, not text/event-stream",
    ),
)
