"""The study that `benchmarks.noise` measures, with another load, and its configurations."""

from __future__ import annotations

import json
import shlex
from typing import TYPE_CHECKING, Any

from search_spaces.configuration import Configuration, Speculation
from search_spaces.problems import StudyFileError
from search_spaces.rules.legality import canonical, violations
from search_spaces.space.baselines import baselines
from search_spaces.space.space import Space, SpaceTooLargeError
from search_spaces.study_file.load import load_study
from search_spaces.study_file.study import PointSpec, Study

if TYPE_CHECKING:
    import argparse


class UsageError(Exception):
    """The command line is wrong; the message has the remedy."""


def configuration_of(text: str, study: Study) -> Configuration:
    """Parse a configuration of the command line.

    Args:
        text: A baseline (`none`, `default`, `production`); `EAGLE3:2,1,3` or `EAGLE3:2`, with
            optional variables (`EAGLE3:2 NCCL_PROTO=LL128`); or a JSON object as in
            `docs/contract.md`. The second form takes its missing values from the only matching
            point of the study's space; without such a point they stay unset.
        study: Study with the space and the rules.

    Raises:
        UsageError: The text has another form, or a rule forbids the configuration.
    """
    known = baselines(study)
    if text in known:
        return known[text]
    try:
        if text.startswith("{"):
            data = {"speculation": {"algorithm": "none"}} | json.loads(text)
            configuration = canonical(Configuration.from_dict(data), study)
        else:
            configuration = _named(text, study)
    except (ValueError, TypeError, KeyError) as error:
        raise UsageError(
            f"--configuration {text}: write one of {', '.join(known)}, "
            "ALGORITHM:steps,topk,tokens [NAME=VALUE ...], or JSON"
        ) from error
    if broken := violations(configuration, study):
        raise UsageError(f"--configuration {text}: {broken[0].message}")
    return configuration


def label(configuration: Configuration) -> str:
    """Describe a configuration: `EAGLE3 2/1/3` and further values."""
    speculation = configuration.speculation
    numbers = (speculation.num_steps, speculation.topk, speculation.num_draft_tokens)
    given = [str(n) for n in numbers if n is not None]
    words = [f"{speculation.algorithm} {'/'.join(given)}".strip()]
    words += [f"{name}={value}" for name, value in configuration.env if value is not None]
    words += [f"--{name} {value}" for name, value in configuration.flags if value is not None]
    return " ".join(words)


def is_of(configuration: Configuration, study: Study) -> bool:
    """Whether the study would measure the configuration; false for very large spaces."""
    try:
        return configuration in Space(study) or configuration in baselines(study).values()
    except SpaceTooLargeError:
        return False


def _named(text: str, study: Study) -> Configuration:
    """Parse the short form of a configuration.

    Raises:
        ValueError: The text cannot be parsed.
        UsageError: The space has several matching points.
    """
    first, *variables = shlex.split(text)
    algorithm, _, numbers = first.partition(":")
    steps, topk, tokens = _numbers(numbers)
    env = dict(variable.split("=", 1) for variable in variables)
    speculation = Speculation(algorithm.upper(), steps, topk or 1, tokens or steps + 1)
    alone = canonical(Configuration.of(speculation, env=env), study)
    try:
        points = Space(study).points
    except SpaceTooLargeError:
        return alone
    # What the study's own server has already is not in it, nor in any point.
    given = {name: dict(alone.env).get(name) for name in env}
    alike = [
        point
        for point in points
        if point.speculation == alone.speculation
        and all(dict(point.env).get(name) == value for name, value in given.items())
    ]
    if alone in alike or not alike:
        return alone
    if len(alike) > 1:
        raise UsageError(
            f"--configuration {text}: the space has {len(alike)} such points; add NAME=VALUE, or "
            "write JSON"
        )
    return alike[0]


def _numbers(text: str) -> tuple[int, int | None, int | None]:
    given = [int(number) for number in text.split(",")]
    if len(given) > 3:
        raise ValueError(f"{len(given)} numbers, and not steps, topk and tokens")
    steps, topk, tokens = (*given, None, None)[:3]
    return int(steps or 0), topk, tokens


def study_of(args: argparse.Namespace) -> Study:
    """Load the study file with the load of the command line.

    Raises:
        UsageError: The file cannot be used.
    """
    try:
        study = load_study(args.study)
    except StudyFileError as error:
        raise UsageError(str(error)) from error
    changes: dict[str, Any] = {}
    if args.concurrency:
        changes["points"] = tuple(PointSpec(concurrency=c) for c in args.concurrency)
    if args.requests:
        changes["requests"] = args.requests
    lengths = {"mean": args.output_tokens, "spread": args.output_spread}
    changes["output_tokens"] = study.workload.output_tokens.model_copy(
        update={name: value for name, value in lengths.items() if value is not None}
    )
    study = study.model_copy(update={"workload": study.workload.model_copy(update=changes)})
    if any(point.concurrency is None for point in study.workload.points):
        raise UsageError("open loops are not supported; set closed loops with --concurrency")
    return study
