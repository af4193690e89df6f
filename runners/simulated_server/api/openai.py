"""`/v1/completions` and `/v1/chat/completions`, as SGLang 0.5.23 answers them."""

from __future__ import annotations

import abc
import time
from typing import TYPE_CHECKING, Any, Generic, TypeVar

import orjson
from pydantic import BaseModel, ValidationError

from runners.simulated_server.api import sampling
from runners.simulated_server.api.errors import (
    ApiError,
    as_openai,
    bad_body,
    bad_json,
    missing_body,
    not_json_type,
    openai_error,
)
from runners.simulated_server.api.jobs import Job, Wanted, read_body, send_json
from runners.simulated_server.api.openai_requests import ChatBody, CompletionBody, OpenAIBody
from runners.simulated_server.api.streaming import DONE, EventWriter, stream

if TYPE_CHECKING:
    from collections.abc import Callable

    from starlette.types import Receive, Scope, Send

    from runners.simulated_server.api.replies import ReplyWriter
    from runners.simulated_server.api.sampling import Sampling
    from runners.simulated_server.api.state import SimulatedServer


_SPEC_FIELDS: dict[str, Any] = {
    "spec_accept_rate": 0.0,
    "spec_accept_length": 0.0,
    "spec_cap_length": 0.0,
    "spec_block_accept_length": 0.0,
    "spec_num_correct_drafts": 0,
    "spec_num_proposed_drafts": 0,
    "spec_verify_ct": 0,
    "spec_correct_drafts_histogram": [],
    "spec_cap_lens_histogram": [],
}


_Model = TypeVar("_Model", bound=BaseModel)
_Asked = TypeVar("_Asked", bound=OpenAIBody)


async def read(scope: Scope, receive: Receive) -> tuple[bytes, bool]:
    """Return the body, and whether its content type is JSON."""
    kind = dict(scope["headers"]).get(b"content-type", b"").lower()
    return await read_body(receive), kind.split(b";")[0].strip() == b"application/json"


def parse(raw: bytes, scope: Scope, *, json: bool, model: type[_Model]) -> _Model:
    """Parse a body.

    Raises:
        ApiError: The body is invalid.
    """
    if not json:
        raise not_json_type()
    if not raw:
        raise missing_body(scope)
    try:
        return model.model_validate(orjson.loads(raw))
    except orjson.JSONDecodeError as error:
        raise bad_json(scope, error) from error
    except ValidationError as error:
        raise bad_body(scope, error) from error


def checked_sampling(params: dict[str, Any]) -> Sampling:
    """Check sampling parameters.

    Raises:
        ApiError: A value is invalid; in the format of the OpenAI endpoints.
    """
    try:
        return sampling.check(params)
    except ApiError as error:
        raise as_openai(error) from error


def usage(writers: list[ReplyWriter], n: int, *, cache_report: bool) -> dict[str, Any]:
    """Return `usage` of finished answers; a prompt with several answers counts once."""
    metas = [writer.meta_info() for writer in writers]
    cached = sum(meta["cached_tokens"] for meta in metas[::n])
    return counts(
        sum(meta["prompt_tokens"] for meta in metas[::n]),
        sum(meta["completion_tokens"] for meta in metas),
        cached=cached if cache_report else None,
    )


def counts(prompt: int, completion: int, *, cached: int | None = None) -> dict[str, Any]:
    """Return SGLang's `UsageInfo`."""
    return {
        "prompt_tokens": prompt,
        "total_tokens": prompt + completion,
        "completion_tokens": completion,
        "prompt_tokens_details": None if cached is None else {"cached_tokens": cached},
        "reasoning_tokens": 0,
        "completion_tokens_details": None,
    }


def extension(body: OpenAIBody, writers: list[ReplyWriter]) -> dict[str, Any] | None:
    """Return `sglext`, SGLang's details on request."""
    metas = [writer.meta_info() for writer in writers]
    found: dict[str, Any] = {}
    if body.return_cached_tokens_details and (cached := metas[0]["cached_tokens_details"]):
        found["cached_tokens_details"] = cached
    if body.return_spec_tokens_details:
        details = [
            {name: meta.get(name, default) for name, default in _SPEC_FIELDS.items()}
            for meta in metas
            if "spec_verify_ct" in meta
        ]
        if details:
            found["spec_tokens_details"] = details if body.n > 1 else details[0]
    return found or None


def finish_of(writer: ReplyWriter) -> dict[str, Any]:
    """Return `finish_reason` and `matched_stop` of a finished answer."""
    reason = writer.meta_info()["finish_reason"] or {}
    return {"finish_reason": reason.get("type"), "matched_stop": reason.get("matched")}


class OpenAIEndpoint(abc.ABC, Generic[_Asked]):
    """An OpenAI endpoint as an ASGI application.

    Attributes:
        model: Model of the body.
        kind: `object` of the answer.
    """

    model: type[_Asked]
    kind: str

    def __init__(self, server: SimulatedServer) -> None:
        self._server = server

    @abc.abstractmethod
    def _job(self, body: _Asked, scope: Scope) -> Job:
        """Make the job; raises `ApiError` if the request is refused."""

    @abc.abstractmethod
    def _choices(self, body: _Asked, writers: list[ReplyWriter]) -> list[dict[str, Any]]:
        """Return the choices of a response that is not streamed."""

    @abc.abstractmethod
    def _events(self, body: _Asked, writers: list[ReplyWriter]) -> OpenAIEvents:
        """Return the writer of a stream's events."""

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        server = self._server
        raw, is_json = await read(scope, receive)
        try:
            server.hooks.admit()
            body = parse(raw, scope, json=is_json, model=self.model)
            job = self._job(body, scope)
        except ApiError as error:
            await error.response()(scope, receive, send)
            return

        async def answer() -> None:
            if body.stream:
                events = self._events(body, job.writers)
                await stream(job, events, send, server.stream_interval)
            else:
                await send_json(send, self._whole(body, await job.finished()))

        for request in job.requests:
            request.streaming = body.stream
        await job.run(receive, answer)

    def _whole(self, body: _Asked, writers: list[ReplyWriter]) -> dict[str, Any]:
        reply: dict[str, Any] = {
            "id": writers[0].request.rid,
            "object": self.kind,
            "created": int(time.time()),
            "model": body.model,
            "choices": self._choices(body, writers),
            "usage": usage(writers, max(1, body.n), cache_report=self._server.cache_report),
            "metadata": {
                "weight_version": "default",
                "weight_versions": writers[0].meta_info()["weight_versions"],
            },
        }
        if (added := extension(body, writers)) is not None:
            reply["sglext"] = added
        return reply


class OpenAIEvents(EventWriter):
    """Common part of the two streams.

    Args:
        cache_report: `--enable-cache-report`.
        kind: `object` of the chunks.
    """

    def __init__(
        self, body: OpenAIBody, writers: list[ReplyWriter], *, cache_report: bool, kind: str
    ) -> None:
        self._body = body
        self._writers = writers
        self._cache_report = cache_report
        self._created = int(time.time())
        self._kind = kind
        self._heads = [self._head(writer) for writer in writers]
        self._prompts = [writer.request.prompt_tokens for writer in writers]

    def _head(self, writer: ReplyWriter) -> bytes:
        head = {
            "id": writer.request.rid,
            "object": self._kind,
            "created": self._created,
            "model": self._body.model,
        }
        return b"data: " + orjson.dumps(head)[:-1] + b',"choices":['

    def _usage_so_far(self, index: int) -> bytes:
        made = self._writers[index].request.completion_tokens
        return orjson.dumps(counts(self._prompts[index], made))

    def _usage(self) -> dict[str, Any]:
        n = max(1, self._body.n)
        return usage(self._writers, n, cache_report=self._cache_report)

    def _end(self, encode_usage: Callable[[dict[str, Any]], bytes]) -> bytes:
        """Return the chunk with `sglext`, the chunk with the usage, and the end of the stream."""
        head, parts = self._heads[-1], []
        if (added := extension(self._body, self._writers)) is not None:
            parts += [head, b'],"usage":null,"sglext":', orjson.dumps(added), b"}\n\n"]
        if self._body.include_usage:
            parts += [head, b'],"usage":', encode_usage(self._usage()), b"}\n\n"]
        return b"".join((*parts, DONE))


class CompletionsEndpoint(OpenAIEndpoint[CompletionBody]):
    """`/v1/completions`."""

    model = CompletionBody
    kind = "text_completion"

    def _events(self, body: CompletionBody, writers: list[ReplyWriter]) -> CompletionEvents:
        return CompletionEvents(body, writers, cache_report=self._server.cache_report)

    def _job(self, body: CompletionBody, scope: Scope) -> Job:
        if body.logprobs is not None:
            raise openai_error("logprobs are not supported: the simulated server has no logits")
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
    """Events of a completion stream; a chunk without text has an event too."""

    def __init__(
        self, body: CompletionBody, writers: list[ReplyWriter], *, cache_report: bool
    ) -> None:
        super().__init__(body, writers, cache_report=cache_report, kind="text_completion")
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


class ChatEndpoint(OpenAIEndpoint[ChatBody]):
    """`/v1/chat/completions`."""

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
            raise openai_error("logprobs are not supported: the simulated server has no logits")
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
    """Events of a chat stream: role, non-empty texts, finish reasons, usage."""

    def __init__(self, body: ChatBody, writers: list[ReplyWriter], *, cache_report: bool) -> None:
        super().__init__(body, writers, cache_report=cache_report, kind="chat.completion.chunk")
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
        # `sglext` and usage follow the finish reasons of all choices.
        return b"".join((*parts, self._end(orjson.dumps)))


_OPEN = b'"logprobs":null,"finish_reason":null,"matched_stop":null}]'
