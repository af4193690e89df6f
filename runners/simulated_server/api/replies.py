"""Answers of `/generate`, field by field as SGLang 0.5.23 writes them."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import accumulate, pairwise
from typing import TYPE_CHECKING, Any

import orjson

from runners.simulated_server.engine import tokens
from runners.simulated_server.engine.clock import wall_time
from runners.simulated_server.engine.request import ABORT, LENGTH, STOP
from runners.simulated_server.engine.tokens import EOS_TOKEN, Answer

if TYPE_CHECKING:
    from runners.simulated_server.api.sampling import Sampling
    from runners.simulated_server.api.state import ReplyHooks
    from runners.simulated_server.engine.request import Request


@dataclass(frozen=True, slots=True)
class Ending:
    """End of an answer before its limit.

    Attributes:
        answer: The answer up to the token that ends it.
        stops: Whether the answer ends before its limit.
        matched: The token or text that ends the answer.
        text_end: Length of the shown text, without the matched text.
    """

    answer: Answer
    stops: bool
    matched: int | str
    text_end: int


def ending(answer: Answer, sampling: Sampling, limit: int) -> Ending:
    """Return the first end of an answer: natural end, stop token or stop text.

    The limit precedes all of them. Stop texts and tokens also apply with `ignore_eos`.

    Source: SGLang 0.5.23, `Req.check_finished`.
    """
    best = Ending(answer, stops=False, matched=EOS_TOKEN, text_end=len(answer.text))
    end = limit
    natural = answer.natural_length
    if not sampling.ignore_eos and natural < end:
        end = natural
        best = Ending(_with_eos(answer), True, EOS_TOKEN, answer.ends[natural - 1])  # noqa: FBT003
    for stop in sampling.stop:
        at = answer.text.find(stop) if stop else -1
        if at < 0:
            continue
        length = next(i for i, to in enumerate(answer.ends) if to >= at + len(stop))
        if length < end:
            end = length
            best = Ending(_shortened(answer, length), True, stop, at)  # noqa: FBT003
    for token in sampling.stop_token_ids:
        length = answer.ids.index(token) + 1 if token in answer.ids else end
        if length < end:
            end = length
            shown = answer.ends[length - 1]
            best = Ending(_shortened(answer, length), True, token, shown)  # noqa: FBT003
    return best


def _shortened(answer: Answer, length: int) -> Answer:
    return Answer(answer.ids, answer.text, answer.ends, length)


def _with_eos(answer: Answer) -> Answer:
    """Return the answer with the end-of-sequence token, which has no text, as its last token."""
    natural = answer.natural_length
    ids = [*answer.ids[: natural - 1], EOS_TOKEN]
    ends = [*answer.ends[:natural], answer.ends[natural - 1]]
    return Answer(ids, answer.text[: ends[-1]], ends, natural)


class EncodedAnswer:
    """An answer as JSON, encoded once for all chunks of a stream.

    Attributes:
        text: Encoded text without quotes.
        text_ends: `text_ends[n]` is the end of the first n tokens in `text`.
        ids: Encoded ids with a comma after each.
        id_ends: `id_ends[n]` is the end of the first n ids in `ids`.
    """

    __slots__ = ("id_ends", "ids", "text", "text_ends")

    def __init__(self, answer: Answer, text_end: int) -> None:
        text = answer.text[:text_end]
        encoded = orjson.dumps(text)[1:-1]
        ends = [min(end, text_end) for end in answer.ends]
        if len(encoded) != len(text):
            # Escaped or non-ASCII text: count the bytes of each token.
            pieces = (text[a:b] for a, b in pairwise(ends))
            ends = [0, *accumulate(len(orjson.dumps(piece)) - 2 for piece in pieces)]
        self.text = encoded
        self.text_ends = ends
        numbers = [b"%d," % token for token in answer.ids]
        self.ids = b"".join(numbers)
        self.id_ends = [0, *accumulate(map(len, numbers))]

    def text_between(self, first: int, last: int) -> bytes:
        """Return the text of tokens `first` (inclusive) to `last` (exclusive)."""
        return self.text[self.text_ends[first] : self.text_ends[last]]

    def ids_between(self, first: int, last: int) -> bytes:
        """Return the ids of tokens `first` to `last`, without brackets."""
        start, stop = self.id_ends[first], self.id_ends[last]
        return self.ids[start : stop - 1] if stop > start else b""


_TAIL = b"}\n\n"


class ReplyWriter:
    """Writes the events and the reply of one request.

    Args:
        ending: End of its answer.
        draft_tokens_at_start: Tokens per verify at the start-up; 0 without speculation.
        timed: Whether `meta_info` has all times (`--enable-metrics`).
    """

    def __init__(
        self,
        request: Request,
        ending: Ending,
        draft_tokens_at_start: int,
        *,
        timed: bool,
        hooks: ReplyHooks,
    ) -> None:
        self.request = request
        self._ending = ending
        self._width = draft_tokens_at_start
        self._timed = timed
        self._hooks = hooks
        self._encoded: EncodedAnswer | None = None
        self._head = b""
        self._middle = b""
        self._first_sent_at: float | None = None
        self._final: dict[str, Any] | None = None

    @property
    def encoded(self) -> EncodedAnswer:
        if self._encoded is None:
            self._encoded = EncodedAnswer(self._ending.answer, self._ending.text_end)
        return self._encoded

    @property
    def prompt_ids(self) -> list[int]:
        return tokens.unpack(self.request.packed)

    @property
    def text(self) -> str:
        answer = self._ending.answer
        end = answer.ends[min(self.request.completion_tokens, len(answer.ends) - 1)]
        return answer.text[: min(end, self._ending.text_end)]

    def event(self, sent: int | None, suffix: bytes) -> bytes:
        """Return an event of a stream, except the last event.

        Args:
            sent: Number of sent tokens if events hold only new tokens; `None` if events hold all
                tokens so far.
            suffix: Text before the event's last brace: the index of a batch's answer.
        """
        request, encoded = self.request, self.encoded
        if not self._head:
            self._encode_head()
        count = request.completion_tokens
        first = sent or 0
        mark = b""
        if self._first_sent_at is None:
            self._first_sent_at = wall_time()
            mark = b',"response_sent_to_client_ts":%r' % self._first_sent_at
        return b"".join(
            (
                b'data: {"text":"',
                encoded.text_between(first, count),
                b'","output_ids":[',
                encoded.ids_between(first, count),
                b'],"meta_info":',
                self._head,
                b"%d" % count,
                self._middle,
                mark,
                b"}",
                suffix,
                _TAIL,
            )
        )

    def last_event(self, sent: int | None, suffix: bytes) -> bytes:
        """Return the last event of a stream, with the final `meta_info`."""
        reply = self.whole()
        if sent:
            already = self._ending.answer.ends[sent]
            reply["text"] = reply["text"][min(already, self._ending.text_end) :]
            reply["output_ids"] = reply["output_ids"][sent:]
        return b"data: " + orjson.dumps(reply)[:-1] + suffix + _TAIL

    def whole(self) -> dict[str, Any]:
        return {
            "text": self.text,
            "output_ids": self.request.output_ids,
            "meta_info": self.meta_info(),
        }

    def meta_info(self) -> dict[str, Any]:
        """Return `meta_info` of a finished request; computed once."""
        if self._final is not None:
            return self._final
        request = self.request
        count = request.completion_tokens
        meta = self._known() | {
            "completion_tokens": count,
            "cached_tokens": request.cached_tokens,
            "weight_versions": [{"version": "default", "start": 0, "end": count}],
            "cached_tokens_details": self._cached_details(),
            "dp_rank": None,
        }
        meta["finish_reason"] = self._finish_reason()
        meta |= self._counts()
        sent_at = self._first_sent_at
        if self._timed:
            meta |= {
                "request_received_ts": request.received_at,
                "first_token_latency": request.prefill_finished_at - request.received_at,
                "api_server_dispatch_finish_ts": request.received_at,
            }
            if sent_at is not None:
                meta["response_sent_to_client_ts"] = sent_at
            meta["request_finished_ts"] = request.finished_at
            seconds = request.finished_at - request.prefill_finished_at
            if count > 1 and seconds > 0:
                meta["decode_throughput"] = (count - 1) / seconds
        if sent_at is None:
            meta["response_sent_to_client_ts"] = wall_time()
        self._hooks.meta_info(request, meta)
        self._final = meta
        return meta

    def _known(self) -> dict[str, Any]:
        """Return the part of `meta_info` that is known after the prefill."""
        request = self.request
        meta: dict[str, Any] = {
            "id": request.rid,
            "finish_reason": None,
            "prompt_tokens": request.prompt_tokens,
            "weight_version": "default",
            "num_retractions": 0,
        }
        if self._timed:
            meta |= {"storage_prefetch_wait": 0.0, "storage_staging_wait": 0.0}
            if request.forward_entry_at:
                meta["forward_entry_time"] = request.forward_entry_at
            if request.prefill_finished_at:
                meta["prefill_finished_time"] = request.prefill_finished_at
            meta["queue_time"] = max(0.0, request.forward_entry_at - request.received_at)
        meta["reasoning_tokens"] = 0
        return meta

    def _encode_head(self) -> None:
        details = {
            "cached_tokens": self.request.cached_tokens,
            "cached_tokens_details": self._cached_details(),
            "dp_rank": None,
        }
        self._head = orjson.dumps(self._known())[:-1] + b',"completion_tokens":'
        self._middle = b"," + orjson.dumps(details)[1:-1]

    def _finish_reason(self) -> dict[str, Any] | None:
        if self.request.finish is None:
            return None
        if self.request.finish == LENGTH:
            return {"type": LENGTH, "length": self.request.completion_tokens}
        if self.request.finish == STOP:
            return {"type": STOP, "matched": self._ending.matched}
        return {"type": ABORT, "message": "Aborted", "status_code": None, "err_type": None}

    def _cached_details(self) -> dict[str, int] | None:
        cached = self.request.cached_tokens
        return {"device": cached, "host": 0} if cached else None

    def _counts(self) -> dict[str, Any]:
        request = self.request
        counts: dict[str, Any] = {"e2e_latency": request.finished_at - request.received_at}
        # SGLang uses the initial width after a switch too, so its rate is wrong then.
        proposed = request.verify_calls * (self._width - 1)
        if proposed > 0:
            counts |= {
                "spec_accept_rate": request.correct_drafts / proposed,
                # SGLang counts the prefill's token too.
                "spec_accept_length": request.completion_tokens / request.verify_calls,
                "spec_num_correct_drafts": request.correct_drafts,
                "spec_num_proposed_drafts": proposed,
                "spec_verify_ct": request.verify_calls,
                "spec_correct_drafts_histogram": request.histogram,
            }
        return counts
