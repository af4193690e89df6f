from __future__ import annotations

import pytest

from search_spaces.study_file.load import load_study
from search_spaces.study_file.warnings import warnings

CHAIN = {"algorithm": "EAGLE3", "num_steps": [1], "topk": 1}
TREE = {"algorithm": "EAGLE3", "num_steps": [1, 6], "topk": 2, "num_draft_tokens": [3]}
CLEAN = {"tp-size": 8, "max-running-requests": 64, "attention-backend": "fa3"}


def test_a_good_study_has_no_warnings(make_study):
    study = make_study(server={"flags": CLEAN}, space={"speculation": [CHAIN]})
    assert warnings(study) == ()


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({"server": {"flags": CLEAN | {"max-running-requests": None}}}, "max-running-requests"),
        (
            {
                "server": {"flags": {"max-running-requests": 64}},
                "space": {"speculation": [TREE | {"num_steps": 2}]},
            },
            "attention-backend is not set",
        ),
        ({"space": {"speculation": [TREE]}}, "1 pair of num_draft_tokens and num_steps (such as 3"),
        ({"space": {"speculation": [{"algorithm": "none"}]}}, "the baseline `default` is missing"),
        ({"model": {"path": "a/b", "draft": "c"}}, "guessed from the model's name (other)"),
        (
            {"space": {"speculation": [{"algorithm": "NGRAM", "num_steps": 3}]}},
            "NGRAM: SGLang 0.5.23 ignores num_steps",
        ),
        (
            {
                "model": {"path": "a/b", "draft": "c", "family": "llama"},
                "server": {"flags": CLEAN | {"attention-backend": "trtllm_mha"}},
            },
            "do not allow the baseline `default`",
        ),
    ],
)
def test_warnings_name_cause_and_remedy(make_study, changes, says):
    given = {"server": {"flags": CLEAN}, "space": {"speculation": [CHAIN]}} | changes
    (warning,) = warnings(make_study(**given))
    assert says in warning


def test_the_demo_has_no_warnings():
    assert warnings(load_study("kimi-demo")) == ()


def test_an_open_loop_with_few_requests_gives_a_warning(make_study):
    def study(requests):
        points = [{"concurrency": 1}, {"request_rate": 4} | requests]
        workload = {"prompts": {"chat": 1}, "output_tokens": 64, "points": points}
        given = {"server": {"flags": CLEAN}, "space": {"speculation": [CHAIN]}}
        return make_study(workload=workload, objective={"minimize": "ttft_p95_ms"}, **given)

    (warning,) = warnings(study({}))
    assert "workload.points[1] (4 requests/s) sends only 16 requests" in warning
    assert warnings(study({"requests": 100})) == ()


@pytest.mark.parametrize(
    ("server", "space", "says"),
    [
        (
            {"flags": CLEAN | {"atention": "x"}},
            {},
            "server.flags.atention: No known SGLang version",
        ),
        (
            {"flags": CLEAN},
            {"flags": {"mem-fraction": [0.8, 0.9]}},
            "space.flags.mem-fraction: SGLang 0.5.23 reads it as `mem-fraction-static`",
        ),
        (
            {"flags": CLEAN | {"attention-backend": "cutlass_mla"}},
            {},
            "Only SGLang 0.5.9 and 0.5.17, not 0.5.23, takes `cutlass_mla`",
        ),
        ({"flags": CLEAN | {"disaggregation-mode": "prefill"}}, {}, "half of a server pair"),
        (
            {"flags": CLEAN | {"config": "c.yaml"}},
            {},
            "server.flags.config: the tuner does not read c.yaml",
        ),
        ({"flags": CLEAN, "env": {"NCCL_PROTOCOL": "LL"}}, {}, "did you mean `NCCL_PROTO`?"),
        ({"flags": CLEAN, "env": {"CUDA_DEVICE_MAX_CONNECTIONS": "32"}}, {}, "has no effect"),
    ],
)
def test_unknown_flags_and_variables_give_warnings(make_study, server, space, says):
    study = make_study(server=server, space={"speculation": [CHAIN]} | space)
    (warning,) = warnings(study)
    assert says in warning


def test_a_secret_reference_gives_no_warning(make_study):
    server = {"flags": CLEAN | {"api-key": "$SGLANG_API_KEY"}, "env": {"HF_TOKEN": "${HF_TOKEN}"}}
    assert warnings(make_study(server=server, space={"speculation": [CHAIN]})) == ()


def test_a_budget_that_only_covers_baselines_gives_a_warning(make_study):
    study = make_study(
        server={"flags": CLEAN}, space={"speculation": [CHAIN]}, budget={"launches": 2}
    )
    (warning,) = warnings(study)
    assert "write `launches: 12`" in warning


def test_an_unknown_flag_in_server_and_production_is_reported_once(make_study):
    command = "python -m sglang.launch_server --model-path a/b --mem-fracton-static 0.8"
    given = {"model": {"path": "a/b"}, "production": {"command": command},
             "space": {"speculation": [{"algorithm": "none"}]}}  # fmt: skip
    study = make_study(**given, server={"flags": CLEAN | {"mem-fracton-static": 0.8}})
    said = [note for note in warnings(study) if "mem-fracton" in note]
    assert len(said) == 1
    assert said[0].startswith("server.flags.mem-fracton-static: ")
    study = make_study(**given, server={"flags": CLEAN})
    assert any(note.startswith("production.command: `--mem-fracton") for note in warnings(study))


@pytest.mark.parametrize(("users", "spread", "count"), [(8, 0, 1), (1, 0, 0), (8, 0.5, 0)])
def test_spread_0_with_several_users_gives_a_warning(make_study, users, spread, count):
    workload = {
        "prompts": {"chat": 1},
        "output_tokens": {"mean": 64, "spread": spread},
        "points": [{"concurrency": users}],
    }
    study = make_study(server={"flags": CLEAN}, space={"speculation": [CHAIN]}, workload=workload)
    found = [note for note in warnings(study) if "output_tokens" in note]
    assert len(found) == count
    assert all("lock-step" in note and "spread: 0.5" in note for note in found)
