"""Reading `/server_info` of every supported version."""

from __future__ import annotations

import json
import math

import pytest

from runners.base import RunnerError
from runners.server_info import (
    ServerFacts,
    read_server,
    read_server_info,
    refuse_unready,
    running_limit_of,
    simulated_of,
    speculation_of,
    version_note,
)
from search_spaces.configuration import Speculation


def body(path):
    text = path.read_text()
    return json.loads(text[text.index("{") :])


@pytest.mark.parametrize(
    ("name", "version", "speculation"),
    [
        ("0.5.9-cpu/server_info.json", "0.5.9", Speculation()),
        ("0.5.17-h200/nospec_1gpu_GET_server_info.txt", "0.5.17", Speculation()),
        (
            "0.5.17-h200/e3_1gpu_GET_server_info.txt",
            "0.5.17",
            Speculation("EAGLE3", num_steps=2, topk=1, num_draft_tokens=3),
        ),
        ("0.5.23-cpu/plain_server_info.json", "0.5.23", Speculation()),
        (
            "0.5.23-cpu/standalone_server_info.json",
            "0.5.23",
            Speculation("STANDALONE", num_steps=3, topk=2, num_draft_tokens=6),
        ),
    ],
)
def test_recorded_bodies(server, bodies, name, version, speculation):
    server.server_info = body(bodies / name)
    facts = read_server(server.url + "/", timeout_s=10)
    assert facts == ServerFacts(version, speculation, False, 1.0, server.server_info)


@pytest.mark.parametrize(
    ("name", "limit"),
    [
        # Where none was asked for the top level has none; the scheduler says what it took.
        ("0.5.9-cpu/server_info.json", 4096),
        ("0.5.17-h200/nospec_1gpu_GET_server_info.txt", 4),
        ("0.5.23-cpu/plain_server_info.json", 4096),
        ("0.5.23-cpu/standalone_server_info.json", 48),
    ],
)
def test_how_many_requests_every_version_says_it_runs_at_once(bodies, name, limit):
    assert running_limit_of(body(bodies / name)) == limit


@pytest.mark.parametrize(
    ("info", "limit"),
    [
        ({}, None),
        ({"max_running_requests": 16}, 16),
        ({"max_running_requests": "16", "internal_states": "?"}, None),
        ({"max_running_requests": 0, "internal_states": [None]}, None),
        # One state for each replica.
        ({"internal_states": 2 * [{"effective_max_running_requests_per_dp": 24}]}, 48),
        ({"max_running_requests": 9, "internal_states": [{"other": 1}]}, 9),
    ],
)
def test_how_many_requests_run_at_once(info, limit):
    assert running_limit_of(info) == limit


@pytest.mark.parametrize(
    ("version", "is_known"),
    [
        *(("0.5.9", True), ("0.5.12.post1", True), ("0.5.17", True), ("0.5.23", True)),
        *(("0.5.8", False), ("0.5.24", False), ("0.6.0rc1", False), ("unknown", False)),
    ],
)
def test_versions_whose_fields_were_not_read_are_named(version, is_known):
    note = version_note(version)
    assert (note is None) is is_known
    assert is_known or note.startswith(f"SGLang {version}: ")


def test_a_simulated_server_states_its_time_scale(server):
    server.server_info = {"model_path": "m", "simulated": {"time_scale": 25}}
    facts = read_server(server.url, api_key="k1")
    assert (facts.simulated, facts.time_scale, facts.version) == (True, 25.0, "unknown")
    assert server.authorization == {"bearer k1"}


@pytest.mark.parametrize("value", [None, {}, False])
def test_not_simulated(value):
    assert simulated_of({"simulated": value}) == (False, 1.0)
    assert simulated_of({}) == (False, 1.0)


def test_the_schedulers_state_comes_first():
    # After a switch of steps the scheduler runs something else than the arguments say.
    info = {
        "speculative_algorithm": "eagle3",
        "speculative_num_steps": 5,
        "speculative_eagle_topk": 1,
        "speculative_num_draft_tokens": 6,
        "internal_states": [{"speculative_num_steps": 2, "speculative_num_draft_tokens": 3}],
    }
    assert speculation_of(info) == Speculation("EAGLE3", 2, 1, 3)


@pytest.mark.parametrize("states", [None, [], [None], {}])
def test_without_the_schedulers_state(states):
    info = {"speculative_algorithm": "NGRAM", "speculative_num_draft_tokens": 8}
    assert speculation_of(info | {"internal_states": states}) == Speculation(
        "NGRAM", num_draft_tokens=8
    )


def test_the_older_endpoint(server):
    server.server_info = {"model_path": "m", "version": "0.5.9"}
    server.info_path = "/get_server_info"
    assert read_server_info(server.url)["version"] == "0.5.9"
    assert server.paths() == ["/server_info", "/get_server_info"]


@pytest.mark.parametrize(
    ("status", "answer", "kind", "fault"),
    [
        (200, b"<html>hello</html>", "not_sglang", "client"),
        (200, b"[]", "not_sglang", "client"),
        (200, b'{"hello": 1}', "not_sglang", "client"),
        (500, b"{}", "not_sglang", "client"),
        (200, b'{"model_path": 1, "simulated": {"time_scale": "x"}}', "bad_time_scale", "client"),
        (200, b'{"model_path": 1, "simulated": {"time_scale": [1]}}', "bad_time_scale", "client"),
        (401, b'{"error":"Unauthorized"}', "unauthorized", "client"),
        (503, b"", "server_gone", "configuration"),
    ],
)
def test_answers_that_help_nobody(server, status, answer, kind, fault):
    server.server_info = answer
    server.info_status = status
    with pytest.raises(RunnerError) as caught:
        read_server(server.url)
    assert (caught.value.failure.kind, caught.value.failure.fault) == (kind, fault)
    assert server.url in caught.value.failure.message


def test_nothing_there(server):
    with pytest.raises(RunnerError) as caught:
        read_server(server.url)  # 404 on both
    assert caught.value.failure.kind == "not_sglang"
    server.__exit__()
    with pytest.raises(RunnerError) as caught:
        read_server(server.url)
    assert caught.value.failure.kind == "server_gone"


def test_a_hung_scheduler(server):
    server.server_info = "hang"
    with pytest.raises(RunnerError) as caught:
        read_server(server.url, timeout_s=0.2)
    assert caught.value.failure.kind == "server_hung"


@pytest.mark.parametrize("status", [200, 404, 500, 503])
def test_only_503_is_not_ready(server, status):
    server.routes = {"/health": lambda _n, _b: (status, [b""])}
    if status != 503:
        refuse_unready(server.url)
        return
    with pytest.raises(RunnerError, match="the server is not ready") as caught:
        refuse_unready(server.url)
    assert caught.value.failure.kind == "not_ready"


@pytest.mark.parametrize("url", ["127.0.0.1:30000", "ftp://x", "nonsense"])
def test_not_an_address(url):
    with pytest.raises(RunnerError) as caught:
        read_server(url)
    assert (caught.value.failure.kind, caught.value.failure.fault) == ("bad_url", "client")


def test_a_time_scale_is_a_positive_number():
    for scale in (0, -1, math.nan, math.inf):
        with pytest.raises(ValueError, match="time scale"):
            simulated_of({"simulated": {"time_scale": scale}})
