"""`/metrics`: SGLang 0.5.23's page, family by family as it was recorded, with the live values.

What the simulation has nothing to say of is 0, as on a server that does not use it.
"""

from __future__ import annotations

import json
import math
import os
import time
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

from runners.simulated_server.observations import Observations

if TYPE_CHECKING:
    from collections.abc import Iterable

    from runners.simulated_server.http_counts import HttpCounts
    from runners.simulated_server.observations import Histogram
    from runners.simulated_server.state import SimulatedServer

_FAMILIES = Path(__file__).parent / "data" / "metrics_0.5.23.json"
_PREFIX = "sglang:"
_ALWAYS = frozenset(
    {"dp_attention_token_imbalance_ratio", "dp_attention_sync_wait_seconds"}
    | {"per_stage_req_latency_seconds", "queue_time_seconds"}
)
"""Histograms that are there before anything was observed."""

DEVICE_TIMER = "SGLANG_ENABLE_METRICS_DEVICE_TIMER"
"""A variable: with it SGLang times the device, and tells of each kind of forward."""

Series = list[tuple[dict[str, str], float]]


@dataclass(frozen=True, slots=True)
class _Family:
    name: str
    kind: str
    help: str
    series: tuple[dict[str, str], ...]
    buckets: tuple[str, ...] = ()


@cache
def _families() -> tuple[_Family, ...]:
    return tuple(
        _Family(
            entry["name"].removeprefix(_PREFIX),
            entry["type"],
            entry["help"],
            tuple(entry["series"]),
            tuple(entry.get("buckets", ())),
        )
        for entry in json.loads(_FAMILIES.read_text())
    )


def new_observations() -> Observations:
    """Histograms with SGLang's buckets."""
    return Observations({one.name: list(one.buckets) for one in _families() if one.buckets})


def render(server: SimulatedServer, counts: HttpCounts) -> str:
    """The page. Counters appear, as in SGLang, once something was counted."""
    name = server.served_model_name.replace("\\", "\\\\").replace('"', '\\"')
    known = {"model_name": name, "pid": str(os.getpid())}
    gauges = _gauges(server)
    every = frozenset(gauges)
    server.hooks.metrics(gauges)
    withheld = every - gauges.keys()
    counted = _counted(server, counts)
    lines: list[str] = []
    for family in _families():
        if family.name in withheld:
            continue
        full = _PREFIX + family.name
        if family.kind == "histogram":
            body = _histogram(family, full, known, server.observations.series.get(family.name))
        elif family.name in counted:
            base = family.series[0] | _known_of(family, known)
            body = [
                f"{full}{_labels(base | extra)} {float(value)}"
                for extra, value in counted[family.name]
            ]
        else:
            value = _number(gauges.get(family.name, 0.0))
            body = [
                f"{full}{_labels(series | _known_of(family, known))} {value}"
                for series in family.series
            ]
        if body:
            lines += [f"# HELP {full} {family.help}", f"# TYPE {full} {family.kind}", *body]
    return "\n".join(lines) + "\n"


def _known_of(family: _Family, known: dict[str, str]) -> dict[str, str]:
    """Those labels that the family has."""
    return {key: value for key, value in known.items() if key in family.series[0]}


def _gauges(server: SimulatedServer) -> dict[str, float]:
    engine = server.engine
    counters, kv = engine.counters, engine.limits.kv
    usage = engine.token_usage
    prompts = sum(counters.prompt_tokens.values())
    memory = server.memory
    return {
        "num_running_reqs": engine.running,
        "num_queue_reqs": engine.queued,
        "gen_throughput": counters.gen_throughput,
        "cache_hit_rate": counters.cached_tokens / prompts if prompts else 0.0,
        "token_usage": usage,
        "full_token_usage": usage,
        "num_used_tokens": round(usage * kv),
        "kv_used_tokens": round(usage * kv),
        "kv_available_tokens": kv - round(usage * kv),
        "spec_accept_length": counters.accept_length,
        "spec_accept_rate": counters.accept_rate,
        "spec_num_steps": counters.shown_steps,
        "spec_num_draft_tokens": counters.shown_draft_tokens,
        "max_total_num_tokens": kv,
        "page_size": float(server.flags.values.get("page_size") or 1),
        "num_pages": kv // int(server.flags.values.get("page_size") or 1),
        "context_len": server.context_length,
        "weight_memory_usage_gb": memory["weight"],
        "kv_cache_memory_usage_gb": memory["kvcache"],
        "startup_available_gpu_memory_gb": memory["startup_available"],
        "new_token_ratio": 0.7,
        "fwd_occupancy": math.nan,
        "scheduler_process_cpu_seconds_total": time.process_time(),
    }


def _counted(server: SimulatedServer, counts: HttpCounts) -> dict[str, Series]:
    """Families of several series, or of one that is there once it was counted."""
    engine, counters = server.engine, server.engine.counters

    def streamed(found: dict[bool, int]) -> Series:
        return [({"is_streaming": str(key).lower()}, found[key]) for key in sorted(found)]

    def by(label: str, found: dict[str, float]) -> Series:
        return [({label: key}, value) for key, value in found.items()]

    prompts, cached = sum(counters.prompt_tokens.values()), counters.cached_tokens
    decoded = sum(counters.generation_tokens.values())
    tokens = {"prefill_compute": prompts - cached, "decode": decoded, "prefill_cache": cached}
    effective = {"input": prompts - cached, "device_hit": cached, "host_hit": 0, "storage_hit": 0}
    times = server.startup_times
    timed = bool(os.environ.get(DEVICE_TIMER, "0") not in {"", "0", "false", "False"})
    return {
        "prompt_tokens_total": streamed(counters.prompt_tokens),
        "generation_tokens_total": streamed(counters.generation_tokens),
        "num_requests_total": streamed(counters.requests),
        "spec_verify_calls_total": _if(counters.verify_calls, {}, when=engine.speculating),
        "cached_tokens_total": _if(cached, {"cache_source": "device"}),
        "num_aborted_requests_total": _if(server.observations.aborted, {}),
        "realtime_tokens_total": by("mode", dict(tokens)) if prompts else [],
        "prefill_effective_tokens_total": by("mode", dict(effective)),
        "cuda_graph_passes_total": [],
        "process_cpu_seconds_total": [],
        "forward_execution_seconds_total": (
            by("category", counters.forward_seconds) if timed else []
        ),
        "startup_time_seconds": by(
            "phase", {k: v for k, v in times.items() if isinstance(v, float)}
        ),
        "startup_cuda_graph_time_seconds": by("phase", times.get("cuda_graph", {})),
        "http_requests_total": [
            ({"endpoint": path, "method": method}, count)
            for (path, method), count in counts.requests.items()
        ],
        "http_requests_active": [
            ({"endpoint": path, "method": method}, count)
            for (path, method), count in counts.active.items()
        ],
        "http_responses_total": [
            ({"endpoint": path, "method": method, "status_code": str(status)}, count)
            for (path, method, status), count in counts.responses.items()
        ],
    }


def _if(count: int, extra: dict[str, str], *, when: bool = True) -> Series:
    return [(extra, count)] if count and when else []


def _histogram(
    family: _Family, full: str, known: dict[str, str], found: dict[str, Histogram] | None
) -> Iterable[str]:
    if found is None and family.name not in _ALWAYS:
        return []
    lines: list[str] = []
    if found is None or family.name == "per_stage_req_latency_seconds":
        shown: list[tuple[dict[str, str], Histogram | None]] = [(s, None) for s in family.series]
    else:
        shown = [
            (family.series[0] | ({"is_streaming": key} if key else {}), one)
            for key, one in found.items()
        ]
    for series, histogram in shown:
        labels = series | _known_of(family, known)
        counts = histogram.cumulative if histogram else [0] * len(family.buckets)
        plain = _labels(labels)
        lines.append(f"{full}_sum{plain} {histogram.sum if histogram else 0.0}")
        lines += [
            f"{full}_bucket{_labels(labels | {'le': bound})} {float(count)}"
            for bound, count in zip(family.buckets, counts, strict=True)
        ]
        lines.append(f"{full}_count{plain} {float(counts[-1])}")
    return lines


def _labels(labels: dict[str, str]) -> str:
    if not labels:
        return ""
    return "{" + ",".join(f'{key}="{labels[key]}"' for key in sorted(labels)) + "}"


def _number(value: float) -> str:
    return "NaN" if math.isnan(value) else str(float(value))
