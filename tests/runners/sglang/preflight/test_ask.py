"""The process that asks SGLang, with a stand-in package, and the simulated GPU."""

from __future__ import annotations

import sys
from importlib.resources import files

import pytest

from runners.process.environment import CommandPrefix, LocalEnvironment
from runners.sglang.preflight.ask import GPUS, NotAskedError, ask, gpu_named, gpu_to_pretend
from runners.sglang.preflight.inside import facts_of
from search_spaces.study_file.load import load_study

from ....sglang_arguments import write_sglang

CHAIN = (
    "--speculative-algorithm EAGLE3 --speculative-num-steps 3 --speculative-eagle-topk 1 "
    "--speculative-num-draft-tokens 9"
)


def launch(text, **env):
    return {"argv": ["--model-path", "org/model", *text.split()], "env": env}


@pytest.fixture(params=[False, True], ids=["0.5.23", "before"])
def asked(request, tmp_path):
    """Ask about launches, for both ways in which SGLang resolves arguments."""
    folder = write_sglang(tmp_path, "9.8.7", resolves_at_once=request.param)

    def run(*launches, seconds=30.0, **options):
        return ask(
            LocalEnvironment(sys.executable),
            launches,
            seconds=seconds,
            variables={"PYTHONPATH": str(folder)},
            **options,
        )

    return run


@pytest.mark.slow
def test_resolved_values_and_rewrites(asked):
    found = asked(launch(""), launch(CHAIN), launch(f"{CHAIN} --page-size 3"))
    assert found.version == "9.8.7"
    plain, chain, paged = found.answers
    assert plain.values["attention_backend"] == "fa3"
    assert plain.values["max_running_requests"] is None
    assert plain.rewritten == {}
    assert chain.values["max_running_requests"] == 48
    assert chain.values["attention_backend"] == "fa3"  # as in the first launch
    assert chain.rewritten == {"speculative_num_draft_tokens": (9, 4)}
    assert paged.rewritten["page_size"] == (3, 4)
    assert "random_seed" not in chain.values


@pytest.mark.parametrize(
    ("text", "env", "says"),
    [
        ("--of-another-world 1", {}, "unrecognized arguments: --of-another-world 1"),
        ("--page-size many", {}, "argument --page-size: invalid int value: 'many'"),
        ("--speculative-e 1 --page 1 --speculative-eagle-topk 8", {}, "ValueError: topk 8 is not"),
        ("--schedule-conservativeness -1", {}, "ValueError: schedule_conservativeness must"),
        ("", {"SGLANG_MOOD": "bad"}, "AssertionError: server_args.py, line "),
    ],
)
@pytest.mark.slow
def test_refusal_has_sglangs_message(asked, text, env, says):
    bad, good = asked(launch(text, **env), launch("")).answers
    assert bad.refused is not None
    assert bad.refused.startswith(says)
    assert bad.unanswered is None
    assert good.refused is None  # the next launch has other variables


@pytest.mark.slow
def test_missing_model_is_unanswered_not_refused(asked):
    model = {"argv": ["--model-path", "elsewhere/model"], "env": {}}
    [found] = asked(model).answers
    assert found.refused is None
    assert found.unanswered == "OSError: not here, and the hub is not asked"
    # The launch allows the hub.
    [found] = asked({**model, "env": {"HF_HUB_OFFLINE": "0"}}).answers
    assert found.unanswered is None


@pytest.mark.slow
def test_time_limit_ends_the_check(asked):
    launches = [launch("", SGLANG_MOOD="slow")] * 50
    found = asked(*launches, seconds=0.5)
    assert 1 <= len(found.answers) < 50


@pytest.mark.slow
def test_hung_launch_keeps_earlier_answers(asked, monkeypatch):
    script = (files("runners.sglang.preflight") / "inside.py").read_text("utf-8")
    quick = script.replace("SLACK_S = 10", "SLACK_S = 1")
    monkeypatch.setattr("runners.sglang.preflight.ask.script", lambda: quick)
    found = asked(launch(""), launch("", SGLANG_MOOD="stuck"), launch(""), seconds=0.5)
    assert len(found.answers) == 1
    assert found.cut_short == "the next launch took too long"
    with pytest.raises(NotAskedError, match=r"^no answer within 2 s$"):
        asked(launch("", SGLANG_MOOD="stuck"), import_s=2)


@pytest.mark.slow
def test_crash_keeps_earlier_answers(asked):
    found = asked(launch(""), launch("", SGLANG_MOOD="dying"), launch(""))
    assert len(found.answers) == 1
    assert found.cut_short == "the check ended with exit code 7: it hurts"
    with pytest.raises(NotAskedError, match="ended with exit code 7: it hurts"):
        asked(launch("", SGLANG_MOOD="dying"), launch(""))


@pytest.mark.slow
def test_odd_messages_and_values(asked):
    odd, odder, plain = asked(
        launch("", SGLANG_MOOD="odd"), launch("", SGLANG_MOOD="odder"), launch("")
    ).answers
    assert odd.refused == "ValueError: a [31mfile named"
    assert odder.values["page_size"] == {"line": "one\u2028two"}
    assert plain.refused is None


@pytest.mark.slow
def test_missing_sglang_is_an_error(tmp_path):
    with pytest.raises(NotAskedError, match="cannot be imported: ModuleNotFoundError"):
        ask(LocalEnvironment(sys.executable), [], seconds=1)
    with pytest.raises(NotAskedError, match="cannot run"):
        ask(LocalEnvironment(str(tmp_path / "python")), [], seconds=1)
    prefix = ("sh", "-c", "echo out of order >&2; exit 3")
    with pytest.raises(NotAskedError, match="ended with exit code 3: out of order"):
        ask(CommandPrefix(prefix, sys.executable), [], seconds=1)


@pytest.mark.slow
def test_ask_behind_a_prefix(tmp_path):
    folder = write_sglang(tmp_path, "9.8.7")
    found = ask(
        CommandPrefix(("nice",), sys.executable),
        [launch(CHAIN)],
        seconds=30,
        variables={"PYTHONPATH": str(folder)},
    )
    assert found.answers[0].values["speculative_num_draft_tokens"] == 4


@pytest.mark.parametrize(
    ("name", "known"),
    [
        ("h200", "NVIDIA H200"),
        ("NVIDIA H100 80GB HBM3", "NVIDIA H100"),
        ("NVIDIA RTX PRO 6000 Blackwell Server Edition", "NVIDIA RTX PRO 6000 Blackwell"),
        ("rtx-pro-6000", "NVIDIA RTX PRO 6000 Blackwell"),
        ("AMD Instinct MI300X", None),
        ("nvidia", None),
        ("", None),
    ],
)
def test_gpu_by_part_of_its_name(name, known):
    found = gpu_named(name)
    assert (found.name if found else None) == known


def test_gpu_is_simulated_only_on_machines_without_one():
    study = load_study("llama-8b")
    assert gpu_to_pretend(study, gpus_here=1, named=["h200"]) is None
    assert gpu_to_pretend(study, gpus_here=0, named=["MI300X", "b200"]) == gpu_named("b200")
    assert gpu_to_pretend(study, gpus_here=0) == GPUS[0]
    assert gpu_to_pretend(load_study("tiny"), gpus_here=0, named=["h200"]) is None


def test_facts_have_one_architecture():
    for gpu in GPUS:
        facts = facts_of(gpu.capability)
        kinds = [facts["is_sm90"], facts["is_sm100"], facts["is_sm120"]]
        assert sum(kinds) == (1 if gpu.capability >= (9, 0) else 0), gpu.name
        assert facts["is_blackwell"] is (gpu.capability >= (10, 0))
