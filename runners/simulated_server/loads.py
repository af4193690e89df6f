"""`/v1/loads`: what the scheduler carries, field by field as SGLang 0.5.23 gives it."""

from __future__ import annotations

import time
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from runners.simulated_server.errors import validation_error

if TYPE_CHECKING:
    from starlette.requests import Request as HttpRequest

    from runners.simulated_server.state import SimulatedServer

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
