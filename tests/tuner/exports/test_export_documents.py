"""Exported JSON, YAML and SGLang's `--config` file."""

from __future__ import annotations

import json
import shlex

import pytest
import yaml
from hypothesis import HealthCheck, given, settings

from search_spaces.flags.options import options
from tuner.exports import FORMATS, documents, format_of, sglang_config, yaml_document
from tuner.exports.exported import Secret

from .exported_servers import environments, exported, flag_sets, removed, words_of


def shown(words):
    return [f"${word.name}" if isinstance(word, Secret) else word for word in words]


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(flag_sets, environments, removed)
def test_json_and_yaml_hold_exactly_that(flags, env, unset):
    server = exported(flags, env, unset, secrets=True)
    document = json.loads(documents.write(server))
    assert document["argv"] == shown(words_of(server))
    assert document["env"] == {**env, "HF_TOKEN": "$HF_TOKEN"}
    assert document["unset"] == sorted(unset)
    assert document["secrets"] == [
        {"name": "SGLANG_API_KEY", "for": "--api-key"},
        {"name": "HF_TOKEN", "for": "HF_TOKEN"},
    ]
    assert yaml.safe_load(yaml_document.write(server)) == document


def config_words(text, version="0.5.23"):
    """What SGLang 0.5.23 makes of a config file (`server_args_config_parser.py`)."""
    words = []
    for key, value in yaml.safe_load(text).items():
        known = options(version).get(key)
        action = known.action if known is not None else ""
        assert action in {"", "_StoreTrueAction"}, f"SGLang refuses {key} in a file"
        if isinstance(value, bool):
            words += [f"--{key}"] if action == "_StoreTrueAction" else [f"--{key}", "true"]
        elif isinstance(value, list):
            words += [f"--{key}", *map(str, value)]
        else:
            words += [f"--{key}", str(value)]
    return words


REAL = {
    "tp-size": 8,
    "trust-remote-code": True,
    "mem-fraction-static": 0.85,
    "json-model-override-args": '{"a": "b c"}',
    "cuda-graph-bs-decode": (1, 2, 4),
    "lora-paths": ("a=b", "c"),
    "enable-dp-attention": True,
    "enable-fused-qk-norm-rope": True,
}


@settings(max_examples=100, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(flag_sets, environments, removed)
def test_sglang_reads_exactly_that_from_its_config_file(flags, env, unset):
    server = exported({**REAL, **flags}, env, unset, secrets=True)
    line = sglang_config.command_line(server, "/my files/f.yaml")
    before, _, after = line.partition(" --config '/my files/f.yaml'")
    outside = shlex.split(after.replace('"${SGLANG_API_KEY:?set it}"', "'$SGLANG_API_KEY'"))
    inside = config_words(sglang_config.write(server))
    # The order of flags means nothing; what follows each of them does.
    assert grouped(inside + outside) == grouped(shown(words_of(server))[3:])
    assert {"--lora-paths", "--enable-dp-attention", "--api-key"} <= set(outside)
    assert "--trust-remote-code" in inside
    assert before.endswith("python3 -m sglang.launch_server")
    given_env = shlex.split(before.replace('"${HF_TOKEN:?set it}"', "x"))
    assert {f"{name}={value}" for name, value in env.items()} <= set(given_env)


def grouped(words):
    """Each flag with its values; a value of these tests never begins like their flags."""
    names = {f"--{n}" for n in (*REAL, "model-path", "host", "port", "api-key")}
    groups: list[tuple[str, ...]] = []
    for word in words:
        if word in names or word.startswith("--x-"):
            groups.append((word,))
        else:
            groups[-1] += (word,)
    return sorted(groups)


def test_a_comment_holds_no_line_that_is_not_one():
    server = exported(env={"A": "a\nmodel-path: other\n"})
    text = sglang_config.write(server)
    assert yaml.safe_load(text)["model-path"] == "m/m"
    assert "--format shell has the variables" in text


def test_every_format_says_that_it_is_simulated_and_holds_no_secret():
    for name in FORMATS:
        text = format_of(name).write(exported(secrets=True))
        assert "simulated" in text.lower(), name
        assert "SGLANG_API_KEY" in text, name


@pytest.mark.parametrize("name", FORMATS)
def test_only_a_script_is_executable(name):
    assert format_of(name).EXECUTABLE is (name == "shell")
