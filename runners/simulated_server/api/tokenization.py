"""`/v1/tokenize` and `/v1/detokenize`, in the simulated model's own simple tokens."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from pydantic import BaseModel, ConfigDict, model_validator

from runners.simulated_server.api.errors import ApiError, json_response
from runners.simulated_server.api.openai_replies import parse, read
from runners.simulated_server.api.openai_requests import Message, rendered
from runners.simulated_server.engine import tokens

if TYPE_CHECKING:
    from starlette.types import Receive, Scope, Send


class _TokenizeBody(BaseModel):
    model_config = ConfigDict(extra="ignore")

    prompt: str | list[str] | None = None
    messages: list[Message] | None = None

    @model_validator(mode="after")
    def _one(self) -> _TokenizeBody:
        if (self.prompt is None) == (self.messages is None):
            raise ValueError("Exactly one of 'prompt' or 'messages' must be provided.")
        return self


class _DetokenizeBody(BaseModel):
    model_config = ConfigDict(extra="ignore")

    tokens: list[int] | list[list[int]]


class TokenizeEndpoint:
    """Text into token ids.

    Args:
        max_model_len: What it says of the context length.
    """

    def __init__(self, max_model_len: int) -> None:
        self._max_model_len = max_model_len

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serves one HTTP request."""
        raw, is_json = await read(scope, receive)
        try:
            body = parse(raw, scope, json=is_json, model=_TokenizeBody)
        except ApiError as error:
            await error.response()(scope, receive, send)
            return
        found: Any
        count: Any
        if isinstance(body.prompt, list):
            found = [tokens.tokenize(text) for text in body.prompt]
            count = [len(ids) for ids in found]
        else:
            found = tokens.tokenize(
                body.prompt if body.prompt is not None else rendered(body.messages or [])
            )
            count = len(found)
        reply = {"tokens": found, "count": count, "max_model_len": self._max_model_len}
        await json_response(reply)(scope, receive, send)


class DetokenizeEndpoint:
    """Token ids into text."""

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serves one HTTP request."""
        raw, is_json = await read(scope, receive)
        try:
            body = parse(raw, scope, json=is_json, model=_DetokenizeBody)
        except ApiError as error:
            await error.response()(scope, receive, send)
            return
        given: Any = body.tokens
        nested = bool(given) and isinstance(given[0], list)
        text = [tokens.text_of(ids) for ids in given] if nested else tokens.text_of(given)
        await json_response({"text": text})(scope, receive, send)
