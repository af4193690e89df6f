"""Launch commands as people published them (`tests/data/commands`, each with its source)."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

import pytest

from search_spaces.configuration import Speculation
from search_spaces.flags.speculation_flags import speculation_of
from search_spaces.launch_commands import read_launch_text

COMMANDS = Path(__file__).parents[2] / "data" / "commands"
NONE = Speculation()
PYTHON, PYTHON3 = "python", "python3"


@dataclass(frozen=True)
class Expected:
    """What a file says."""

    model: str
    tp: object = None
    python: str | None = PYTHON3
    draft: str | None = None
    speculation: Speculation = NONE
    env: tuple[str, ...] = ()
    secrets: tuple[str, ...] = ()
    variables: tuple[str, ...] = ()
    container: tuple[str, str] | None = None
    prefix: tuple[str, ...] = ()
    flags: dict[str, object] = field(default_factory=dict)
    notes: tuple[str, ...] = ()  # a part of each, in order


RENAMED = "`--cuda-graph-max-bs-decode` took its place"
TWO_NODES = "2 nodes"
SECRET = "it is written as `$HF_TOKEN`"
HF = {"env": ("HF_TOKEN",), "secrets": ("HF_TOKEN",)}
LLAMA = "meta-llama/Meta-Llama-3.1-8B-Instruct"
DOCKER = ("docker run", "lmsysorg/sglang:latest")
HEAD = '(scontrol show hostname{} "$SLURM_{}" | head -n{}1)'

EXPECTED = {
    "kimi-k2.5-pcie.sh": Expected(
        "moonshotai/Kimi-K2.5",
        8,
        PYTHON,
        env=("NCCL_P2P_LEVEL", "PYTORCH_CUDA_ALLOC_CONF", "SGL_ENABLE_JIT_DEEPGEMM"),
        flags={
            "mem-fraction-static": 0.94,
            "model-loader-extra-config": '{"enable_multithread_load": true, "num_threads": 16}',
            "enable-mixed-chunk": True,
            "cuda-graph-max-bs": 16,
        },
        notes=(RENAMED,),
    ),
    "glm-5-nextn-pcie.sh": Expected(
        "/mnt/GLM-5-NVFP4-MTP",
        8,
        speculation=Speculation("EAGLE", 3, 1, 4),
        env=(
            "SGLANG_ENABLE_SPEC_V2", "SGLANG_ENABLE_JIT_DEEPGEMM", "SGLANG_ENABLE_DEEP_GEMM",
            "NCCL_GRAPH_FILE", "NCCL_IB_DISABLE", "NCCL_P2P_LEVEL",
            "NCCL_ALLOC_P2P_NET_LL_BUFFERS", "NCCL_MIN_NCHANNELS", "OMP_NUM_THREADS",
            "SAFETENSORS_FAST_GPU",
        ),
        flags={"max-running-requests": 64, "disable-custom-all-reduce": True},
        notes=(RENAMED,),
    ),
    "qwen3.5-nextn.sh": Expected(
        "nvidia/Qwen3.5-397B-A17B-NVFP4",
        8,
        speculation=Speculation("EAGLE", 3, 1, 4),
        env=("SGLANG_ENABLE_SPEC_V2",),
        flags={"mamba-scheduler-strategy": "extra_buffer", "page-size": 64},
        notes=(RENAMED, "short for `--speculative-algorithm`", "`--mamba-radix-cache-strategy`"),
    ),
    "kimi-k2.5-serve.sh": Expected("moonshotai/Kimi-K2.5", 8, None, flags={"port": 30000}),
    "gpt-oss-120b.sh": Expected("openai/gpt-oss-120b", 4),
    "deepseek-r1-mtp-b200.sh": Expected(
        "$MODEL",
        "$TP",
        speculation=Speculation("EAGLE", 2, 1, 3),
        env=("SGL_ENABLE_JIT_DEEPGEMM", "SGLANG_ENABLE_FLASHINFER_GEMM", "PYTHONNOUSERSITE"),
        variables=("MODEL", "TP", "EP_SIZE"),
        flags={"port": 8888, "dp-size": 1, "mem-fraction-static": 0.82, "ep-size": "$EP_SIZE"},
        notes=("`$PORT` is taken as its default, `8888`", "`30`, `10` in turn", RENAMED),
    ),
    "deepseek-r1-mi355x.sh": Expected(
        "$MODEL",
        "$TP",
        env=("SGLANG_USE_AITER", "ROCM_QUICK_REDUCE_QUANTIZATION"),
        variables=("MODEL", "PORT", "TP"),
        flags={"chunked-prefill-size": 32768, "num-continuous-decode-steps": 4},
        notes=("`196608`, `32768` in turn", RENAMED),
    ),
    "slurm-llama-405b.sh": Expected(
        "MODEL_PATH",
        16,
        variables=(HEAD.format("", "NODELIST", " "), "SLURM_NODEID"),
        prefix=(
            "srun", "--ntasks=2", "--nodes=2", "--output=SLURM_Logs/%x_%j_node$SLURM_NODEID.out",
            "--error=SLURM_Logs/%x_%j_node$SLURM_NODEID.err",
        ),
        flags={"nnodes": 2, "node-rank": "$SLURM_NODEID"},
        notes=(TWO_NODES,),
    ),
    "slurm-deepseek-v3.sh": Expected(
        "deepseek-ai/DeepSeek-V3",
        16,
        env=("NCCL_DEBUG",),
        variables=(HEAD.format("s", "JOB_NODELIST", ""), "SLURM_PROCID"),
        prefix=("srun", "--ntasks=2", "--nodes=2", "--gpus-per-task=8"),
        flags={"host": "0.0.0.0", "port": 30000, "nnodes": 2},
        notes=(
            "$SLURM_NNODES", "$GPUS_PER_NODE", "$NCCL_DEBUG", "$HUGGINGFACE_CACHE",
            "nothing in turn", "nothing in turn", "$MODEL", "$HOST", "$PORT", TWO_NODES,
        ),
    ),
    "docker-llama-8b.sh": Expected(
        "meta-llama/Llama-3.1-8B-Instruct", container=DOCKER, notes=(SECRET,), **HF
    ),
    "docker-deepseek-v3-two-nodes.sh": Expected(
        "deepseek-ai/DeepSeek-V3",
        16,
        container=DOCKER,
        flags={"dist-init-addr": "192.168.114.10:20000", "node-rank": 0},
        notes=("starts SGLang 2 times", TWO_NODES),
        **HF,
    ),
    "docker-qwq-x8.sh": Expected(
        "Qwen/QwQ-32B",
        2,
        env=("OMP_NUM_THREADS",),
        container=DOCKER,
        flags={"attention-backend": "flashinfer", "dp-size": 4, "schedule-conservativeness": 0.1},
    ),
    "docker-detached-distill.sh": Expected(
        "deepseek-ai/DeepSeek-R1-Distill-Qwen-1.5B",
        variables=("PWD",),
        container=("docker run", "lmsysorg/sglang:v0.4.5-cu125"),
    ),
    "docker-exec-glm-4.7.sh": Expected(
        "zai-org/GLM-4.7-FP8",
        4,
        speculation=Speculation("EAGLE", 3, 2, 8),
        env=(
            "NCCL_SOCKET_IFNAME", "GLOO_SOCKET_IFNAME", "NCCL_IB_HCA", "VLLM_HOST_IP",
            "MASTER_ADDR", "MASTER_PORT",
        ),
        container=("docker exec", "sglang_node"),
        flags={"context-length": 202752, "dist-timeout": 600},
        notes=("4 nodes",),
    ),
    "eagle-old-names.sh": Expected(
        "/mnt/nvme0n1/ckpt/llama/Meta-Llama-3.1-70B-Instruct",
        4,
        PYTHON,
        "/mnt/nvme0n1/ckpt/llama/sglang-EAGLE-LLaMA3-Instruct-70B",
        Speculation("EAGLE", 5, 8, 64),
        env=("CUDA_VISIBLE_DEVICES",),
        flags={"mem-fraction-static": 0.7, "disable-cuda-graph": True},
        notes=(
            "short for `--speculative-algorithm`",
            "the old name of `--speculative-draft-model-path`",
            "short for `--mem-fraction-static`",
        ),
    ),
    "deepseek-v3.2-nsa.sh": Expected(
        "/models/deepseek-32-nvfp4-nvidia",
        8,
        speculation=Speculation("EAGLE", 3, 1, 4),
        env=("CUDA_LAUNCH_BLOCKING", "SGLANG_ENABLE_SPEC_V2"),
        flags={"nsa-decode-backend": "trtllm", "dp-size": 8, "mem-fraction-static": 0.7},
        notes=("`--dsa-decode-backend` took its place",),
    ),
    "qwen3-235b-eagle3.sh": Expected(
        "/data/models/Qwen/Qwen3-235B-A22B",
        8,
        draft="/data/models/lmsys/Qwen3-235B-A22B-EAGLE3",
        speculation=Speculation("EAGLE3", 5, 8, 32),
        flags={"enable-ep-moe": True, "context-length": 8192},
        notes=("`--ep-size` took its place",),
    ),
    "kimi-k2-thinking-kt.sh": Expected(
        "/path/to/kimi-k2-thinking",
        2,
        PYTHON,
        flags={"kt-cpuinfer": 96, "kt-gpu-prefill-token-threshold": 400},
        notes=("unknown to SGLang 0.5.9, 0.5.17 and 0.5.23",),
    ),
    "cpu-entrypoint.sh": Expected(
        "$MODEL_ID",
        env=("LD_PRELOAD",),
        secrets=("api-key",),
        variables=("(dirname $(which conda))", "MODEL_ID", "SGLANG_LLM_PORT"),
        flags={"api-key": "$HF_TOKEN", "device": "cpu", "max-total-tokens": 65536},
    ),
    "compose-llama-8b.yaml": Expected(
        LLAMA,
        container=("compose", "lmsysorg/sglang:latest"),
        flags={"port": 30000},
        notes=(SECRET,),
        **HF,
    ),
    "compose-deepseek-v3.2.yaml": Expected(
        "/models/DeepSeek-V3.2-Exp",
        8,
        PYTHON,
        env=("NCCL_ASYNC_ERROR_HANDLING",),
        container=("compose", "lmsysorg/sglang:dsv32"),
        flags={"enable-torch-compile": True, "mem-fraction-static": 0.8},
    ),
    "k8s-deployment.yaml": Expected(
        LLAMA,
        container=("kubernetes", "docker.io/lmsysorg/sglang:latest"),
        notes=(SECRET,),
        **HF,
    ),
    "k8s-statefulset.yaml": Expected(
        "/llm-folder",
        16,
        env=("NCCL_DEBUG",),
        variables=("POD_INDEX",),
        container=("kubernetes", "docker.io/lmsysorg/sglang:latest"),
        flags={"ep-size": 16, "node-rank": "$POD_INDEX"},
        notes=("`POD_INDEX` comes from a fieldRef", TWO_NODES),
    ),
    "k8s-leaderworkerset.yaml": Expected(
        LLAMA,
        2,
        variables=("LWS_LEADER_ADDRESS", "LWS_GROUP_SIZE", "LWS_WORKER_INDEX"),
        container=("kubernetes", "lmsysorg/sglang:latest"),
        flags={"dist-init-addr": "$LWS_LEADER_ADDRESS:20000", "nnodes": "$LWS_GROUP_SIZE"},
        notes=("in sglang-leader, sglang-worker; this is sglang-leader", "$LWS_GROUP_SIZE nodes"),
        **HF,
    ),
    "k8s-eks-args-only.yaml": Expected(
        "openai/gpt-oss-20b",
        container=("kubernetes", "public.ecr.aws/deep-learning-containers/sglang:server-cuda"),
    ),
    "qwen3-30b.Dockerfile": Expected(
        "Qwen/Qwen3-30B-A3B",
        None,
        PYTHON,
        env=("HF_TOKEN", "SERVER_API_KEY", "PYTHONPATH", "CUDA_HOME"),
        secrets=("HF_TOKEN", "SERVER_API_KEY"),
        container=("dockerfile", "nvidia/cuda:12.6.1-cudnn-devel-ubuntu22.04"),
        flags={"grammar-backend": "llguidance", "reasoning-parser": "qwen3"},
        notes=("LD_LIBRARY_PATH",),
    ),
    "llama-3-exec.Dockerfile": Expected(
        "meta-llama/Meta-Llama-3-8B-Instruct",
        container=("dockerfile", "nvidia/cuda:12.1.0-devel-ubuntu22.04"),
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", sorted(path.name for path in COMMANDS.iterdir()))
def test_a_published_command(name):
    text = (COMMANDS / name).read_text()
    assert text.startswith("# Source: https://")
    want = EXPECTED[name]
    read = read_launch_text(text)
    assert (read.flags["model-path"], read.flags.get("tp-size")) == (want.model, want.tp)
    assert read.python == want.python
    assert read.flags.get("speculative-draft-model-path") == want.draft
    assert speculation_of(read.flags) == want.speculation
    assert tuple(read.env) == want.env
    assert read.secrets == want.secrets
    assert read.variables == want.variables
    container = read.container and (read.container.engine, read.container.image)
    assert container == want.container
    assert read.prefix == want.prefix
    assert {flag: read.flags[flag] for flag in want.flags} == want.flags
    assert len(read.notes) == len(want.notes), read.notes
    assert [part for part, note in zip(want.notes, read.notes, strict=True) if part in note] == [
        *want.notes
    ]
    assert read_launch_text(read.text, kind="shell").flags == read.flags


def test_they_come_in_every_form():
    assert set(EXPECTED) == {path.name for path in COMMANDS.iterdir()}
    assert len(EXPECTED) >= 20
    engines = [want.container[0] for want in EXPECTED.values() if want.container]
    assert sum(engine.startswith("docker ") for engine in engines) >= 5
    assert engines.count("kubernetes") >= 2
    assert engines.count("compose") >= 2
    assert engines.count("dockerfile") >= 1
    assert sum(want.prefix[:1] == ("srun",) for want in EXPECTED.values()) >= 2
