"""SGLang's rewrites of its flags."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from runners.simulated_server.flags import parse_flags
from runners.simulated_server.resolution import FlagsRefusedError, resolve


def flags(steps=None, topk=None, width=None, algorithm="EAGLE3", **more):
    given = {
        "model_path": "moonshotai/Kimi-K2.5",
        "speculative_algorithm": algorithm,
        "speculative_num_steps": steps,
        "speculative_eagle_topk": topk,
        "speculative_num_draft_tokens": width,
    }
    return {k: v for k, v in given.items() if v is not None} | more


@given(st.integers(1, 20), st.integers(1, 40))
def test_a_chain_is_as_wide_as_its_steps(steps, width):
    found = resolve(flags(steps, 1, width))
    assert found.num_draft_tokens == steps + 1
    assert found.values["speculative_num_draft_tokens"] == steps + 1
    assert found.tree_fits
    assert any("is adjusted" in line for line in found.warnings) == (width != steps + 1)


@given(st.integers(1, 8), st.integers(2, 8), st.integers(2, 200))
def test_a_tree_has_a_capacity(steps, topk, width):
    # Nodes, counted level by level: topk at the first, topk for each of topk at every other.
    nodes = sum(topk if level == 0 else topk * topk for level in range(steps))
    found = resolve(flags(steps, topk, width))
    assert (found.num_steps, found.topk, found.num_draft_tokens) == (steps, topk, width)
    assert found.tree_fits == (width - 1 <= nodes)


@pytest.mark.parametrize(
    ("path", "algorithm", "shape"),
    [
        ("moonshotai/Kimi-K2.5", "EAGLE3", (3, 1, 4)),
        ("meta-llama/Llama-3.1-8B-Instruct", "EAGLE3", (5, 4, 8)),
        ("xai-org/grok-2", "EAGLE", (5, 4, 8)),
        ("meta-llama/Llama-3.1-8B-Instruct", "STANDALONE", (3, 1, 4)),
    ],
)
def test_defaults(path, algorithm, shape):
    found = resolve(flags(algorithm=algorithm, model_path=path))
    assert (found.num_steps, found.topk, found.num_draft_tokens) == shape


def test_nextn_is_eagle():
    found = resolve(flags(2, 1, 3, algorithm="nextn"))
    assert found.algorithm == found.values["speculative_algorithm"] == "EAGLE"


def test_running_requests():
    assert resolve(flags(2, 1, 3)).max_running_requests == 48
    assert resolve(flags(2, 1, 3, max_running_requests=256)).max_running_requests == 256
    plain = resolve({"model_path": "m"})
    assert "max_running_requests" not in plain.values
    assert plain.max_running_requests > 48


def test_pages():
    resolve(flags(2, 2, 4, page_size=16, attention_backend="fa3"))
    with pytest.raises(FlagsRefusedError, match="page_size > 1"):
        resolve(flags(2, 2, 4, page_size=16, attention_backend="flashmla"))
    with pytest.raises(FlagsRefusedError, match="trtllm_mha"):
        resolve(flags(2, 2, 4, attention_backend="trtllm_mha"))


def test_flags_in_every_spelling():
    line = (
        "--model m --tp 8 --context-length 8k --trust-remote-code --no-enable-tf32-matmul "
        "--cuda-graph-bs-decode 1 2 --log-level=warning"
    )
    found = parse_flags(line.split())
    assert found == {
        "model_path": "m",
        "tp_size": 8,
        "context_length": 8000,
        "trust_remote_code": True,
        "enable_tf32_matmul": False,
        "cuda_graph_bs_decode": [1, 2],
        "log_level": "warning",
    }
