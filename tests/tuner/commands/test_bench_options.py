"""The options of `tuner bench`: from the command line to a workload, and what is refused."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import pytest

from search_spaces.workload import Goodput, OperatingPoint, SharedPrefix
from tuner.commands.bench_options import BenchOptions
from tuner.errors import CommandError, Exit

DEFAULTS = BenchOptions(
    url="http://127.0.0.1:30000/v1/", endpoint="generate", model=None, concurrency=None,
    request_rate=None, trace=None, requests=None, burst=False, whole_run=False, repeat=1,
    output_tokens=64, output_spread=None, natural_length=False,
    temperature=0.0, sampling=(), prompts="chat", shared_prefix=None, goodput=None, api_key=None,
    python=None, seed=0, processes=None, timeout_s=30.0,
)  # fmt: skip


def options(**changes):
    return dataclasses.replace(DEFAULTS, **changes)


def test_the_plain_case():
    assert options().base_url == "http://127.0.0.1:30000"
    assert options().point() == OperatingPoint(1)
    workload = options().workload()
    assert workload.prompts == (("chat", 1.0),)
    assert (workload.output_tokens, workload.request_timeout_s) == (64, 30.0)
    assert workload.output_spread == 0.5


@pytest.mark.parametrize(
    ("given", "spread"),
    [
        ({"output_spread": 0.0}, 0.0),
        ({"output_spread": 0.99}, 0.99),
        ({"natural_length": True}, 0.0),
        ({"natural_length": True, "output_spread": 0.0}, 0.0),
    ],
)
def test_the_spread_of_answer_lengths(given, spread):
    assert options(**given).workload().output_spread == spread


@pytest.mark.parametrize(
    ("given", "kind"),
    [
        ({}, "steady"),
        ({"burst": True}, "burst"),
        ({"whole_run": True}, "whole_run"),
        ({"burst": True, "whole_run": True, "concurrency": 8}, "whole_run"),
        ({"whole_run": True, "request_rate": 2.0}, "whole_run"),
    ],
)
def test_the_kind_of_window(given, kind):
    assert options(**given).workload()
    assert options(**given).window_kind == kind


@pytest.mark.parametrize(
    ("given", "point"),
    [
        ({"concurrency": 8, "requests": 40}, OperatingPoint(8, requests=40)),
        ({"request_rate": 2.5}, OperatingPoint(request_rate=2.5, requests=64)),
        ({"trace": Path("day.jsonl")}, OperatingPoint(trace="day.jsonl")),
    ],
)
def test_the_three_kinds_of_load(given, point):
    assert options(**given).point() == point


def test_everything_else():
    workload = options(
        prompts="chat=1,code=3",
        sampling=("top_p=0.9", "top_k=40"),
        temperature=0.7,
        shared_prefix="512:4",
        goodput="ttft:200,tpot:50.5",
        natural_length=True,
    ).workload()
    assert workload.prompts == (("chat", 0.25), ("code", 0.75))
    assert workload.sampling == (("top_k", 40), ("top_p", 0.9))
    assert workload.temperature == 0.7
    assert workload.shared_prefix == SharedPrefix(512, 4)
    assert workload.goodput == Goodput(ttft_ms=200, tpot_ms=50.5)
    assert workload.natural_length


@pytest.mark.parametrize(
    ("wrong", "says"),
    [
        ({"concurrency": 2, "request_rate": 1.0}, "exclude each other"),
        ({"request_rate": 0.0}, "above 0"),
        ({"request_rate": float("nan")}, "above 0"),
        ({"burst": True, "request_rate": 1.0}, "--burst .* --request-rate"),
        ({"burst": True, "trace": Path("day.jsonl")}, "--burst .* --trace"),
        ({"output_spread": 1.0}, "less than 1, not 1"),
        ({"output_spread": -0.1}, "at least 0"),
        ({"output_spread": float("nan")}, "--output-spread"),
        ({"output_spread": 0.5, "natural_length": True}, "--natural-length"),
        ({"temperature": -1.0}, "--temperature"),
        ({"timeout_s": 0.0}, "--timeout"),
        ({"prompts": "novels"}, "prompt set"),
        ({"prompts": "chat=0"}, "share of chat"),
        ({"prompts": "chat=1e-320,code=1e300"}, "too far apart"),
        ({"prompts": "chat=1e308,code=1e308"}, "too far apart"),
        ({"shared_prefix": "99999999999"}, "at most"),
        ({"shared_prefix": "5:99999999999"}, "at most"),
        ({"shared_prefix": "9" * 5000}, "512:4"),
        ({"sampling": ("top_p",)}, "top_p=0.9"),
        ({"sampling": ("top_p=0.5", "top_p=0.6")}, "once per name"),
        ({"sampling": ("top_p=7",)}, "at most 1"),
        ({"sampling": ("top_k=" + "9" * 20,)}, "top_k"),
        ({"sampling": ("tpo_p=0.5",)}, "top_p"),
        ({"shared_prefix": "0"}, "512:4"),
        ({"shared_prefix": "12:0"}, "512:4"),
        ({"goodput": "ttft"}, "ttft:200"),
        ({"goodput": "itl:5"}, "ttft:200"),
        ({"goodput": "ttft:5,ttft:6"}, "ttft:200"),
    ],
)
def test_what_is_refused(wrong, says):
    with pytest.raises(CommandError, match=says) as caught:
        options(**wrong).workload()
    assert caught.value.code == Exit.USAGE


def test_the_key_comes_from_the_option_or_the_environment(monkeypatch):
    monkeypatch.delenv("SGLANG_API_KEY", raising=False)
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)
    assert options().key() is None
    monkeypatch.setenv("OPENAI_API_KEY", "from-openai")
    assert options().key() == "from-openai"
    monkeypatch.setenv("SGLANG_API_KEY", "from-sglang")
    assert options().key() == "from-sglang"
    assert options(api_key="given").key() == "given"


@pytest.mark.parametrize("key", ["a\r\nX: y", "schlüssel", "line\n"])
def test_a_key_that_no_header_can_carry(key, monkeypatch):
    with pytest.raises(CommandError, match="--api-key"):
        options(api_key=key).key()
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)
    monkeypatch.setenv("SGLANG_API_KEY", key)
    with pytest.raises(CommandError, match="SGLANG_API_KEY"):
        options().key()
