from __future__ import annotations

import json

import pytest

from search_spaces.algorithms import family_is_guessed, model_family
from search_spaces.configuration import Configuration, Speculation
from search_spaces.space.baselines import baselines
from search_spaces.space.space import Space
from search_spaces.study_file.load import load_study
from search_spaces.study_file.study import Model


@pytest.mark.parametrize(
    ("algorithm", "family", "expected"),
    [
        ("EAGLE3", "other", ("EAGLE3", 3, 1, 4)),
        ("EAGLE3", "llama", ("EAGLE3", 5, 4, 8)),
        ("NEXTN", "llama", ("EAGLE", 5, 4, 8)),
        ("STANDALONE", "llama", ("STANDALONE", 3, 1, 4)),
        ("NGRAM", "llama", ("NGRAM", None, None, 12)),
        ("DFLASH", "other", ("DFLASH", 1, 1, None)),
    ],
)
def test_sglangs_defaults(make_study, algorithm, family, expected):
    model = {"path": "org/target", "draft": "org/draft", "family": family}
    parts = [{"algorithm": "none"}, {"algorithm": algorithm}, {"algorithm": "EAGLE3"}]
    found = baselines(make_study(model=model, space={"speculation": parts}))
    assert list(found) == ["none", "default"]
    assert found["none"] == Configuration()
    assert found["default"].speculation == Speculation(*expected)
    assert found["default"].draft_tp == (None if algorithm == "NGRAM" else 8)


def test_baselines_leave_searched_flags_and_variables_unset(make_study):
    space = {
        "speculation": [{"algorithm": "EAGLE3", "num_steps": 1, "topk": 1}],
        "draft_tp": [1],
        "flags": {"page-size": [1, 16]},
        "env": {"A": ["1", "2"]},
    }
    study = make_study(space=space)
    expected = Configuration.of(
        Speculation("EAGLE3", 3, 1, 4), draft_tp=8, flags={"page-size": None}, env={"A": None}
    )
    assert baselines(study)["default"] == expected
    assert not any(baseline in Space(study) for baseline in baselines(study).values())


def test_no_default_without_speculation(make_study):
    assert list(baselines(make_study(space={"speculation": [{"algorithm": "none"}]}))) == ["none"]


def test_default_baseline_is_absent_if_a_rule_refuses_it(make_study):
    model = {"path": "org/target", "draft": "org/draft", "family": "llama"}
    server = {"flags": {"attention-backend": "trtllm_mha"}}
    parts = [{"algorithm": "EAGLE3", "num_steps": 1, "topk": 1}]
    study = make_study(model=model, server=server, space={"speculation": parts})
    assert list(baselines(study)) == ["none"]


def test_both_baselines_of_the_demo_are_points():
    study = load_study("kimi-demo")
    assert set(baselines(study)) == {"none", "default"}
    assert all(baseline in Space(study) for baseline in baselines(study).values())


@pytest.mark.parametrize(
    ("path", "family", "guessed"),
    [
        ("meta-llama/Llama-3.1-8B-Instruct", "llama", True),
        ("models/Meta-LLaMA-3/", "llama", True),
        ("meta-llama/Llama-4-Scout", "other", True),
        ("xai-org/grok-1", "llama", True),
        ("llama-things/Qwen3-8B", "other", False),
        ("Qwen/Qwen3-8B", "other", False),
        ("moonshotai/Kimi-K2.5", "other", False),
        ("deepseek-ai/DeepSeek-R1-Distill-Llama-8B", "llama", True),
        ("org/something", "other", True),
    ],
)
def test_a_family_guessed_from_the_name(path, family, guessed):
    model = Model(path=path)
    assert (model_family(model), family_is_guessed(model)) == (family, guessed)


@pytest.mark.parametrize(
    ("architecture", "family"),
    [("LlamaForCausalLM", "llama"), ("Grok1ForCausalLM", "llama"), ("Qwen3ForCausalLM", "other")],
)
def test_a_family_read_from_the_config(tmp_path, architecture, family):
    folder = tmp_path / "llama-or-not"
    folder.mkdir()
    (folder / "config.json").write_text(json.dumps({"architectures": [architecture]}))
    model = Model(path=str(folder))
    assert (model_family(model), family_is_guessed(model)) == (family, False)


def test_an_unreadable_model_config_is_ignored(tmp_path):
    (tmp_path / "config.json").write_text("{")
    assert family_is_guessed(Model(path=str(tmp_path)))


def test_model_family_overrides_the_guess():
    assert model_family(Model(path="meta-llama/Llama-3", family="other")) == "other"
