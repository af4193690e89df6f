"""Configurations and figures in words."""

from __future__ import annotations

import pytest

from search_spaces.configuration import Configuration, Speculation
from tuner.words import describe


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
    ],
)
def test_describe(configuration, words):
    assert describe(configuration) == words
