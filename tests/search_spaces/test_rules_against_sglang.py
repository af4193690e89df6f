"""The rules and rewrites against SGLang 0.5.23's own argument handling (no launch, about 20 s)."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path

import pytest
import yaml

from runners.sglang_command import flag_words
from runners.sglang_cpu import DEFAULT_DIR, CpuServer
from search_spaces import Configuration, Space, Speculation, canonical, parse_study, violations

from .conftest import study_dict

pytestmark = pytest.mark.sglang

SERVER = CpuServer(Path(DEFAULT_DIR).resolve())
SCRIPT = Path(__file__).parent / "resolve_arguments.py"


def make_cpu_study():
    data = study_dict(
        model={"path": str(SERVER.models / "tiny"), "draft": str(SERVER.models / "noisy")},
        server={"flags": {"device": "cpu", "max-running-requests": 16}},
        space={
            "speculation": [
                {"algorithm": "none"},
                {
                    "algorithm": "STANDALONE",
                    "num_steps": {"from": 1, "to": 4},
                    "topk": [1, 2, 4],
                    "num_draft_tokens": [2, 4, 8, 16],
                },
                {"algorithm": "NGRAM", "num_draft_tokens": [4, 12]},
            ]
        },
    )
    return parse_study(yaml.safe_dump(data), "cpu.yaml")


def argv_of(study, configuration):
    """As a user might spell it: `sglang_command` takes canonical configurations only."""
    spec = configuration.speculation
    flags = dict(study.server.flags) | dict(configuration.flags)
    flags |= {"model-path": study.model.path}
    if spec.enabled:
        flags |= {
            "speculative-algorithm": spec.algorithm,
            "speculative-num-steps": spec.num_steps,
            "speculative-eagle-topk": spec.topk,
            "speculative-num-draft-tokens": spec.num_draft_tokens,
        }
        if not spec.algorithm.upper().startswith("NGRAM"):
            flags["speculative-draft-model-path"] = study.model.draft
    return [word for name, value in flags.items() for word in flag_words(name, value)]


def asked_of_sglang(study, configurations):
    argvs = [argv_of(study, configuration) for configuration in configurations]
    env = os.environ | {"SGLANG_USE_CPU_ENGINE": "1", "HF_HUB_OFFLINE": "1", "OMP_NUM_THREADS": "1"}
    if not SERVER.python.exists():
        pytest.fail("SGLang is not installed here: run `make sglang-cpu`")
    done = subprocess.run(
        [SERVER.python, SCRIPT],
        input=json.dumps(argvs),
        env=env,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-2000:]
    return json.loads(done.stdout)


def one(algorithm, steps=None, topk=None, tokens=None, flags=None):
    return Configuration.of(Speculation(algorithm, steps, topk, tokens), flags=flags)


REWRITTEN = [
    one("STANDALONE", 3, 1, 9),
    one("standalone", 5, 1, 2),
    one("STANDALONE"),
    one("EAGLE3"),
    one("EAGLE"),
    one("nextn", 2, 1, 8),
    one("EAGLE3", 9, 2, 4),
    one("NGRAM"),
    one("NGRAM", 3, 2, 6),
]


# By rule, with what SGLang says of it. (trtllm_mha cannot be chosen on a CPU.)
REFUSED = {
    "numbers_missing": (one("STANDALONE", None, 1, 4), "AssertionError"),
    "unknown_algorithm": (one("EAGLE9", 1, 1, 2), "Unknown speculative algorithm"),
    "paged_tree_backend": (one("STANDALONE", 3, 2, 4, {"page-size": 16}), "topk > 1 with page"),
    "paged_ngram_backend": (one("NGRAM", flags={"page-size": 16}), "'flashinfer' backend"),
    "attention_dp": (
        one("STANDALONE", 3, 1, 4, {"tp-size": 2, "dp-size": 2, "enable-dp-attention": True}),
        "does not support dp attention",
    ),
    "adaptive_steps": (
        one("EAGLE3", 4, 1, 5, {"speculative-adaptive": True}),
        "candidate_steps [0, 1, 3, 5, 7]",
    ),
    "rejection_sampling": (
        one("EAGLE3", 3, 2, 4, {"speculative-use-rejection-sampling": True}),
        "requires --speculative-eagle-topk=1",
    ),
    "block_verification": (
        one("STANDALONE", 3, 1, 4, {"speculative-use-block-verification": True}),
        "only supports EAGLE",
    ),
    "block_device": (one("DFLASH", tokens=8), "not supported"),
    "pipeline_parallel": (one("STANDALONE", 3, 1, 4, {"pp-size": 2}), "Pipeline parallelism"),
    "chunk_divides_into_pages": (
        one("none", flags={"page-size": 16, "chunked-prefill-size": 100}),
        "must be divisible by page_size",
    ),
    "page_size_positive": (
        one("none", flags={"page-size": 0, "chunked-prefill-size": 64}),
        "ZeroDivisionError",
    ),
}


@pytest.fixture(scope="module")
def study():
    return make_cpu_study()


@pytest.fixture(scope="module")
def answers(study):
    """SGLang's answer to every configuration of this module, from one process."""
    points = Space(study).points
    asked = [*points, *REWRITTEN, *(configuration for configuration, _ in REFUSED.values())]
    return dict(zip(asked, asked_of_sglang(study, asked), strict=True))


def test_every_point_is_accepted_as_it_stands(study, answers):
    points = Space(study).points
    assert len(points) > 20
    for point in points:
        found, wanted = answers[point], point.speculation
        assert "error" not in found, point
        assert (found["algorithm"] or "none") == wanted.algorithm
        for name in ("num_steps", "topk", "num_draft_tokens"):
            if getattr(wanted, name) is not None:
                assert found[name] == getattr(wanted, name), point


@pytest.mark.parametrize("configuration", REWRITTEN, ids=lambda c: str(c.speculation.to_dict()))
def test_rewrites_are_sglangs(study, answers, configuration):
    said = Configuration.of(Speculation(**answers[configuration]))
    assert canonical(said, study) == canonical(configuration, study)


@pytest.mark.parametrize("rule", REFUSED)
def test_what_the_rules_refuse_sglang_refuses(study, answers, rule):
    configuration, says = REFUSED[rule]
    assert rule in [v.rule for v in violations(configuration, study)]
    assert says in answers[configuration]["error"]
