"""Configurations and figures in words."""

from __future__ import annotations

import pytest

from search_spaces.configuration import Configuration, Speculation
from search_spaces.figures import LATENCIES, RATES, Figure
from tuner.words import MOST_CHARACTERS, describe, describe_unit, shorten


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


def test_every_figure_has_a_unit():
    assert describe_unit(Figure("goodput_request_s")) == ("good req/s", ".2f")
    assert describe_unit(Figure("ttft_p95_ms", False)) == ("TTFT p95 ms", ".1f")
    units = {describe_unit(Figure(name))[0] for name in (*RATES, *LATENCIES)}
    assert len(units) == len(RATES) + len(LATENCIES)


def test_a_message_is_shortened_to_its_first_sentence():
    oom = "Not enough memory: 1.5 GiB of 80.0 GiB free. Lower --mem-fraction-static."
    assert shorten(oom) == "Not enough memory: 1.5 GiB of 80.0 GiB free."
    assert shorten("short, v0.5.2 of it") == "short, v0.5.2 of it"
    long = shorten("word " * 100)
    assert len(long) <= MOST_CHARACTERS
    assert long.endswith("word...")
    assert len(shorten("x" * 400)) == MOST_CHARACTERS
