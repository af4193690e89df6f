"""What SGLang makes of a study's points: what it refuses, rewrites, or sets differently itself."""

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
from search_spaces.nccl.own_all_reduce import without_nccl
from search_spaces.rules.versions import version_violations

if TYPE_CHECKING:
    from collections.abc import Hashable, Iterable, Iterator, Mapping

    from runners.process.environment import ServerEnvironment
    from search_spaces.configuration import Configuration, Value
    from search_spaces.space.space import Space
    from search_spaces.study_file.study import Study


def points_to_ask(
    space: Space, baselines: Iterable[Configuration], *, most: int
) -> tuple[Configuration, ...]:
    """Return the baselines, then points that differ in more than NCCL variables.

    A sample contains every value of the space and is the same for the same study.

    Args:
        space: The search space.
        baselines: Configurations that are always checked.
        most: Maximum number of points besides the baselines.
    """
    first = {without_nccl(b): b for b in baselines}
    chance = random.Random(space.digest)  # noqa: S311 - a sample, no secret
    found: dict[Configuration, Configuration] = {}
    for point in space:
        found.setdefault(without_nccl(point), point)
    points = [point for key, point in found.items() if key not in first]
    if len(points) > most:
        points = _covering(points, most, chance)
    return (*first.values(), *points)


def _covering(points: list[Configuration], most: int, chance: random.Random) -> list[Configuration]:
    """Return `most` points; points with a value that no earlier point has come first."""
    shuffled = chance.sample(points, len(points))
    seen: set[Hashable] = set()
    bringing: list[Configuration] = []
    others: list[Configuration] = []
    for point in shuffled:
        new = set(traits(point).items()) - seen
        seen |= new
        (bringing if new else others).append(point)
    return [*bringing, *others][:most]


def traits(configuration: Configuration) -> dict[str, Value]:
    """Return the values of a configuration by the names that users know, speculation first."""
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


_LONGEST = 40
"""Characters of a value that is worth a line; longer ones are lists of graph sizes and the like."""


@dataclass(frozen=True, slots=True)
class Rewrite:
    """A flag that SGLang runs with another value than the one asked for.

    Attributes:
        flag: Without dashes.
        asked: The value asked for.
        run: The value that it runs with.
        points: The points of which this is so.
    """

    flag: str
    asked: Any
    run: Any
    points: tuple[Configuration, ...]


@dataclass(frozen=True, slots=True)
class OwnChoice:
    """A flag that is not given, and that SGLang sets differently from point to point.

    Attributes:
        flag: Without dashes.
        by: The knob that it follows; `None` where no single one tells.
        values: Its values, with those of the knob that have it (none where `by` is `None`).
    """

    flag: str
    by: str | None
    values: tuple[tuple[Any, tuple[Any, ...]], ...]


@dataclass(frozen=True, slots=True)
class PreflightResult:
    """SGLang's word on a study.

    Attributes:
        study: The study.
        version: The version that was asked.
        gpu: The GPU that was pretended; `None` where it saw its own machine.
        points: Points of the space.
        answers: By the configurations asked about, without NCCL's variables.
        asked: The configurations asked about, in the same order.
        chosen: Configurations that were to be asked about; more than `asked` if the time was up.
        seconds: Seconds that it took in all.
        cut_short: Why fewer were asked about than `chosen`, where it was not the time.
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
        """Why it would not start, as far as is known; `None` where nothing speaks against it."""
        found = self.answers.get(without_nccl(configuration))
        if found is not None and found.refused is not None:
            return found.refused
        broken = version_violations(configuration, self.study, self.version)
        return broken[0].message if broken else None

    @property
    def refused(self) -> dict[Configuration, str]:
        """Configurations asked about that would not start, with why."""
        found = ((configuration, self.refusal(configuration)) for configuration in self.asked)
        return {configuration: why for configuration, why in found if why is not None}

    @property
    def unanswered(self) -> dict[Configuration, str]:
        """Configurations asked about of which nothing can be said, with why."""
        return {c: a.unanswered for c, a in self._answered if a.unanswered is not None}

    @property
    def rewrites(self) -> tuple[Rewrite, ...]:
        """What it would run with other values than asked for, the commonest first."""
        found: dict[tuple[str, str, str], list[Configuration]] = defaultdict(list)
        values: dict[tuple[str, str, str], tuple[Any, Any]] = {}
        for configuration, answer in self._answered:
            for name, (asked, run) in answer.rewritten.items():
                if run is None:
                    continue  # kept under another name, as graph sizes are
                key = (_flag(name), repr(asked), repr(run))
                found[key].append(configuration)
                values[key] = (asked, run)
        rewrites = [Rewrite(k[0], *values[k], tuple(points)) for k, points in found.items()]
        return tuple(sorted(rewrites, key=lambda r: -len(r.points)))

    @property
    def own_choices(self) -> tuple[OwnChoice, ...]:
        """What it sets itself and not alike for all points: they differ in more than they say."""
        table = options()
        taken = [(traits(c), a) for c, a in self._answered if a.values]
        names = {name for _, answer in taken for name in answer.values}
        out = []
        for name in sorted(names):
            if _flag(name) not in table or name.startswith("speculative_"):
                continue
            seen = [
                (of, a.values[name]) for of, a in taken if name in a.values and name not in a.asked
            ]
            if all(_is_short(value) for _, value in seen) and len({repr(v) for _, v in seen}) > 1:
                out.append(_choice(_flag(name), seen))
        return tuple(out)


def _choice(flag: str, seen: list[tuple[dict[str, Any], Any]]) -> OwnChoice:
    for by in dict.fromkeys(name for of, _ in seen for name in of):
        values: dict[str, Any] = {}
        groups: dict[str, dict[Any, None]] = defaultdict(dict)
        of_knob: dict[Any, set[str]] = defaultdict(set)
        for of, value in seen:
            key = repr(value)
            values[key] = value
            groups[key][of.get(by)] = None
            of_knob[of.get(by)].add(key)
        if len(of_knob) > 1 and all(len(keys) == 1 for keys in of_knob.values()):
            return OwnChoice(flag, by, tuple((values[k], tuple(groups[k])) for k in groups))
    distinct = {repr(value): value for _, value in seen}
    return OwnChoice(flag, None, tuple((value, ()) for value in distinct.values()))


def judge(
    study: Study,
    space: Space,
    baselines: Iterable[Configuration],
    environment: ServerEnvironment,
    *,
    most: int,
    seconds: float,
    gpu_names: Iterable[str] = (),
) -> PreflightResult:
    """Asks the SGLang that would run the study, without a launch.

    Args:
        study: The study.
        space: Its legal points.
        baselines: What is measured beside them; asked about first.
        environment: Where SGLang would run.
        most: Points asked about, a sample where there are more.
        seconds: After these it is asked about no further point.
        gpu_names: GPUs meant where the environment has none, the likeliest first.

    Raises:
        NotAskedError: It is not installed there, or could not be asked.
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


def _flag(field: str) -> str:
    return field.replace("_", "-")


def _is_short(value: object) -> bool:
    return isinstance(value, (str, int, float, bool, type(None))) and len(str(value)) <= _LONGEST
