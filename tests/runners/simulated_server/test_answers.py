"""Ends of answers, and slices of their JSON."""

import json
from itertools import accumulate

from hypothesis import given
from hypothesis import strategies as st

from runners.simulated_server.api.replies import EncodedAnswer, ending
from runners.simulated_server.api.sampling import Sampling
from runners.simulated_server.engine import tokens

PIECES = st.lists(st.text(max_size=6) | st.text("ab", max_size=3), min_size=1, max_size=30)


def answer_of(pieces, natural=10_000):
    ids = [1000 + i for i in range(len(pieces))]
    ends = [0, *accumulate(map(len, pieces))]
    return tokens.Answer(ids, "".join(pieces), ends, natural)


@given(PIECES, st.data())
def test_a_slice_is_the_json_of_its_tokens(pieces, data):
    answer = answer_of(pieces)
    text_end = data.draw(st.integers(0, len(answer.text)))
    encoded = EncodedAnswer(answer, text_end)
    first = data.draw(st.integers(0, len(pieces)))
    last = data.draw(st.integers(first, len(pieces)))
    text = json.loads(b'"' + encoded.text_between(first, last) + b'"')
    assert text == answer.text[:text_end][answer.ends[first] : answer.ends[last]]
    assert json.loads(b"[" + encoded.ids_between(first, last) + b"]") == answer.ids[first:last]


@given(PIECES, st.text("ab", min_size=1, max_size=3), st.integers(1, 31), st.booleans())
def test_the_first_end_counts(pieces, stop, natural, natural_is_last):
    limit = len(pieces)
    if natural_is_last:  # the answer has no tokens after its natural end
        natural, limit = limit, limit + 1
    answer = answer_of(pieces, natural)
    sampling = Sampling(limit, stop=(stop,), stop_token_ids=frozenset({1004}))
    end = ending(answer, sampling, limit)
    shown = answer.text[: end.text_end]
    if not end.stops:
        assert end.answer == answer
        assert shown == answer.text
        return
    length = end.answer.natural_length
    assert length < limit
    before = answer.text[: answer.ends[length - 1]]
    if end.matched == stop:
        assert answer.text.startswith(shown + stop)
        assert stop not in shown
    elif end.matched == 1004:
        assert length == 5
        assert shown == before
    else:
        assert end.matched == tokens.EOS_TOKEN
        assert length == natural
        assert end.answer.ids[-1] == tokens.EOS_TOKEN
        assert shown == before
    if end.matched != stop:
        assert stop not in before  # an earlier stop text would have ended the answer


def test_the_limit_precedes_a_stop_text():
    answer = answer_of(["a", "b", "c"])
    end = ending(answer, Sampling(3, ignore_eos=True, stop=("c",)), 3)
    assert not end.stops
    assert answer.text[: end.text_end] == "abc"
