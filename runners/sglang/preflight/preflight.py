"""Check the configurations of a study with SGLang: refused, rewritten, or completed by SGLang."""

from __future__ import annotations

import random
import time
from collections import defaultdict
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from runners.base import EnvironmentUnusableError
from runners.sglang.preflight.ask import (
    Answer,
    NotAskedError,
    PretendedGpu,
    ask,
    gpu_to_pretend,
    launch_arguments,
)
from search_spaces.flags.options import options
from search_spaces.nccl.all_reduce import without_nccl
from search_spaces.rules.legality import version_violations

if TYPE_CHECKING:
    from collections.abc import Hashable, Iterable, Iterator, Mapping

    from runners.process.environment import ServerEnvironment
    from search_spaces.configuration import Configuration, Value
    from search_spaces.space.space import Space
    from search_spaces.study_file.study import Study

_MOST_CHARACTERS = 40
"""Longest value that is shown; longer values are lists of graph sizes and similar."""


@dataclass(frozen=True, slots=True)
class Rewrite:
    """A flag that SGLang runs with another value than requested.

    Attributes:
        flag: Name without dashes.
        asked: Requested value.
        run: Value that SGLang runs with.
        points: Configurations with this change.
    """

    flag: str
    asked: Any
    run: Any
    points: tuple[Configuration, ...]


@dataclass(frozen=True, slots=True)
class OwnChoice:
    """A flag that is not set and for which SGLang chooses different values.

    Attributes:
        flag: Name without dashes.
        by: Knob that determines the value; `None` if no single knob does.
        values: Each value with the values of the knob that lead to it (none if `by` is `None`).
    """

    flag: str
    by: str | None
    values: tuple[tuple[Any, tuple[Any, ...]], ...]


@dataclass(frozen=True, slots=True)
class PreflightResult:
    """SGLang's answers about a study.

    Attributes:
        study: The study.
        version: Version of SGLang.
        gpu: GPU that was simulated; `None` if SGLang saw its own machine.
        points: Number of points of the space.
        answers: Answers by configuration without NCCL variables.
        asked: The configurations of the answers, in the same order.
        chosen: Number of configurations to check; more than `asked` at the time limit.
        seconds: Duration of the check.
        cut_short: Why `asked` is shorter than `chosen`, if not for the time limit.
    """

    study: Study
    version: str
    gpu: PretendedGpu | None
    points: int
    answers: Mapping[Configuration, Answer]
    asked: tuple[Configuration, ...]
    chosen: int
    seconds: float
    cut_short: str | None = None

    @property
    def _answered(self) -> Iterator[tuple[Configuration, Answer]]:
        return zip(self.asked, self.answers.values(), strict=True)

    def refusal(self, configuration: Configuration) -> str | None:
        """Why a configuration would not start; `None` if no reason is known."""
        found = self.answers.get(without_nccl(configuration))
        if found is not None and found.refused is not None:
            return found.refused
        broken = version_violations(configuration, self.study, self.version)
        return broken[0].message if broken else None

    @property
    def refused(self) -> dict[Configuration, str]:
        """Checked configurations that would not start, with the reasons."""
        found = ((configuration, self.refusal(configuration)) for configuration in self.asked)
        return {configuration: why for configuration, why in found if why is not None}

    @property
    def unanswered(self) -> dict[Configuration, str]:
        """Checked configurations without an answer, with the reasons."""
        return {c: a.unanswered for c, a in self._answered if a.unanswered is not None}

    @property
    def rewrites(self) -> tuple[Rewrite, ...]:
        """Flags with another value than requested, the most frequent changes first."""
        found: dict[tuple[str, str, str], list[Configuration]] = defaultdict(list)
        values: dict[tuple[str, str, str], tuple[Any, Any]] = {}
        for configuration, answer in self._answered:
            for name, (asked, run) in answer.rewritten.items():
                if run is None:
                    continue  # stored under another name, like graph sizes
                key = (_flag(name), repr(asked), repr(run))
                found[key].append(configuration)
                values[key] = (asked, run)
        rewrites = [Rewrite(k[0], *values[k], tuple(points)) for k, points in found.items()]
        return tuple(sorted(rewrites, key=lambda r: -len(r.points)))

    @property
    def own_choices(self) -> tuple[OwnChoice, ...]:
        """Flags that are not set and differ between configurations: the comparison is unfair."""
        known = options()
        taken = [(traits(c), a) for c, a in self._answered if a.values]
        names = {name for _, answer in taken for name in answer.values}
        out = []
        for name in sorted(names):
            if _flag(name) not in known or name.startswith("speculative_"):
                continue
            seen = [
                (of, a.values[name]) for of, a in taken if name in a.values and name not in a.asked
            ]
            if all(_is_short(value) for _, value in seen) and len({repr(v) for _, v in seen}) > 1:
                out.append(_own_choice(_flag(name), seen))
        return tuple(out)


def _own_choice(flag: str, seen: list[tuple[dict[str, Value], Any]]) -> OwnChoice:
    """Find the first knob whose value determines the flag's value."""
    distinct = {repr(value): value for _, value in seen}
    for by in dict.fromkeys(name for of, _ in seen for name in of):
        knob_values: dict[str, dict[Any, None]] = defaultdict(dict)
        flag_values: dict[Any, set[str]] = defaultdict(set)
        for of, value in seen:
            knob_values[repr(value)][of.get(by)] = None
            flag_values[of.get(by)].add(repr(value))
        if len(flag_values) > 1 and all(len(found) == 1 for found in flag_values.values()):
            return OwnChoice(
                flag, by, tuple((value, tuple(knob_values[key])) for key, value in distinct.items())
            )
    return OwnChoice(flag, None, tuple((value, ()) for value in distinct.values()))


def check_with_sglang(
    study: Study,
    space: Space,
    baselines: Iterable[Configuration],
    environment: ServerEnvironment,
    *,
    most: int,
    seconds: float,
    gpu_names: Iterable[str] = (),
) -> PreflightResult:
    """Check a study's configurations with the SGLang that would run them, without a launch.

    Args:
        study: The study.
        space: Its legal points.
        baselines: Baselines, which are checked first.
        environment: Environment with SGLang.
        most: Maximum number of points; a larger space is sampled.
        seconds: Time limit; see `ask`.
        gpu_names: GPUs to simulate if the environment has none, the likeliest first.

    Raises:
        NotAskedError: SGLang is not installed there, or could not be asked.
    """
    began = time.monotonic()
    try:
        facts = environment.facts()
    except EnvironmentUnusableError as error:
        raise NotAskedError(str(error)) from error
    if facts.sglang_version is None:
        raise NotAskedError(f"SGLang is not installed for {environment.python}")
    gpu = gpu_to_pretend(study, gpus_here=facts.gpus, named=gpu_names)
    asked = points_to_ask(space, baselines, most=most)
    answers = ask(
        environment,
        [launch_arguments(study, configuration) for configuration in asked],
        seconds=seconds,
        gpu=gpu,
        variables=study.server.env,
    )
    found = dict(zip(map(without_nccl, asked), answers.answers, strict=False))
    return PreflightResult(
        study=study,
        version=answers.version,
        gpu=gpu,
        points=len(space),
        answers=found,
        asked=asked[: len(found)],
        chosen=len(asked),
        seconds=time.monotonic() - began,
        cut_short=answers.cut_short,
    )


def points_to_ask(
    space: Space, baselines: Iterable[Configuration], *, most: int
) -> tuple[Configuration, ...]:
    """Baselines, then at most `most` points that differ in more than NCCL variables.

    A sample contains every value of the space and is the same for the same study.
    """
    first = {without_nccl(b): b for b in baselines}
    found: dict[Configuration, Configuration] = {}
    for point in space:
        found.setdefault(without_nccl(point), point)
    points = [point for key, point in found.items() if key not in first]
    if len(points) > most:
        chance = random.Random(space.digest)  # noqa: S311 - a sample, no secret
        points = _covering(chance.sample(points, len(points)))[:most]
    return (*first.values(), *points)


def _covering(points: list[Configuration]) -> list[Configuration]:
    """Reorder points: those with a value that no earlier point has come first."""
    seen: set[Hashable] = set()
    bringing: list[Configuration] = []
    others: list[Configuration] = []
    for point in points:
        new = set(traits(point).items()) - seen
        seen |= new
        (bringing if new else others).append(point)
    return [*bringing, *others]


def traits(configuration: Configuration) -> dict[str, Value]:
    """Values of a configuration by the names that users know, speculation first."""
    speculation = configuration.speculation
    return {
        "algorithm": speculation.algorithm,
        "topk": speculation.topk,
        "num_steps": speculation.num_steps,
        "num_draft_tokens": speculation.num_draft_tokens,
        "draft_tp": configuration.draft_tp,
        **dict(configuration.flags),
        **dict(configuration.env),
    }


def _flag(field: str) -> str:
    return field.replace("_", "-")


def _is_short(value: object) -> bool:
    scalar = isinstance(value, (str, int, float, bool, type(None)))
    return scalar and len(str(value)) <= _MOST_CHARACTERS
