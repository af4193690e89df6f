"""Rules of servers that do not depend on speculation.

Paths are under `sglang/srt/` of SGLang 0.5.23.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from search_spaces.nccl.values import BOUNDED, crossed_bounds, nothing_left
from search_spaces.nccl.variables import NEWEST
from search_spaces.rules.rule import Rules

if TYPE_CHECKING:
    from search_spaces.rules.rule import Candidate

server_rules = Rules()


@server_rules.add("arg_groups/validation_hook.py:241-246")
def _chunk_divides_into_pages(server: Candidate) -> str | None:
    chunk, page = server.number("chunked-prefill-size", 0), server.page_size
    if chunk <= 0 or page < 1 or chunk % page == 0:
        return None
    return f"chunked-prefill-size {chunk} is not a multiple of page-size {page}"


@server_rules.add("arg_groups/validation_hook.py:244 (page-size 0 divides by zero)")
def _page_size_positive(server: Candidate) -> str | None:
    return None if server.page_size >= 1 else f"page-size {server.page_size} is less than 1"


@server_rules.add("arg_groups/validation_hook.py:178-181")
def _whole_nodes(server: Candidate) -> str | None:
    nodes = server.number("nnodes", 1)
    gpus = server.number("tp-size", 1) * server.number("pp-size", 1)
    if nodes < 1 or gpus % nodes == 0:
        return None
    return f"tp-size times pp-size, {gpus}, does not divide into {nodes} nodes"


@server_rules.add("arg_groups/parallel_hook.py:50-58, :285-293 and :326")
def _attention_dp_size(server: Candidate) -> str | None:
    size, replicas = server.number("attn-dp-size", 1), server.number("dp-size", 1)
    if size < 1:
        return f"attn-dp-size {size} is less than 1"
    if server.flags.get("enable-dp-attention") and size == 1:  # the older of two spellings
        size, replicas = replicas, 1
    if size > 1 and replicas > 1:
        return f"attn-dp-size {size} does not run beside dp-size {replicas}"
    tp = server.number("tp-size", 1)
    return None if tp % size == 0 else f"data-parallel attention of {size} does not divide tp {tp}"


@server_rules.add("arg_groups/parallel_hook.py:170-193")
def _moe_dp_size(server: Candidate) -> str | None:
    size, tp = server.number("moe-dp-size", 1), server.number("tp-size", 1)
    experts = server.number("ep-size", 1)
    if size <= 1:
        return None
    if tp % size or experts * size > tp or (experts > 1 and experts * size != tp):
        return (
            f"moe-dp-size {size} and ep-size {experts} do not fit tp-size {tp}: their product must "
            "be tp-size, or ep-size 1"
        )
    if server.number("attn-cp-size", 1) != size and not server.flags.get("enable-prefill-cp"):
        return f"moe-dp-size {size} runs only with attn-cp-size {size}"
    return "moe-dp-size > 1 does not run with pp-size > 1" if _pipelined(server) else None


@server_rules.add("arg_groups/validation_hook.py:207-211")
def _moe_dense_tp_size(server: Candidate) -> str | None:
    size, tp = server.flags.get("moe-dense-tp-size"), server.number("tp-size", 1)
    if size is None or size in {1, tp}:
        return None
    return f"moe-dense-tp-size {size} is neither 1 nor the tp-size {tp}"


_WHOLE_EXPERTS = ("flashinfer_cutlass", "flashinfer_cutedsl")


@server_rules.add("arg_groups/moe_hook.py:80-105")
def _moe_runner_experts(server: Candidate) -> str | None:
    runner, experts = server.flags.get("moe-runner-backend"), server.number("ep-size", 1)
    tp = server.number("tp-size", 1)
    if runner not in _WHOLE_EXPERTS or experts in {1, tp}:
        return None
    # With an all-to-all backend SGLang sets ep-size (arg_groups/moe_hook.py, `handle_a2a_moe`).
    if server.flags.get("moe-a2a-backend", "none") != "none":
        return None
    return f"moe-runner-backend {runner} takes ep-size 1 or the tp-size {tp}, not {experts}"


@server_rules.add("arg_groups/validation_hook.py:756-772")
def _two_batch_overlap(server: Candidate) -> str | None:
    if not server.flags.get("enable-two-batch-overlap") or server.attention_dp:
        return None
    if server.flags.get("moe-a2a-backend", "none") != "none":
        return None
    return (
        "enable-two-batch-overlap runs only with a moe-a2a-backend other than none, or with "
        "data-parallel attention (attn-dp-size)"
    )


@server_rules.add("arg_groups/validation_hook.py:188-194")
def _compiled_padding(server: Candidate) -> str | None:
    both = ("disable-cuda-graph-padding", "enable-torch-compile")
    if not all(server.flags.get(name) for name in both):
        return None
    return "disable-cuda-graph-padding does not run with enable-torch-compile"


@server_rules.add("arg_groups/validation_hook.py:281-306")
def _priorities(server: Candidate) -> str | None:
    asked = server.flags.get("enable-priority-scheduling")
    policy = server.flags.get("schedule-policy", "fcfs")
    if asked and policy not in {"fcfs", "lof"}:
        return f"enable-priority-scheduling takes schedule-policy fcfs or lof, not {policy}"
    if not asked and server.flags.get("retraction-policy") == "priority":
        return "retraction-policy priority runs only with enable-priority-scheduling"
    return None


@server_rules.add("arg_groups/validation_hook.py:314-316")
def _conservativeness(server: Candidate) -> str | None:
    value = server.flags.get("schedule-conservativeness", 1)
    if isinstance(value, bool) or not isinstance(value, (int, float)) or value >= 0:
        return None
    return f"schedule-conservativeness {value} is less than 0"


@server_rules.add("not checked there; a share of the memory that is none, or more than all of it")
def _memory_fraction(server: Candidate) -> str | None:
    value = server.flags.get("mem-fraction-static", 0.9)
    if isinstance(value, bool) or not isinstance(value, (int, float)) or 0 < value <= 1:
        return None
    return f"mem-fraction-static {value} is no share of the memory: above 0, at most 1"


@server_rules.add("not checked there; a server that runs no request never gets ready")
def _running_requests(server: Candidate) -> str | None:
    most = server.number("max-running-requests", 1)
    return None if most >= 1 else f"max-running-requests {most} is less than 1"


def _pipelined(server: Candidate) -> bool:
    return server.number("pp-size", 1) > 1


nccl_rules = Rules(f"NCCL {NEWEST}", server=False)


@nccl_rules.add(
    "src/graph/connect.cc:492-505, src/init.cc:2190, src/graph/paths.cc:980", env=BOUNDED
)
def _nccl_bounds(server: Candidate) -> str | None:
    return next((message for _, _, message in crossed_bounds(server.env)), None)


@nccl_rules.add(
    "src/graph/tuning.cc:293-304, src/enqueue.cc:2052-2065", env=("NCCL_ALGO", "NCCL_PROTO")
)
def _nccl_nothing_left(server: Candidate) -> str | None:
    return nothing_left(server.env)
