"""Where prompts come from: the prompt source contract and the built-in sets."""

from __future__ import annotations

import abc
import functools
import random
from dataclasses import dataclass
from importlib import resources
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

BUILT_IN_SETS = ("chat", "code", "maths")
"""Names of the built-in prompt sets."""

_SEPARATOR = "\n%%\n"


@dataclass(frozen=True, slots=True)
class Prompt:
    """One prompt, as text or, once rendered by a chat template, as token ids.

    Attributes:
        id: Stable name within its source (`"chat/007"`): results are paired by it.
        text: What is sent as `text`; `None` where token ids are sent.
        input_ids: What is sent as `input_ids`; `None` where text is sent.
    """

    id: str
    text: str | None = None
    input_ids: tuple[int, ...] | None = None

    def __post_init__(self) -> None:
        if (self.text is None) == (self.input_ids is None):
            raise ValueError(f"prompt {self.id} must have either text or input_ids")


class NotEnoughPromptsError(ValueError):
    """More distinct prompts were asked for than the source has."""


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
        """


class BuiltInPrompts(PromptSource):
    """Prompts from the sets that ship with the tuner, mixed by shares.

    No two built-in prompts begin alike, so that a server's prefix cache finds next to nothing.
    """

    def __init__(self, shares: Sequence[tuple[str, float]]) -> None:
        if not shares:
            raise ValueError(
                "no prompt set given; name at least one of " + ", ".join(BUILT_IN_SETS)
            )
        for name, share in shares:
            if name not in BUILT_IN_SETS:
                known = ", ".join(BUILT_IN_SETS)
                raise ValueError(f"unknown prompt set {name!r}; the built-in sets are {known}")
            if not share > 0:
                raise ValueError(f"the share of prompt set {name!r} must be positive, not {share}")
        if len({name for name, _ in shares}) != len(shares):
            raise ValueError("a prompt set is named twice")
        self._shares = tuple(sorted(shares))

    def select(self, count: int, seed: int) -> tuple[Prompt, ...]:
        """See `PromptSource.select`; every beginning of a selection keeps the shares."""
        total = sum(share for _, share in self._shares)
        shuffled = {name: _shuffled(name, seed) for name, _ in self._shares}
        taken = dict.fromkeys(shuffled, 0)
        selection = []
        for position in range(1, count + 1):
            # The set that lags furthest behind its share; ties go by name.
            name, _ = max(self._shares, key=lambda s: s[1] / total * position - taken[s[0]])
            if taken[name] == len(shuffled[name]):
                raise NotEnoughPromptsError(
                    f"{count} distinct prompts were asked for, but the prompt set {name!r} has "
                    f"only {len(shuffled[name])}: lower the concurrency or the requests per "
                    "window, or add another prompt set"
                )
            selection.append(shuffled[name][taken[name]])
            taken[name] += 1
        return tuple(selection)


@functools.cache
def _built_in_set(name: str) -> tuple[Prompt, ...]:
    text = (resources.files("runners.load") / "prompt_sets" / f"{name}.txt").read_text("utf-8")
    texts = [part.strip("\n") for part in text.split(_SEPARATOR)]
    return tuple(Prompt(f"{name}/{n:03d}", text) for n, text in enumerate(texts))


@functools.lru_cache(maxsize=64)
def _shuffled(name: str, seed: int) -> tuple[Prompt, ...]:
    prompts = list(_built_in_set(name))
    random.Random(f"{seed}/{name}").shuffle(prompts)  # noqa: S311 - a reproducible order, no secret
    return tuple(prompts)
