"""SGLang's rewrites and refusals of flags."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from runners.simulated_server.launch.flags import parse_flags, resolve
from runners.simulated_server.launch.speculative_flags import FlagsRefusedError


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
def test_a_chain_has_steps_plus_one_draft_tokens(steps, width):
    found = resolve(flags(steps, 1, width))
    assert found.num_draft_tokens == steps + 1
    assert found.values["speculative_num_draft_tokens"] == steps + 1
    assert found.tree_fits
    assert any("is adjusted" in line for line in found.warnings) == (width != steps + 1)


@given(st.integers(1, 8), st.integers(2, 8), st.integers(2, 200))
def test_a_tree_has_a_capacity(steps, topk, width):
    # Nodes by level: topk at the first level, topk**2 at every other level.
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


@given(st.integers(1, 8), st.integers(2, 8), st.integers(2, 40))
def test_a_tree_narrower_than_a_path(steps, topk, width):
    assert resolve(flags(steps, topk, width)).tree_too_narrow == (width <= steps)
    assert not resolve(flags(steps, 1, width)).tree_too_narrow


@given(st.integers(1, 40), st.integers(1, 12))
def test_ngram_numbers(width, breadth):
    found = resolve(
        flags(7, 3, width, algorithm="NGRAM", speculative_ngram_max_bfs_breadth=breadth)
    )
    assert (found.num_steps, found.topk, found.num_draft_tokens) == (7, breadth, width)
    assert found.tree_fits
    assert not found.tree_too_narrow
    assert resolve(flags(algorithm="NGRAM", width=width)).num_steps == width // 10


def test_ngram_defaults():
    found = resolve(flags(algorithm="NGRAM"))
    assert (found.num_steps, found.topk, found.num_draft_tokens) == (1, 10, 12)
    assert found.max_running_requests == 48
    assert not found.has_draft
    with pytest.raises(FlagsRefusedError, match="'flashinfer' backend"):
        resolve(flags(algorithm="NGRAM", page_size=16, attention_backend="triton"))


def test_dflash_is_one_step_of_a_block():
    draft = {"algorithm": "DFLASH", "speculative_draft_model_path": "d"}
    found = resolve(flags(5, 4, 8, **draft))
    assert (found.num_steps, found.topk, found.num_draft_tokens) == (1, 1, 8)
    assert sum("overriding" in line for line in found.warnings) == 2
    assert resolve(flags(**draft)).num_draft_tokens == 16
    block = {"speculative_dflash_block_size": 12}
    assert resolve(flags(**draft, **block)).num_draft_tokens == 12
    with pytest.raises(FlagsRefusedError, match="For DFLASH they must match"):
        resolve(flags(width=8, **draft, **block))
    with pytest.raises(FlagsRefusedError, match="requires setting --speculative-draft-model-path"):
        resolve(flags(algorithm="DFLASH"))
    with pytest.raises(FlagsRefusedError, match="pp_size == 1"):
        resolve(flags(pp_size=2, **draft))


def test_attention_dp():
    dp = {"enable_dp_attention": True, "dp_size": 2}
    for algorithm in ("STANDALONE", "NGRAM"):
        with pytest.raises(FlagsRefusedError, match="does not support dp attention"):
            resolve(flags(algorithm=algorithm, **dp))
    resolve(flags(3, 1, 4, **dp))


@pytest.mark.parametrize("steps", [0, 1, 3, 5, 7])
def test_adaptive_steps_are_candidates(steps):
    found = resolve(flags(steps, speculative_adaptive=True))
    assert found.adaptive
    assert (found.num_steps, found.topk, found.num_draft_tokens) == (steps, 1, steps + 1)


def test_adaptive_speculation_has_conditions(tmp_path):
    assert resolve(flags(speculative_adaptive=True)).num_steps == 3
    with pytest.raises(FlagsRefusedError, match=r"candidate_steps \[0, 1, 3, 5, 7\]"):
        resolve(flags(4, 1, 5, speculative_adaptive=True))
    for dropped in (
        resolve(flags(3, 2, 6, speculative_adaptive=True)),
        resolve(flags(3, 1, 4, algorithm="STANDALONE", speculative_adaptive=True)),
    ):
        assert not dropped.adaptive
        assert "speculative_adaptive disabled" in dropped.warnings[0]
    config = tmp_path / "tiers.json"
    config.write_text('{"1": {"candidate_steps": [2, 4]}, "8": {"candidate_steps": [1]}}')
    own = {"speculative_adaptive": True, "speculative_adaptive_config": str(config)}
    assert resolve(flags(**own)).num_steps == 2
    with pytest.raises(FlagsRefusedError, match=r"\[1, 2, 4\]"):
        resolve(flags(3, **own))
    config.write_text("{}")
    with pytest.raises(FlagsRefusedError, match="at least one"):
        resolve(flags(**own))
    config.unlink()
    with pytest.raises(FlagsRefusedError, match="No such file"):
        resolve(flags(**own))


def test_contexts(monkeypatch):
    resolve({"model_path": "m", "context_length": 262_144})
    with pytest.raises(FlagsRefusedError, match=r"\(262145\) is greater than .* \(262144\)"):
        resolve({"model_path": "m", "context_length": 262_145})
    monkeypatch.setenv("SGLANG_ALLOW_OVERWRITE_LONGER_CONTEXT_LEN", "1")
    resolve({"model_path": "m", "context_length": 262_145})


def test_abbreviated_flags(capsys):
    found = parse_flags(
        ["--model", "m", "--speculative-eagle-top", "3", "--speculative-alg", "EAGLE3"]
    )
    assert found["speculative_eagle_topk"] == 3
    assert found["speculative_algorithm"] == "EAGLE3"
    with pytest.raises(SystemExit) as ended:
        parse_flags(["--model", "m", "--cuda-graph-max-bs", "8"])
    assert ended.value.code == 2
    assert "ambiguous option: --cuda-graph-max-bs could match" in capsys.readouterr().err
