"""Configurations and figures in words."""

from __future__ import annotations

import pytest

from search_spaces.configuration import Configuration, Speculation
from search_spaces.metrics import LATENCIES, RATES, Metric
from search_spaces.study_file.load import parse_study
from tuner.formatting import (
    MOST_CHARACTERS,
    counted,
    describe,
    describe_choices,
    describe_unit,
    shorten,
)


@pytest.mark.parametrize(
    ("configuration", "words"),
    [
        (Configuration.of(), "no speculation"),
        (Configuration.of(Speculation("EAGLE3", 2, 1, 3)), "EAGLE3 steps 2"),
        (
            Configuration.of(Speculation("EAGLE3", 3, 2, 8), env={"NCCL_PROTO": "LL"}),
            "EAGLE3 steps 3, topk 2, 8 draft tokens, NCCL_PROTO=LL",
        ),
        (
            Configuration.of(flags={"mem-fraction-static": 0.8, "enable-x": True, "y": None}),
            "no speculation, --enable-x --mem-fraction-static 0.8",
        ),
        (Configuration.of(flags={"cpu-offload-gb": 0}), "no speculation, --cpu-offload-gb 0"),
        (Configuration.of(Speculation("DFLASH", 1, 1, 16)), "DFLASH 16 draft tokens"),
        (Configuration.of(Speculation("NGRAM", None, None, 12)), "NGRAM 12 draft tokens"),
    ],
)
def test_describe(configuration, words):
    assert describe(configuration) == words


def test_what_a_configuration_takes_away_is_told():
    taken = Configuration.of(
        flags={"page-size": None, "x": None}, env={"NCCL_DEBUG": None, "NCCL_PROTO": None}
    )
    text = "no speculation, without --page-size NCCL_DEBUG"
    assert describe(taken, {"page-size", "NCCL_DEBUG"}) == text
    assert describe(taken) == "no speculation"


def test_what_a_study_searches_is_told_a_knob_at_a_time():
    study = parse_study(
        "study: s\nmodel: {path: org/model, draft: org/draft}\n"
        "space:\n"
        "  speculation:\n"
        "    - algorithm: none\n"
        "    - {algorithm: EAGLE3, num_steps: {from: 1, to: 3}, topk: 1}\n"
        "    - {algorithm: EAGLE3, num_steps: [2, 5], topk: [2], num_draft_tokens: [4, 8]}\n"
        "    - {algorithm: EAGLE3, num_steps: 7, topk: 1, flags: {speculative-adaptive: [true]}}\n"
        "  flags: {attention-backend: [null, triton]}\n"
        '  env: {NCCL_PROTO: [null, "LL,LL128"]}\n'
        "workload: {prompts: {chat: 1}, output_tokens: 8}\nbudget: {launches: 9}\n",
        "s",
    )
    assert list(describe_choices(study.space)) == [
        ("speculation", "none"),
        ("speculation", "EAGLE3 steps 1 to 3, topk 1"),
        ("speculation", "EAGLE3 steps 2/5, topk 2, draft tokens 4/8"),
        ("speculation", "EAGLE3 steps 7, topk 1, --speculative-adaptive given"),
        ("--attention-backend", "not given | triton"),
        ("NCCL_PROTO", "not set | LL,LL128"),
    ]


def test_one_of_a_thing_is_singular():
    assert [counted(n, "launch") for n in (0, 1, 2)] == ["0 launches", "1 launch", "2 launches"]
    assert [counted(n, "trial") for n in (1, 2)] == ["1 trial", "2 trials"]


def test_every_figure_has_a_unit():
    assert describe_unit(Metric("goodput_request_s")) == ("good req/s", ".2f")
    assert describe_unit(Metric("ttft_p95_ms", False)) == ("TTFT p95 ms", ".1f")
    units = {describe_unit(Metric(name))[0] for name in (*RATES, *LATENCIES)}
    assert len(units) == len(RATES) + len(LATENCIES)


def test_a_message_is_shortened_to_its_first_sentence():
    oom = "Not enough memory: 1.5 GiB of 80.0 GiB free. Lower --mem-fraction-static."
    assert shorten(oom) == "Not enough memory: 1.5 GiB of 80.0 GiB free."
    assert shorten("short, v0.5.2 of it") == "short, v0.5.2 of it"
    long = shorten("word " * 100)
    assert len(long) <= MOST_CHARACTERS
    assert long.startswith("word word")
    assert " ... word" in long
    refused = shorten(
        "the server ended with exit code 2 while it read its flags, which "
        "are listed in its log: " + "usage: launch_server.py [-h] " * 9 + "error: unknown --x-y"
    )
    assert refused.startswith("the server ended with exit code 2")
    assert refused.endswith("error: unknown --x-y")
    assert len(refused) <= MOST_CHARACTERS
    assert len(shorten("x" * 400)) == MOST_CHARACTERS
