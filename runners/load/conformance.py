"""The prompt source contract as tests: inherit, say how to make one, and get them all.

class TestMine(PromptSourceConformance):
    def make(self) -> PromptSource:
        return Mine(...)
"""

from __future__ import annotations

import abc
from typing import TYPE_CHECKING

from runners.load.prompts.prompts import NotEnoughPromptsError

if TYPE_CHECKING:
    from runners.load.prompts.prompts import PromptSource


class PromptSourceConformance(abc.ABC):
    """What every `PromptSource` must keep; see its docstring."""

    large = 24
    """A count that the source can serve."""
    too_many = 10**6
    """A count that it cannot; 0 if it never runs out."""

    @abc.abstractmethod
    def make(self) -> PromptSource:
        """A new source, equal to every other that this method makes."""

    def test_count(self) -> None:
        """As many as asked for."""
        for count in (0, 1, 2, self.large):
            assert len(self.make().select(count, seed=1)) == count

    def test_same_seed_same_prompts(self) -> None:
        """Pairs measurements, also between two sources made alike."""
        assert self.make().select(self.large, seed=5) == self.make().select(self.large, seed=5)

    def test_a_selection_begins_with_every_shorter_one(self) -> None:
        """So that warm-up prompts do not change the window's."""
        source = self.make()
        whole = source.select(self.large, seed=7)
        for count in range(self.large):
            assert source.select(count, seed=7) == whole[:count]

    def test_another_seed_gives_another_selection(self) -> None:
        """A seed does something."""
        source = self.make()
        selections = {source.select(self.large, seed=seed) for seed in range(5)}
        assert len(selections) > 1

    def test_distinct(self) -> None:
        """In id and in content: a repeated prompt would be served from the cache."""
        prompts = self.make().select(self.large, seed=3)
        assert len({prompt.id for prompt in prompts}) == self.large
        assert len({(prompt.text, prompt.input_ids) for prompt in prompts}) == self.large

    def test_an_id_names_one_prompt(self) -> None:
        """Under every seed."""
        source = self.make()
        seen: dict[str, object] = {}
        for seed in range(5):
            for prompt in source.select(self.large, seed=seed):
                assert seen.setdefault(prompt.id, prompt) == prompt

    def test_asking_for_too_many_is_an_error(self) -> None:
        """Never a repetition."""
        if not self.too_many:
            return
        try:
            self.make().select(self.too_many, seed=1)
        except NotEnoughPromptsError:
            return
        raise AssertionError(f"{self.too_many} prompts were given")
