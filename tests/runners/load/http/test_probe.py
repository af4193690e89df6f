"""Finding out what a server speaks: SGLang, others, and those that cannot be measured."""

from __future__ import annotations

import json

import pytest

from runners.base import RunnerError
from runners.load.running_server import bench, find_target
from search_spaces.configuration import Speculation
from search_spaces.workload import OperatingPoint, Workload

from ..timing import codes

pytestmark = pytest.mark.slow

POINT = OperatingPoint(2)
LOAD = Workload((("chat", 1.0),), 12, (POINT,), requests=4)
MODELS = (200, [b'{"object":"list","data":[{"id":"m-1"},{"id":"m-2"}]}'])


def answer(tokens, *, per_chunk=3, usage=True, continuous=False, extension=None):
    """A stream of completions of `tokens` tokens."""
    counts = [1, *range(1 + per_chunk, tokens, per_chunk), tokens]
    events = []
    for count in counts:
        choice = {"index": 0, "text": "x", "finish_reason": "length" if count == tokens else None}
        so_far = {"completion_tokens": count, "prompt_tokens": 7} if continuous else None
        events.append({"choices": [choice], "usage": so_far})
    if extension:
        events.append({"choices": [], "sglext": extension})
    if usage:
        events.append({"choices": [], "usage": {"completion_tokens": tokens, "prompt_tokens": 7}})
    lines = [b"data: " + json.dumps(event).encode() + b"\n\n" for event in events]
    return 200, [*lines, b"data: [DONE]\n\n"]


def vllm(_n, body):
    return answer(body["max_tokens"], continuous=body["stream_options"]["continuous_usage_stats"])


def plain(_n, body):
    """A server that refuses whatever is not OpenAI's."""
    unknown = {"ignore_eos"} & body.keys()
    if unknown or "continuous_usage_stats" in body["stream_options"]:
        return 400, [b'{"error":{"message":"unknown parameter"}}']
    return answer(body["max_tokens"])


@pytest.fixture
def other(server):
    """A server that is not SGLang."""
    server.routes = {"/v1/models": lambda _n, _b: MODELS, "/v1/completions": vllm}
    return server


def failure_of(url, endpoint="completions", **more):
    with pytest.raises(RunnerError) as caught:
        find_target(url, endpoint, **more)
    return caught.value.failure


def test_any_server_with_continuous_usage(other):
    target = find_target(other.url, "completions")
    assert not target.facts.is_sglang
    assert [note.split(":")[0] for note in target.unchecked] == [
        "not an SGLang server",
        "the server does not report cached prompt tokens",
    ]
    measurement = bench(other.url, LOAD, POINT, target=target)
    assert (measurement.requests, codes(measurement)) == (8, [])
    assert measurement.accept_length is None
    assert all(sample.completion_tokens == 12 for sample in measurement.samples)
    assert {body["model"] for body in other.bodies("/v1/completions")} == {"m-1"}
    assert not {"/flush_cache", "/abort_request"} & set(other.paths())


def test_a_server_that_knows_openais_parameters_only(other):
    other.routes["/v1/completions"] = plain
    failure = failure_of(other.url)
    assert (failure.kind, failure.fault) == ("no_fixed_length", "client")
    assert "--natural-length" in failure.message
    target = find_target(other.url, "completions", natural_length=True)
    assert any("spread evenly" in note for note in target.unchecked)
    load = Workload((("chat", 1.0),), 12, (POINT,), requests=4, natural_length=True)
    measurement = bench(other.url, load, POINT, target=target)
    # 5 chunks each, and still 12 tokens: counted by the usage alone.
    assert sum(sample.completion_tokens for sample in measurement.samples) == 8 * 12
    assert all(sample.chunks == 5 for sample in measurement.samples)


def test_chat_and_a_model_by_name(other):
    def chat(_n, body):
        assert body["messages"][0]["role"] == "user"
        return vllm(_n, body)

    other.routes["/v1/chat/completions"] = chat
    find_target(other.url, "chat", model="mine", api_key="k")
    assert other.bodies("/v1/chat/completions")[0]["model"] == "mine"
    assert "bearer k" in other.authorization
    assert "/v1/models" not in other.paths()


def test_sglang_tells_of_acceptance(other, bodies):
    info = json.loads((bodies / "0.5.23-cpu/standalone_server_info.json").read_text())
    other.server_info = info
    details = {
        "spec_num_correct_drafts": 7,
        "spec_verify_ct": 4,
        "spec_correct_drafts_histogram": [0, 1, 3],
    }
    extension = {"spec_tokens_details": details, "cached_tokens_details": {"device": 0}}
    other.routes["/v1/completions"] = lambda _n, body: answer(
        body["max_tokens"], continuous=True, extension=extension
    )
    target = find_target(other.url, "completions")
    assert target.facts.is_sglang
    assert target.unchecked == ()
    measurement = bench(other.url, LOAD, POINT, target=target)
    assert measurement.accept_length == pytest.approx(1 + 7 / 4)
    assert codes(measurement) == []
    assert "/flush_cache" in other.paths()

    extension.clear()  # an older SGLang
    target = find_target(other.url, "completions")
    assert target.speculation == Speculation()
    assert any("does not report acceptance" in note for note in target.unchecked)


def test_a_server_without_usage_is_not_measured(other):
    other.routes["/v1/completions"] = lambda _n, body: answer(body["max_tokens"], usage=False)
    failure = failure_of(other.url)
    assert failure.kind == "no_usage"


@pytest.mark.parametrize(
    ("status", "kind"), [(401, "unauthorized"), (404, "no_endpoint"), (500, "request_failed")]
)
def test_refusals(other, status, kind):
    other.routes["/v1/completions"] = lambda _n, _b: (status, [b"no"])
    failure = failure_of(other.url)
    assert (failure.kind, failure.fault) == (kind, "client")


@pytest.mark.parametrize("reply", [(404, [b"no"]), (200, [b'{"data": 3}'])])
def test_no_list_of_models(other, reply):
    other.routes["/v1/models"] = lambda _n, _b: reply
    assert failure_of(other.url).kind == "no_models"


def test_generate_needs_sglang(other):
    assert failure_of(other.url, "generate").kind == "not_sglang"


def test_the_servers_own_chat_template_is_allowed_in_the_cache(other, bodies):
    """What a template puts before every prompt is shared by all, and no fault of the load."""
    other.server_info = json.loads((bodies / "0.5.23-cpu/plain_server_info.json").read_text())

    def chat(number, body):
        details = {"cached_tokens_details": {"device": 0 if number == 0 else 13}}
        return answer(body["max_tokens"], continuous=True, extension=details)

    other.routes["/v1/chat/completions"] = chat
    target = find_target(other.url, "chat")
    assert target.speculation == Speculation()
    assert "/flush_cache" in other.paths()
    assert codes(bench(other.url, LOAD, POINT, target=target)) == []
    other.routes["/v1/chat/completions"] = lambda _n, body: answer(
        body["max_tokens"], continuous=True, extension={"cached_tokens_details": {"device": 500}}
    )
    reasons = bench(other.url, LOAD, POINT, target=target).invalid
    assert [reason.split(":")[0] for reason in reasons] == ["cached_tokens"]
