"""Where an answer ends, and its text and ids as JSON, encoded once for all chunks of a stream."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import accumulate, pairwise
from typing import TYPE_CHECKING

import orjson

from runners.simulated_server.engine.tokens import EOS_TOKEN, Answer

if TYPE_CHECKING:
    from runners.simulated_server.api.sampling import Sampling


@dataclass(frozen=True, slots=True)
class Ending:
    """How an answer ends by itself, if its limit lets it.

    Attributes:
        answer: The answer; what ends it is its last token.
        stops: Whether it ends by itself at all.
        matched: The token or text that ends it.
        text_end: Characters of the text up to which it is shown: what ends it is not.
    """

    answer: Answer
    stops: bool
    matched: int | str
    text_end: int


def ending(answer: Answer, sampling: Sampling, limit: int) -> Ending:
    """Finds the first thing that ends the answer: its own end, a stop token or a stop text.

    Stop texts and tokens count with `ignore_eos` too, and the limit goes before all of them
    (SGLang 0.5.23, `Req.check_finished`).
    """
    best = Ending(answer, stops=False, matched=EOS_TOKEN, text_end=len(answer.text))
    end = limit
    natural = answer.natural_length
    if not sampling.ignore_eos and natural < end:
        end = natural
        best = Ending(_with_eos(answer), True, EOS_TOKEN, answer.ends[natural - 1])  # noqa: FBT003
    for stop in sampling.stop:
        at = answer.text.find(stop) if stop else -1
        if at < 0:
            continue
        length = next(i for i, to in enumerate(answer.ends) if to >= at + len(stop))
        if length < end:
            end = length
            best = Ending(_shortened(answer, length), True, stop, at)  # noqa: FBT003
    for token in sampling.stop_token_ids:
        length = answer.ids.index(token) + 1 if token in answer.ids else end
        if length < end:
            end = length
            shown = answer.ends[length - 1]
            best = Ending(_shortened(answer, length), True, token, shown)  # noqa: FBT003
    return best


def _shortened(answer: Answer, length: int) -> Answer:
    return Answer(answer.ids, answer.text, answer.ends, length)


def _with_eos(answer: Answer) -> Answer:
    """The last token is the one that ends it, and has no text (SGLang cuts it off)."""
    natural = answer.natural_length
    ids = [*answer.ids[: natural - 1], EOS_TOKEN]
    ends = [*answer.ends[:natural], answer.ends[natural - 1]]
    return Answer(ids, answer.text[: ends[-1]], ends, natural)


class EncodedAnswer:
    """An answer as JSON, cut anywhere between two tokens.

    Attributes:
        text: The text, without quotes.
        text_ends: `text_ends[n]` is where the first n tokens end in it.
        ids: The ids with a comma after each.
        id_ends: The same for them.
    """

    __slots__ = ("id_ends", "ids", "text", "text_ends")

    def __init__(self, answer: Answer, text_end: int) -> None:
        text = answer.text[:text_end]
        encoded = orjson.dumps(text)[1:-1]
        ends = [min(end, text_end) for end in answer.ends]
        if len(encoded) != len(text):
            # Not plain ASCII: a token's bytes are counted one by one.
            pieces = (text[a:b] for a, b in pairwise(ends))
            ends = [0, *accumulate(len(orjson.dumps(piece)) - 2 for piece in pieces)]
        self.text = encoded
        self.text_ends = ends
        numbers = [b"%d," % token for token in answer.ids]
        self.ids = b"".join(numbers)
        self.id_ends = [0, *accumulate(map(len, numbers))]

    def text_between(self, first: int, last: int) -> bytes:
        """The text of tokens `first` (inclusive) to `last` (exclusive)."""
        return self.text[self.text_ends[first] : self.text_ends[last]]

    def ids_between(self, first: int, last: int) -> bytes:
        """Their ids, without brackets."""
        start, stop = self.id_ends[first], self.id_ends[last]
        return self.ids[start : stop - 1] if stop > start else b""
