"""The simulated server's answers to the requests that were recorded with the real server.

`exchanges_*.json` were recorded from SGLang 0.5.23 on a CPU (STANDALONE 3/2/6 with metrics; plain
with keys, `--incremental-streaming-output --stream-interval 4` and no metrics). Refusals must be
equal to the letter, answers in keys, their order and types, streams in their framing.
"""

import pytest

from ...contract.comparison import compare
from ...contract.exchange import Answer, Exchange, ask
from ...contract.exchanges import recorded_exchanges


def compare_all(served, entries):
    problems = {}
    for entry in entries:
        exchange = Exchange.of(entry)
        answer = ask(f"http://127.0.0.1:{served.port}", exchange)
        if found := compare(exchange, Answer.recorded(entry), answer):
            problems[exchange.name] = found
    assert not problems, "\n\n".join(f"## {name}\n" + "\n".join(p) for name, p in problems.items())


@pytest.fixture(scope="module")
def tree(start, speculation):
    flags = speculation(3, 2, 6, algorithm="STANDALONE")
    more = ("--enable-metrics", "--context-length", "2048", "--model-path", "models/tiny")
    return start(*flags, *more, scale=200.0).wait_ready()


@pytest.mark.parametrize("what", ["generate", "completions", "chat", ""])
def test_a_speculating_server(tree, what):
    entries = recorded_exchanges("standalone")
    named = ("generate", "completions", "chat")
    chosen = [e for e in entries if (e["name"].split("_")[0] if what else "") == what]
    if not what:
        chosen = [e for e in entries if e["name"].split("_")[0] not in named]
    assert len(chosen) > 20
    compare_all(tree, chosen)


def test_a_plain_server_with_keys_and_other_streams(start):
    served = start(
        *("--api-key", "key", "--admin-api-key", "admin", "--context-length", "2048"),
        *("--incremental-streaming-output", "--stream-interval", "4"),
        *("--model-path", "models/tiny"),
        scale=200.0,
    ).wait_ready()
    entries = recorded_exchanges("plain")
    assert len(entries) > 50
    compare_all(served, entries)


def test_log_probabilities_are_refused(tree):
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
