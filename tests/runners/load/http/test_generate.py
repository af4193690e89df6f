"""Reading event streams: exact under any cut, cheap, and not fooled by the text."""

from __future__ import annotations

import itertools
import json

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from runners.load.http.endpoint import MalformedStreamError
from runners.load.http.generate import GenerateReader, answer_of, completion_tokens

HOSTILE = st.one_of(
    st.text(),
    st.lists(
        st.sampled_from(
            [
                '"completion_tokens":99',
                '\\"completion_tokens":99',
                "completion_tokens",
                '"',
                "\\",
                ":",
                '\\\\"completion_tokens\\":7,',
                "\n\ndata: [DONE]\n\n",
            ]
        ),
        max_size=6,
    ).map("".join),
)


def chunk(text, tokens, encode=orjson.dumps):
    meta = {"finish_reason": None, "completion_tokens": tokens, "cached_tokens": 0}
    return encode({"text": text, "output_ids": [1, 2], "meta_info": meta})


@given(text=HOSTILE, tokens=st.integers(0, 10**6))
def test_the_text_cannot_forge_the_count(text, tokens):
    assert completion_tokens(chunk(text, tokens)) == tokens


@given(text=HOSTILE, tokens=st.integers(0, 10**6))
def test_nor_with_the_standard_librarys_spacing(text, tokens):
    assert completion_tokens(chunk(text, tokens, lambda d: json.dumps(d).encode())) == tokens


@given(text=HOSTILE)
def test_nor_where_there_is_no_count(text):
    assert completion_tokens(orjson.dumps({"text": text, "error": {"message": text}})) is None


@pytest.mark.parametrize(
    "name",
    [
        "0.5.23-cpu/standalone_generate_stream.sse.txt",
        "0.5.23-cpu/eaglesim_generate_stream.sse.txt",
        "0.5.23-cpu/plain_generate_stream.sse.txt",
        "0.5.9-cpu/generate_stream.sse.txt",
    ],
)
def test_recorded_chunks_count_as_their_full_decode(bodies, name):
    events = (bodies / name).read_bytes().strip().split(b"\n\n")
    reader = GenerateReader()
    for event in events[:-1]:
        decoded = json.loads(event.removeprefix(b"data: "))
        assert reader.feed(event + b"\n\n") == decoded["meta_info"]["completion_tokens"]
    assert reader.feed(events[-1] + b"\n\n") is None
    assert reader.answer() == answer_of(decoded)


@given(
    texts=st.lists(HOSTILE, min_size=1, max_size=5),
    cuts=st.lists(st.integers(0, 2000), max_size=20),
    ending=st.sampled_from([b"\n", b"\r\n"]),
)
def test_cuts_do_not_matter(texts, cuts, ending):
    events = [chunk("".join(texts[:n]), n) for n in range(1, len(texts) + 1)]
    body = b"".join(b"data: " + event + ending * 2 for event in [*events, b"[DONE]"])
    reader = GenerateReader()
    counts = []
    edges = sorted({0, len(body), *(cut for cut in cuts if cut < len(body))})
    for start, end in itertools.pairwise(edges):
        if (count := reader.feed(body[start:end])) is not None:
            counts.append(count)
    assert counts == sorted(set(counts))
    assert counts[-1] == len(texts)
    assert reader.answer() == answer_of(orjson.loads(events[-1]))


@given(
    steps=st.lists(st.integers(1, 4), min_size=1, max_size=6),
    texts=st.lists(HOSTILE, min_size=6, max_size=6),
    cuts=st.lists(st.integers(0, 2000), max_size=20),
    incremental=st.booleans(),
)
def test_an_answer_is_whole_whether_it_comes_in_increments_or_grows(
    steps, texts, cuts, incremental
):
    ids, text, wire, counts = [], "", b"", []
    for step, more in zip(steps, texts, strict=False):
        ids += range(len(ids), len(ids) + step)
        text += more
        shown = {"text": more, "output_ids": ids[-step:]}
        if not incremental:
            shown = {"text": text, "output_ids": list(ids)}
        counts.append(len(ids))
        meta = {"completion_tokens": len(ids), "finish_reason": {"type": "length"}}
        wire += b"data: " + orjson.dumps(shown | {"meta_info": meta}) + b"\n\n"
    wire += b"data: [DONE]\n\n"
    reader = GenerateReader()
    edges = sorted({0, len(wire), *(cut for cut in cuts if cut < len(wire))})
    seen = [reader.feed(wire[a:b]) for a, b in itertools.pairwise(edges)]
    assert set(seen) <= {None, *counts}
    answer = reader.answer()
    assert answer.output_ids == tuple(ids)
    assert answer.text == text


def test_comments_and_other_fields_are_passed_over():
    reader = GenerateReader()
    assert reader.feed(b": ping\n\nevent: x\nid: 3\n\n") is None
    assert reader.feed(b"data:" + chunk("a", 4) + b"\n: ping\n\n") == 4


@pytest.mark.parametrize("body", [b"", b"data: [DONE]\n\n", b"data: {\n\n", b"data: [1]\n\n"])
def test_a_stream_that_is_none(body):
    reader = GenerateReader()
    reader.feed(body)
    with pytest.raises(MalformedStreamError):
        reader.answer()
