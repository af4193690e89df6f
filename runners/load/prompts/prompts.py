"""Prompts and prompt sources: the contract, pools, mixtures and the built-in sets."""

from __future__ import annotations

import abc
import functools
import random
from dataclasses import dataclass
from typing import TYPE_CHECKING

from runners.load.prompts.built_in import built_in_texts
from search_spaces.prompt_names import BUILT_IN_SETS

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

Message = tuple[str, str]
"""A turn of a chat: role and content."""


@dataclass(frozen=True, slots=True)
class Prefix:
    """Common beginning of several prompts.

    Attributes:
        text: Text of at least `tokens` words.
        tokens: Length to use: in tokens if there is a tokenizer, else in words.
    """

    text: str
    tokens: int


@dataclass(frozen=True, slots=True)
class Prompt:
    """One prompt: a text, the turns of a chat, or token ids after rendering.

    Attributes:
        id: Stable name within its source (`"chat/007"`); results are paired by it.
        text: Text of the request; `None` if token ids are sent. For a chat of several turns, the
            text without a chat template.
        input_ids: Token ids of the request; `None` if text is sent.
        messages: Turns of a chat; `None` for a plain text, which is a chat of one turn.
        prefix: Prefix that a renderer puts before the prompt; `None` after rendering.
        template_tokens: Tokens that the server's own chat template puts before every prompt
            (`/v1/chat/completions`).
        output_tokens: Tokens of the answer; `None` for the workload's mean.
        turn_tokens: Largest number of tokens that the server's template adds to each turn.
    """

    id: str
    text: str | None = None
    input_ids: tuple[int, ...] | None = None
    messages: tuple[Message, ...] | None = None
    prefix: Prefix | None = None
    template_tokens: int = 0
    output_tokens: int | None = None
    turn_tokens: int = 0

    def __post_init__(self) -> None:
        if self.messages is not None and self.text is None and self.input_ids is None:
            object.__setattr__(self, "text", _plain_text(self.messages))
        if (self.text is None) == (self.input_ids is None):
            raise ValueError(f"prompt {self.id} must have either text or input_ids")

    @property
    def turns(self) -> tuple[Message, ...]:
        """Turns of the chat; empty for token ids."""
        if self.messages is not None:
            return self.messages
        return () if self.text is None else (("user", self.text),)

    @property
    def content(self) -> tuple[object, ...]:
        """Content of the request; equal for two prompts that differ only in their ids."""
        return self.text, self.input_ids, self.messages, self.prefix


def _plain_text(messages: Sequence[Message]) -> str:
    """Join turns to one text, for servers without a chat template."""
    if len(messages) == 1:
        return messages[0][1]
    return "\n\n".join(f"{role.capitalize()}: {content}" for role, content in messages)


class NotEnoughPromptsError(ValueError):
    """The source has fewer distinct prompts than requested."""


class PromptFileError(ValueError):
    """A file of prompts cannot be used.

    Attributes:
        source: Name of the prompt source as the user wrote it (`"jsonl:mine.jsonl"`).
    """

    def __init__(self, source: str, message: str) -> None:
        self.source = source
        super().__init__(message)


class PromptSource(abc.ABC):
    """Source of the prompts of a window.

    The contract, which `runners.load.prompts.conformance.PromptSourceConformance` tests:

    * `select` is a pure function: the same count and seed give the same prompts, in every process
      and for every configuration. So measurements can be paired by prompt.
    * All prompts of a selection differ in id and in content.
    * A selection begins with every shorter selection of the same seed. So warm-up prompts do not
      change the window's prompts.
    * Sources are immutable, and threads may share them.
    """

    @abc.abstractmethod
    def select(self, count: int, seed: int) -> tuple[Prompt, ...]:
        """Return `count` distinct prompts.

        Args:
            count: Number of prompts; 0 is allowed.
            seed: Selects the prompts and their order.

        Raises:
            NotEnoughPromptsError: The source has fewer than `count` prompts.
            PromptFileError: The file of the source cannot be used.
        """


class PromptPool:
    """A fixed set of prompts, loaded on first use."""

    def __init__(
        self, name: str, load: Callable[[], tuple[Prompt, ...]], *, kind: str = "prompt set"
    ) -> None:
        """Set the loader without calling it.

        Args:
            name: Name as the user wrote it. It is part of the seed, so that two pools have
                different orders.
            load: Returns the prompts, always the same.
            kind: Kind of the pool for messages.
        """
        self.name = name
        self.kind = kind
        self._load = functools.cache(load)
        self._orders: dict[int, tuple[Prompt, ...]] = {}

    @property
    def prompts(self) -> tuple[Prompt, ...]:
        """All prompts in the order of the source."""
        return self._load()

    def shuffled(self, seed: int) -> tuple[Prompt, ...]:
        """Return all prompts in an order that depends on the seed."""
        if seed not in self._orders:
            prompts = list(self.prompts)
            random.Random(f"{seed}/{self.name}").shuffle(prompts)  # noqa: S311 - reproducible order
            self._orders[seed] = tuple(prompts)
        return self._orders[seed]


class MixedPrompts(PromptSource):
    """Prompts of several pools in given shares; every beginning of a selection has these shares."""

    def __init__(self, parts: Sequence[tuple[PromptPool, float]]) -> None:
        """Mix pools.

        Args:
            parts: Pools and their shares, which need not sum to 1.

        Raises:
            ValueError: There is no pool, a pool occurs twice, or a share is not positive.
        """
        if not parts:
            raise ValueError("no prompt set; name at least one of " + ", ".join(BUILT_IN_SETS))
        for pool, share in parts:
            if not share > 0:
                raise ValueError(
                    f"the share of {pool.kind} {pool.name!r} must be positive, not {share}"
                )
        if len({pool.name for pool, _ in parts}) != len(parts):
            raise ValueError("a prompt set is named twice")
        self._parts = tuple(sorted(parts, key=lambda part: (part[0].name, part[1])))

    def select(self, count: int, seed: int) -> tuple[Prompt, ...]:
        """See `PromptSource.select`."""
        total = sum(share for _, share in self._parts)
        waiting = {pool.name: iter(pool.shuffled(seed)) for pool, _ in self._parts} if count else {}
        taken = dict.fromkeys(waiting, 0)
        seen: set[tuple[object, ...]] = set()
        selection = []
        for position in range(1, count + 1):
            # Take from the pool that is furthest behind its share; equal pools in order of name.
            pool, _ = max(self._parts, key=lambda p: p[1] / total * position - taken[p[0].name])
            # Two files may contain the same prompt.
            prompt = next((p for p in waiting[pool.name] if p.content not in seen), None)
            if prompt is None:
                raise NotEnoughPromptsError(
                    f"the load needs {count} distinct prompts, but the {pool.kind} {pool.name!r} "
                    f"has only {taken[pool.name]}: lower the concurrency or the requests per "
                    "window, or add another prompt set"
                )
            seen.add(prompt.content)
            selection.append(prompt)
            taken[pool.name] += 1
        return tuple(selection)


class BuiltInPrompts(MixedPrompts):
    """Mixture of the prompt sets that ship with the tuner.

    All built-in prompts begin differently, so a server's prefix cache has nearly no effect.
    """

    def __init__(self, shares: Sequence[tuple[str, float]]) -> None:
        super().__init__([(built_in_pool(name), share) for name, share in shares])


@functools.cache
def built_in_pool(name: str) -> PromptPool:
    """Return a built-in set.

    Raises:
        ValueError: No set has this name.
    """
    if name not in BUILT_IN_SETS:
        known = ", ".join(BUILT_IN_SETS)
        raise ValueError(f"unknown prompt set {name!r}; the built-in sets are {known}")

    def load() -> tuple[Prompt, ...]:
        texts = built_in_texts(name)
        return tuple(Prompt(f"{name}/{n:03d}", text) for n, text in enumerate(texts))

    return PromptPool(name, load)
