"""Reading back what a server runs, from recorded `/server_info` bodies."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from runners.base import differences
from runners.sglang.readback import resolved_of
from search_spaces.configuration import Configuration, Speculation

BODIES = Path(__file__).parents[1].parent / "data" / "bodies"


def info(name: str):
    return json.loads((BODIES / name).read_text())


def test_a_speculative_server(study):
    asked = Configuration.of(
        Speculation("STANDALONE", 3, 2, 6),
        draft_tp=1,
        flags={"attention-backend": None, "max-running-requests": 48, "enable-mixed-chunk": None},
        env={"NCCL_PROTO": "LL128", "NCCL_ALGO": None},
    )
    body = info("0.5.23-cpu/standalone_server_info.json")
    resolved = resolved_of(asked, study, body, {"NCCL_PROTO": "LL128", "HOME": "/"})
    assert resolved.sglang_version == "0.5.23"
    assert not resolved.simulated
    assert resolved.configuration.speculation == Speculation(
        "STANDALONE",
        body["speculative_num_steps"],
        body["speculative_eagle_topk"],
        body["speculative_num_draft_tokens"],
    )
    assert resolved.configuration.draft_tp == 1
    assert dict(resolved.configuration.flags) == {
        "attention-backend": body["attention_backend"],
        "max-running-requests": body["max_running_requests"],
        "enable-mixed-chunk": None,
    }
    assert dict(resolved.configuration.env) == {"NCCL_PROTO": "LL128", "NCCL_ALGO": None}


@pytest.mark.parametrize(
    "body", ["0.5.23-cpu/plain_server_info.json", "0.5.9-cpu/server_info.json"]
)
def test_a_plain_server_has_no_draft(study, body):
    resolved = resolved_of(Configuration(), study, info(body), {"A": "b"})
    assert resolved.configuration == Configuration()


def test_what_cannot_be_read_back_is_left_out(study):
    asked = Configuration.of(flags={"no-such-flag": 1}, env={"NCCL_PROTO": "LL"})
    resolved = resolved_of(asked, study, info("0.5.23-cpu/plain_server_info.json"), {})
    assert resolved.configuration == Configuration()
    assert differences(asked, resolved.configuration) == ()


@pytest.mark.parametrize(
    ("asked", "found", "expected"),
    [
        ("8", 8, "8"),
        (8, "8", 8),
        (8, 9, 9),
        (None, False, None),
        (None, "triton", "triton"),
        (True, True, True),
        (True, False, None),
        ("a", ["a"], "a"),
        (None, [1, 2], "[1,2]"),
        ("1e-5", 1e-05, "1e-5"),
        ("1e-5", 2e-05, 2e-05),
        ("5e1", 50, 50),
        ('{"a": 1}', {"a": 1}, '{"a": 1}'),
        ('{"a": 1}', {"a": 2}, '{"a":2}'),
        ("[1, 2]", [1, 2], "[1, 2]"),
        ("true", True, "true"),
    ],
)
def test_values_come_back_in_the_asked_type(study, asked, found, expected):
    resolved = resolved_of(Configuration.of(flags={"x-y": asked}), study, {"x_y": found}, {})
    assert dict(resolved.configuration.flags) == {"x-y": expected}


@pytest.mark.parametrize(
    ("asked", "info", "ignored"),
    [
        # 0.5.23: `--dp-size 8 --enable-dp-attention`
        ({"dp-size": 8, "enable-dp-attention": True},
         {"dp_size": 1, "attn_dp_size": 8, "enable_dp_attention": True}, False),
        # 0.5.9, and replicas in both
        ({"dp-size": 8}, {"dp_size": 8, "enable_dp_attention": True}, False),
        ({"dp-size": 2}, {"dp_size": 2, "attn_dp_size": 1}, False),
        ({"dp-size": 2}, {"dp_size": 1, "attn_dp_size": 1}, True),
        ({"dp-size": 8}, {"dp_size": 1, "attn_dp_size": 4}, True),
        ({"dp-size": 2, "attn-dp-size": 2}, {"dp_size": 1, "attn_dp_size": 2}, True),
        ({"attn-dp-size": 4}, {"dp_size": 1, "attn_dp_size": 4}, False),
        ({"dp-size": 1, "enable-dp-attention": True},
         {"dp_size": 1, "attn_dp_size": 1, "enable_dp_attention": False}, True),
    ],
)  # fmt: skip
def test_groups_of_data_parallel_attention_under_either_name(study, asked, info, ignored):
    asked = Configuration.of(flags=asked)
    resolved = resolved_of(asked, study, info, {})
    assert bool(differences(asked, resolved.configuration)) == ignored


def test_differences_name_what_was_rewritten():
    asked = Configuration.of(
        Speculation("EAGLE3", 4, 1, 9),
        draft_tp=1,
        flags={"page-size": 16, "attention-backend": None},
        env={"NCCL_PROTO": None, "NCCL_ALGO": "Ring"},
    )
    runs = Configuration.of(
        Speculation("EAGLE3", 4, 1, 5),
        draft_tp=8,
        flags={"page-size": 1, "attention-backend": "fa3"},
        env={"NCCL_PROTO": "LL", "NCCL_ALGO": "Ring"},
    )
    assert differences(asked, asked) == ()
    assert differences(asked, runs) == (
        "num_draft_tokens: asked 9, runs 5",
        "draft_tp: asked 1, runs 8",
        "page-size: asked 16, runs 1",
        "NCCL_PROTO: asked None, runs 'LL'",
    )
