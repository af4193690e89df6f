"""Bodies and values that the recorded exchanges do not compare."""

import json
import re
from itertools import pairwise

import pytest

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def tree(start, speculation):
    """A server like the recorded `standalone`: 3 steps, topk 2, 6 draft tokens."""
    flags = speculation(3, 2, 6, algorithm="STANDALONE")
    return start(*flags, "--enable-metrics", "--context-length", "2048").wait_ready()


@pytest.fixture(scope="module")
def plain(start):
    return start("--enable-metrics").wait_ready()


def test_a_stream_of_generate_is_cumulative(tree):
    reply = tree.generate("Count to one hundred.", stream=True)
    assert reply.headers["content-type"].startswith("text/event-stream")
    ours = parts(reply.text)
    assert ours[0]["meta_info"]["completion_tokens"] == 1
    for before, after in pairwise(ours):
        count = after["meta_info"]["completion_tokens"]
        assert len(after["output_ids"]) == count > before["meta_info"]["completion_tokens"]
        assert after["output_ids"][: len(before["output_ids"])] == before["output_ids"]
        assert after["text"].startswith(before["text"])


def test_outputs_do_not_depend_on_speculation(tree, plain):
    prompt = "The same prompt everywhere."
    assert tree.generate(prompt).json()["output_ids"] == plain.generate(prompt).json()["output_ids"]


@pytest.mark.parametrize("path", ["/server_info", "/get_server_info"])
def test_server_info(tree, recorded, path):
    ours = tree.client.get(path).json()
    theirs = json.loads(recorded("standalone_server_info.json"))
    assert set(ours) - set(theirs) == {"simulated"}
    assert set(theirs) <= set(ours)
    (our_state,), (their_state,) = ours["internal_states"], theirs["internal_states"]
    assert set(our_state) - {"avg_spec_accept_length"} == set(their_state)
    assert ours["version"] == "0.5.23"
    simulated = ours["simulated"]
    assert simulated.pop("clock")["forwards"] > 0
    assert simulated == {"profile": "kimi", "time_scale": 50.0, "seed": 0}
    assert ours["speculative_num_draft_tokens"] == our_state["speculative_num_draft_tokens"] == 6
    assert ours["max_running_requests"] == 48
    assert ours["launch_command"].startswith("--model-path moonshotai/Kimi-K2.5 ")


def families(page):
    """Return type and label names of each family of a page."""
    found = {}
    for line in page.splitlines():
        if line.startswith("# TYPE "):
            _, _, name, kind = line.split(" ")
            found[name] = (kind, set())
    histograms = {name for name, (kind, _) in found.items() if kind == "histogram"}
    for line in page.splitlines():
        if line.startswith("#"):
            continue
        name, _, rest = line.partition("{")
        name = name.split(" ")[0]
        base = re.sub("_(bucket|sum|count)$", "", name)
        labels = tuple(re.findall(r'(\w+)="', rest.rpartition("}")[0]))
        found[base if base in histograms else name][1].add(labels)
    return found


def helps(page):
    return {line for line in page.splitlines() if line.startswith("# ")}


# Counts of SGLang's processes and graphs; the simulation has neither.
NOT_SIMULATED = {"sglang:process_cpu_seconds_total", "sglang:cuda_graph_passes_total"}


def test_metrics_have_the_real_families(tree, recorded):
    for i in range(4):
        tree.generate(f"metrics {i}", 64)
        tree.generate(f"metrics {i}", 64, stream=True)
    tree.client.post("/v1/chat/completions", json={"model": "m"})
    page = tree.client.get("/metrics").text
    theirs = recorded("metrics_standalone_after.txt")
    ours, real = families(page), families(theirs)
    # The second page was recorded while a request ran that was aborted later.
    real_busy = families(recorded("metrics_standalone_busy.txt"))
    real = {**real_busy, **real}
    for name in ("sglang:num_aborted_requests_total", "sglang:get_loads_duration_seconds"):
        real.pop(name)  # no request is aborted here, and no loads are asked for
    assert set(ours) == set(real) - NOT_SIMULATED
    for name, (kind, labels) in ours.items():
        assert (kind, labels) == real[name], name
    known = helps(theirs) | helps(recorded("metrics_standalone_busy.txt"))
    assert helps(page) <= known
    gauge = re.search(r"^sglang:spec_accept_length\{.*\} (.*)$", page, re.MULTILINE)
    assert 1.0 < float(gauge[1]) <= 4.0


@pytest.fixture(scope="module")
def fresh(start):
    return start("--enable-metrics").wait_ready()


def test_metrics_before_the_first_request(fresh, recorded):
    ours = families(fresh.client.get("/metrics").text)
    page = recorded("plain_metrics_before.txt")
    theirs = families(page[page.index("# HELP") :])  # the recording begins within a histogram
    assert set(theirs) - set(ours) <= NOT_SIMULATED
    # Both servers count their warm-up request.
    assert {"sglang:prompt_tokens_total", "sglang:num_requests_total"} <= set(theirs)


def test_histograms_add_up(fresh):
    for i in range(3):
        fresh.generate(f"a histogram {i}", 40, stream=True)
    page = fresh.client.get("/metrics").text
    # The warm-up request is not in the series of streams.
    for family, total, count in (
        ("generation_tokens_histogram", 120.0 + 8.0, 4.0),
        ("time_to_first_token_seconds", None, 3.0),
        ("inter_token_latency_seconds", None, 117.0 + 7.0),
        ("e2e_request_latency_seconds", None, 3.0),
    ):
        lines = [line for line in page.splitlines() if line.startswith(f"sglang:{family}_")]
        series = [line for line in lines if 'is_streaming="false"' not in line]
        values = [float(line.rsplit(" ", 1)[1]) for line in series if "_bucket" in line]
        assert values == sorted(values)
        assert values[-1] == count
        (summed,) = (line for line in series if "_sum{" in line)
        assert total is None or float(summed.rsplit(" ", 1)[1]) == total


def test_device_timer(start, speculation):
    def categories(served):
        served.generate("timed", 64)
        page = served.client.get("/metrics").text
        found = re.findall(r'forward_execution_seconds_total\{category="(\w+)".*\} (.*)', page)
        return {category: float(value) for category, value in found}

    timer = {"SGLANG_ENABLE_METRICS_DEVICE_TIMER": "1"}
    seconds = categories(start(*speculation(3), "--enable-metrics", env=timer).wait_ready())
    assert set(seconds) >= {"extend", "target_verify", "eagle_draft"}
    assert seconds["target_verify"] > seconds["eagle_draft"] > 0.0
    assert categories(start("--enable-metrics").wait_ready()) == {}


def test_metrics_need_the_flag(start, recorded):
    served = start().wait_ready()
    reply = served.client.get("/metrics")
    assert reply.status_code == 404
    assert reply.json() == json.loads(recorded("plain_notfound.json"))


@pytest.mark.parametrize(
    ("path", "body", "message"),
    [
        ("/generate", {}, "Either text, input_ids or input_embeds should be provided."),
        ("/generate", {"input_ids": []}, "input_ids cannot be empty."),
        ("/generate", {"text": []}, "text cannot be empty."),
        ("/generate", {"text": ""}, "The prompt is empty"),
        ("/generate", {"text": ["a", ""]}, "The prompt is empty"),
        ("/generate", {"input_ids": [[1], []]}, "The prompt is empty"),
        ("/v1/completions", {"prompt": ""}, "Prompt cannot be empty"),
        ("/v1/completions", {"prompt": ["a", ""]}, "The prompt is empty"),
        ("/generate", {"text": "a", "sampling_params": {"stop": [1]}}, "list of strings, got [1]"),
        ("/generate", {"text": "a", "sampling_params": {"stop_token_ids": ["x"]}}, "integers"),
        ("/generate", {"text": "a", "sampling_params": {"n": 1_000_000}}, "at most 4096 answers"),
        ("/v1/completions", {"prompt": "a", "n": 1_000_000}, "at most 4096 answers"),
    ],
    ids=str,
)
def test_an_invalid_request_is_refused_with_its_reason(plain, path, body, message):
    reply = plain.client.post(path, json=body)
    assert reply.status_code == 400
    assert message in json.dumps(reply.json())


def parts(text):
    assert text.endswith("data: [DONE]\n\n")
    return [json.loads(part[6:]) for part in text.split("\n\n") if part and "[DONE]" not in part]


def test_streams_equal_whole_answers(tree):
    messages = [{"role": "user", "content": "Say the same twice."}]
    completion = {"model": "m", "prompt": ["one", "two"], "max_tokens": 40, "ignore_eos": True}
    whole = tree.client.post("/v1/completions", json=completion).json()
    streamed = {0: "", 1: ""}
    for part in parts(
        tree.client.post("/v1/completions", json={**completion, "stream": True}).text
    ):
        for choice in part["choices"]:
            streamed[choice["index"]] += choice["text"]
    assert streamed == {choice["index"]: choice["text"] for choice in whole["choices"]}
    chat = {"model": "m", "messages": messages}
    whole = tree.client.post("/v1/chat/completions", json=chat).json()["choices"][0]
    said = parts(tree.client.post("/v1/chat/completions", json={**chat, "stream": True}).text)
    deltas = [part["choices"][0]["delta"].get("content", "") for part in said]
    assert "".join(deltas) == whole["message"]["content"]
    assert whole["finish_reason"] == "stop"  # the natural end, without a limit
    assert said[-1]["choices"][0]["finish_reason"] == "stop"


def test_what_ends_an_answer(plain):
    def ask(**sampling):
        params = {"max_new_tokens": 200, "ignore_eos": True, **sampling}
        return plain.client.post("/generate", json={"text": "x", "sampling_params": params}).json()

    full = ask()
    word = full["text"].split()[20]
    first = full["text"].index(word)
    stopped = ask(stop=["never said", word])
    assert stopped["text"] == full["text"][:first]
    assert stopped["meta_info"]["finish_reason"] == {"type": "stop", "matched": word}
    token = full["output_ids"][7]
    stopped = ask(stop_token_ids=[token])
    assert stopped["output_ids"] == full["output_ids"][:8]
    assert stopped["meta_info"]["finish_reason"] == {"type": "stop", "matched": token}
    natural = ask(ignore_eos=False, max_new_tokens=2000)
    reason = natural["meta_info"]["finish_reason"]
    assert reason["type"] == "stop"
    assert natural["output_ids"][-1] == reason["matched"]
    assert natural["meta_info"]["completion_tokens"] == len(natural["output_ids"])


@pytest.mark.parametrize(
    ("flags", "body"),
    [
        (("EAGLE3", 4, 1, 9), "eaglesim_generate.json"),
        (("NGRAM",), "ngram_generate.json"),
    ],
    ids=["simulated acceptance", "NGRAM"],
)
def test_other_algorithms(start, speculation, recorded, flags, body):
    name, *numbers = flags
    if numbers:
        given = speculation(*numbers, algorithm=name)
    else:
        given = ("--speculative-algorithm", name, "--speculative-num-draft-tokens", "8")
    served = start(*given, "--enable-metrics").wait_ready()
    ours, theirs = served.generate().json(), json.loads(recorded(body))
    assert list(ours) == list(theirs)
    assert list(ours["meta_info"]) == list(theirs["meta_info"])
    meta = ours["meta_info"]
    assert meta["spec_num_proposed_drafts"] % meta["spec_verify_ct"] == 0


def test_server_info_before_and_after_a_flush(tree, recorded):
    def state():
        return tree.client.get("/server_info").json()["internal_states"][0]

    for i in range(4):
        tree.generate(f"long enough for a look at the gauges {i}", 100)
    after = state()
    theirs = json.loads(recorded("eaglesim_server_info_after.json"))["internal_states"][0]
    assert set(after) == set(theirs)
    assert 1.0 < after["avg_spec_accept_length"] <= 4.0
    assert tree.client.post("/flush_cache").status_code == 200
    theirs = json.loads(recorded("eaglesim_server_info_after_flush.json"))["internal_states"][0]
    assert set(state()) == set(theirs)
