"""Controlled prefix sharing: written text that several prompts of a window begin with."""

from __future__ import annotations

import functools
import random
import re
from dataclasses import replace
from typing import TYPE_CHECKING

from results.records import Failure
from runners.base import RunnerError
from runners.load.prompts.built_in import passages
from runners.load.prompts.prompts import Prefix, Prompt, PromptSource

if TYPE_CHECKING:
    from search_spaces.workload import SharedPrefix

_WORD = re.compile(r"\S+")


class SharedPrefixPrompts(PromptSource):
    """Prompts of another source, dealt out evenly to a number of prefixes.

    Of every `groups` prompts in a row each gets another prefix, in an order that the seed decides,
    so that no prefix goes with one prompt set. The cache is flushed between warm-up and window:
    a window starts cold although warm-up prompts have the same prefixes.
    """

    def __init__(self, inner: PromptSource, shared: SharedPrefix) -> None:
        """Puts prefixes before the prompts of `inner`."""
        self._inner = inner
        self._shared = shared

    def select(self, count: int, seed: int) -> tuple[Prompt, ...]:
        """See `PromptSource.select`; the group is part of a prompt's id (`chat/007+prefix3`)."""
        groups = self._shared.groups
        out: list[Prompt] = []
        for prompt in self._inner.select(count, seed):
            block, place = divmod(len(out), groups)
            group = _dealt(groups, f"{seed}/{block}")[place]
            prefix = Prefix(prefix_text(group, self._shared.tokens), self._shared.tokens)
            out.append(replace(prompt, id=f"{prompt.id}+prefix{group}", prefix=prefix))
        return tuple(out)


@functools.lru_cache(maxsize=4)
def _dealt(groups: int, seed: str) -> tuple[int, ...]:
    order = list(range(groups))
    random.Random(seed).shuffle(order)  # noqa: S311 - a reproducible order, no secret
    return tuple(order)


@functools.lru_cache(maxsize=1024)
def prefix_text(group: int, words: int) -> str:
    """Written text of at least `words` words; no two groups begin alike, none is another's part.

    A token is at most a word, so these are at least as many tokens.
    """
    parts = [f"{group + 1}. collection of notes, to be used for every question that follows."]
    found = len(_WORD.findall(parts[0]))
    volume = 0
    while found < words:
        order = list(passages())
        random.Random(f"prefix/{group}/{volume}").shuffle(order)  # noqa: S311 - reproducible
        for passage in order:
            part = f"{passage.title}\n\n{passage.text}"
            parts.append(part)
            found += len(_WORD.findall(part))
            if found >= words:
                break
        volume += 1
    return "\n\n".join(parts)


def first_words(text: str, count: int) -> str:
    """The first `count` words, as they are spaced."""
    for number, word in enumerate(_WORD.finditer(text), start=1):
        if number == count:
            return text[: word.end()]
    return text


def with_prefix_as_text(prompt: Prompt) -> Prompt:
    """The prompt with its prefix, counted in words, before the content of its first turn.

    Raises:
        RunnerError: It is token ids, and a prefix of words cannot stand before them.
    """
    if prompt.prefix is None:
        return prompt
    if prompt.input_ids is not None:
        message = (
            f"prompt {prompt.id} is token ids: a shared prefix can only be put before it with the "
            "model's tokenizer; leave shared_prefix out, or give the prompts as text"
        )
        raise RunnerError(Failure("prefix_of_ids", "load", "study", message))
    begin = first_words(prompt.prefix.text, prompt.prefix.tokens)
    if prompt.messages is None:
        return Prompt(prompt.id, f"{begin}\n\n{prompt.text}")
    (role, content), *others = prompt.messages
    return Prompt(prompt.id, messages=((role, f"{begin}\n\n{content}"), *others))
