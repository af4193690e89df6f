"""Command lines, and equivalent shell lines."""

from __future__ import annotations

import json
import shlex
import subprocess
import sys

import pytest
from hypothesis import given
from hypothesis import strategies as st

from runners.base import LaunchCommand
from runners.sglang.command import (
    flag_destination,
    flag_words,
    redacted,
    sglang_command,
    shell,
    tp_size,
)
from search_spaces.configuration import Configuration, Speculation
from search_spaces.study_file.load import parse_study


def test_command_of_a_speculative_configuration(study):
    configuration = Configuration.of(
        Speculation("EAGLE3", 2, 1, 3),
        draft_tp=8,
        flags={"attention-backend": "triton", "enable-mixed-chunk": None},
        env={"NCCL_PROTO": "LL,LL128,Simple"},
    )
    command = sglang_command(study, configuration, python="python")
    assert command == LaunchCommand(
        argv=(
            *("python", "-m", "sglang.launch_server", "--model-path", "moonshotai/Kimi-K2.5"),
            *("--speculative-algorithm", "EAGLE3"),
            *("--speculative-draft-model-path", "lightseekorg/kimi-k2.5-eagle3"),
            *("--speculative-num-steps", "2", "--speculative-eagle-topk", "1"),
            *("--speculative-num-draft-tokens", "3"),
            *("--tp-size", "8", "--trust-remote-code", "--max-running-requests", "64"),
            *("--attention-backend", "triton", "--host", "127.0.0.1", "--port", "30000"),
        ),
        env=(("NCCL_DEBUG", "WARN"), ("NCCL_PROTO", "LL,LL128,Simple")),
        unset=("NCCL_ALGO",),
    )


def test_command_without_speculation_has_no_speculative_flags(study):
    configuration = Configuration.of(
        flags={"enable-mixed-chunk": True}, env={"NCCL_PROTO": None, "NCCL_ALGO": "Ring"}
    )
    command = sglang_command(study, configuration, python="python")
    assert not [word for word in command.argv if word.startswith("--speculative")]
    assert "--enable-mixed-chunk" in command.argv
    assert command.unset == ("NCCL_PROTO",)
    assert ("NCCL_ALGO", "Ring") in command.env, "a varied variable replaces the fixed one"


def test_unset_flags_are_left_out(study):
    command = sglang_command(study, Configuration.of(Speculation("EAGLE3")), python="python")
    assert [word for word in command.argv if word.startswith("--speculative")] == [
        "--speculative-algorithm",
        "--speculative-draft-model-path",
    ]


def test_ngram_has_no_draft_model(study):
    configuration = Configuration.of(Speculation("NGRAM", None, None, 12))
    assert (
        "--speculative-draft-model-path"
        not in sglang_command(study, configuration, python="python").argv
    )


def test_export_has_the_study_address_and_a_trial_its_own():
    study = parse_study(
        "study: s\nmodel: {path: m/m}\nserver: {flags: {host: 0.0.0.0, port: 8000}}\n"
        "space: {speculation: [{algorithm: none}]}\n"
        "workload: {prompts: {chat: 1}, output_tokens: 8}\nbudget: {launches: 1}\n",
        "s",
    )
    exported = sglang_command(study, Configuration(), python="python").argv
    assert exported[-4:] == ("--host", "0.0.0.0", "--port", "8000")
    trial = sglang_command(study, Configuration(), python="python", host="127.0.0.1", port=20010)
    assert trial.argv[-4:] == ("--host", "127.0.0.1", "--port", "20010")
    assert trial.argv.count("--port") == 1
    assert tp_size(study) == 1


@pytest.mark.parametrize(
    ("value", "words"),
    [
        (True, ["--f"]),
        (False, []),
        (None, []),
        (0, ["--f", "0"]),
        (0.85, ["--f", "0.85"]),
        ("", ["--f", ""]),
        ([1, 2, 4], ["--f", "1", "2", "4"]),
        ({"a": 1}, ["--f", '{"a":1}']),
    ],
)
def test_flag_words(value, words):
    assert flag_words("f", value) == words


def test_flag_destination_of_every_spelling():
    assert flag_destination("tensor-parallel-size") == "tp_size"
    assert flag_destination("attention-backend") == "attention_backend"


words = st.text(st.characters(exclude_characters="\0", codec="utf-8"), min_size=1, max_size=12)
names = st.from_regex(r"T_[A-Z0-9_]{1,8}", fullmatch=True)


@given(st.lists(words, max_size=4), st.dictionaries(names, words, max_size=3))
def test_shell_line_splits_into_the_command(arguments, env):
    command = LaunchCommand(("python", *arguments), tuple(sorted(env.items())))
    assert shlex.split(shell(command)) == [
        *(f"{name}={value}" for name, value in command.env),
        *command.argv,
    ]


def test_shell_line_runs_the_command():
    script = "import os, sys, json; print(json.dumps([sys.argv[1:], dict(os.environ)]))"
    command = LaunchCommand(
        (sys.executable, "-c", script, "a b", "$HOME 'x'"), (("T_SET", "LL, *"),), ("T_GONE",)
    )
    done = subprocess.run(
        shell(command), shell=True, env={"T_GONE": "1"}, capture_output=True, check=True, text=True
    )
    arguments, environ = json.loads(done.stdout)
    assert arguments == ["a b", "$HOME 'x'"]
    assert environ["T_SET"] == "LL, *"
    assert "T_GONE" not in environ


def test_shell_line_without_removed_variables_has_no_env():
    line = shell(LaunchCommand(("python", "-m", "m"), (("NCCL_PROTO", "LL,LL128,Simple"),)))
    assert line == "NCCL_PROTO=LL,LL128,Simple python -m m"


KEYED = (
    "study: s\nmodel: {path: m/m}\n"
    "server:\n"
    "  flags: {api-key: sk-1234, ssl-keyfile: /k.pem, host: 0.0.0.0, chunked-prefill-size: 4096}\n"
    "  env: {HF_TOKEN: $T_TOKEN, MY_SECRET: s3cret, PLAIN: a b}\n"
    "space: {speculation: [{algorithm: none}]}\n"
    "workload: {prompts: {chat: 1}, output_tokens: 8}\nbudget: {launches: 1}\n"
)


def test_only_the_exported_command_has_keys(monkeypatch):
    study = parse_study(KEYED, "s", stored=True)
    monkeypatch.setenv("T_TOKEN", "hf_of_the_caller")
    trial = sglang_command(study, Configuration(), python="python", host="127.0.0.1", port=1)
    assert not {"--api-key", "--ssl-keyfile", "sk-1234"} & set(trial.argv)
    assert dict(trial.env)["HF_TOKEN"] == "hf_of_the_caller", "a trial's server needs the real one"
    assert dict(trial.env)["MY_SECRET"] == "s3cret"
    exported = sglang_command(study, Configuration(), python="python")
    assert exported.argv[4:8] == ("m/m", "--api-key", "sk-1234", "--ssl-keyfile")
    assert dict(exported.env)["HF_TOKEN"] == "$T_TOKEN"


def test_secret_without_a_value_is_not_set(monkeypatch):
    monkeypatch.delenv("T_TOKEN", raising=False)
    study = parse_study(KEYED, "s", stored=True)
    trial = sglang_command(study, Configuration(), python="python", host="127.0.0.1", port=1)
    assert "HF_TOKEN" not in dict(trial.env)
    assert "HF_TOKEN" not in trial.unset


def test_secrets_are_redacted():
    command = LaunchCommand(
        (
            *("docker", "exec", "s", "env", "HF_TOKEN=hf_abc", "python", "--api-key", "sk-1"),
            *("--admin-api-key=two", "--model-path", "m"),
            *("--json", '{"t": "hf_0123456789abcdefgh"}'),
        ),
        (("HF_TOKEN", "hf_abc"), ("NCCL_PROTO", "LL")),
    )
    once = redacted(command)
    assert once.argv[4] == "HF_TOKEN=$HF_TOKEN"
    assert once.argv[7:9] == ("$SGLANG_API_KEY", "--admin-api-key=$SGLANG_ADMIN_API_KEY")
    assert once.env == (("HF_TOKEN", "$HF_TOKEN"), ("NCCL_PROTO", "LL"))
    assert redacted(once) == once
    line = shell(command)
    assert '--api-key "$SGLANG_API_KEY"' in line
    assert line.startswith('HF_TOKEN="$HF_TOKEN" NCCL_PROTO=LL docker')
    assert not {"hf_abc", "sk-1", "two", "hf_0123456789abcdefgh"} & set(shlex.split(line))


def test_none_removes_a_fixed_flag_or_variable():
    study = parse_study(KEYED, "s", stored=True)
    configuration = Configuration.of(
        flags={"chunked-prefill-size": None, "speculative-draft-model-path": "x"},
        env={"PLAIN": None},
    )
    command = sglang_command(study, configuration, python="python")
    assert "--chunked-prefill-size" not in command.argv
    assert "PLAIN" in command.unset
    assert "--speculative-draft-model-path" not in command.argv, "nothing is drafted"


def test_configuration_overrides_the_draft(study):
    configuration = Configuration.of(
        Speculation("EAGLE3"), flags={"speculative-draft-model-path": "other/draft"}
    )
    argv = sglang_command(study, configuration, python="python").argv
    assert argv.count("--speculative-draft-model-path") == 1
    assert argv[argv.index("--speculative-draft-model-path") + 1] == "other/draft"
