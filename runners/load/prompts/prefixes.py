"""Shared prefixes: text that several prompts of a window begin with."""

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
    """Prompts of another source, distributed evenly over a number of prefixes.

    In each block of `groups` prompts every prefix occurs once, in an order that depends on the
    seed. So no prefix belongs to one prompt set. Warm-up prompts have the same prefixes, but the
    cache is emptied before the window.
    """

    def __init__(self, inner: PromptSource, shared: SharedPrefix) -> None:
        self._inner = inner
        self._shared = shared

    def select(self, count: int, seed: int) -> tuple[Prompt, ...]:
        """See `PromptSource.select`; a prompt's id contains the group (`chat/007+prefix3`)."""
        groups = self._shared.groups
        out: list[Prompt] = []
        for prompt in self._inner.select(count, seed):
            block, place = divmod(len(out), groups)
            group = _group_order(groups, f"{seed}/{block}")[place]
            prefix = Prefix(prefix_text(group, self._shared.tokens), self._shared.tokens)
            out.append(replace(prompt, id=f"{prompt.id}+prefix{group}", prefix=prefix))
        return tuple(out)


@functools.lru_cache(maxsize=4)
def _group_order(groups: int, seed: str) -> tuple[int, ...]:
    order = list(range(groups))
    random.Random(seed).shuffle(order)  # noqa: S311 - reproducible
    return tuple(order)


@functools.lru_cache(maxsize=1024)
def prefix_text(group: int, words: int) -> str:
    """Return a text of at least `words` words for a group; all groups begin differently.

    A word has at least one token, so the text has at least as many tokens.
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
    """Return the beginning of a text up to word number `count`."""
    for number, word in enumerate(_WORD.finditer(text), start=1):
        if number == count:
            return text[: word.end()]
    return text


def with_prefix_as_text(prompt: Prompt) -> Prompt:
    """Put the prefix, counted in words, before the content of the first turn.

    Raises:
        RunnerError: The prompt is token ids, which cannot have a prefix of words.
    """
    if prompt.prefix is None:
        return prompt
    if prompt.input_ids is not None:
        message = (
            f"prompt {prompt.id} is token ids, and a shared prefix of token ids needs the model's "
            "tokenizer; remove shared_prefix, or use prompts of text"
        )
        raise RunnerError(Failure("prefix_of_ids", "load", "study", message))
    begin = first_words(prompt.prefix.text, prompt.prefix.tokens)
    if prompt.messages is None:
        return Prompt(prompt.id, f"{begin}\n\n{prompt.text}")
    (role, content), *others = prompt.messages
    return Prompt(prompt.id, messages=((role, f"{begin}\n\n{content}"), *others))
