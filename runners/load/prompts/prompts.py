"""Where prompts come from: the contract of prompt sources, pools, their mixture, built-in sets."""

from __future__ import annotations

import abc
import functools
import random
from dataclasses import dataclass
from typing import TYPE_CHECKING

from search_spaces.prompt_names import BUILT_IN_SETS

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

__all__ = [
    "BUILT_IN_SETS",
    "BuiltInPrompts",
    "Message",
    "MixedPrompts",
    "NotEnoughPromptsError",
    "Prefix",
    "Prompt",
    "PromptFileError",
    "PromptPool",
    "PromptSource",
]

Message = tuple[str, str]
"""A turn of a chat: its role and its content."""


@dataclass(frozen=True, slots=True)
class Prefix:
    """What several prompts begin with on purpose.

    Attributes:
        text: Written text, at least `tokens` words long.
        tokens: How much of it is used: tokens where a tokenizer is at hand, else words.
    """

    text: str
    tokens: int


@dataclass(frozen=True, slots=True)
class Prompt:
    """One prompt: as text, as turns of a chat, or, once rendered, as token ids.

    Attributes:
        id: Stable name within its source (`"chat/007"`): results are paired by it.
        text: What is sent as `text`; `None` where token ids are sent. Of a chat of several turns
            it is what is sent where no chat template can be applied.
        input_ids: What is sent as `input_ids`; `None` where text is sent.
        messages: The turns of a chat; `None` for a plain text, which is a chat of one turn.
        prefix: What is to be put before it; a renderer does that, and leaves `None`.
        template_tokens: Tokens that the server itself puts before every prompt, where it applies
            the chat template (`/v1/chat/completions`).
        output_tokens: Tokens of its answer; `None` where the workload's mean holds.
        turn_tokens: Tokens that the server's template adds to each turn at most.
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
            object.__setattr__(self, "text", _plain(self.messages))
        if (self.text is None) == (self.input_ids is None):
            raise ValueError(f"prompt {self.id} must have either text or input_ids")

    @property
    def turns(self) -> tuple[Message, ...]:
        """The turns of the chat that it is; empty for token ids."""
        if self.messages is not None:
            return self.messages
        return () if self.text is None else (("user", self.text),)

    @property
    def content(self) -> tuple[object, ...]:
        """What makes it the same prompt as another, whatever they are called."""
        return self.text, self.input_ids, self.messages, self.prefix


def _plain(messages: Sequence[Message]) -> str:
    """The turns as one text, for servers without a chat template."""
    if len(messages) == 1:
        return messages[0][1]
    return "\n\n".join(f"{role.capitalize()}: {content}" for role, content in messages)


class NotEnoughPromptsError(ValueError):
    """More distinct prompts were asked for than the source has."""


class PromptFileError(ValueError):
    """A file of prompts that cannot be used.

    Attributes:
        source: The prompt source as it was written (`"jsonl:mine.jsonl"`).
    """

    def __init__(self, source: str, message: str) -> None:
        self.source = source
        super().__init__(message)


class PromptSource(abc.ABC):
    """Gives the prompts of a window.

    The contract, checked by `runners.load.conformance.PromptSourceConformance`:

    * `select` is a pure function of its arguments: the same count and seed give the same prompts,
      in every process and for every configuration. That pairs measurements.
    * All prompts of a selection are distinct, in id and in content.
    * A selection begins with every shorter selection of the same seed, so that warm-up prompts
      never change what the window sends.
    * Sources are immutable and may be shared between threads.
    """

    @abc.abstractmethod
    def select(self, count: int, seed: int) -> tuple[Prompt, ...]:
        """`count` distinct prompts.

        Args:
            count: How many; 0 gives none.
            seed: Decides which and in what order.

        Raises:
            NotEnoughPromptsError: The source has fewer than `count` prompts.
            PromptFileError: Its file cannot be used.
        """


class PromptPool:
    """A fixed number of prompts, read when they are first asked for."""

    def __init__(
        self, name: str, load: Callable[[], tuple[Prompt, ...]], *, what: str = "prompt set"
    ) -> None:
        """Reads nothing yet.

        Args:
            name: As it is written; seeds the order, so that two pools are shuffled apart.
            load: Gives the prompts, always the same ones.
            what: How messages call it.
        """
        self.name = name
        self.what = what
        self._load = functools.cache(load)
        self._orders: dict[int, tuple[Prompt, ...]] = {}

    @property
    def prompts(self) -> tuple[Prompt, ...]:
        """All of them, in the order of the source."""
        return self._load()

    def shuffled(self, seed: int) -> tuple[Prompt, ...]:
        """All of them, in an order that the seed decides."""
        if seed not in self._orders:
            prompts = list(self.prompts)
            random.Random(f"{seed}/{self.name}").shuffle(prompts)  # noqa: S311 - reproducible order
            self._orders[seed] = tuple(prompts)
        return self._orders[seed]


class MixedPrompts(PromptSource):
    """Prompts of several pools, mixed by shares; every beginning of a selection keeps them."""

    def __init__(self, parts: Sequence[tuple[PromptPool, float]]) -> None:
        """Mixes `parts`: pools and their shares, which need not sum to 1.

        Raises:
            ValueError: No pool, one pool twice, or a share that is not positive.
        """
        if not parts:
            raise ValueError(
                "no prompt set given; name at least one of " + ", ".join(BUILT_IN_SETS)
            )
        for pool, share in parts:
            if not share > 0:
                raise ValueError(
                    f"the share of {pool.what} {pool.name!r} must be positive, not {share}"
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
            # The pool that lags furthest behind its share; ties go by name.
            pool, _ = max(self._parts, key=lambda p: p[1] / total * position - taken[p[0].name])
            # Two files may hold the same prompt.
            prompt = next((p for p in waiting[pool.name] if p.content not in seen), None)
            if prompt is None:
                raise NotEnoughPromptsError(
                    f"{count} distinct prompts were asked for, but the {pool.what} {pool.name!r} "
                    f"has only {taken[pool.name]}: lower the concurrency or the requests per "
                    "window, or add another prompt set"
                )
            seen.add(prompt.content)
            selection.append(prompt)
            taken[pool.name] += 1
        return tuple(selection)


class BuiltInPrompts(MixedPrompts):
    """Prompts from the sets that ship with the tuner, mixed by shares.

    No two built-in prompts begin alike, so that a server's prefix cache finds next to nothing.
    """

    def __init__(self, shares: Sequence[tuple[str, float]]) -> None:
        super().__init__([(built_in_pool(name), share) for name, share in shares])


@functools.cache
def built_in_pool(name: str) -> PromptPool:
    """A built-in set.

    Raises:
        ValueError: No set has that name.
    """
    if name not in BUILT_IN_SETS:
        known = ", ".join(BUILT_IN_SETS)
        raise ValueError(f"unknown prompt set {name!r}; the built-in sets are {known}")

    def load() -> tuple[Prompt, ...]:
        from runners.load.prompts.built_in import built_in_texts  # noqa: PLC0415

        texts = built_in_texts(name)
        return tuple(Prompt(f"{name}/{n:03d}", text) for n, text in enumerate(texts))

    return PromptPool(name, load)
