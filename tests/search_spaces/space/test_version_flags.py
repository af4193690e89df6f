"""Flags that an SGLang version does not have."""

from __future__ import annotations

import pytest

from search_spaces.flags.options import REPLACED, options
from search_spaces.space.version_flags import unsupported_flags
from search_spaces.study_file.load import parse_study


def study_of(*, fixed="tp-size: 1", tuned="", own="", production=""):
    command = f"python -m sglang.launch_server --model-path org/model {production}"
    return parse_study(
        "study: s\nmodel: {path: org/model}\n"
        f"server: {{flags: {{{fixed}}}}}\n"
        "space:\n"
        f"  speculation: [{{algorithm: none}}, {{algorithm: NGRAM, flags: {{{own}}}}}]\n"
        f"  flags: {{{tuned}}}\n"
        "workload: {prompts: {chat: 1}, output_tokens: 8}\nbudget: {launches: 1}\n"
        + (f"production: {{command: {command}}}\n" if production else ""),
        "s",
    )


@pytest.mark.parametrize(
    ("parts", "version", "told"),
    [
        (
            {"fixed": "cuda-graph-max-bs: 160"},
            "0.5.23",
            "server.flags: --cuda-graph-max-bs; write `--cuda-graph-max-bs-decode` instead",
        ),
        (
            {"tuned": "cuda-graph-max-bs: [8, 16]"},
            "0.5.23",
            "space.flags: --cuda-graph-max-bs; write",
        ),
        (
            {"own": "cuda-graph-max-bs: [8]"},
            "0.5.23",
            "space.speculation[1].flags: --cuda-graph-max-bs; write",
        ),
        (
            {"production": "--cuda-graph-max-bs 160"},
            "0.5.23",
            "production.command: --cuda-graph-max-bs; write",
        ),
        (
            {"fixed": "cuda-graph-max-bs-decode: 160"},
            "0.5.9",
            "server.flags: --cuda-graph-max-bs-decode; write `--cuda-graph-max-bs` instead",
        ),
        (
            {"fixed": "chunked-prefil-size: 160"},
            "0.5.23",
            "server.flags: --chunked-prefil-size; did you mean `--chunked-prefill-size`?",
        ),
        (
            {"fixed": "of-another-world: true"},
            "0.5.9",
            "server.flags: --of-another-world\n",
        ),
    ],
)
def test_an_unsupported_flag_names_its_replacement(parts, version, told):
    message = unsupported_flags(study_of(**parts), version)
    assert message is not None
    assert f"  {told}" in message
    assert f"SGLang {version}" in message


@pytest.mark.parametrize(
    ("parts", "version"),
    [
        ({"fixed": "cuda-graph-max-bs: 160"}, "0.5.17"),
        ({"fixed": "cuda-graph-max-bs: null"}, "0.5.23"),
        ({"tuned": "cuda-graph-max-bs: [null]"}, "0.5.23"),
        # A fork, a version without a table, one that is not known: its parser may have them.
        ({"fixed": "of-another-world: true"}, "0.5.22"),
        ({"fixed": "of-another-world: true"}, "0.5.23.post1"),
        ({"fixed": "of-another-world: true"}, None),
    ],
)
def test_supported_flags_and_unknown_versions_pass(parts, version):
    assert unsupported_flags(study_of(**parts), version) is None


def test_two_unsupported_flags_share_a_message():
    message = unsupported_flags(
        study_of(fixed="cuda-graph-max-bs: 1, of-another-world: 2"), "0.5.23"
    )
    assert message is not None
    assert "does not have these flags" in message
    assert message.count("server.flags: --") == 2


def test_replaced_flags_name_their_replacement():
    new, old = options("0.5.23"), options("0.5.9")
    plain = [n for n in REPLACED if n not in new and n in old and not old[n].choices]
    assert plain
    for name in plain:
        value = "true" if old[name].takes == 0 else "1"
        message = unsupported_flags(study_of(fixed=f"{name}: {value}"), "0.5.23")
        assert message is not None
        assert f"write {REPLACED[name]} instead" in message, name


def test_abbreviated_flags_name_the_full_flag():
    """SGLang's parser takes it; a study that has it would know one flag under two names."""
    short = unsupported_flags(study_of(fixed="max-running-request: 8"), "0.5.23")
    assert short is not None
    assert "--max-running-request; it abbreviates `--max-running-requests`: write the full" in short
    assert "end at its start" not in short
    both = unsupported_flags(study_of(fixed="max-running-request: 8, no-such: 1"), "0.5.23")
    assert both is not None
    assert "launches would fail" in both
