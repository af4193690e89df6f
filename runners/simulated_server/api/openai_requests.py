"""Bodies of the OpenAI endpoints, with SGLang 0.5.23's defaults (`entrypoints/openai/protocol.py`).

The models have the fields that affect the simulation; other fields are ignored.
"""

from __future__ import annotations

from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, field_validator, model_validator

from runners.simulated_server.api.errors import openai_error
from runners.simulated_server.engine import tokens

Role = Literal[
    "user", "system", "assistant", "tool", "function", "developer", "latest_reminder", "root"
]


class _Body(BaseModel):
    model_config = ConfigDict(extra="ignore")


class StreamOptions(_Body):
    """`stream_options`."""

    include_usage: bool | None = False
    continuous_usage_stats: bool | None = False


class OpenAIBody(_Body):
    """Fields of both endpoints."""

    model: str = "default"
    n: int = 1
    stream: bool = False
    stream_options: StreamOptions | None = None
    stop: str | list[str] | None = None
    stop_token_ids: list[int] | None = None
    frequency_penalty: float = 0.0
    presence_penalty: float = 0.0
    ignore_eos: bool = False
    min_tokens: int = 0
    rid: str | list[str] | None = None
    return_cached_tokens_details: bool = False
    return_spec_tokens_details: bool = False
    return_token_ids: bool = False

    @property
    def include_usage(self) -> bool:
        return bool(self.stream_options and self.stream_options.include_usage)

    @property
    def continuous_usage(self) -> bool:
        """Whether each chunk has the usage so far."""
        return bool(self.stream_options and self.stream_options.continuous_usage_stats)

    def common_sampling(self) -> dict[str, Any]:
        """Return the sampling parameters of both endpoints under `/generate`'s names."""
        return {
            "n": self.n,
            "stop": self.stop,
            "stop_token_ids": self.stop_token_ids,
            "frequency_penalty": self.frequency_penalty,
            "presence_penalty": self.presence_penalty,
            "ignore_eos": self.ignore_eos,
            "min_new_tokens": self.min_tokens,
        }


class CompletionBody(OpenAIBody):
    """`/v1/completions`."""

    prompt: list[int] | list[list[int]] | str | list[str]
    echo: bool = False
    logprobs: int | None = None
    max_tokens: int = 16
    temperature: float = 1.0
    top_p: float = 1.0
    top_k: int = -1
    min_p: float = 0.0
    repetition_penalty: float = 1.0

    @field_validator("max_tokens")
    @classmethod
    def _positive(cls, value: int) -> int:
        if value <= 0:
            raise ValueError("max_tokens must be positive")
        return value

    def sampling(self) -> dict[str, Any]:
        return self.common_sampling() | {
            "max_new_tokens": self.max_tokens,
            "temperature": self.temperature,
            "top_p": self.top_p,
            "top_k": self.top_k,
            "min_p": self.min_p,
            "repetition_penalty": self.repetition_penalty,
        }

    def prompts(self) -> list[list[int]]:
        """Return the token ids of the prompts.

        Raises:
            ApiError: The prompt is empty.
        """
        given: Any = self.prompt
        if not given or (isinstance(given, list) and not any(given)):
            raise openai_error("Prompt cannot be empty")
        if isinstance(given, str):
            return [tokens.tokenize(given)]
        if isinstance(given[0], int):
            return [given]
        return [tokens.tokenize(one) if isinstance(one, str) else one for one in given]

    def echoed(self) -> list[str]:
        """Return the prompts that precede the answers with `echo`."""
        if not self.echo:
            return []
        given: Any = self.prompt
        if isinstance(given, str):
            return [given]
        many = given if not isinstance(given[0], int) else [given]
        return [one if isinstance(one, str) else tokens.text_of(one) for one in many]


class Message(_Body):
    """A message of a chat."""

    role: Role
    content: str | list[dict[str, Any]] | None = None

    @property
    def text(self) -> str:
        """Text of the message; images and audio are ignored."""
        if isinstance(self.content, list):
            return "".join(str(part.get("text", "")) for part in self.content)
        return self.content or ""


class ChatBody(OpenAIBody):
    """`/v1/chat/completions`."""

    messages: list[Message]
    max_tokens: int | None = None
    max_completion_tokens: int | None = None
    temperature: float | None = None
    top_p: float | None = None
    top_k: int | None = None
    min_p: float | None = None
    repetition_penalty: float | None = None
    logprobs: bool = False
    return_meta_info: bool = False
    input_ids: list[int] | None = None

    @model_validator(mode="before")
    @classmethod
    def _no_tools(cls, given: Any) -> Any:  # noqa: ANN401 - whatever the client sent
        # SGLang adds this field to the body, so validation errors show it.
        if isinstance(given, dict) and not given.get("tools"):
            given.setdefault("tool_choice", "none")
        return given

    def sampling(self) -> dict[str, Any]:
        limit = self.max_completion_tokens
        return self.common_sampling() | {
            "max_new_tokens": self.max_tokens if limit is None else limit,
            "temperature": self.temperature,
            "top_p": self.top_p,
            "top_k": self.top_k,
            "min_p": self.min_p,
            "repetition_penalty": self.repetition_penalty,
        }

    def prompt(self) -> list[int]:
        """Return the token ids of the messages in the simulation's chat template.

        Raises:
            ApiError: The body has no messages.
        """
        if not self.messages:
            raise openai_error("Messages cannot be empty.")
        if self.input_ids is not None:
            return self.input_ids
        turns = "".join(f"<|{one.role}|>\n{one.text}\n" for one in self.messages)
        return tokens.tokenize(f"{turns}<|assistant|>\n")
