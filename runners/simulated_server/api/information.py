"""Endpoints that report state: server and model information, loads, metrics."""

from __future__ import annotations

import gzip
import time
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from starlette.responses import Response

from runners.simulated_server.api.errors import json_response, validation_error
from runners.simulated_server.api.metrics import render

if TYPE_CHECKING:
    from starlette.requests import Request as HttpRequest

    from runners.simulated_server.api.http_counts import HttpCounts
    from runners.simulated_server.api.state import SimulatedServer


_PAGE = "text/plain; version=0.0.4; charset=utf-8"


class Information:
    """The endpoints of one server.

    Args:
        server: It.
        counts: Its HTTP requests so far.
    """

    def __init__(self, server: SimulatedServer, counts: HttpCounts) -> None:
        self._server = server
        self._counts = counts

    async def root(self, _: HttpRequest) -> Response:
        """A greeting."""
        return json_response("SGLang is running")

    async def server_info(self, _: HttpRequest) -> Response:
        """What the server runs."""
        return json_response(self._server.server_info())

    async def get_server_info(self, request: HttpRequest) -> Response:
        """The same under its old name."""
        self._deprecated("server_info")
        return await self.server_info(request)

    async def model_info(self, _: HttpRequest) -> Response:
        """What model it serves."""
        return json_response(self._server.model_info())

    async def get_model_info(self, request: HttpRequest) -> Response:
        """The same under its old name."""
        self._deprecated("model_info")
        return await self.model_info(request)

    async def models(self, _: HttpRequest) -> Response:
        """OpenAI's list of models."""
        return json_response({"object": "list", "data": [self._card()]})

    async def model(self, request: HttpRequest) -> Response:
        """One model of the list."""
        asked = request.path_params["model"]
        if asked == self._server.served_model_name:
            return json_response(self._card())
        error = {
            "message": f"The model '{asked}' does not exist",
            "type": "invalid_request_error",
            "param": "model",
            "code": "model_not_found",
        }
        return json_response({"error": error}, 404)

    async def loads(self, request: HttpRequest) -> Response:
        """What the scheduler carries."""
        found = answer(self._server, request)
        if isinstance(found, str):
            return Response(found, media_type=_PAGE)
        return json_response(found)

    async def metrics(self, request: HttpRequest) -> Response:
        """Prometheus's page; compressed where the client takes that, as its library does."""
        page = render(self._server, self._counts).encode()
        headers = {"vary": "Accept-Encoding"}
        if "gzip" in request.headers.get("accept-encoding", ""):
            page = gzip.compress(page, 1)
            headers["content-encoding"] = "gzip"
        return Response(page, media_type=_PAGE, headers=headers)

    def _card(self) -> dict[str, Any]:
        name = self._server.served_model_name
        return {
            "id": name,
            "object": "model",
            "created": int(time.time()),
            "owned_by": "sglang",
            "root": name,
            "parent": None,
            "max_model_len": self._server.context_length,
        }

    def _deprecated(self, name: str) -> None:
        self._server.log.main(
            f"Endpoint '/get_{name}' is deprecated and will be removed in a future version. "
            f"Please use '/{name}' instead."
        )


_SECTIONS = {
    "memory": "memory",
    "speculative": "spec",
    "disaggregation": "disagg",
    "queues": "queues",
}
_PREFIXES = {"speculative": "spec", "disaggregation": "disagg"}
_KNOWN = {"core", "lora", "all", *_SECTIONS.values()}


def answer(server: SimulatedServer, request: HttpRequest) -> dict[str, Any] | str:
    """The body: JSON, or text in Prometheus's format.

    Raises:
        ValueError: `include` names an unknown section (HTTP 500, as SGLang gives it).
        ApiError: `dp_rank` is no number.
    """
    query = request.query_params
    include = {part.strip() for part in query["include"].split(",")} if "include" in query else None
    if include is not None and not include <= _KNOWN:
        raise ValueError(
            f"Invalid include sections: {include - _KNOWN}. Valid options: {sorted(_KNOWN)}"
        )
    rank = _rank(request)
    loads = [] if rank not in (None, 0) else [_selected(snapshot(server), include)]
    if query.get("format") == "prometheus":
        return _prometheus(loads)
    return {
        "timestamp": datetime.now(UTC).isoformat(),
        "version": server.profile.sglang,
        "accelerator": server.accelerator,
        "num_accelerators": server.flags.tp_size,
        "loads": loads,
    }


def snapshot(server: SimulatedServer) -> dict[str, Any]:
    """Everything of the one scheduler.

    `decode_moments` stays null, as SGLang's is before the first decode: the simulation does not
    keep them.
    """
    engine = server.engine
    counters = engine.counters
    used = round(engine.token_usage * engine.limits.kv)
    prompts = sum(counters.prompt_tokens.values())
    load: dict[str, Any] = {
        "timestamp": time.time(),
        "dp_rank": 0,
        "num_running_reqs": engine.running,
        "num_waiting_reqs": engine.queued,
        "num_waiting_uncached_tokens": 0,
        "num_used_tokens": used,
        "num_total_tokens": used,
        "num_active_tokens": used,
        "num_prealloc_ready_tokens": 0,
        "max_total_num_tokens": engine.limits.kv,
        "max_running_requests": server.flags.max_running_requests,
        "token_usage": round(engine.token_usage, 4),
        "gen_throughput": round(counters.gen_throughput, 2),
        "cache_hit_rate": round(counters.cached_tokens / prompts, 4) if prompts else 0.0,
        "utilization": 0.0,
        "total_prefill_uncached_tokens": prompts - counters.cached_tokens,
        "total_prefill_busy_us": round(counters.forward_seconds.get("extend", 0.0) * 1e6),
        "decode_moments": None,
        "memory": {
            "weight_gb": server.memory["weight"],
            "kv_cache_gb": server.memory["kvcache"],
            "graph_gb": 0.0,
            "token_capacity": engine.limits.kv,
        },
    }
    if engine.speculating and not engine.busy and counters.average_accept_length is not None:
        load["speculative"] = {
            "accept_length": counters.average_accept_length,
            "accept_rate": counters.accept_rate,
        }
    load["disaggregation"] = {
        "mode": "null",
        "prefill_bootstrap_queue_reqs": 0,
        "prefill_inflight_queue_reqs": 0,
        "decode_prealloc_queue_reqs": 0,
        "decode_transfer_queue_reqs": 0,
        "decode_retracted_queue_reqs": 0,
        "kv_transfer_speed_gb_s": 0.0,
        "kv_transfer_latency_ms": 0.0,
    }
    load["queues"] = dict.fromkeys(
        ("waiting", "grammar", "paused", "retracted", "prealloc_ready"), 0
    ) | {"waiting": engine.queued}
    return load


def _selected(load: dict[str, Any], include: set[str] | None) -> dict[str, Any]:
    if include is None or "all" in include:
        return load
    return {
        key: value
        for key, value in load.items()
        if key not in _SECTIONS or _SECTIONS[key] in include
    }


def _prometheus(loads: list[dict[str, Any]]) -> str:
    lines = []
    for load in loads:
        for key, value in load.items():
            section = value if isinstance(value, dict) else {"": value}
            prefix = _PREFIXES.get(key, key)
            for name, number in section.items():
                if key == "dp_rank" or not isinstance(number, int | float):
                    continue
                metric = f"sglang_{prefix}_{name}" if name else f"sglang_{key}"
                lines += [f"# TYPE {metric} gauge", f'{metric}{{dp_rank="0"}} {number}']
    return "\n".join(lines) + "\n"


def _rank(request: HttpRequest) -> int | None:
    given = request.query_params.get("dp_rank")
    if given is None:
        return None
    try:
        return int(given)
    except ValueError:
        fault = {
            "type": "int_parsing",
            "loc": ("query", "dp_rank"),
            "msg": "Input should be a valid integer, unable to parse string as an integer",
            "input": given,
        }
        raise validation_error(request.scope, [fault]) from None
