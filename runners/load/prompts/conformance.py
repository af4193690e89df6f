"""Tests for the contract of `PromptSource`: inherit them and implement `make`.

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
    """Tests that every `PromptSource` must pass."""

    large = 24
    """A number of prompts that the source has."""
    too_many = 10**6
    """A number of prompts that the source does not have; 0 for an endless source."""

    @abc.abstractmethod
    def make(self) -> PromptSource:
        """Return a new source; all sources that this method returns are equal."""

    def test_count(self) -> None:
        """A selection has the requested number of prompts."""
        for count in (0, 1, 2, self.large):
            assert len(self.make().select(count, seed=1)) == count

    def test_same_seed_same_prompts(self) -> None:
        """Equal sources select the same prompts for the same seed."""
        assert self.make().select(self.large, seed=5) == self.make().select(self.large, seed=5)

    def test_a_selection_begins_with_every_shorter_one(self) -> None:
        """Warm-up prompts do not change the window's prompts."""
        source = self.make()
        whole = source.select(self.large, seed=7)
        for count in range(self.large):
            assert source.select(count, seed=7) == whole[:count]

    def test_another_seed_gives_another_selection(self) -> None:
        """Different seeds select different prompts."""
        source = self.make()
        selections = {source.select(self.large, seed=seed) for seed in range(5)}
        assert len(selections) > 1

    def test_distinct(self) -> None:
        """All ids and contents differ: a cache would serve a repeated prompt."""
        prompts = self.make().select(self.large, seed=3)
        assert len({prompt.id for prompt in prompts}) == self.large
        assert len({(prompt.text, prompt.input_ids) for prompt in prompts}) == self.large

    def test_an_id_names_one_prompt(self) -> None:
        """An id has the same prompt under every seed."""
        source = self.make()
        seen: dict[str, object] = {}
        for seed in range(5):
            for prompt in source.select(self.large, seed=seed):
                assert seen.setdefault(prompt.id, prompt) == prompt

    def test_too_many_prompts_raise_an_error(self) -> None:
        """A source never repeats a prompt."""
        if not self.too_many:
            return
        try:
            self.make().select(self.too_many, seed=1)
        except NotEnoughPromptsError:
            return
        raise AssertionError(f"the source returned {self.too_many} prompts")
