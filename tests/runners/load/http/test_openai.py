"""The OpenAI endpoints: what is asked, and whose count of tokens is believed."""

from __future__ import annotations

import itertools

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from runners.base import RunnerError
from runners.load.http.endpoint import MalformedStreamError
from runners.load.http.openai import (
    NO_USAGE,
    ChatEndpoint,
    CompletionsEndpoint,
    Dialect,
    OpenAIReader,
)
from runners.load.prompts.prompts import Prompt
from search_spaces.workload import OperatingPoint, Workload

LOAD = Workload(
    (("chat", 1.0),),
    32,
    (OperatingPoint(1),),
    temperature=0.5,
    sampling=(("min_new_tokens", 3), ("top_p", 0.9)),
)


def stream(*events):
    lines = [b"data: " + orjson.dumps(event) + b"\n\n" for event in events]
    return b"".join([*lines, b"data: [DONE]\n\n"])


def text(content, usage=None, finish=None):
    choice = {"index": 0, "text": content, "finish_reason": finish}
    return {"choices": [choice], "usage": usage and {"prompt_tokens": 3, **usage}}


def delta(finish=None, **content):
    return {"choices": [{"index": 0, "delta": content, "finish_reason": finish}]}


def last(tokens, **more):
    return {"choices": [], "usage": {"prompt_tokens": 3, "completion_tokens": tokens, **more}}


def read(body, cuts=()):
    reader = OpenAIReader()
    edges = sorted({0, len(body), *(cut for cut in cuts if cut < len(body))})
    counts = [reader.feed(body[start:end]) for start, end in itertools.pairwise(edges)]
    return reader, [count for count in counts if count is not None]


def one_by_one(body):
    ends = [n + 2 for n in range(len(body)) if body[n : n + 2] == b"\n\n"]
    return read(body, ends)


class TestBodies:
    def test_completions(self):
        sent = orjson.loads(CompletionsEndpoint("m").body(Prompt("a", "Hello"), LOAD))
        assert sent == {
            "model": "m", "prompt": "Hello", "temperature": 0.5, "top_p": 0.9, "min_tokens": 3,
            "max_tokens": 32, "ignore_eos": True, "stream": True,
            "stream_options": {"include_usage": True, "continuous_usage_stats": True},
        }  # fmt: skip

    def test_token_ids_go_to_completions_only(self):
        prompt = Prompt("a", input_ids=(1, 2))
        assert orjson.loads(CompletionsEndpoint("m").body(prompt, LOAD))["prompt"] == [1, 2]
        with pytest.raises(RunnerError, match="token ids"):
            ChatEndpoint("m").body(prompt, LOAD)

    def test_chat(self):
        sent = orjson.loads(ChatEndpoint("m").body(Prompt("a", "Hello"), LOAD))
        assert sent["messages"] == [{"role": "user", "content": "Hello"}]
        assert "prompt" not in sent

    def test_sglang_is_asked_for_acceptance(self):
        sent = orjson.loads(
            ChatEndpoint("m", Dialect(is_sglang=True)).body(Prompt("a", "Hello"), LOAD)
        )
        assert sent["return_spec_tokens_details"] is True
        assert ChatEndpoint("m", Dialect(is_sglang=True)).has_controls
        assert not ChatEndpoint("m").has_controls

    def test_a_plain_server_gets_openais_own_parameters_only(self):
        dialect = Dialect(continuous_usage=False, ignore_eos=False)
        sent = orjson.loads(CompletionsEndpoint("m", dialect).body(Prompt("a", "Hello"), LOAD))
        assert "ignore_eos" not in sent
        assert sent["stream_options"] == {"include_usage": True}


class TestReading:
    def test_the_last_chunk_without_choices_has_the_usage(self):
        reader, counts = one_by_one(
            stream(text("a"), text("bcd"), text("e", finish="length"), last(9))
        )
        answer = reader.answer()
        assert counts == [1, 2, 3]
        assert not reader.counts_tokens
        assert (answer.completion_tokens, answer.prompt_tokens, answer.error) == (9, 3, None)
        assert (answer.text, answer.finish_reason) == ("abcde", "length")

    def test_usage_beside_the_last_text(self):
        reader, _ = one_by_one(
            stream(text("a"), text("b", {"completion_tokens": 7}, finish="stop"))
        )
        assert not reader.counts_tokens
        assert reader.answer().completion_tokens == 7
        assert reader.answer().error is None

    def test_continuous_usage(self):
        reader, counts = one_by_one(
            stream(
                text("a", {"completion_tokens": 1}),
                text("", {"completion_tokens": 4}),
                text("b", {"completion_tokens": 9}, finish="length"),
                last(9),
            )
        )
        assert reader.counts_tokens
        assert counts == [1, 4, 9, 9]

    def test_a_missing_usage_is_an_error_and_chunks_are_no_tokens(self):
        reader, _ = one_by_one(stream(text("a"), text("b", finish="length")))
        answer = reader.answer()
        assert answer.completion_tokens is None
        assert answer.error == NO_USAGE

    def test_empty_text_carries_tokens_too(self):
        # A character of several tokens, or none that the tokenizer shows.
        _, counts = one_by_one(stream(text("a"), text(""), text("b", finish="length"), last(3)))
        assert counts == [1, 2, 3]

    def test_chat_reasoning_and_tools(self):
        reader, counts = one_by_one(
            stream(
                delta(role="assistant", content=""),
                delta(reasoning_content="hm "),
                delta(content="yes"),
                delta(tool_calls=[{"index": 0, "function": {"arguments": "{"}}]),
                delta(finish="tool_calls"),
                last(8),
            )
        )
        assert counts == [1, 2, 3]
        assert reader.answer().text == "hm yes"
        assert reader.answer().finish_reason == "tool_calls"

    def test_acceptance_and_cached_tokens_of_sglang(self):
        details = {
            "spec_num_correct_drafts": 10, "spec_num_proposed_drafts": 25, "spec_verify_ct": 5,
            "spec_correct_drafts_histogram": [0, 0, 5],
        }  # fmt: skip
        extension = {
            "choices": [],
            "sglext": {
                "spec_tokens_details": details,
                "cached_tokens_details": {"device": 4, "host": 1},
            },
        }
        reader, _ = one_by_one(stream(text("a", finish="length"), extension, last(16)))
        answer = reader.answer()
        assert (answer.verify_calls, answer.correct_drafts, answer.proposed_drafts) == (5, 10, 25)
        assert answer.histogram == (0, 0, 5)
        assert answer.cached_tokens == 5

    def test_cached_tokens_of_the_usage(self):
        cached = {"prompt_tokens_details": {"cached_tokens": 2}}
        reader, _ = read(stream(text("a", finish="stop"), last(1, **cached)))
        assert reader.answer().cached_tokens == 2
        reader, _ = read(stream(text("a", finish="stop"), last(1, prompt_tokens_details=None)))
        assert reader.answer().cached_tokens is None

    @pytest.mark.parametrize(
        "event",
        [
            {"error": {"message": "out of memory", "code": 500}},
            {"error": "out of memory"},
            {"object": "error", "message": "out of memory"},
        ],
    )
    def test_an_error_in_the_stream(self, event):
        reader, _ = read(stream(text("a"), event))
        assert reader.answer().error == "out of memory"

    def test_a_stream_that_stops_halfway(self):
        reader, _ = read(stream(text("a"), last(5)))
        assert "ended before" in reader.answer().error

    @pytest.mark.parametrize("body", [b"", b"data: [DONE]\n\n"])
    def test_no_stream_at_all(self, body):
        reader, _ = read(body)
        with pytest.raises(MalformedStreamError):
            reader.answer()

    @pytest.mark.parametrize("body", [b"data: {\n\n", b"data: [1]\n\n"])
    def test_not_json(self, body):
        with pytest.raises(MalformedStreamError):
            OpenAIReader().feed(body)

    @pytest.mark.parametrize("name", ["chat", "completions"])
    def test_recorded_streams(self, bodies, name):
        body = (bodies / f"0.5.23-cpu/standalone_{name}_stream.sse.txt").read_bytes()
        reader, counts = one_by_one(body)
        answer = reader.answer()
        assert answer.error is None
        assert answer.completion_tokens == {"chat": 16, "completions": 32}[name]
        assert answer.finish_reason == "length"
        assert counts == list(range(1, len(counts) + 1))

    @given(
        texts=st.lists(st.text(), min_size=1, max_size=5),
        cuts=st.lists(st.integers(0, 1500), max_size=20),
        ending=st.sampled_from([b"\n", b"\r\n"]),
    )
    def test_cuts_do_not_matter(self, texts, cuts, ending):
        body = stream(*(text(part) for part in texts), text("", finish="length"), last(99))
        reader, _ = read(body.replace(b"\n", ending), cuts)
        assert reader.answer().text == "".join(texts)
        assert reader.answer().completion_tokens == 99
