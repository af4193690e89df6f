"""Parameters of a study as Optuna's distributions."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from optuna.distributions import BaseDistribution

    Choice = bool | int | float | str | None


@dataclass(frozen=True, slots=True)
class MirrorParameter:
    """One parameter of a trial.

    Attributes:
        name: Its name, the same in every trial of the study.
        choices: Every value that the study allows, in a fixed order: Optuna refuses a choice list
            that differs from an earlier trial's.
        value: The trial's value.
        ordered: Whether the choices are numbers whose order means something. Evenly spaced
            integers become an `IntDistribution`, anything else a categorical one.
    """

    name: str
    choices: tuple[Choice, ...]
    value: Choice
    ordered: bool = False

    @property
    def in_space(self) -> bool:
        """Whether the value is one of the choices (a baseline's may not be)."""
        return any(_same(self.value, choice) for choice in self.choices)


def distribution(parameter: MirrorParameter) -> BaseDistribution:
    """The Optuna distribution of a parameter: equal for equal choices.

    Raises:
        ValueError: Optuna could not tell two of the choices apart (`True` and `1`).
    """
    from optuna.distributions import (  # noqa: PLC0415
        CategoricalDistribution,
        IntDistribution,
    )

    choices = parameter.choices
    if len(set(choices)) != len(choices):
        raise ValueError(f"{parameter.name}: two choices of {choices} are equal to Optuna")
    if parameter.ordered and all(type(choice) is int for choice in choices):
        low, *others = sorted(int(choice) for choice in choices if choice is not None)
        step = others[0] - low if others else 1
        if [low, *others] == list(range(low, low + step * len(choices), step)):
            return IntDistribution(low, low + step * (len(choices) - 1), step=step)
    return CategoricalDistribution(choices)


def _same(a: Choice, b: Choice) -> bool:
    return a == b and isinstance(a, bool) == isinstance(b, bool)
