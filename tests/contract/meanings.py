"""Rules for the numbers of both servers.

One client sends one request at a time after a flush, so the client can compute all counts.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING, Any

from .comparison import DONE, is_one_event
from .exchange import Exchange, ask, get, post
from .metrics_page import total

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from .exchange import Answer

TOKENS = 64
INTERVAL = 40
"""Default of `--decode-log-interval`: decode iterations per update of the gauges."""

FLUSH = Exchange("flush", "POST", "/flush_cache")
INFO = get("info", "/server_info")
PAGE = get("metrics", "/metrics")
_LINE = re.compile(r"Decode batch, .*accept len: ([\d.]+), accept rate: ([\d.]+)")


@dataclass(frozen=True, slots=True)
class Depth:
    """Shape of the speculation.

    Attributes:
        deepest: Maximum accepted drafts per verify.
        width: Tokens per verify.
    """

    deepest: int
    width: int


@dataclass(frozen=True, slots=True)
class Evidence:
    """Answers of one server.

    Attributes:
        depth: `None` without speculation.
        answers: Answers of `TOKENS` tokens, alternately streamed and not streamed.
        infos: `/server_info` before and after the requests, and after a flush.
        pages: `/metrics` at the same times.
        flushes: Answers to the flushes before and after the requests.
        log: Log of the requests.
    """

    depth: Depth | None
    answers: tuple[Answer, ...]
    infos: tuple[Answer, ...]
    pages: tuple[Answer, ...]
    flushes: tuple[Answer, ...]
    log: str


def prompt(n: int) -> list[int]:
    """Return the token ids of a prompt; no two prompts share a prefix."""
    return list(range(100 + 7 * n, 160 + 7 * n))


def generation(n: int, tokens: int = TOKENS, **more: Any) -> Exchange:
    """Make a request for an answer of fixed length."""
    sampling = {"max_new_tokens": tokens, "temperature": 0, "ignore_eos": True}
    body = {"input_ids": prompt(n), "sampling_params": sampling, **more}
    return post(f"generation {n}", "/generate", body)


def gather(
    url: str, read_log: Callable[[], str], depth: Depth | None, requests: int = 6
) -> Evidence:
    """Send the requests; the server must have no other clients."""

    def look() -> tuple[Answer, Answer]:
        return ask(url, INFO), ask(url, PAGE)

    flushed = ask(url, FLUSH)
    logged = len(read_log())
    looks = [look()]
    answers = [ask(url, generation(n, stream=bool(n % 2))) for n in range(requests)]
    looks.append(look())
    log = read_log()[logged:]
    flushed_again = ask(url, FLUSH)
    looks.append(look())
    infos, pages = zip(*looks, strict=True)
    return Evidence(depth, tuple(answers), infos, pages, (flushed, flushed_again), log)


def broken(evidence: Evidence) -> list[str]:
    """Describe the rules that the server breaks."""
    found: list[str] = []
    for n, answer in enumerate(evidence.answers):
        try:
            reply = _last(answer)
            found += [f"request {n}: {what}" for what in _reply(reply, evidence.depth)]
            if answer.is_stream:
                found += [f"request {n}: {what}" for what in _stream(answer)]
        except (ValueError, KeyError, TypeError) as error:
            found.append(f"request {n}: {type(error).__name__} {error}")
    if not found:
        found += _counters(evidence)
        found += _gauges(evidence)
    found += [f"a flush: {f.status} {f.text[:80]}" for f in evidence.flushes if f.status != 200]
    return found


def _last(answer: Answer) -> dict[str, Any]:
    """Return the whole answer: the last event of a stream."""
    reply: dict[str, Any] = answer.events()[-1] if answer.is_stream else answer.json()
    return reply


def _reply(reply: dict[str, Any], depth: Depth | None) -> Iterator[str]:
    meta = reply["meta_info"]
    if not len(reply["output_ids"]) == meta["completion_tokens"] == TOKENS:
        yield f"{meta['completion_tokens']} tokens, {len(reply['output_ids'])} ids, not {TOKENS}"
    if meta["finish_reason"] != {"type": "length", "length": TOKENS}:
        yield f"it ends by {meta['finish_reason']}"
    if meta["prompt_tokens"] != len(prompt(0)) or meta["cached_tokens"] != 0:
        yield f"{meta['prompt_tokens']} prompt tokens, {meta['cached_tokens']} of them cached"
    yield from _times(meta)
    if depth is None:
        yield from (f"{name} without speculation" for name in meta if name.startswith("spec_"))
        return
    calls, correct = meta["spec_verify_ct"], meta["spec_num_correct_drafts"]
    histogram = meta["spec_correct_drafts_histogram"]
    for what, is_, should_be in (
        ("verify calls in the histogram", sum(histogram), calls),
        ("correct drafts in it", sum(k * n for k, n in enumerate(histogram)), correct),
        ("proposed drafts", meta["spec_num_proposed_drafts"], calls * (depth.width - 1)),
        ("accept rate", meta["spec_accept_rate"], correct / (calls * (depth.width - 1))),
        # SGLang counts the prefill's token too.
        ("accept length", meta["spec_accept_length"], TOKENS / calls),
    ):
        if is_ != should_be:
            yield f"{what}: {is_}, not {should_be}"
    if len(histogram) > depth.deepest + 1:
        yield f"a verify accepted {len(histogram) - 1} drafts of {depth.deepest}"
    # Drafts of the last verify count beyond the limit too.
    beyond = 1 + calls + correct - TOKENS
    if not 0 <= beyond <= depth.deepest:
        yield f"{calls} verify calls and {correct} correct drafts make {TOKENS} tokens + {beyond}"


def _times(meta: dict[str, Any]) -> Iterator[str]:
    """Check the times; most of them need `--enable-metrics`."""
    if "request_finished_ts" not in meta:
        return
    whole, first = meta["e2e_latency"], meta["first_token_latency"]
    lasted = meta["request_finished_ts"] - meta["request_received_ts"]
    if abs(whole - lasted) > 0.01 + 0.1 * lasted:
        yield f"e2e latency {whole}, and it lasted {lasted} s"
    if not 0 <= meta["queue_time"] <= first <= whole:
        yield f"queue time {meta['queue_time']}, first token {first}, e2e latency {whole}"
        return
    speed = (meta["completion_tokens"] - 1) / (whole - first)
    if abs(meta["decode_throughput"] - speed) > 0.1 * speed:
        yield f"decode throughput {meta['decode_throughput']}, not {speed}"


def _stream(answer: Answer) -> Iterator[str]:
    events = answer.events()
    if not events[0]["output_ids"]:  # a busy machine may send the first tokens together
        yield "the first event has no tokens"
    yield from {what for pair in pairwise(events) for what in _next_event(*pair)}
    for event in events:
        meta = event["meta_info"]
        if meta["completion_tokens"] != len(event["output_ids"]):
            yield f"{meta['completion_tokens']} tokens said, {len(event['output_ids'])} sent"
            break
    if bad := [chunk for chunk in answer.chunks if not is_one_event(chunk)]:
        yield f"a chunk that is not one event: {bad[0][:80]!r}"
    if answer.chunks[-1] != DONE:
        yield f"the last chunk is {answer.chunks[-1][-80:]!r}"


def _next_event(before: dict[str, Any], after: dict[str, Any]) -> Iterator[str]:
    """Check that each event extends the event before, and only the last one has counts."""
    ids = before["output_ids"]
    if after["output_ids"][: len(ids)] != ids:
        yield "the ids of an event do not begin with those of the one before"
    elif len(after["output_ids"]) == len(ids):
        yield "an event brings no token"
    # A character may need the next token.
    if not after["text"].startswith(before["text"].rstrip("\ufffd")):
        yield "the text of an event does not begin with that of the one before"
    meta = before["meta_info"]
    if meta["finish_reason"] is not None or any(name.startswith("spec_") for name in meta):
        yield "an end, or accounts, before the last event"


def _counters(evidence: Evidence) -> Iterator[str]:
    """Check that the counts of `/metrics` equal the client's counts."""
    before, after, flushed = (page.text for page in evidence.pages)
    metas = [_last(answer)["meta_info"] for answer in evidence.answers]
    counted: list[tuple[str, dict[str, str], float]] = []
    for streaming in (False, True):
        of_kind = [
            meta
            for meta, answer in zip(metas, evidence.answers, strict=True)
            if answer.is_stream == streaming
        ]
        label = {"is_streaming": str(streaming).lower()}
        counted += [
            ("num_requests_total", label, len(of_kind)),
            ("prompt_tokens_total", label, sum(m["prompt_tokens"] for m in of_kind)),
            ("generation_tokens_total", label, sum(m["completion_tokens"] for m in of_kind)),
        ]
    if evidence.depth is not None:
        counted.append(("spec_verify_calls_total", {}, sum(m["spec_verify_ct"] for m in metas)))
    for name, labels, should_be in counted:
        grown = total(after, name, **labels) - total(before, name, **labels)
        if grown != should_be:
            yield f"{name} {labels} grew by {grown}, not {should_be}"
        if total(flushed, name, **labels) != total(after, name, **labels):
            yield f"{name} {labels} changed by a flush"
    for name in ("num_running_reqs", "num_queue_reqs"):
        if total(after, name):
            yield f"{name} is {total(after, name)} on an idle server"


def _gauges(evidence: Evidence) -> Iterator[str]:
    """Check that `/metrics` shows the last window, and `/server_info` all since the flush."""
    averages = [_average(info.json()) for info in evidence.infos]
    after, flushed = (page.text for page in evidence.pages[1:])
    if evidence.depth is None:
        if any(average is not None for average in averages):
            yield f"an average accept length without speculation: {averages}"
        return
    if averages[0] is not None or averages[2] is not None:
        yield f"the average accept length outlives a flush: {averages}"
    windows = [float(found[1]) for found in _LINE.finditer(evidence.log)]
    metas = [_last(answer)["meta_info"] for answer in evidence.answers]
    calls = sum(meta["spec_verify_ct"] for meta in metas)
    accepted = calls + sum(meta["spec_num_correct_drafts"] for meta in metas)
    if len(windows) != calls // INTERVAL or not windows:
        yield f"{len(windows)} windows logged of {calls} verify calls since the flush"
        return
    gauge = total(after, "spec_accept_length")
    if abs(gauge - windows[-1]) > 0.0051:
        yield f"the gauge says {gauge}, the last window was {windows[-1]}"
    if total(flushed, "spec_accept_length") != gauge:
        yield "the gauge changed by a flush"
    average = averages[1] or 0.0
    if abs(average - sum(windows) / len(windows)) > 0.0051:
        yield f"the average is {average}, the windows were {windows}"
    # Verifies after the last window: fewer than one window, each with 1 to `deepest + 1` tokens.
    rest_calls = calls - INTERVAL * len(windows)
    rest = accepted - average * INTERVAL * len(windows)
    if not rest_calls - 0.01 <= rest <= rest_calls * (evidence.depth.deepest + 1) + 0.01:
        yield f"{accepted} tokens by {calls} verify calls, and an average of {average}"
    if (width := total(after, "spec_num_draft_tokens")) != evidence.depth.width:
        yield f"spec_num_draft_tokens is {width}, not {evidence.depth.width}"


def _average(info: dict[str, Any]) -> float | None:
    (state,) = info["internal_states"]
    average: float | None = state.get("avg_spec_accept_length")
    return average
