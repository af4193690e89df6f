"""Relations inside a study file that no single key shows."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from search_spaces.algorithms import ALGORITHMS, Shape
from search_spaces.configuration import NO_SPECULATION
from search_spaces.flags.flags import BELONGS_ELSEWHERE, canonical_flag
from search_spaces.problems import Problem
from search_spaces.secrets import is_export_only
from search_spaces.study_file.condition_checks import check_conditions
from search_spaces.study_file.env_checks import check_env
from search_spaces.study_file.flag_checks import check_flags
from search_spaces.study_file.objective_checks import check_objective
from search_spaces.study_file.secret_checks import check_secrets
from search_spaces.study_file.workload_checks import check_workload
from search_spaces.study_file.yaml_nodes import Document, Path, dotted

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from search_spaces.study_file.study import (
        Model,
        Objective,
        Server,
        SpaceSpec,
        SubSpace,
        WorkloadSpec,
    )

_NEEDS_DRAFT = {"EAGLE", *(name for name, a in ALGORITHMS.items() if a.needs_draft)}
_LEAST = {"num_steps": 1, "topk": 1, "num_draft_tokens": 2}

Found = tuple[Path, str]


def check(parts: dict[str, Any], document: Document, *, stored: bool = False) -> list[Problem]:
    """Everything wrong between the sections that could be read.

    Args:
        parts: The sections that are well-formed, by key.
        document: The file, for lines.
        stored: Whether it is stored already: then it is too late to refuse its secrets.
    """
    found: list[Found] = []
    model: Model | None = parts.get("model")
    server: Server | None = parts.get("server")
    space: SpaceSpec | None = parts.get("space")
    workload: WorkloadSpec | None = parts.get("workload")
    objective: Objective | None = parts.get("objective")
    if server is not None:
        found += _server(server)
    if space is not None:
        found += _space(space)
    if not stored:
        found += check_secrets(server, space)
    if server is not None and space is not None:
        found += _fixed_and_tuned(server, space)
        found += _draft_tp(server, space)
        found += check_conditions(server, space)
    if model is not None and space is not None:
        found += _drafts(model, space)
    if server is not None or space is not None:
        found += check_env(server, space)
        found += check_flags(server, space, document.data)
    if workload is not None:
        found += check_workload(workload)
    if workload is not None and objective is not None:
        found += check_objective(objective, workload)
    problems = []
    for path, message in found:
        written = _as_written(path, document.data)
        problems.append(Problem(dotted(written), document.line(written), message))
    return problems


def _as_written(path: Path, data: object) -> Path:
    """The path with flags spelled as the file spells them."""
    out: list[str | int] = []
    for part in path:
        key = part
        if isinstance(data, dict):
            if part not in data and out and out[-1] == "flags":
                key = next((name for name in data if canonical_flag(name) == part), part)
            data = data.get(key)
        elif isinstance(data, list) and isinstance(part, int) and part < len(data):
            data = data[part]
        else:
            data = None
        out.append(key)
    return tuple(out)


def _server(server: Server) -> Iterator[Found]:
    for name in server.flags:
        if name in BELONGS_ELSEWHERE:
            yield (
                ("server", "flags", name),
                f"Does not belong here; {BELONGS_ELSEWHERE[name]}",
            )
    for name, what in (("tp-size", "of GPUs"), ("port", "from 1 to 65535")):
        number = server.flags.get(name)
        if number is None and name not in server.flags:
            continue
        most = 65535 if name == "port" else 4096
        if isinstance(number, bool) or not isinstance(number, int) or not 1 <= number <= most:
            yield ("server", "flags", name), f"Must be a whole number {what}, not {number!r}"
    yield from _reserved("server", server.env)


def _reserved(section: str, env: Iterable[str]) -> Iterator[Found]:
    for name in env:
        if name == "TUNER_LAUNCH":
            yield (section, "env", name), "The tuner marks its launches with it; leave it out"


def _space(space: SpaceSpec) -> Iterator[Found]:
    yield from _flags_of_space(space.flags, ("space", "flags"))
    yield from _reserved("space", space.env)
    for index, part in enumerate(space.speculation):
        at: Path = ("space", "speculation", index)
        for key, least in _LEAST.items():
            values = getattr(part, key)
            if values is not None and min(values) < least:
                hint = "; no speculation is `algorithm: none`" if key == "num_steps" else ""
                yield (*at, key), f"Must be at least {least}, not {min(values)}{hint}"
        yield from _sub_space(part, at)
        yield from _flags_of_space(part.flags, (*at, "flags"))
        yield from _own_flags(part, space, (*at, "flags"))


def _flags_of_space(flags: Iterable[str], at: Path) -> Iterator[Found]:
    for name in flags:
        if name in BELONGS_ELSEWHERE:
            yield (*at, name), f"Does not belong here; {BELONGS_ELSEWHERE[name]}"
        elif is_export_only(name):
            message = (
                "Cannot be searched: trials never get it; write it under `server.flags` for the "
                "exported command"
            )
            yield (*at, name), message


def _own_flags(part: SubSpace, space: SpaceSpec, at: Path) -> Iterator[Found]:
    for name in part.flags:
        if name in space.flags:
            yield (
                (*at, name),
                "Also stands under `space.flags`, for all sub-spaces; keep one of them",
            )
        elif name.startswith("speculative-") and part.algorithm == NO_SPECULATION:
            yield (*at, name), "SGLang takes no notice of it without an algorithm; leave it out"


def _sub_space(part: SubSpace, at: Path) -> Iterator[Found]:
    given = [key for key in _LEAST if getattr(part, key) is not None]
    shape = ALGORITHMS[part.canonical_algorithm].shape
    if shape is Shape.NONE:
        for key in given:
            yield (*at, key), "`algorithm: none` takes no numbers; leave it out"
    if shape is not Shape.TREE or not given:
        return
    for key in ("num_steps", "topk"):
        if key not in given:
            example = {"num_steps": "num_steps: {from: 1, to: 5}", "topk": "topk: 1"}[key]
            message = (
                f"{key} is missing: SGLang takes all of num_steps, topk and num_draft_tokens "
                f"from its defaults, or none; write `{example}`"
            )
            yield at, message
    if part.topk is not None and max(part.topk) > 1 and "num_draft_tokens" not in given:
        message = (
            f"num_draft_tokens is missing: topk {max(part.topk)} drafts a tree, whose size SGLang "
            "must be told; write `num_draft_tokens: [4, 8]`"
        )
        yield at, message


def _fixed_and_tuned(server: Server, space: SpaceSpec) -> Iterator[Found]:
    for section in ("flags", "env"):
        fixed = getattr(server, section)
        for name in getattr(space, section):
            if name in fixed:
                message = (
                    f"Also stands under `server.{section}`; searched or the same in every launch: "
                    "keep one of them"
                )
                yield ("space", section, name), message
    for index, part in enumerate(space.speculation):
        for name in part.flags:
            if name in server.flags:
                message = (
                    "Also stands under `server.flags`; given in this sub-space or in every launch: "
                    "keep one of them"
                )
                yield ("space", "speculation", index, "flags", name), message


def _draft_tp(server: Server, space: SpaceSpec) -> Iterator[Found]:
    tp = server.flags.get("tp-size", 1)
    if (
        space.draft_tp is None
        or "tp-size" in space.tuned_flags
        or not isinstance(tp, int)
        or tp < 1
    ):
        return
    for size in space.draft_tp:
        if size < 1 or tp % size:
            fitting = ", ".join(str(n) for n in range(1, min(tp, 64) + 1) if tp % n == 0)
            yield (
                ("space", "draft_tp"),
                f"{size} does not divide the target's tp-size {tp}; take from: {fitting}",
            )


def _drafts(model: Model, space: SpaceSpec) -> Iterator[Found]:
    if model.draft is not None:
        return
    for index, part in enumerate(space.speculation):
        if part.algorithm in _NEEDS_DRAFT:
            hint = (
                "; a model with MTP layers of its own: NEXTN" if part.algorithm == "EAGLE" else ""
            )
            yield (
                ("space", "speculation", index, "algorithm"),
                f"{part.algorithm} needs a draft model: write `model: {{draft: ...}}`{hint}",
            )
