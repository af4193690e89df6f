"""Bodies of `/generate`, field by field as SGLang 0.5.23 writes them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from runners.simulated_server.wall_clock import wall_time

if TYPE_CHECKING:
    from runners.simulated_server.request import Request


class ReplyWriter:
    """Writes the replies of one request, in order.

    Args:
        request: The request.
        draft_tokens_at_start: The width that the server started with; 0 without speculation.
    """

    def __init__(self, request: Request, draft_tokens_at_start: int) -> None:
        self._request = request
        self._width = draft_tokens_at_start
        self._first_sent_at: float | None = None

    def chunk(self) -> dict[str, Any]:
        """The next chunk of a stream: everything so far, the accounts in the last one only."""
        request = self._request
        finished = request.finish is not None
        meta = self._head()
        if finished:
            meta["weight_versions"] = self._weight_versions()
        meta |= {"cached_tokens_details": self._cached_details(), "dp_rank": None}
        if finished:
            meta |= self._accounts()
            meta |= self._received()
        if self._first_sent_at is None:
            self._first_sent_at = wall_time()
            meta["response_sent_to_client_ts"] = self._first_sent_at
        elif finished:
            meta["response_sent_to_client_ts"] = self._first_sent_at
        if finished:
            meta |= self._ended()
        return {"text": request.text, "output_ids": request.output_ids, "meta_info": meta}

    def whole(self) -> dict[str, Any]:
        """The reply of a request that does not stream."""
        request = self._request
        meta = self._head()
        meta["weight_versions"] = self._weight_versions()
        meta |= {"cached_tokens_details": self._cached_details(), "dp_rank": None}
        meta |= self._accounts()
        meta |= self._received()
        meta |= self._ended()
        meta["response_sent_to_client_ts"] = wall_time()
        return {"text": request.text, "output_ids": request.output_ids, "meta_info": meta}

    def _head(self) -> dict[str, Any]:
        request = self._request
        return {
            "id": request.rid,
            "finish_reason": request.finish_reason,
            "prompt_tokens": request.prompt_tokens,
            "weight_version": "default",
            "num_retractions": 0,
            "storage_prefetch_wait": 0.0,
            "storage_staging_wait": 0.0,
            "forward_entry_time": request.forward_entry_at,
            "prefill_finished_time": request.prefill_finished_at,
            "queue_time": max(0.0, request.forward_entry_at - request.received_at),
            "reasoning_tokens": 0,
            "completion_tokens": request.completion_tokens,
            "cached_tokens": request.cached_tokens,
        }

    def _weight_versions(self) -> list[dict[str, Any]]:
        return [{"version": "default", "start": 0, "end": self._request.completion_tokens}]

    def _cached_details(self) -> dict[str, int] | None:
        cached = self._request.cached_tokens
        return {"device": cached, "host": 0} if cached else None

    def _accounts(self) -> dict[str, Any]:
        request = self._request
        accounts: dict[str, Any] = {"e2e_latency": request.finished_at - request.received_at}
        # With the width of the start, also after a switch: SGLang's rate is wrong then.
        proposed = request.verify_calls * (self._width - 1)
        if proposed > 0:
            accounts |= {
                "spec_accept_rate": request.correct_drafts / proposed,
                # Counts the prefill's token, which no verify made.
                "spec_accept_length": request.completion_tokens / request.verify_calls,
                "spec_num_correct_drafts": request.correct_drafts,
                "spec_num_proposed_drafts": proposed,
                "spec_verify_ct": request.verify_calls,
                "spec_correct_drafts_histogram": request.histogram,
            }
        return accounts

    def _received(self) -> dict[str, Any]:
        request = self._request
        return {
            "request_received_ts": request.received_at,
            "first_token_latency": request.prefill_finished_at - request.received_at,
            "api_server_dispatch_finish_ts": request.received_at,
        }

    def _ended(self) -> dict[str, Any]:
        request = self._request
        seconds = request.finished_at - request.prefill_finished_at
        made = request.completion_tokens - 1
        return {
            "request_finished_ts": request.finished_at,
            "decode_throughput": made / seconds if seconds > 0 and made > 0 else 0.0,
        }
