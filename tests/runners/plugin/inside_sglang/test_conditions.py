"""Servers that cannot switch their steps, and the reasons."""

from __future__ import annotations

import sys
from types import ModuleType, SimpleNamespace

import pytest

from runners.plugin.inside_sglang.tuner_sglang_plugin.conditions import (
    Shape,
    sharing_reason,
    unsupported_reason,
)

CHAINS = (Shape(1, 2), Shape(2, 3), Shape(5, 6))
TREES = (Shape(1, 3), Shape(2, 4), Shape(3, 6))


@pytest.fixture
def server(monkeypatch):
    """SGLang's context and graphs, as far as the conditions read them."""
    arguments, graphs = {"dp_size": 1, "pp_size": 1, "disaggregation_mode": "null"}, {"off": True}
    context = SimpleNamespace(resolved_server_args_dict=lambda: arguments)
    of_context = ModuleType("sglang.srt.runtime_context")
    of_context.get_context = lambda: context
    of_graphs = ModuleType("sglang.srt.model_executor.cuda_graph_config")
    of_graphs.check_cuda_graph_backend = lambda phase, backend: graphs["off"]
    for name in ("sglang", "sglang.srt", "sglang.srt.model_executor"):
        monkeypatch.setitem(sys.modules, name, ModuleType(name))
    for module in (of_context, of_graphs):
        monkeypatch.setitem(sys.modules, module.__name__, module)
    return SimpleNamespace(arguments=arguments, graphs=graphs)


def worker(*, name="EAGLEWorkerV2", steps=5, tokens=6, topk=1, device="cuda", adaptive=None):
    made = type(name, (), {})()
    made.speculative_num_steps = steps
    made.speculative_num_draft_tokens = tokens
    made.topk = topk
    made.device = device
    made.adaptive_controller = adaptive
    return made


@pytest.mark.parametrize("name", ["EAGLEWorkerV2", "StandaloneWorkerV2"])
@pytest.mark.parametrize("device", ["cuda", "cpu"])
def test_chain_starting_at_the_largest_can_switch(server, name, device):
    assert unsupported_reason(worker(name=name, device=device), CHAINS) is None


def test_trees_of_one_width_can_switch(server):
    assert unsupported_reason(worker(steps=3, tokens=6, topk=2), TREES) is None


@pytest.mark.parametrize(
    ("given", "reason"),
    [
        ({"name": "FrozenKVMTPWorkerV2"}, "the worker is a FrozenKVMTPWorkerV2"),
        ({"name": "MultiLayerEagleWorkerV2"}, "the worker is a MultiLayerEagleWorkerV2"),
        ({"adaptive": object()}, "--speculative-adaptive switches the steps itself"),
        ({"steps": 2, "tokens": 3}, "the server starts with 2,"),
        ({"steps": 8, "tokens": 9}, "the server starts with 8,"),
        ({"tokens": 4}, "the server starts with 5/4,"),
    ],
)
def test_unsupported_worker_is_refused(server, given, reason):
    assert reason in unsupported_reason(worker(**given), CHAINS)


@pytest.mark.parametrize("shape", [Shape(1, 4), Shape(3, 3), Shape(2, 2)], ids=str)
def test_impossible_tree_is_refused(server, shape):
    """One step of width 2 offers two tokens; three steps need four."""
    reason = unsupported_reason(worker(steps=3, tokens=6, topk=2), (shape, Shape(3, 6)))
    assert reason == f"at --speculative-eagle-topk 2 there is no tree of {shape}"


def test_chain_server_refuses_trees(server):
    assert unsupported_reason(worker(), (Shape(2, 4), Shape(5, 6))) == (
        "--speculative-eagle-topk is 1, and 2/4 is no chain"
    )


def test_start_must_be_the_largest_in_steps_and_tokens(server):
    """Neither 3/4 nor 2/6 has large enough buffers for the other."""
    reason = unsupported_reason(worker(steps=3, tokens=4, topk=2), (Shape(2, 6), Shape(3, 4)))
    assert "the server starts with 3, and buffers have the size of the start" in reason


@pytest.mark.parametrize(
    ("argument", "value"),
    [
        ("speculative_adaptive", True),
        ("enable_dp_attention", True),
        ("enable_multi_layer_eagle", True),
        ("enable_two_batch_overlap", True),
        ("enable_pdmux", True),
        ("enable_hisparse", True),
        ("dp_size", 2),
        ("pp_size", 2),
        ("disaggregation_mode", "decode"),
    ],
)
def test_argument_that_excludes_switching(server, argument, value):
    server.arguments[argument] = value
    reason = unsupported_reason(worker(), CHAINS)
    assert reason.startswith(f"--{argument.replace('_', '-')} is ")


def test_cpu_needs_graphs_disabled(server):
    server.graphs["off"] = False
    assert unsupported_reason(worker(device="cuda"), CHAINS) is None
    assert "it needs --disable-cuda-graph" in unsupported_reason(worker(device="cpu"), CHAINS)


@pytest.mark.parametrize(
    ("backend", "refused"),
    [("QwenSparseMultiStepDraftBackend", True), ("TritonMultiStepDraftBackend", False)],
)
def test_backends_with_shared_indices_are_refused(backend, refused):
    draft_worker = SimpleNamespace(draft_attn_backend=type(backend, (), {})())
    reason = sharing_reason(SimpleNamespace(draft_worker=draft_worker))
    assert (reason is not None) == refused
