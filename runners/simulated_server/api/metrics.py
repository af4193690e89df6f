"""`/metrics`: SGLang 0.5.23's page with the live values.

The recorded page gives the families, their order and their texts. A value without a model in the
simulation is 0, as on a server that does not use the feature.
"""

from __future__ import annotations

import json
import math
import os
import time
from collections import Counter
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from starlette.routing import Match

from runners.simulated_server.engine.counters import Observations

if TYPE_CHECKING:
    from collections.abc import MutableMapping

    from starlette.applications import Starlette
    from starlette.types import Receive, Scope, Send

    from runners.simulated_server.api.state import SimulatedServer
    from runners.simulated_server.engine.counters import Histogram


class HttpCounts:
    """Counts of HTTP requests and responses.

    Attributes:
        requests: Requests by endpoint and method.
        responses: Responses by endpoint, method and status.
        active: Unfinished requests by endpoint and method.
    """

    def __init__(self) -> None:
        self.requests: Counter[tuple[str, str]] = Counter()
        self.responses: Counter[tuple[str, str, int]] = Counter()
        self.active: Counter[tuple[str, str]] = Counter()


class CountHttp:
    """Middleware that counts requests and responses; a response counts at its start."""

    def __init__(self, application: Starlette, counts: HttpCounts) -> None:
        self._application = application
        self._counts = counts

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._application(scope, receive, send)
            return
        counts, method = self._counts, scope["method"]
        endpoint = self._endpoint(scope)
        counts.requests[endpoint, method] += 1
        counts.active[endpoint, method] += 1

        async def counted(message: MutableMapping[str, Any]) -> None:
            if message["type"] == "http.response.start":
                counts.responses[endpoint, method, message["status"]] += 1
            await send(message)

        try:
            await self._application(scope, receive, counted)
        finally:
            counts.active[endpoint, method] -= 1

    def _endpoint(self, scope: Scope) -> str:
        for route in self._application.routes:
            match, _ = route.matches(scope)
            if match == Match.FULL:
                return str(getattr(route, "path", scope["path"]))
        return str(scope["path"])


_FAMILIES = Path(__file__).parents[1] / "data" / "metrics_0.5.23.json"
_PREFIX = "sglang:"
_ALWAYS = frozenset(
    {"dp_attention_token_imbalance_ratio", "dp_attention_sync_wait_seconds"}
    | {"per_stage_req_latency_seconds", "queue_time_seconds"}
)
"""Histograms that the page has before their first value."""

DEVICE_TIMER = "SGLANG_ENABLE_METRICS_DEVICE_TIMER"
"""Variable that turns on SGLang's device timer."""

Series = list[tuple[dict[str, str], float]]


class _Family:
    """One family with its constant text prepared, which makes a scrape cheap."""

    def __init__(self, entry: dict[str, Any], known: dict[str, str]) -> None:
        self.full: str = entry["name"]
        self.name = self.full.removeprefix(_PREFIX)
        self.kind: str = entry["type"]
        self.head = f"# HELP {self.full} {entry['help']}\n# TYPE {self.full} {self.kind}"
        self.buckets: list[str] = entry.get("buckets", [])
        self.series: list[dict[str, str]] = [
            {key: known.get(key, value) for key, value in series.items()}
            for series in entry["series"]
        ]
        self.prefixes = [f"{self.full}{_labels(series)} " for series in self.series]
        self.zeros = [f"{prefix}0.0" for prefix in self.prefixes]
        self._bucketed: dict[int, tuple[str, list[str], str]] = {}

    def labels(self, extra: dict[str, str]) -> str:
        """Return the labels of a counted series."""
        return _labels(self.series[0] | extra)

    def bucketed(self, index: int) -> tuple[str, list[str], str]:
        """Return the text before the sum, each bucket and the count of a histogram's series."""
        if index not in self._bucketed:
            series = self.series[index]
            plain = _labels(series)
            self._bucketed[index] = (
                f"{self.full}_sum{plain} ",
                [f"{self.full}_bucket{_labels(series | {'le': bound})} " for bound in self.buckets],
                f"{self.full}_count{plain} ",
            )
        return self._bucketed[index]


@cache
def _families(model_name: str) -> tuple[_Family, ...]:
    escaped = model_name.replace("\\", "\\\\").replace('"', '\\"')
    known = {"model_name": escaped, "pid": str(os.getpid())}
    return tuple(_Family(entry, known) for entry in json.loads(_FAMILIES.read_text()))


def new_observations() -> Observations:
    """Make the histograms with SGLang's buckets."""
    return Observations({one.name: list(one.buckets) for one in _families("") if one.buckets})


def render(server: SimulatedServer, counts: HttpCounts) -> str:
    """Return the page. As in SGLang, a counter appears with its first count."""
    gauges = _gauges(server)
    every = frozenset(gauges)
    server.hooks.metrics(gauges)
    withheld = every - gauges.keys()
    counted = _counted(server, counts)
    lines: list[str] = []
    for family in _families(server.served_model_name):
        if family.name in withheld:
            continue
        if family.kind == "histogram":
            body = _histogram(family, server.observations.series.get(family.name))
        elif family.name in counted:
            body = [
                f"{family.full}{family.labels(extra)} {float(value)}"
                for extra, value in counted[family.name]
            ]
        elif family.name in gauges:
            number = _number(gauges[family.name])
            body = [f"{prefix}{number}" for prefix in family.prefixes]
        else:
            body = list(family.zeros)
        if body:
            lines.append(family.head)
            lines += body
    return "\n".join(lines) + "\n"


def _gauges(server: SimulatedServer) -> dict[str, float]:
    engine = server.engine
    counters, kv = engine.counters, engine.scheduler.limits.kv
    usage = engine.scheduler.token_usage
    prompts = sum(counters.prompt_tokens.values())
    memory = server.memory
    return {
        "num_running_reqs": engine.scheduler.begun,
        "num_queue_reqs": len(engine.scheduler.waiting),
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
    """Return the families whose series depend on the counts."""
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
        "spec_verify_calls_total": _if(counters.verify_calls, {}, when=engine.cycles.speculating),
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


def _histogram(family: _Family, found: dict[str, Histogram] | None) -> list[str]:
    if found is None or family.name == "per_stage_req_latency_seconds":
        if family.name not in _ALWAYS:
            return []
        shown: list[tuple[int, Histogram | None]] = [(i, None) for i in range(len(family.series))]
    else:
        streaming = [series.get("is_streaming", "") for series in family.series]
        shown = [(streaming.index(key), one) for key, one in found.items()]
    lines: list[str] = []
    for index, histogram in shown:
        total, buckets, count = family.bucketed(index)
        counts = histogram.cumulative if histogram else [0] * len(buckets)
        lines.append(f"{total}{histogram.sum if histogram else 0.0}")
        lines += [f"{start}{float(one)}" for start, one in zip(buckets, counts, strict=True)]
        lines.append(f"{count}{float(counts[-1])}")
    return lines


def _labels(labels: dict[str, str]) -> str:
    if not labels:
        return ""
    return "{" + ",".join(f'{key}="{labels[key]}"' for key in sorted(labels)) + "}"


def _number(value: float) -> str:
    return "NaN" if math.isnan(value) else str(float(value))
