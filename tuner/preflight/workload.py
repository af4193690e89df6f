"""Check prompts, arrival traces and simulation profiles before the first launch."""

from __future__ import annotations

import functools
from pathlib import Path
from typing import TYPE_CHECKING

from pydantic import ValidationError

from runners.load.prompts.prompts import (
    MixedPrompts,
    NotEnoughPromptsError,
    Prompt,
    PromptFileError,
    PromptPool,
)
from runners.load.prompts.sources import pool_of
from runners.registry import check_runner
from search_spaces.problems import Problem, StudyFileError, nearest
from search_spaces.prompt_names import parse_prompt_name
from search_spaces.study_file.document import KeyPath, dotted, read_yaml
from search_spaces.study_file.study import Study

if TYPE_CHECKING:
    from collections.abc import Iterator

    from search_spaces.study_file.study import Study
    from search_spaces.workload import Workload

    Found = tuple[KeyPath, str]
    Pools = tuple[tuple[PromptPool, float], ...]


def check_prompts(study: Study) -> tuple[str, ...]:
    """Check that the prompts and arrivals of a study suffice for its windows.

    A window sends each prompt once, warm-up included. SGLang's data sets are not loaded, because
    that needs the server's environment; they are assumed to have the requested number of prompts.

    Returns:
        Notes on how the files are read.

    Raises:
        StudyFileError: A file cannot be used, or has too few prompts or arrivals.
    """
    workload = study.to_workload()
    pools = tuple(_pools(workload))
    notes: list[str] = []
    found = list(_files(pools)) or [*_counts(pools, workload), *_arrivals(workload, notes)]
    if found:
        document = read_yaml(study.text)
        problems = [Problem(dotted(path), document.line(path), message) for path, message in found]
        raise StudyFileError(study.source, problems)
    return tuple(notes)


def _pools(workload: Workload) -> Iterator[tuple[PromptPool, float]]:
    for written, share in workload.prompts:
        name = parse_prompt_name(written)
        most = name.most_prompts
        if most is None:
            yield pool_of(name, workload.base_dir), share
            continue
        yield PromptPool(written, functools.partial(_stand_ins, written, most)), share


def _stand_ins(written: str, count: int) -> tuple[Prompt, ...]:
    return tuple(Prompt(f"{written}/{n}", f"{written}/{n}") for n in range(count))


def _files(pools: Pools) -> Iterator[Found]:
    for pool, _ in pools:
        try:
            _ = pool.prompts
        except PromptFileError as error:
            yield ("workload", "prompts", pool.name), str(error)


def _counts(pools: Pools, workload: Workload) -> Iterator[Found]:
    mixed = MixedPrompts(pools)
    for number, point in enumerate(workload.points):
        try:
            mixed.select(workload.prompts_at(point), 0)
        except NotEnoughPromptsError as error:
            yield ("workload", "points", number), str(error)


def _arrivals(workload: Workload, notes: list[str]) -> Iterator[Found]:
    from runners.load.schedule.arrivals import ArrivalTraceError, arrivals_of  # noqa: PLC0415

    for number, point in enumerate(workload.points):
        if not point.is_open:
            continue
        key = "request_rate" if point.trace is None else "trace"
        try:
            note = arrivals_of(point, workload, 0).note
        except ArrivalTraceError as error:
            yield ("workload", "points", number, key), str(error)
            continue
        if note is not None:
            notes.append(f"workload.points[{number}].trace: {note}")


def check_runner_key(study: Study) -> None:
    """Check the study's `runner`, and the profile if the study simulates or names one.

    Raises:
        StudyFileError: The runner or the profile does not exist or cannot be used.
    """
    try:
        check_runner(study.runner)
    except ValueError as error:
        line = read_yaml(study.text).line(("runner",))
        raise StudyFileError(study.source, [Problem("runner", line, str(error))]) from error
    _check_profile(study)


def _check_profile(study: Study) -> None:
    if study.runner != "simulated" and "simulated" not in study.model_fields_set:
        return
    from runners.simulated_server.engine.profile import (  # noqa: PLC0415 - pydantic
        PROFILES,
        load_profile,
    )

    name = study.simulated.profile
    try:
        load_profile(name)
    except FileNotFoundError:
        known = tuple(sorted(path.stem for path in PROFILES.glob("*.yaml")))
        message = f"There is no profile {name!r}; {nearest(Path(name).name, known)}"
        message += ", or write the path of a file of your own, such as ./my-machine.yaml"
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        place = ".".join(str(part) for part in first["loc"])
        message = f"{name}: {place}: {first['msg']}"
    except (OSError, ValueError) as error:
        message = f"Cannot read the profile: {error}"
    else:
        return
    path: KeyPath = ("simulated", "profile")
    line = read_yaml(study.text).line(path)
    raise StudyFileError(study.source, [Problem(dotted(path), line, message)])
