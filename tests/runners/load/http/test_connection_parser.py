"""Reading HTTP/1.1 responses: exact under any cut, and no other protocol taken for one."""

from __future__ import annotations

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from runners.load.http.connection import NotHttpError, ResponseParser

CUTS = st.lists(st.integers(0, 600), max_size=30)
PIECES = st.lists(
    st.one_of(st.binary(min_size=1, max_size=40), st.just(b"\r\n0\r\n\r\n"), st.just(b"\r")),
    max_size=8,
)


def read(wire, cuts=(), *, then_close=False):
    """Feeds `wire` in pieces; the parser and the body."""
    body = bytearray()
    statuses = set()

    def on_body(status, piece):
        assert piece
        statuses.add(status)
        body.extend(piece)

    parser = ResponseParser(on_body)
    edges = sorted({0, len(wire), *(cut for cut in cuts if cut < len(wire))})
    complete = False
    for start, end in itertools.pairwise(edges):
        assert not complete
        complete = parser.feed(wire[start:end])
    if then_close:
        complete = parser.close()
    assert complete == parser.done
    assert statuses <= {parser.status}
    return parser, bytes(body)


@given(pieces=PIECES, cuts=CUTS, extension=st.sampled_from([b"", b";a=b"]))
def test_parser_reads_chunks_under_any_cut(pieces, cuts, extension):
    chunks = [b"%x%s\r\n%s\r\n" % (len(piece), extension, piece) for piece in pieces]
    wire = (
        b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: Chunked\r\n\r\n"
        + b"".join(chunks)
        + b"0\r\nX-Trailer: 1\r\n\r\n"
    )
    parser, body = read(wire, cuts)
    assert (parser.status, parser.done, parser.keep_alive) == (200, True, True)
    assert body == b"".join(pieces)
    unfinished, _ = read(wire[:-1], cuts)
    assert not unfinished.done
    assert not unfinished.close()


@given(body=st.binary(max_size=60), cuts=CUTS)
def test_parser_reads_a_content_length_under_any_cut(body, cuts):
    wire = b"HTTP/1.1 400 Bad Request\r\ncontent-length: %d\r\n\r\n%s" % (len(body), body)
    parser, got = read(wire, cuts)
    assert (parser.status, parser.done, got) == (400, True, body)


@given(body=st.binary(max_size=60), cuts=CUTS)
def test_parser_reads_a_body_until_the_connection_closes(body, cuts):
    parser, got = read(b"HTTP/1.0 200 OK\r\n\r\n" + body, cuts, then_close=True)
    assert (parser.done, parser.keep_alive, got) == (True, False, body)


def test_parser_skips_interim_responses():
    wire = b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"
    assert read(wire, range(len(wire)))[1] == b"ok"


@pytest.mark.parametrize(
    ("head", "keep_alive"),
    [
        (b"HTTP/1.1 204 No Content\r\n\r\n", True),
        (b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\nConnection: Close\r\n\r\n", False),
        (b"HTTP/1.0 200 OK\r\nContent-Length: 0\r\nConnection: Keep-Alive\r\n\r\n", True),
        (b"HTTP/1.1 200\r\nContent-Length: 0\r\n\r\n", True),
    ],
)
def test_parser_accepts_responses_without_a_body(head, keep_alive):
    parser, body = read(head)
    assert (parser.done, parser.keep_alive, body) == (True, keep_alive, b"")


@pytest.mark.parametrize(
    "wire",
    [
        b"SSH-2.0-OpenSSH_9.2\r\n",
        b"HTTP/2 200\r\n\r\n",
        b"HTTP/1.1 twohundred\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nno colon\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nContent-Length: many\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nContent-Length: 1\r\n\r\n12",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: gzip, chunked\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nxyz\r\n",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n-1\r\n",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\nok\r\n",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n1\r\nok\r\n",
    ],
)
def test_parser_refuses_what_is_not_http(wire):
    with pytest.raises(NotHttpError):
        read(wire)
