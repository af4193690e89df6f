"""All endpoints of the real server that the tuner uses, with the functions that use them."""

from __future__ import annotations

import time
from contextlib import closing

import httpx
import pytest

from runners.base import RunnerError
from runners.load.running_server import bench, find_target
from runners.load.window.watches import identity_of
from runners.server_info import (
    read_models,
    read_server,
    read_server_info,
    refuse_unready,
    speculation_of,
)
from runners.sglang.session import ServerClient
from search_spaces.workload import OperatingPoint, Workload

from .servers import KINDS, VERSION, every_kind, generation

pytestmark = [pytest.mark.sglang, pytest.mark.timeout(600)]

WORKLOAD = Workload((("chat", 1.0),), 32, (OperatingPoint(concurrency=2),), requests=4)


@every_kind
def test_server_info_has_version_speculation_and_arguments(server):
    facts = read_server(server.url)
    assert facts.version == VERSION
    assert facts.is_sglang
    assert not facts.simulated
    # The server chooses NGRAM's steps and topk, so the canonical form omits them.
    asked, told = server.speculation, facts.speculation
    assert told.algorithm == asked.algorithm
    assert told.num_draft_tokens == asked.num_draft_tokens
    if asked.num_steps is not None:
        assert told == asked
    assert facts.raw["port"] == server.port
    assert facts.raw["max_running_requests"] == 16
    assert facts.raw["max_total_num_tokens"] == 20000
    assert facts.raw["launch_command"].endswith(f"--port {server.port}")


@every_kind
def test_get_server_info_equals_server_info(server):
    new, old = read_server_info(server.url), server.get("/get_server_info").json()
    assert identity_of(old) == identity_of(new)
    assert speculation_of(old) == speculation_of(new)
    assert old.keys() == new.keys()


@pytest.mark.kind("plain")
def test_health_generates_and_has_an_empty_body(server):
    """An idle server checks once a second for the token of its own request (0.5.23)."""
    begin = time.monotonic()
    answer = server.get("/health")
    assert (answer.status_code, answer.content) == (httpx.codes.OK, b"")
    assert time.monotonic() - begin >= 0.9
    assert server.get("/health_generate").status_code == httpx.codes.OK
    refuse_unready(server.url)
    with closing(ServerClient(server.url)) as client:
        assert client.healthy(60)
        assert not client.healthy(0.5), "an answer always takes a second"


@pytest.mark.kind("plain")
def test_first_generation_is_complete(server):
    with closing(ServerClient(server.url)) as client:
        assert client.generates("a mark", 120) is None
        assert client.model_names() == read_models(server.url) == (server.study.model.path,)


@pytest.mark.kind("standalone")
def test_server_without_hot_switching_refuses_other_steps(server):
    """The answer is 200 and `[false]`, so the status alone would mean the old steps."""
    body = {"server_args": {"speculative_num_steps": 2}}
    answer = server.post("/set_internal_state", body)
    assert (answer.status_code, answer.json()) == (200, [False])
    with pytest.raises(RunnerError) as caught:
        server.session.apply(server.session.resolved.configuration.setting.__class__(2))
    failure = caught.value.failure
    assert (failure.kind, failure.fault) == ("switch_refused", "configuration")
    assert "not launched for hot switching" in failure.message
    assert read_server(server.url).speculation == KINDS["standalone"].speculation


@pytest.mark.kind("standalone")
def test_all_endpoints_report_the_same_acceptance(server):
    """OpenAI endpoints report it in their last event: `return_spec_tokens_details` (0.5.23)."""
    lengths = {}
    for endpoint in ("generate", "completions", "chat"):
        target = find_target(server.url, endpoint)
        assert target.facts.version == VERSION
        assert target.unchecked == ()
        measurement = bench(server.url, WORKLOAD, WORKLOAD.points[0], target=target)
        assert not [sample.error for sample in measurement.samples if sample.error]
        assert {sample.completion_tokens for sample in measurement.samples} == {32}
        lengths[endpoint] = measurement.accept_length
    # The prompts are the same and greedy, but chat adds its template.
    assert lengths["completions"] == pytest.approx(lengths["generate"])
    assert 1 < lengths["chat"] <= 4


@pytest.mark.kind("standalone")
def test_chat_reports_acceptance_on_request_without_streaming(server):
    body = {
        "model": "any name will do",
        "messages": [{"role": "user", "content": "Count."}],
        "max_tokens": 24,
        "ignore_eos": True,
    }
    silent = server.post("/v1/chat/completions", body).json()
    assert "meta_info" not in silent["choices"][0]
    told = server.post("/v1/chat/completions", body | {"return_meta_info": True}).json()
    assert told["choices"][0]["meta_info"]["spec_verify_ct"] > 0
    streamed = server.post(
        "/v1/chat/completions", body | {"return_meta_info": True, "stream": True}
    )
    assert streamed.status_code == httpx.codes.BAD_REQUEST


@pytest.mark.kind("plain")
def test_refused_request_does_not_harm_the_server(server):
    refused = {
        "too long": generation("word " * 4000, 8),
        "bad parameter": {"text": "x", "sampling_params": {"temperature": -1}},
        "no prompt": {"sampling_params": {}},
    }
    for name, body in refused.items():
        answer = server.post("/generate", body)
        assert answer.status_code == httpx.codes.BAD_REQUEST, name
        streamed = server.post("/generate", body | {"stream": True})
        # A stream begins before the check: the status is 200, the event an error.
        assert streamed.status_code == 400 or '"error"' in streamed.text, name
    assert server.get("/nothing").status_code == httpx.codes.NOT_FOUND
    assert server.generate("still there", 4)["meta_info"]["completion_tokens"] == 4
