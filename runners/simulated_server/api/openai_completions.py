"""`POST /v1/completions`, streaming and not."""

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
from runners.simulated_server.api.openai_requests import CompletionBody

if TYPE_CHECKING:
    from starlette.types import Scope

    from runners.simulated_server.api.replies import ReplyWriter

_KIND = "text_completion"


class CompletionsEndpoint(OpenAIEndpoint[CompletionBody]):
    """The endpoint."""

    model = CompletionBody
    kind = _KIND

    def _events(self, body: CompletionBody, writers: list[ReplyWriter]) -> CompletionEvents:
        return CompletionEvents(body, writers, cache_report=self._server.cache_report)

    def _job(self, body: CompletionBody, scope: Scope) -> Job:
        if body.logprobs is not None:
            raise openai_error("the simulated server has no logits: logprobs are not supported")
        prompts = body.prompts()
        sampling = checked_sampling(body.sampling())
        rids = body.rid if isinstance(body.rid, list) else [body.rid]
        rids += [None] * (len(prompts) - len(rids))
        try:
            wanted = [Wanted(ids, sampling, rids[i]) for i, ids in enumerate(prompts)]
            return Job(self._server, wanted, scope)
        except ApiError as error:
            raise as_openai(error) from error

    def _choices(self, body: CompletionBody, writers: list[ReplyWriter]) -> list[dict[str, Any]]:
        n, echoed = max(1, body.n), body.echoed()
        choices = []
        for i, writer in enumerate(writers):
            text = (echoed[i // n] if echoed else "") + writer.text
            choice = {"index": i, "text": text, "logprobs": None, **finish_of(writer)}
            if body.return_token_ids:
                choice["token_ids"] = writer.request.output_ids
                choice["prompt_token_ids"] = writer.prompt_ids
            choices.append(choice)
        return choices


class CompletionEvents(OpenAIEvents):
    """The events of a stream: one for every chunk, also where its text is empty."""

    def __init__(
        self, body: CompletionBody, writers: list[ReplyWriter], *, cache_report: bool
    ) -> None:
        super().__init__(body, writers, cache_report=cache_report, kind=_KIND)
        self._starts = [head + b'{"index":%d,"text":"' % i for i, head in enumerate(self._heads)]
        self._echoed = [orjson.dumps(text)[1:-1] for text in body.echoed()]
        self._n = max(1, body.n)
        self._ids = body.return_token_ids
        self._continuous = body.continuous_usage

    def events(self, index: int, sent: int) -> bytes:
        writer = self._writers[index]
        request = writer.request
        made = request.completion_tokens
        parts = [self._starts[index]]
        if self._echoed and sent == 0:
            parts.append(self._echoed[index // self._n])
        parts.append(writer.encoded.text_between(sent, made))
        if request.finish is None:
            parts.append(b'","logprobs":null,"finish_reason":null,"matched_stop":null')
        else:
            ended = orjson.dumps({"logprobs": None, **finish_of(writer)})
            parts += [b'",', ended[1:-1]]
        if self._ids:
            parts += [b',"token_ids":[', writer.encoded.ids_between(sent, made), b"]"]
            if sent == 0:
                parts += [b',"prompt_token_ids":', orjson.dumps(writer.prompt_ids)]
        if self._continuous:
            parts += [b'}],"usage":', self._usage_so_far(index), b"}\n\n"]
        else:
            parts.append(b'}],"usage":null}\n\n')
        return b"".join(parts)

    def end(self) -> bytes:
        return self._end(_without_nulls)


def _without_nulls(found: dict[str, Any]) -> bytes:
    return orjson.dumps({key: value for key, value in found.items() if value is not None})
