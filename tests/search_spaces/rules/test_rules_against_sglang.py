"""The rules, the rewrites and the shipped studies against SGLang 0.5.23's own argument handling.

No launch: arguments are parsed, resolved and checked, on this CPU and as if on GPUs (about 60 s).
"""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path

import pytest
import yaml

from runners.process.environment import LocalEnvironment
from runners.sglang.command import flag_destination, flag_words
from runners.sglang.preflight.ask import ask, gpu_named, launch_arguments
from runners.sglang.preflight.preflight import points_to_ask
from runners.sglang_cpu import DEFAULT_DIR, CpuServer
from search_spaces.configuration import Configuration, Speculation
from search_spaces.rules.legality import canonical, violations
from search_spaces.space.baselines import baselines
from search_spaces.space.space import Space
from search_spaces.study_file.load import load_study, parse_study, shipped

from ..conftest import study_dict
from ..model_configs import with_local_models
from .test_rules import BROKEN, UNCHECKED, with_flags

# One process asks about hundreds of launches: minutes where the machine is slow and busy.
pytestmark = [pytest.mark.sglang, pytest.mark.timeout(1200)]

SERVER = CpuServer(Path(DEFAULT_DIR).resolve())


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


def asked_of_sglang(launches, **env):
    """What SGLang makes of launches: one process per machine that is pretended."""
    if not SERVER.python.exists():
        pytest.fail("SGLang is not installed here: run `make sglang-cpu`")
    answers = {}
    for gpu in dict.fromkeys(gpu for gpu, _ in launches):
        asked = [n for n, (on, _) in enumerate(launches) if on == gpu]
        found = ask(
            LocalEnvironment(str(SERVER.python)),
            [launches[n][1] for n in asked],
            seconds=600,
            gpu=gpu_named(gpu) if gpu else None,
            variables={"OMP_NUM_THREADS": "1"} | env,
        )
        assert found.version == "0.5.23"
        answers |= zip(asked, found.answers, strict=True)
    return [answers[n] for n in range(len(launches))]


def launch(argv, *, gpu=None, env=()):
    return gpu, {"argv": list(argv), "env": dict(env)}


def launch_of(study, point, gpu=None):
    """A point as the tuner launches it."""
    return gpu, launch_arguments(study, point)


def speculation_of(found):
    values = found.values
    return {
        "algorithm": values["speculative_algorithm"] or "none",
        "num_steps": values["speculative_num_steps"],
        "topk": values["speculative_eagle_topk"],
        "num_draft_tokens": values["speculative_num_draft_tokens"],
    }


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


# By rule, with what SGLang says of it.
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
def tiny():
    study = load_study("tiny")
    models = {"path": str(SERVER.models / "tiny"), "draft": str(SERVER.models / "noisy")}
    return study.model_copy(update={"model": study.model.model_copy(update=models)})


@pytest.fixture(scope="module")
def cpu_answers(study, tiny):
    """SGLang's answers on this CPU, in their order, from one process."""
    spelled = [*REWRITTEN, *(configuration for configuration, _ in REFUSED.values())]
    launches = [
        *(launch(argv_of(study, configuration)) for configuration in [*Space(study), *spelled]),
        *(launch_of(tiny, point) for point in some_points(tiny)),
    ]
    return asked_of_sglang(launches, SGLANG_USE_CPU_ENGINE="1")


@pytest.fixture(scope="module")
def answers(study, cpu_answers):
    """SGLang's answer to every configuration of `study`, and to those it rewrites and refuses."""
    asked = [*Space(study), *REWRITTEN, *(configuration for configuration, _ in REFUSED.values())]
    return dict(zip(asked, cpu_answers, strict=False))


def runs_as_asked(point, found):
    """SGLang takes a canonical point as it stands: nothing of it is rewritten."""
    assert found.refused is None, (point, found.refused)
    assert found.unanswered is None, (point, found.unanswered)
    asked = {name: value for name, value in asdict(point.speculation).items() if value is not None}
    assert asked.items() <= speculation_of(found).items(), point
    for name, value in point.flags:
        assert value is None or found.values[flag_destination(name)] == value, (point, name)


def test_every_point_is_accepted_as_it_stands(study, answers):
    points = Space(study).points
    assert len(points) > 20
    for point in points:
        runs_as_asked(point, answers[point])


def test_points_of_tiny_are_accepted_on_this_cpu(tiny, cpu_answers):
    points = some_points(tiny)
    assert len(points) >= 8
    for point, found in zip(points, cpu_answers[-len(points) :], strict=True):
        runs_as_asked(point, found)


@pytest.mark.parametrize("configuration", REWRITTEN, ids=lambda c: str(c.speculation.to_dict()))
def test_rewrites_are_sglangs(study, answers, configuration):
    said = Configuration.of(Speculation(**speculation_of(answers[configuration])))
    assert canonical(said, study) == canonical(configuration, study)


@pytest.mark.parametrize("rule", REFUSED)
def test_what_the_rules_refuse_sglang_refuses(study, answers, rule):
    configuration, says = REFUSED[rule]
    assert rule in [v.rule for v in violations(configuration, study)]
    assert says in answers[configuration].refused


# As if on GPUs: the shipped studies, with models of which only the configuration is there.
GPU = {
    "kimi": "rtx pro 6000",
    "kimi-demo": "rtx pro 6000",
    "llama-8b": "h200",
    "deepseek": "h200",
    "qwen": "h200",
}
GRID_OF_108 = {
    "study": "grid",
    "model": {"path": "meta-llama/Llama-3.1-8B-Instruct", "draft": "org/draft"},
    "server": {"flags": {"attention-backend": "flashinfer", "max-running-requests": 64}},
    "space": {
        "speculation": [
            {"algorithm": "none"},
            {
                "algorithm": "EAGLE3",
                "num_steps": {"from": 1, "to": 8},
                "topk": [1, 2, 4, 8],
                "num_draft_tokens": [2, 4, 8, 16, 32],
            },
        ]
    },
}
WIDE = {
    "study": "wide",
    "model": {"path": "meta-llama/Llama-3.1-8B-Instruct", "draft": "org/draft"},
    "server": {"flags": {"tp-size": 4}},
    "space": {
        "speculation": [
            {"algorithm": "none"},
            {
                "algorithm": "EAGLE3",
                "num_steps": {"from": 1, "to": 8},
                "topk": [1, 2, 4, 8],
                "num_draft_tokens": [2, 4, 8, 16, 32],
            },
            {
                "algorithm": "EAGLE3",
                "num_steps": [1, 3, 5, 7],
                "topk": 1,
                "flags": {"speculative-adaptive": [True]},
            },
            {
                "algorithm": "STANDALONE",
                "num_steps": [1, 2, 3],
                "topk": [1, 2, 4],
                "num_draft_tokens": [4, 8],
            },
            {
                "algorithm": "NGRAM",
                "num_draft_tokens": [4, 8, 16],
                "flags": {"speculative-ngram-max-bfs-breadth": [None, 1, 4]},
            },
            {"algorithm": "DFLASH", "num_draft_tokens": [4, 8, 16]},
        ],
        "flags": {
            "page-size": [None, 1, 16, 64],
            "attention-backend": [None, "fa3", "flashinfer", "triton"],
            "chunked-prefill-size": [None, 2048, 8192],
            "enable-mixed-chunk": [None, True],
            "schedule-policy": ["lpm"],
            "disable-overlap-schedule": [None, True],
            "mem-fraction-static": [0.8],
        },
    },
}
"""Most of what one may want to search at once: tens of thousands of points."""

OWN = {"grid": GRID_OF_108, "wide": WIDE}
MOST = 150
"""Points of one study that are asked; all that are not alike, where it has fewer."""

# By rule, a machine on which it can be broken, how, and SGLang's words.
REFUSED_ON_GPUS = {
    "trtllm_mha_chain_only": (
        "b200",
        one("EAGLE3", 3, 2, 8, {"attention-backend": "trtllm_mha"}),
        "trtllm_mha backend only supports topk = 1",
    ),
    "paged_tree_backend": (
        "h200",
        one("EAGLE3", 3, 2, 8, {"attention-backend": "flashmla"}),
        "topk > 1 with page_size > 1",
    ),
    "attention_dp": (
        "h200",
        one("NGRAM", tokens=8, flags={"tp-size": 8, "attn-dp-size": 8}),
        "does not support dp attention",
    ),
}


def gpu_study(name, folder):
    own = OWN.get(name)
    study = parse_study(yaml.safe_dump(study_dict(**own)), name) if own else load_study(name)
    return with_local_models(study, folder / name)


def some_points(study):
    """The baselines, and points that differ in more than NCCL's variables: all, or a sample."""
    return points_to_ask(Space(study), baselines(study).values(), most=MOST)


@pytest.fixture(scope="module")
def gpu_answers(tmp_path_factory):
    """SGLang's answers to points of every shipped study for GPUs, from one process."""
    folder = tmp_path_factory.mktemp("models")
    asked = []
    for name in (*GPU, *OWN):
        study = gpu_study(name, folder)
        asked += [
            (name, point, launch_of(study, point, GPU.get(name, "h200")))
            for point in some_points(study)
        ]
    grid = gpu_study("grid", folder / "refused")
    asked += [
        (rule, configuration, launch(argv_of(grid, configuration), gpu=gpu))
        for rule, (gpu, configuration, _) in REFUSED_ON_GPUS.items()
    ]
    for name, (_, bad, flags, good) in BROKEN_ON_GPUS.items():
        gpu = "b200" if flags.get("attention-backend") == "trtllm_mla" else "h200"
        for kind, configuration in (("bad", bad), ("good", good)):
            whole = with_flags(configuration, {"tp-size": 8, **flags})
            env = {variable: value for variable, value in whole.env if value is not None}
            launched = launch(argv_of(grid, whole), gpu=gpu, env=env)
            asked.append(((kind, name), whole, launched))
    answers = {}
    found = asked_of_sglang([launched for *_, launched in asked])
    for (name, configuration, _), answer in zip(asked, found, strict=True):
        answers.setdefault(name, []).append((configuration, answer))
    return answers


BROKEN_ON_GPUS = {
    name: case
    for name, case in BROKEN.items()
    if not case[0].startswith("nccl") and "device" not in case[2]
}
"""Of `test_rules`: what breaks a rule, and a neighbour that does not."""


def test_every_shipped_study_for_gpus_is_asked():
    assert {*GPU, "tiny"} == {name for name, _ in shipped()}


@pytest.mark.parametrize("name", [*GPU, *OWN])
def test_points_of_a_study_are_accepted_and_resolve_to_themselves(name, gpu_answers):
    least = {"grid": 108, "wide": MOST}.get(name, 6)
    assert len(gpu_answers[name]) >= least
    for point, found in gpu_answers[name]:
        runs_as_asked(point, found)


@pytest.mark.parametrize("rule", REFUSED_ON_GPUS)
def test_what_the_rules_refuse_sglang_refuses_on_gpus(rule, gpu_answers, make_study):
    _, configuration, says = REFUSED_ON_GPUS[rule]
    assert rule in [v.rule for v in violations(configuration, make_study())]
    ((_, found),) = gpu_answers[rule]
    assert says in found.refused


@pytest.mark.parametrize("name", BROKEN_ON_GPUS)
def test_sglang_refuses_what_breaks_a_rule_and_takes_its_neighbour(name, gpu_answers):
    ((_, bad),), ((_, good),) = gpu_answers["bad", name], gpu_answers["good", name]
    if BROKEN[name][0] in UNCHECKED:
        assert bad.refused is None  # so that the rule is ours alone
    else:
        assert bad.refused.startswith(("ValueError", "AssertionError"))
    assert good.refused is None
    assert good.unanswered is None
