"""Requests to both servers: the recorded exchanges with the real server."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from .exchange import Exchange

BODIES = Path(__file__).parents[1] / "data" / "bodies" / "0.5.23-cpu"

_NEEDS_A_MODEL = {
    # No logits.
    *("generate_logprob", "generate_logprob_stream", "generate_top_logprobs"),
    *("completions_logprobs", "chat_logprobs"),
    # The ends depend on the model's text.
    *("generate_no_params", "generate_stop", "completions_stop", "chat_stop"),
}
_BY_CHANCE = {
    "completions_default_tokens",  # sampled: may end early
    "chat_bad_role",  # lists the roles in random order
}
_NEEDS_A_BUSY_SERVER = ("busy", "abort_")
_NOT_SIMULATED = (
    *("/ping", "/v1/loads", "/tokenize", "/v1/tokenize", "/detokenize", "/v1/detokenize"),
    *("/freeze_gc", "/configure_logging"),
)
"""Endpoints that neither the tuner nor a benchmark client calls."""

FOR_EVERY_KIND = (
    *("generate_ids", "generate_rid", "generate_batch_stream", "generate_batch_ids", "generate_n"),
    *("generate_one_token", "generate_zero_tokens", "generate_nothing", "generate_no_body"),
    *("generate_bad_type", "generate_unknown_param", "generate_temperature_-1"),
    *("generate_bad_json", "generate_bad_param_stream", "generate_too_long", "generate_at_limit"),
    *("generate_too_long_stream", "generate_too_many_tokens", "generate_get"),
    *("completions", "completions_usage", "completions_continuous", "completions_details"),
    *("completions_details_stream", "completions_bad_json", "completions_bad_temperature"),
    *("completions_too_long", "completions_batch_stream"),
    *("chat", "chat_usage", "chat_continuous", "chat_meta", "chat_meta_stream", "chat_details"),
    *("chat_details_stream", "chat_bad_temperature", "chat_too_many_tokens", "chat_no_messages"),
    *("get /v1/models", "get /v1/models/other", "get /model_info", "get /get_model_info"),
    *("get /server_info", "get /get_load", "get /nothing", "get /health"),
    *("flush post", "flush timeout", "flush bad timeout", "abort nobody", "abort bad"),
    *("set state", "set state unknown", "set state none", "ready"),
)
"""Exchanges that depend on the speculation, and one of each other kind. All others run with one
server only, because each takes the real server 0.1 s."""


def recorded_exchanges(name: str) -> list[dict[str, Any]]:
    """Return the recorded exchanges that the simulated server supports.

    Args:
        name: `standalone` (metrics, a tree of three steps) or `plain` (keys, other streams).
    """
    entries: list[dict[str, Any]] = json.loads((BODIES / f"exchanges_{name}.json").read_text())
    left_out = _NEEDS_A_MODEL | _BY_CHANCE
    return [
        entry
        for entry in entries
        if entry["name"] not in left_out
        and not entry["name"].startswith(_NEEDS_A_BUSY_SERVER)
        and not entry["path"].startswith(_NOT_SIMULATED)
    ]


def exchanges(*, every: bool) -> list[Exchange]:
    """Return all exchanges, or `FOR_EVERY_KIND`."""
    found = [Exchange.of(entry) for entry in recorded_exchanges("standalone")]
    if every:
        return found
    named = {exchange.name: exchange for exchange in found}
    return [named[name] for name in FOR_EVERY_KIND]
