"""OpenAI endpoints of SGLang, vLLM and other servers: completions and chat completions.

The server's `usage` gives the token counts. Chunks are not counted: a chunk carries all tokens of a
verify, so a chunk count would be wrong by the accept length. `usage` may be in any chunk, also in a
chunk without `choices`.
"""

from __future__ import annotations

import abc
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import orjson

from results.records import Failure
from runners.base import RunnerError
from runners.load.http.acceptance import acceptance_of
from runners.load.http.endpoint import (
    Answer,
    Endpoint,
    MalformedStreamError,
    StreamReader,
    count_of,
)
from runners.load.http.generate import decode_event

if TYPE_CHECKING:
    from runners.load.prompts.prompts import Prompt
    from search_spaces.workload import Workload

_DATA = b"data:"
_DONE = b"[DONE]"
# OpenAI's names of SGLang's sampling parameters (SGLang 0.5.23, vLLM).
_NAMES = {"min_new_tokens": "min_tokens", "sampling_seed": "seed"}
# Generated parts of a message's delta: content, and the output of reasoning and tool parsers.
_DELTAS = ("content", "reasoning_content", "reasoning", "tool_calls", "refusal")
NO_USAGE = (
    "no usage: the server did not report the number of generated tokens "
    "(stream_options.include_usage), and the number of chunks is not the number of tokens"
)


@dataclass(frozen=True, slots=True)
class Dialect:
    """Parameters that a server accepts beyond OpenAI's own.

    Attributes:
        is_sglang: Whether the server is SGLang, which has `/flush_cache` and can report acceptance
            and cached tokens (`return_spec_tokens_details`, 0.5.23).
        continuous_usage: Whether the server can report token counts in each chunk (SGLang, vLLM).
        ignore_eos: Whether the server can give answers a fixed length (SGLang, vLLM).
    """

    is_sglang: bool = False
    continuous_usage: bool = True
    ignore_eos: bool = True


class OpenAIReader(StreamReader):
    """Read one stream of completions or chat completions; see `StreamReader`."""

    def __init__(self) -> None:
        self._rest = b""
        self._chunks = 0
        self._continuous: bool | None = None
        self._usage: dict[str, Any] | None = None
        self._extension: dict[str, Any] = {}
        self._finish_reason: str | None = None
        self._text: list[str] = []
        self._error: str | None = None
        self._events = 0

    def feed(self, raw: bytes) -> int | None:
        """See `StreamReader.feed`: tokens with continuous usage, else chunks."""
        if self._rest:
            raw = self._rest + raw
            self._rest = b""
        if not raw.endswith(b"\n"):
            raw, _, self._rest = raw.rpartition(b"\n")
        found = None
        for line in raw.splitlines():
            if not line.startswith(_DATA):
                continue
            data = line[len(_DATA) :].strip()
            if data and data != _DONE and (count := self._event(data)) is not None:
                found = count
        return found

    @property
    def counts_tokens(self) -> bool:
        """Whether `feed` returns tokens; the first chunk with tokens decides."""
        return bool(self._continuous)

    def _event(self, data: bytes) -> int | None:
        event = decode_event(data)
        self._events += 1
        error = event if event.get("object") == "error" else event.get("error")
        if error is not None:
            text = error.get("message", error) if isinstance(error, dict) else error
            self._error = self._error or str(text)
            return None
        usage = event.get("usage")
        if isinstance(usage, dict):
            self._usage = usage
        if isinstance(extension := event.get("sglext"), dict):
            self._extension |= extension
        carries = False
        for choice in _choices(event):
            carries = self._choice(choice) or carries
        counted = _counted(usage)
        if carries:
            self._chunks += 1
            if self._continuous is None:
                self._continuous = counted is not None
        if self._continuous:
            return counted
        return self._chunks if carries else None

    def _choice(self, choice: dict[str, Any]) -> bool:
        """Record one choice; return whether it carries generated tokens."""
        if (reason := choice.get("finish_reason")) is not None:
            self._finish_reason = str(reason)
        delta = choice.get("delta")
        if isinstance(delta, dict):
            parts = [delta.get(name) for name in _DELTAS]
            self._text += [part for part in parts if isinstance(part, str)]
            return any(parts)
        text = choice.get("text")
        if isinstance(text, str):
            self._text.append(text)
        # The text may be empty while a character is incomplete; the chunk still carries tokens.
        return bool(text) or (text is not None and choice.get("finish_reason") is None)

    def answer(self) -> Answer:
        """See `StreamReader.answer`."""
        if not self._events:
            raise MalformedStreamError("the stream ended without a single event")
        usage = self._usage or {}
        details = self._extension.get("spec_tokens_details")
        tokens = count_of(usage.get("completion_tokens"), "completion_tokens")
        return Answer(
            completion_tokens=tokens,
            prompt_tokens=count_of(usage.get("prompt_tokens"), "prompt_tokens"),
            cached_tokens=self._cached(usage),
            finish_reason=self._finish_reason,
            text="".join(self._text),
            error=self._problem(tokens),
            **acceptance_of(details if isinstance(details, dict) else {})._asdict(),
        )

    def _problem(self, tokens: int | None) -> str | None:
        if self._error is not None:
            return self._error
        if self._finish_reason is None:
            return "the stream ended before the answer was complete"
        if self._finish_reason == "abort":
            return "aborted by the server"
        return NO_USAGE if tokens is None else None

    def _cached(self, usage: dict[str, Any]) -> int | None:
        details = self._extension.get("cached_tokens_details")
        if isinstance(details, dict):
            places = (details.get("device"), details.get("host"), details.get("storage"))
            return sum(count_of(tokens, "cached_tokens_details") or 0 for tokens in places)
        details = usage.get("prompt_tokens_details")
        if not isinstance(details, dict):
            return None
        return count_of(details.get("cached_tokens"), "cached_tokens")


def _choices(event: dict[str, Any]) -> list[dict[str, Any]]:
    choices = event.get("choices") or []
    if not isinstance(choices, list) or not all(isinstance(choice, dict) for choice in choices):
        raise MalformedStreamError(f"an event has invalid choices: {choices!r:.60}")
    return choices


def _counted(usage: object) -> int | None:
    tokens = usage.get("completion_tokens") if isinstance(usage, dict) else None
    return count_of(tokens, "completion_tokens")


class _OpenAIEndpoint(Endpoint):
    """Common part of both endpoints."""

    def __init__(self, model: str, dialect: Dialect = Dialect()) -> None:
        """Set the model and the supported parameters.

        Args:
            model: The model's name at the server (`/v1/models`).
            dialect: Parameters that the server accepts.
        """
        self._model = model
        self._dialect = dialect
        self.has_controls = self._dialect.is_sglang

    def body(self, prompt: Prompt, workload: Workload) -> bytes:
        """See `Endpoint.body`."""
        options: dict[str, Any] = {"include_usage": True}
        if self._dialect.continuous_usage:
            options["continuous_usage_stats"] = True
        body: dict[str, Any] = {
            "model": self._model,
            **self._content(prompt),
            **{_NAMES.get(name, name): value for name, value in workload.sampling},
            "temperature": workload.temperature,
            "max_tokens": prompt.output_tokens or workload.output_tokens,
            "stream": True,
            "stream_options": options,
        }
        if self._dialect.ignore_eos and not workload.natural_length:
            body["ignore_eos"] = True
        if self._dialect.is_sglang:
            body["return_spec_tokens_details"] = True
            body["return_cached_tokens_details"] = True
        return orjson.dumps(body)

    def reader(self) -> OpenAIReader:
        """See `Endpoint.reader`."""
        return OpenAIReader()

    @abc.abstractmethod
    def _content(self, prompt: Prompt) -> dict[str, Any]:
        """The prompt in the format of this endpoint."""


class CompletionsEndpoint(_OpenAIEndpoint):
    """`/v1/completions`: text or token ids, without a chat template."""

    name = "completions"
    path = "/v1/completions"

    def _content(self, prompt: Prompt) -> dict[str, Any]:
        return {"prompt": prompt.text if prompt.input_ids is None else prompt.input_ids}


class ChatEndpoint(_OpenAIEndpoint):
    """`/v1/chat/completions`: the server applies the model's chat template."""

    name = "chat"
    path = "/v1/chat/completions"

    def _content(self, prompt: Prompt) -> dict[str, Any]:
        if not prompt.turns:
            message = (
                f"prompt {prompt.id} is token ids, which {self.path} does not accept: use another "
                "endpoint or prompts of text"
            )
            raise RunnerError(Failure("chat_of_ids", "load", "study", message))
        return {"messages": [{"role": role, "content": text} for role, text in prompt.turns]}
