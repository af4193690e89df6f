"""Parameters of a study as distributions of Optuna."""

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
        name: Its name, equal in every trial of the study.
        choices: All values of the study in a fixed order; Optuna requires equal choices in all
            trials.
        value: Value of the trial.
        ordered: Whether the choices are ordered numbers. Evenly spaced integers become an
            `IntDistribution`, others a categorical one.
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
    """Return the Optuna distribution, equal for equal choices.

    Raises:
        ValueError: Optuna cannot distinguish two of the choices (`True` and `1`).
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
