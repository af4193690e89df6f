"""`POST /v1/chat/completions`, streaming and not."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import orjson

from runners.simulated_server.api.errors import ApiError, as_openai, openai_error
from runners.simulated_server.api.jobs import Job, Wanted
from runners.simulated_server.api.openai_replies import (
    OpenAIEndpoint,
    OpenAIEvents,
    checked_sampling,
    finish_of,
)
from runners.simulated_server.api.openai_requests import ChatBody

if TYPE_CHECKING:
    from starlette.types import Scope

    from runners.simulated_server.api.replies import ReplyWriter

_KIND = "chat.completion.chunk"


class ChatEndpoint(OpenAIEndpoint[ChatBody]):
    """The endpoint."""

    model = ChatBody
    kind = "chat.completion"

    def _events(self, body: ChatBody, writers: list[ReplyWriter]) -> ChatEvents:
        return ChatEvents(body, writers, cache_report=self._server.cache_report)

    def _job(self, body: ChatBody, scope: Scope) -> Job:
        ids = body.prompt()
        if body.return_meta_info and body.stream:
            raise openai_error(
                "return_meta_info is not supported with streaming. Please set stream=false when "
                "using return_meta_info=true.",
                "BadRequest",
            )
        if body.logprobs:
            raise openai_error("the simulated server has no logits: logprobs are not supported")
        sampling = checked_sampling(body.sampling())
        rids = body.rid if isinstance(body.rid, list) else [body.rid]
        try:
            return Job(self._server, [Wanted(ids, sampling, rids[0] if rids else None)], scope)
        except ApiError as error:
            raise as_openai(error) from error

    def _choices(self, body: ChatBody, writers: list[ReplyWriter]) -> list[dict[str, Any]]:
        choices = []
        for i, writer in enumerate(writers):
            message = {"role": "assistant", "content": writer.text, "reasoning_content": None}
            choice: dict[str, Any] = {
                "index": i,
                "message": message,
                "logprobs": None,
                **finish_of(writer),
            }
            if body.return_token_ids:
                choice["prompt_token_ids"] = writer.prompt_ids
                choice["token_ids"] = writer.request.output_ids
            if body.return_meta_info:
                choice["meta_info"] = writer.meta_info()
            choices.append(choice)
        return choices


class ChatEvents(OpenAIEvents):
    """The events of a stream: the role, the text where there is any, the finishes, the usage."""

    def __init__(self, body: ChatBody, writers: list[ReplyWriter], *, cache_report: bool) -> None:
        super().__init__(body, writers, cache_report=cache_report, kind=_KIND)
        self._starts = [
            head + b'{"index":%d,"delta":{"reasoning_content":null' % i
            for i, head in enumerate(self._heads)
        ]
        self._begun = [False] * len(writers)
        self._ended: list[int] = []
        self._continuous = body.continuous_usage

    def events(self, index: int, sent: int) -> bytes:
        writer = self._writers[index]
        start = self._starts[index]
        parts: list[bytes] = []
        if not self._begun[index]:
            self._begun[index] = True
            parts += [start, b',"role":"assistant","content":""},', _OPEN, b"}\n\n"]
        text = writer.encoded.text_between(sent, writer.request.completion_tokens)
        if text:
            parts += [start, b',"content":"', text, b'"},', _OPEN]
            if self._continuous:
                parts += [b',"usage":', self._usage_so_far(index)]
            parts.append(b"}\n\n")
        if writer.request.finish is not None:
            self._ended.append(index)
        return b"".join(parts)

    def end(self) -> bytes:
        parts: list[bytes] = []
        for index in self._ended:
            reason = orjson.dumps({"logprobs": None, **finish_of(self._writers[index])})
            parts += [self._starts[index], b"},", reason[1:-1], b"}]}\n\n"]
        # `sglext` and usage come after all of them, even where a choice ended long before.
        return b"".join((*parts, self._end(orjson.dumps)))


_OPEN = b'"logprobs":null,"finish_reason":null,"matched_stop":null}]'
