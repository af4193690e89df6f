"""Bodies have the fields that SGLang 0.5.23's have."""

import json
import re
from itertools import pairwise

import pytest


@pytest.fixture(scope="module")
def tree(start, speculation):
    """Like the recorded `standalone` server: three steps, topk 2, six draft tokens."""
    flags = speculation(3, 2, 6, algorithm="STANDALONE")
    return start(*flags, "--enable-metrics", "--context-length", "2048").wait_ready()


@pytest.fixture(scope="module")
def plain(start):
    return start("--enable-metrics").wait_ready()


def events(text):
    parts = [part for part in text.split("\n\n") if part]
    assert parts.pop() == "data: [DONE]"
    return [json.loads(part.removeprefix("data: ")) for part in parts]


def test_generate_while_speculating(tree, recorded):
    ours, theirs = tree.generate().json(), json.loads(recorded("standalone_generate.json"))
    assert list(ours) == list(theirs)
    assert list(ours["meta_info"]) == list(theirs["meta_info"])
    assert {k: type(v) for k, v in ours["meta_info"].items()} == {
        k: type(v) for k, v in theirs["meta_info"].items()
    }
    meta = ours["meta_info"]
    assert meta["finish_reason"] == {"type": "length", "length": 32}
    assert meta["spec_accept_length"] == 32 / meta["spec_verify_ct"]
    assert meta["spec_num_proposed_drafts"] == 5 * meta["spec_verify_ct"]
    histogram = meta["spec_correct_drafts_histogram"]
    assert sum(histogram) == meta["spec_verify_ct"]
    assert sum(k * n for k, n in enumerate(histogram)) == meta["spec_num_correct_drafts"]


def test_generate_without_speculation(plain, recorded):
    ours, theirs = plain.generate().json(), json.loads(recorded("plain_generate.json"))
    assert list(ours["meta_info"]) == list(theirs["meta_info"])


@pytest.mark.parametrize("name", ["tree", "plain"])
def test_stream(request, name, recorded):
    served = request.getfixturevalue(name)
    reply = served.generate("Count to one hundred.", stream=True)
    ours = events(reply.text)
    body = {"tree": "standalone_generate_stream.sse.txt", "plain": "plain_generate_stream.sse.txt"}
    theirs = events(recorded(body[name]))
    for i in (0, 1, -1):
        assert list(ours[i]) == list(theirs[i])
        assert list(ours[i]["meta_info"]) == list(theirs[i]["meta_info"])
    for before, after in pairwise(ours):
        count = after["meta_info"]["completion_tokens"]
        assert len(after["output_ids"]) == count > before["meta_info"]["completion_tokens"]
        assert after["output_ids"][: len(before["output_ids"])] == before["output_ids"]
        assert after["text"].startswith(before["text"])
    assert ours[0]["meta_info"]["completion_tokens"] == 1
    assert reply.headers["content-type"].startswith("text/event-stream")


def test_outputs_do_not_depend_on_speculation(tree, plain):
    prompt = "The same prompt everywhere."
    assert tree.generate(prompt).json()["output_ids"] == plain.generate(prompt).json()["output_ids"]


def test_batch(plain, recorded):
    ours = plain.generate(["one", "two"]).json()
    theirs = json.loads(recorded("standalone_generate_batch.json"))
    assert [list(reply) for reply in ours] == [list(reply) for reply in theirs]
    assert ours[0]["output_ids"] != ours[1]["output_ids"]


def test_natural_end(plain):
    sampling = {"max_new_tokens": 1000, "ignore_eos": False}
    reply = plain.client.post("/generate", json={"input_ids": [1, 2], "sampling_params": sampling})
    meta = reply.json()["meta_info"]
    assert meta["finish_reason"]["type"] == "stop"
    assert meta["completion_tokens"] < 1000


@pytest.mark.parametrize("path", ["/server_info", "/get_server_info"])
def test_server_info(tree, recorded, path):
    ours = tree.client.get(path).json()
    theirs = json.loads(recorded("standalone_server_info.json"))
    assert set(ours) - set(theirs) == {"simulated"}
    assert set(theirs) <= set(ours)
    (our_state,), (their_state,) = ours["internal_states"], theirs["internal_states"]
    assert set(our_state) - {"avg_spec_accept_length"} == set(their_state)
    assert ours["version"] == "0.5.23"
    assert ours["simulated"] == {"profile": "kimi", "time_scale": 50.0, "seed": 0}
    assert ours["speculative_num_draft_tokens"] == our_state["speculative_num_draft_tokens"] == 6
    assert ours["max_running_requests"] == 48
    assert ours["launch_command"].startswith("--model-path moonshotai/Kimi-K2.5 ")


def test_model_info_and_models(tree, recorded):
    for path, name in (
        ("/model_info", "standalone_model_info.json"),
        ("/get_model_info", "standalone_model_info.json"),
        ("/v1/models", "plain_v1_models.json"),
    ):
        ours, theirs = tree.client.get(path).json(), json.loads(recorded(name))
        assert list(ours) == list(theirs)
    assert list(ours["data"][0]) == list(theirs["data"][0])


def test_metrics_have_the_real_names_and_labels(tree, recorded):
    for i in range(4):
        tree.generate(f"metrics {i}", 64)
        tree.generate(f"metrics {i}", 64, stream=True)

    def series(page):
        shape = re.compile(r'=(".*?")')
        return {
            (
                line.split("{")[0],
                tuple(re.sub(shape, "", line.split("{")[1].split("}")[0]).split(",")),
            )
            for line in page.splitlines()
            if line.startswith("sglang:")
        }

    page = tree.client.get("/metrics").text
    ours = series(page)
    assert ours <= series(recorded("standalone_metrics.txt"))
    assert {name for name, _ in ours} >= {
        "sglang:num_running_reqs",
        "sglang:num_queue_reqs",
        "sglang:generation_tokens_total",
        "sglang:spec_verify_calls_total",
        "sglang:spec_accept_length",
        "sglang:spec_num_steps",
        "sglang:spec_num_draft_tokens",
        "sglang:gen_throughput",
        "sglang:prompt_tokens_total",
        "sglang:cached_tokens_total",
    }
    gauge = re.search(r"^sglang:spec_accept_length\{.*\} (.*)$", page, re.MULTILINE)
    assert 1.0 < float(gauge[1]) <= 4.0


def test_counters_add_up(plain):
    def total(name):
        page = plain.client.get("/metrics").text
        return sum(
            float(line.rsplit(" ", 1)[1])
            for line in page.splitlines()
            if line.startswith(f"sglang:{name}{{")
        )

    before = total("generation_tokens_total")
    plain.generate("counted", 40)
    plain.generate("counted too", 24, stream=True)
    assert total("generation_tokens_total") - before == 64
    assert total("num_running_reqs") == 0


def test_metrics_need_the_flag(start, recorded):
    served = start().wait_ready()
    reply = served.client.get("/metrics")
    assert reply.status_code == 404
    assert reply.json() == json.loads(recorded("plain_notfound.json"))


def test_refusals(tree, recorded):
    bad = tree.client.post("/generate", content=b"{nonsense")
    theirs = json.loads(recorded("plain_bad_json.json"))
    assert (bad.status_code, list(bad.json())) == (400, list(theirs))
    cold = tree.client.post("/generate", json={"text": "x", "sampling_params": {"temperature": -1}})
    assert cold.status_code == 400
    assert cold.json() == json.loads(recorded("plain_bad_param.json"))
    long = tree.client.post("/generate", json={"input_ids": [1] * 10000})
    assert long.status_code == 400
    assert long.json() == json.loads(recorded("plain_too_long.json"))
    assert tree.client.post("/generate", json={}).status_code == 400


def test_api_key(start, recorded):
    served = start("--api-key", "secret").wait_ready()  # health stays open
    refused = served.generate()
    assert (refused.status_code, refused.text) == (401, recorded("apikey_noauth_generate.txt"))
    served.client.headers["authorization"] = "Bearer secret"
    assert served.generate().status_code == 200
