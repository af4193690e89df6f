"""Sampling parameters: SGLang's checks and defaults.

Only the lengths and the stop conditions affect the simulated model, which always decodes greedily.

Source: SGLang 0.5.23, `api/v1/api_types.py` (the contract) and `srt/sampling/sampling_params.py`.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

from runners.simulated_server.api.errors import ApiError, native_error

DEFAULT_MAX_NEW_TOKENS = 128
"""Default of `max_new_tokens` in `/generate`."""

_EPSILON = 1e-6
_TYPES = {
    "max_new_tokens": "i64", "stop": "", "stop_token_ids": "a sequence", "stop_regex": "",
    "temperature": "f64", "top_p": "f64", "top_k": "i64", "min_p": "f64",
    "frequency_penalty": "f64", "presence_penalty": "f64", "repetition_penalty": "f64",
    "min_new_tokens": "i64", "n": "i64", "json_schema": "a string", "regex": "a string",
    "ebnf": "a string", "structural_tag": "a string", "ignore_eos": "a boolean",
    "skip_special_tokens": "a boolean", "spaces_between_special_tokens": "a boolean",
    "no_stop_trim": "a boolean", "stream_interval": "i64", "logit_bias": "a map",
    "sampling_seed": "i64", "custom_params": "", "beam_width": "i64", "watermark": "",
    "choice": "a sequence",
}  # fmt: skip
"""Fields of the contract with its names of their types."""

_GOOD: dict[str, tuple[type, ...]] = {
    "i64": (int,),
    "f64": (int, float),
    "a string": (str,),
    "a boolean": (bool,),
    "a sequence": (list,),
    "a map": (dict,),
}


@dataclass(frozen=True, slots=True)
class Sampling:
    """Sampling parameters with an effect.

    Attributes:
        max_new_tokens: Maximum tokens of the answer; `None`: limited by the context length.
        ignore_eos: Whether the answer continues after its natural end.
        stop: Texts that end an answer.
        stop_token_ids: Tokens that end an answer.
        stream_interval: Tokens per chunk; `None`: the server's value.
    """

    max_new_tokens: int | None
    ignore_eos: bool = False
    n: int = 1
    stop: tuple[str, ...] = ()
    stop_token_ids: frozenset[int] = frozenset()
    stream_interval: int | None = None


def check_contract(params: dict[str, Any]) -> None:
    """Check names and types, with the contract's messages.

    Raises:
        ApiError: A field is unknown or has the wrong type.
    """
    for name, value in params.items():
        if name not in _TYPES:
            known = ", ".join(f"`{field}`" for field in _TYPES)
            raise ApiError({"error": f"unknown field `{name}`, expected one of {known}"})
        expected = _TYPES[name]
        if value is None or not expected:
            continue
        wrong_bool = isinstance(value, bool) and expected != "a boolean"
        if wrong_bool or not isinstance(value, _GOOD[expected]):
            shown = _unexpected(value)
            raise ApiError({"error": f"invalid type: {shown}, expected {expected}"})


def check(params: dict[str, Any]) -> Sampling:
    """Check the values as `SamplingParams.verify` does.

    Raises:
        ApiError: A value is invalid; in the format of `/generate`.
    """
    for good, message in _checks(params):
        if not good:
            raise native_error(message)
    stop = params.get("stop") or ()
    n = params.get("n")
    return Sampling(
        max_new_tokens=params.get("max_new_tokens", DEFAULT_MAX_NEW_TOKENS),
        ignore_eos=bool(params.get("ignore_eos")),
        n=1 if n is None else n,
        stop=(stop,) if isinstance(stop, str) else tuple(stop),
        stop_token_ids=frozenset(params.get("stop_token_ids") or ()),
        stream_interval=params.get("stream_interval"),
    )


def _checks(params: dict[str, Any]) -> list[tuple[bool, str]]:
    def given(name: str, default: float) -> float:
        value: float | None = params.get(name)
        return default if value is None else value

    temperature, top_p = given("temperature", 1.0), given("top_p", 1.0)
    top_k, min_p = given("top_k", -1), given("min_p", 0.0)
    frequency, presence = given("frequency_penalty", 0.0), given("presence_penalty", 0.0)
    repetition, shortest = given("repetition_penalty", 1.0), given("min_new_tokens", 0)
    longest = params.get("max_new_tokens", DEFAULT_MAX_NEW_TOKENS)
    stop, tokens = params.get("stop") or [], params.get("stop_token_ids") or []
    greedy = 0 <= temperature < _EPSILON  # SGLang sets top_k to 1 before its check then
    return [
        (
            math.isfinite(temperature) and temperature >= 0.0,
            f"temperature must be a non-negative finite number, got {temperature}.",
        ),
        (0.0 < top_p <= 1.0, f"top_p must be in (0, 1], got {top_p}."),
        (0.0 <= min_p <= 1.0, f"min_p must be in [0, 1], got {min_p}."),
        (
            greedy or top_k == -1 or top_k >= 1,
            f"top_k must be -1 (disable) or at least 1, got {top_k}.",
        ),
        (
            -2.0 <= frequency <= 2.0,
            f"frequency_penalty must be in [-2, 2], got {frequency}.",
        ),
        (
            -2.0 <= presence <= 2.0,
            f"presence_penalty must be in [-2, 2], got {presence}.",
        ),
        (
            0.0 < repetition <= 2.0,
            f"repetition_penalty must be in (0, 2] (1.0 = no penalty), got {repetition}.",
        ),
        (shortest >= 0, f"min_new_tokens must be in [0, max_new_tokens], got {shortest}."),
        (
            longest is None or longest >= 0,
            f"max_new_tokens must be at least 0, got {longest}.",
        ),
        (
            longest is None or shortest <= longest,
            f"min_new_tokens must be in [0, max_new_tokens({longest})], got {shortest}.",
        ),
        (
            isinstance(stop, str) or _all(stop, str),
            f"stop must be a string or a list of strings, got {stop!r}.",
        ),
        (_all(tokens, int), f"stop_token_ids must be integers, got {tokens!r}."),
    ]


def _all(value: object, kind: type) -> bool:
    return isinstance(value, list) and all(isinstance(one, kind) for one in value)


def _unexpected(value: object) -> str:
    """Return the name of a value in serde's errors."""
    match value:
        case bool():
            return f"boolean `{str(value).lower()}`"
        case int():
            return f"integer `{value}`"
        case float():
            return f"floating point `{value}`"
        case str():
            return f'string "{value}"'
        case list():
            return "sequence"
        case _:
            return "map"
