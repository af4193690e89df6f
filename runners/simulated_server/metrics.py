"""`/metrics`: the counters and gauges that a tuner reads, with SGLang 0.5.23's names and labels."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from runners.simulated_server.engine import Engine

_HELP = {
    "prompt_tokens_total": "Number of prefill tokens processed.",
    "generation_tokens_total": "Number of generation tokens processed.",
    "spec_verify_calls_total": "Number of speculative decoding verification calls.",
    "num_requests_total": "Number of requests processed.",
    "cached_tokens_total": "Number of cached prompt tokens by source (device/host/storage).",
    "num_running_reqs": "The number of running requests.",
    "num_queue_reqs": "The number of requests in the waiting queue.",
    "gen_throughput": "The generation throughput (token/s).",
    "token_usage": "The token usage.",
    "spec_accept_length": "Mean acceptance length of speculative decoding (accepted drafts + bonus "
    "token per forward).",
    "spec_accept_rate": "Speculative acceptance rate (`accepted drafts / proposed drafts` in "
    "batch).",
    "spec_num_steps": "Currently active speculative_num_steps.",
    "spec_num_draft_tokens": "Currently active speculative_num_draft_tokens (decouples from steps "
    "under topk>1).",
}


def render(engine: Engine, model_name: str) -> str:
    """The page; series appear, as in SGLang, once they have been counted."""
    name = model_name.replace("\\", "\\\\").replace('"', '\\"')
    counters = engine.counters
    page: list[str] = []

    def add(metric: str, kind: str, *series: tuple[str, float]) -> None:
        if not series:
            return
        full = f"sglang:{metric}"
        page.append(f"# HELP {full} {_HELP[metric]}")
        page.append(f"# TYPE {full} {kind}")
        page.extend(f"{full}{{{labels}}} {float(value)}" for labels, value in series)

    def streamed(counts: dict[bool, int]) -> list[tuple[str, float]]:
        return [
            (
                f'engine_type="unified",is_streaming="{str(key).lower()}",model_name="{name}"',
                counts[key],
            )
            for key in sorted(counts)
        ]

    plain = f'engine_type="unified",model_name="{name}"'
    rank = f'{plain},moe_ep_rank="0",pp_rank="0",tp_rank="0"'
    add("prompt_tokens_total", "counter", *streamed(counters.prompt_tokens))
    add("generation_tokens_total", "counter", *streamed(counters.generation_tokens))
    if engine.speculating and counters.verify_calls:
        add("spec_verify_calls_total", "counter", (plain, counters.verify_calls))
    add("num_requests_total", "counter", *streamed(counters.requests))
    if counters.cached_tokens:
        labels = f'cache_source="device",{plain}'
        add("cached_tokens_total", "counter", (labels, counters.cached_tokens))
    for gauge, value in (
        ("num_running_reqs", engine.running),
        ("num_queue_reqs", engine.queued),
        ("gen_throughput", counters.gen_throughput),
        ("token_usage", 0.0),
        ("spec_accept_length", counters.accept_length),
        ("spec_accept_rate", counters.accept_rate),
        ("spec_num_steps", counters.shown_steps),
        ("spec_num_draft_tokens", counters.shown_draft_tokens),
    ):
        add(gauge, "gauge", (rank, value))
    return "\n".join(page) + "\n"
