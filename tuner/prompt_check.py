"""Whether a study's windows find their prompts and arrivals: known before any server is started."""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING

from runners.load import NotEnoughPromptsError, Prompt, PromptFileError
from runners.load.prompts import MixedPrompts, PromptPool
from runners.load.sources import pool_of
from search_spaces import Problem, StudyFileError, yaml_nodes
from search_spaces.prompt_names import parse_prompt_name

if TYPE_CHECKING:
    from collections.abc import Iterator

    from search_spaces import Study
    from search_spaces.workload import Workload

    Found = tuple[yaml_nodes.Path, str]
    Pools = tuple[tuple[PromptPool, float], ...]


def check_prompts(study: Study) -> tuple[str, ...]:
    """Reads the files that a study names; each prompt is sent once per window, warm-up included.

    Data sets of SGLang are not loaded, which needs the server's environment: they are taken to
    hold as many prompts as they are asked for.

    Returns:
        What the user must know about how the files are read.

    Raises:
        StudyFileError: A file cannot be used, or there are too few prompts or arrivals; with the
            key that is wrong.
    """
    workload = study.to_workload()
    pools = tuple(_pools(workload))
    notes: list[str] = []
    found = list(_files(pools)) or [*_counts(pools, workload), *_arrivals(workload, notes)]
    if found:
        document = yaml_nodes.read(study.text)
        problems = [
            Problem(yaml_nodes.dotted(path), document.line(path), message)
            for path, message in found
        ]
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
    from runners.load.arrivals import ArrivalTraceError, arrivals_of  # noqa: PLC0415

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
