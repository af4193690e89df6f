"""Tokens of prompts and answers: deterministic, and independent of speculation."""

from __future__ import annotations

import hashlib
import random
from array import array
from dataclasses import dataclass
from itertools import accumulate
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable

_CHARACTERS_PER_TOKEN = 4
_VOCABULARY = 160_000
_EOS = 163_585

_WORDS = (
    "the", "of", "and", "to", "in", "is", "that", "for", "with", "as", "on", "by", "this", "from",
    "one", "two", "value", "server", "request", "model", "token", "draft", "cache", "first",
    "time", "when", "then", "each", "over", "may", "more", "next", "list", "where", "result",
    "number", "small", "large", "after", "before", "between", "under", "return", "should", "could",
    "system", "answer", "reason", "because", "while", "data", "page", "code", "note", "line",
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Answer:
    """The model's answer to a prompt.

    Attributes:
        text: Text of all tokens.
        ends: `ends[n]` is the end of the first n tokens in the text.
        natural_length: Tokens after which the model stops.
    """

    ids: list[int]
    text: str
    ends: list[int]
    natural_length: int


def tokenize(text: str) -> list[int]:
    """Return the token ids of a text: four characters per token, no special tokens."""
    pieces = [
        text[i : i + _CHARACTERS_PER_TOKEN] for i in range(0, len(text), _CHARACTERS_PER_TOKEN)
    ]
    return [_hash(piece.encode()) % _VOCABULARY for piece in pieces]


def text_of(ids: Iterable[int]) -> str:
    """Return the text of token ids."""
    return "".join(" " + _WORDS[token % len(_WORDS)] for token in ids)


TOKEN_BYTES = 8
"""Bytes of a packed token id."""


def pack(ids: Iterable[int]) -> bytes:
    """Return token ids as eight bytes each, which compare and hash fast."""
    return array("q", ids).tobytes()


def unpack(packed: bytes) -> list[int]:
    """Return the token ids of `pack`."""
    ids = array("q")
    ids.frombytes(packed)
    return ids.tolist()


def fingerprint(ids: Iterable[int]) -> str:
    """Return the name of a prompt."""
    return name_of(pack(ids))


def name_of(packed: bytes) -> str:
    """Return the `fingerprint` of packed token ids."""
    return hashlib.blake2b(packed, digest_size=16).hexdigest()


def offset(prompt: str) -> float:
    """Return the number in [0, 1) that belongs to a prompt's fingerprint."""
    return (_hash(b"offset" + prompt.encode()) & 0xFFFFFFFF) / 2**32


def answer(prompt: str, tokens: int, *, stops: bool = False) -> Answer:
    """Return the first `tokens` tokens of the answer to a prompt.

    Args:
        prompt: Fingerprint of the prompt.
        tokens: Number of tokens.
        stops: Whether to stop at the natural end.
    """
    rng = random.Random(_hash(b"answer" + prompt.encode()))  # noqa: S311 - not a secret
    natural = rng.randrange(64, 768)
    ids = rng.choices(range(_VOCABULARY), k=min(tokens, natural) if stops else tokens)
    pieces = [" " + _WORDS[token % len(_WORDS)] for token in ids]
    ends = [0, *accumulate(len(piece) for piece in pieces)]
    return Answer(ids, "".join(pieces), ends, natural)


EOS_TOKEN = _EOS
"""End-of-sequence token."""


def _hash(data: bytes) -> int:
    return int.from_bytes(hashlib.blake2b(data, digest_size=8).digest())
