"""Parameters of a study's search space, per sub-space."""

from __future__ import annotations

import functools
import itertools
import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from search_spaces.algorithms import ALGORITHMS, Shape
from search_spaces.configuration import Speculation, Value
from search_spaces.flags.flags import distinct
from search_spaces.rules.legality import canonical_speculation

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from search_spaces.study_file.study import Study, SubSpace


@dataclass(frozen=True, slots=True)
class Parameter:
    """One parameter of a search space.

    Within a study a name always has the same choices, as Optuna's distributions require.

    Attributes:
        name: `"algorithm"`, `"EAGLE3.num_steps"`, `"draft_tp"`, `"flag.page-size"`,
            `"env.NCCL_PROTO"`; a flag of one sub-space: `"EAGLE3-2.flag.speculative-adaptive"`.
        choices: Distinct values; sorted if `ordered`.
        ordered: Whether all choices are numbers.
    """

    name: str
    choices: tuple[Value, ...]
    ordered: bool

    @classmethod
    def of(cls, name: str, choices: Sequence[Value]) -> Parameter:
        """Build a parameter; it is ordered if all choices are numbers."""
        numbers = [c for c in choices if isinstance(c, (int, float)) and not isinstance(c, bool)]
        if len(numbers) < len(choices):
            return cls(name, tuple(choices), ordered=False)
        return cls(name, tuple(sorted(numbers)), ordered=True)


Choose = Callable[[Parameter], Value]
"""Picks one of a parameter's choices."""

Assignments = tuple[tuple[Parameter, Value], ...]
"""Parameters with values, in the order of choice."""


class SubSpaceTree:
    """The parameters of one sub-space.

    Attributes:
        label: The algorithm's name; further sub-spaces of one algorithm get `-2`, `-3`, ...
        algorithm: The algorithm's canonical name.
    """

    def __init__(self, label: str, part: SubSpace, study: Study) -> None:
        self.label = label
        self.algorithm = part.canonical_algorithm
        self._part = part
        self._study = study

    @property
    def size(self) -> int:
        """Upper bound of the number of speculations with flags."""
        part = self._part
        return (
            len(part.num_steps or (0,))
            * len(part.topk or (0,))
            * len(part.num_draft_tokens or (0,))
            * math.prod(len(choices) for choices in self.flags.values())
        )

    @property
    def own_flags(self) -> dict[str, tuple[Value, ...]]:
        """Choices per flag of this sub-space only."""
        return self._part.flags

    @property
    def flags(self) -> dict[str, tuple[Value, ...]]:
        """Choices per flag: of all sub-spaces, then of this sub-space."""
        return self._study.space.flags | self.own_flags

    @functools.cached_property
    def _flag_parameters(self) -> dict[str, Parameter]:
        own = self.own_flags
        return {
            name: Parameter.of(
                f"{self.label}.flag.{name}" if name in own else f"flag.{name}", distinct(choices)
            )
            for name, choices in self.flags.items()
        }

    def flag_parameters(self, speculation: Speculation) -> dict[str, Parameter]:
        """Return the flags that apply to a speculation, by name, in the order of the file."""
        return {
            name: parameter
            for name, parameter in self._flag_parameters.items()
            if speculation.enabled or not name.startswith("speculative-")
        }

    def walk(self, choose: Choose) -> Speculation:
        """Choose the numbers; the result is canonical and may be illegal."""
        numbers: dict[str, int | None] = {}
        for name in self._applicable:
            # SGLang uses num_steps + 1 at topk 1.
            if name == "num_draft_tokens" and numbers.get("topk") == 1:
                continue
            value = choose(self._parameter(name))
            numbers[name] = value if isinstance(value, int) else None
        return canonical_speculation(Speculation(self.algorithm, **numbers), self._study)

    @functools.cached_property
    def paths(self) -> dict[Speculation, Assignments]:
        """Every canonical speculation, legal or not, with the choices that lead to it."""
        out: dict[Speculation, Assignments] = {}
        for values in self._grid():
            path: list[tuple[Parameter, Value]] = []

            def choose(
                parameter: Parameter,
                values: dict[str, int] = values,
                path: list[tuple[Parameter, Value]] = path,
            ) -> Value:
                value = values[parameter.name]
                path.append((parameter, value))
                return value

            out.setdefault(self.walk(choose), tuple(path))
        return out

    @property
    def _applicable(self) -> tuple[str, ...]:
        match ALGORITHMS[self.algorithm].shape:
            case Shape.NONE:
                names: tuple[str, ...] = ()
            case Shape.LOOKUP | Shape.BLOCK:
                names = ("num_draft_tokens",)
            case Shape.TREE:
                names = ("num_steps", "topk", "num_draft_tokens")
        given = tuple(name for name in names if getattr(self._part, name) is not None)
        # Chains ignore num_draft_tokens.
        if self._part.topk == (1,):
            given = tuple(name for name in given if name != "num_draft_tokens")
        return given

    def _parameter(self, name: str) -> Parameter:
        return Parameter.of(f"{self.label}.{name}", getattr(self._part, name))

    def _grid(self) -> Iterator[dict[str, int]]:
        # Chains before trees: topk changes slowest.
        names = sorted(self._applicable, key=("topk", "num_steps", "num_draft_tokens").index)
        columns = [sorted(getattr(self._part, name)) for name in names]
        for values in itertools.product(*columns):
            yield {f"{self.label}.{name}": value for name, value in zip(names, values, strict=True)}


def sub_space_trees(study: Study) -> tuple[SubSpaceTree, ...]:
    """Return the sub-spaces of a study in the order of the file, with distinct labels."""
    counts: dict[str, int] = {}
    out = []
    for part in study.space.speculation:
        name = part.canonical_algorithm
        counts[name] = counts.get(name, 0) + 1
        label = name if counts[name] == 1 else f"{name}-{counts[name]}"
        out.append(SubSpaceTree(label, part, study))
    return tuple(out)
