"""What was asked of the real server is asked of the simulated one, and the answers are compared.

`exchanges_*.json` were recorded from SGLang 0.5.23 on a CPU (STANDALONE 3/2/6 with metrics; plain
with keys, `--incremental-streaming-output --stream-interval 4` and no metrics). Refusals must be
equal to the letter, answers in keys, their order and types, streams in their framing.
"""

import json
import re

import pytest

# What a simulated model cannot do, and answers whose kind depends on what the model says.
APART = {
    "generate_logprob",
    "generate_logprob_stream",
    "generate_top_logprobs",
    "completions_logprobs",
    "chat_logprobs",
    "generate_no_params",
    "generate_stop",
    "completions_stop",
    "chat_stop",
    "chat_bad_role",
}
# Null on a cold cache or before the first decode, and not otherwise.
SOMETIMES = {"cached_tokens_details", "decode_moments", "accelerator"}


def exchanges(recorded, name):
    return [
        entry
        for entry in json.loads(recorded(name))
        if entry["name"] not in APART and not entry["name"].startswith(("busy", "abort_"))
    ]


def ask(served, entry):
    headers = dict(entry.get("headers", {}))
    content = None
    if "raw" in entry:
        content, headers = entry["raw"].encode(), {"content-type": "application/json", **headers}
    elif "json" in entry:
        content = json.dumps(entry["json"]).encode()
        headers["content-type"] = "application/json"
    return served.client.request(entry["method"], entry["path"], content=content, headers=headers)


def shape(value):
    """Keys in order, and types; of a list its first element."""
    if isinstance(value, dict):
        return {key: "any" if key in SOMETIMES else shape(one) for key, one in value.items()} | {
            "__order__": list(value)
        }
    if isinstance(value, list):
        return [shape(one) for one in value[:1]]
    return type(value).__name__


def events(text):
    parts = text.split("\n\n")
    assert parts[-2:] == ["data: [DONE]", ""]
    assert all(part.startswith("data: ") for part in parts[:-1])
    return [json.loads(part.removeprefix("data: ")) for part in parts[:-2]]


def kinds(found):
    """The distinct shapes of a stream's events, in order of appearance."""
    seen = []
    for event in found:
        one = shape(event)
        if one not in seen:
            seen.append(one)
    return seen


def words(text):
    """A refusal without its numbers, which count another tokenizer's tokens."""
    return re.sub(r"\d+ tokens", "N tokens", text)


def compare(entry, reply):
    """What is wrong with a reply."""
    if reply.status_code != entry["status"]:
        return [f"status {reply.status_code}, not {entry['status']}: {reply.text[:300]}"]
    problems = []
    kind = entry["content_type"]
    if reply.headers.get("content-type") != kind:
        problems.append(f"type {reply.headers.get('content-type')}, not {kind}")
    allowed = set(re.split(r",\s*", entry.get("allow", "")))
    if set(re.split(r",\s*", reply.headers.get("allow", ""))) != allowed:
        problems.append(f"allow {reply.headers.get('allow')}, not {entry.get('allow')}")
    ours, theirs = reply.text, entry["body"]
    if looked_at(entry)(ours) != looked_at(entry)(theirs):
        problems.append(f"{ours[:3000]}\n\nnot\n\n{theirs[:3000]}")
    return problems


def looked_at(entry):
    """What counts of a body."""
    if entry["content_type"] == "text/event-stream; charset=utf-8":
        return lambda text: kinds(events(text))
    if any(word in entry["path"] for word in ("server_info", "metrics", "prometheus")):
        return bool  # these have tests of their own
    if entry["content_type"] == "application/json" and entry["status"] < 400:
        return lambda text: text and shape(json.loads(text))
    return words


def compare_all(served, entries):
    problems = {}
    for entry in entries:
        if found := compare(entry, ask(served, entry)):
            problems[entry["name"]] = found
    assert not problems, "\n\n".join(f"## {name}\n" + "\n".join(p) for name, p in problems.items())


@pytest.fixture(scope="module")
def tree(start, speculation):
    flags = speculation(3, 2, 6, algorithm="STANDALONE")
    more = ("--enable-metrics", "--context-length", "2048", "--model-path", "models/tiny")
    return start(*flags, *more, scale=200.0).wait_ready()


@pytest.mark.parametrize("what", ["generate", "completions", "chat", ""])
def test_a_speculating_server(tree, recorded, what):
    entries = exchanges(recorded, "exchanges_standalone.json")
    named = ("generate", "completions", "chat")
    chosen = [e for e in entries if (e["name"].split("_")[0] if what else "") == what]
    if not what:
        chosen = [e for e in entries if e["name"].split("_")[0] not in named]
    assert len(chosen) > 20
    compare_all(tree, chosen)


def test_a_plain_server_with_keys_and_other_streams(start, recorded):
    served = start(
        *("--api-key", "key", "--admin-api-key", "admin", "--context-length", "2048"),
        *("--incremental-streaming-output", "--stream-interval", "4"),
        *("--model-path", "models/tiny"),
        scale=200.0,
    ).wait_ready()
    entries = exchanges(recorded, "exchanges_plain.json")
    assert len(entries) > 50
    compare_all(served, entries)


def test_what_a_model_without_logits_refuses(tree):
    for path, body in (
        ("/generate", {"text": "a", "return_logprob": True}),
        ("/v1/completions", {"model": "m", "prompt": "a", "logprobs": 1}),
        (
            "/v1/chat/completions",
            {"model": "m", "messages": [{"role": "user", "content": "a"}], "logprobs": True},
        ),
    ):
        reply = tree.client.post(path, json=body)
        assert reply.status_code == 400
        assert "no logits" in reply.text
