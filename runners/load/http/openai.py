"""The OpenAI endpoints, of SGLang, vLLM and every other server that speaks them.

Tokens are counted by the server's own `usage`, never by chunks: a chunk carries as many tokens as
a verify accepts, so counting chunks would be wrong by the accept length, and most wrong for the
best configuration. `usage` is read from whichever chunk has it, also one with no `choices`.
"""

from __future__ import annotations

import abc
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import orjson

from results.records import Failure
from runners.base import RunnerError
from runners.load.http.answer import Answer, count_of
from runners.load.http.endpoint import Endpoint, MalformedStreamError, StreamReader
from runners.load.window.acceptance import acceptance_of

if TYPE_CHECKING:
    from runners.load.prompts.prompts import Prompt
    from search_spaces.workload import Workload

_DATA = b"data:"
_DONE = b"[DONE]"
# Sampling parameters that are called otherwise here (SGLang 0.5.23, vLLM).
_NAMES = {"min_new_tokens": "min_tokens", "sampling_seed": "seed"}
# What of a message's delta is generated: content, and what reasoning and tool parsers make of it.
_DELTAS = ("content", "reasoning_content", "reasoning", "tool_calls", "refusal")
NO_USAGE = (
    "no usage: the server did not say how many tokens it generated (stream_options.include_usage), "
    "and chunks are no tokens"
)


@dataclass(frozen=True, slots=True)
class Dialect:
    """What a server understands beyond OpenAI's own parameters.

    Attributes:
        is_sglang: Whether it is SGLang: it knows `/flush_cache`, and tells of acceptance and
            cached tokens when asked (`return_spec_tokens_details`, 0.5.23).
        continuous_usage: Whether each chunk may be asked for its counts (SGLang, vLLM).
        ignore_eos: Whether an answer can be made to have a fixed length (SGLang, vLLM).
    """

    is_sglang: bool = False
    continuous_usage: bool = True
    ignore_eos: bool = True


class OpenAIReader(StreamReader):
    """Reads one stream of completions or chat completions; see `StreamReader`."""

    def __init__(self) -> None:
        """Starts before the first byte."""
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
        """See `StreamReader.feed`: tokens under continuous usage, else chunks."""
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
        """Whether `feed` returned tokens: the first chunk that carried any decides."""
        return bool(self._continuous)

    def _event(self, data: bytes) -> int | None:
        try:
            event = orjson.loads(data)
        except orjson.JSONDecodeError as error:
            raise MalformedStreamError(f"an event of the stream is not JSON: {error}") from error
        if not isinstance(event, dict):
            raise MalformedStreamError("an event of the stream is not a JSON object")
        self._events += 1
        if (problem := _error_in(event)) is not None:
            self._error = self._error or problem
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
        """Notes what a choice says; says whether it carries generated tokens."""
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
        # Text may be empty while a character is incomplete: the tokens are there all the same.
        return bool(text) or (text is not None and choice.get("finish_reason") is None)

    def answer(self) -> Answer:
        """See `StreamReader.answer`."""
        if not self._events:
            raise MalformedStreamError("the stream ended without a single event")
        usage = self._usage or {}
        details = self._extension.get("spec_tokens_details")
        accepted = acceptance_of(details if isinstance(details, dict) else {})
        tokens = count_of(usage.get("completion_tokens"), "completion_tokens")
        return Answer(
            completion_tokens=tokens,
            prompt_tokens=count_of(usage.get("prompt_tokens"), "prompt_tokens"),
            cached_tokens=self._cached(usage),
            finish_reason=self._finish_reason,
            verify_calls=accepted.verify_calls,
            correct_drafts=accepted.correct_drafts,
            proposed_drafts=accepted.proposed_drafts,
            histogram=accepted.histogram,
            text="".join(self._text),
            error=self._problem(tokens),
        )

    def _problem(self, tokens: int | None) -> str | None:
        if self._error is not None:
            return self._error
        if self._finish_reason is None:
            return "the stream ended before the answer did"
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
        raise MalformedStreamError(f"the choices of an event are {choices!r:.60}")
    return choices


def _counted(usage: object) -> int | None:
    tokens = usage.get("completion_tokens") if isinstance(usage, dict) else None
    return count_of(tokens, "completion_tokens")


def _error_in(event: dict[str, Any]) -> str | None:
    error = event.get("error")
    if error is None and event.get("object") == "error":
        error = event
    if error is None:
        return None
    return str(error.get("message", error) if isinstance(error, dict) else error)


class _OpenAIEndpoint(Endpoint):
    """What both endpoints have in common."""

    def __init__(self, model: str, dialect: Dialect | None = None) -> None:
        """Remembers whom to ask.

        Args:
            model: The name under which the server knows the model (`/v1/models`).
            dialect: What the server understands; SGLang's and vLLM's common part if not given.
        """
        self._model = model
        self._dialect = dialect or Dialect()
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
        """The prompt, as this endpoint takes it."""


class CompletionsEndpoint(_OpenAIEndpoint):
    """`/v1/completions`: text or token ids, as they are."""

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
                f"prompt {prompt.id} is token ids, and {self.path} takes only text: bench another "
                "endpoint, or take other prompts"
            )
            raise RunnerError(Failure("chat_of_ids", "load", "study", message))
        return {"messages": [{"role": role, "content": text} for role, text in prompt.turns]}
