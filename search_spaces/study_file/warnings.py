"""Warn about study files that are legal but probably not intended."""

from __future__ import annotations

from typing import TYPE_CHECKING

from search_spaces.algorithms import ALGORITHMS, Shape, family_is_guessed, model_family
from search_spaces.flags.flag_values import old_value, unknown_flag
from search_spaces.launch_commands import read_launch_text
from search_spaces.nccl.all_reduce import advice as all_reduce
from search_spaces.nccl.values import crossed_bounds, shadowed
from search_spaces.rules.legality import violations
from search_spaces.simulated_acceptance import SERVING_WARNING, simulates_acceptance
from search_spaces.space.baselines import baselines, default_baseline, production_warnings
from search_spaces.space.parameters import sub_space_trees
from search_spaces.space.space import condition_effects
from search_spaces.variables import unknown_variable, value_problem

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping

    from search_spaces.study_file.study import Study


_ENOUGH_ARRIVALS = 100
"""Fewer requests have no 99th percentile."""


def warnings(study: Study) -> tuple[str, ...]:
    """All warnings about a study, the most serious first."""
    return (
        *((SERVING_WARNING,) if simulates_acceptance(study) else ()),
        *name_advice(study),
        *_incomplete_server(study),
        *_budget(study),
        *_unequal_defaults(study),
        *_baselines(study),
        *_ineffective_conditions(study),
        *production_warnings(study),
        *_small_windows(study),
        *_equal_answers(study),
        *all_reduce(study),
        *_wasted_numbers(study),
    )


def _incomplete_server(study: Study) -> Iterator[str]:
    flags = study.server.flags
    if (mode := flags.get("disaggregation-mode")) not in {None, "null"}:
        yield (
            f"server.flags.disaggregation-mode: {mode} starts half of a server pair, which answers "
            "no requests alone, so every launch would fail; remove it"
        )
    if (config := flags.get("config")) is not None:
        yield (
            f"server.flags.config: the tuner does not read {config}, so rules and baselines miss "
            "its flags; write the flags under server.flags"
        )


def _unequal_defaults(study: Study) -> Iterator[str]:
    fixed = {name for name, value in study.server.flags.items() if value is not None}
    flags = fixed | {*study.space.tuned_flags}
    speculates = any(part.algorithm != "none" for part in study.space.speculation)
    if speculates and "max-running-requests" not in flags:
        yield (
            "max-running-requests is not set: SGLang 0.5.23 limits it to 48 only with speculation, "
            "so the comparison is unfair above 48 requests; set it under server.flags"
        )
    trees = any(part.topk is not None and max(part.topk) > 1 for part in study.space.speculation)
    if (
        trees
        and "attention-backend" not in flags
        and study.server.flags.get("device", "cuda") == "cuda"
    ):
        yield (
            "attention-backend is not set: on some GPUs SGLang 0.5.23 uses a different backend for "
            "topk > 1, so trees and chains differ in more than topk; set it under server.flags"
        )


def _budget(study: Study) -> Iterator[str]:
    count = len(baselines(study))
    if study.budget.launches <= count:
        yield (
            f"budget.launches {study.budget.launches} only covers the {count} baselines; write "
            f"`launches: {count + 10}` or more for a search"
        )


def _small_windows(study: Study) -> Iterator[str]:
    workload = study.to_workload()
    for index, point in enumerate(workload.points):
        if point.is_open and (count := workload.requests_at(point)) < _ENOUGH_ARRIVALS:
            yield (
                f"workload.points[{index}] ({point.name}) sends only {count} requests, too few for "
                f"percentiles and goodput; write `requests: {_ENOUGH_ARRIVALS}` or more"
            )


def _equal_answers(study: Study) -> Iterator[str]:
    workload = study.to_workload()
    users = max((point.concurrency or 1 for point in workload.points), default=1)
    if workload.output_spread or workload.natural_length or users == 1:
        return
    yield (
        f"workload.output_tokens has spread 0: {users} users can run in lock-step, which makes "
        "windows invalid; write "
        f"`output_tokens: {{mean: {workload.output_tokens}, spread: 0.5}}`"
    )


def _baselines(study: Study) -> Iterator[str]:
    default = default_baseline(study)
    if default is None:
        yield "The study searches no speculative algorithm, so the baseline `default` is missing"
        return
    if "default" not in baselines(study):
        reason = "; ".join(str(v) for v in violations(default, study))
        yield f"The study's flags do not allow the baseline `default`: {reason}"
    matters = default.speculation.algorithm in {"EAGLE", "EAGLE3"}
    if matters and family_is_guessed(study.model):
        numbers = default.speculation
        yield (
            f"model.family is guessed from the model's name ({model_family(study.model)}), so the "
            f"default draft is {numbers.num_steps} steps with topk {numbers.topk}; set "
            "model.family if the guess is wrong"
        )


def _ineffective_conditions(study: Study) -> Iterator[str]:
    """Warnings about conditions that exclude nothing."""
    for effect in condition_effects(study):
        place, when = effect.condition.place, effect.condition.when or "any value"
        if not effect.applies:
            yield (
                f"{place} never applies: no configuration matches `when` ({when}); correct or "
                "remove it"
            )
        elif not effect.excludes:
            yield (
                f"{place} excludes nothing: every match of `when` ({when}) matches `then`; "
                "correct or remove it"
            )


def _wasted_numbers(study: Study) -> Iterator[str]:
    for tree, part in zip(sub_space_trees(study), study.space.speculation, strict=True):
        shape = ALGORITHMS[tree.algorithm].shape
        ignored = [n for n in ("num_steps", "topk") if getattr(part, n) is not None]
        if shape in {Shape.LOOKUP, Shape.BLOCK} and ignored:
            yield f"{tree.label}: SGLang 0.5.23 ignores {' and '.join(ignored)}"
        if shape is not Shape.TREE:
            continue
        short = sorted(
            {
                (s.num_draft_tokens, s.num_steps)
                for s in tree.paths
                if s.num_steps and s.num_draft_tokens and s.num_draft_tokens < s.num_steps + 1
            }
        )
        if short:
            tokens, steps = short[0]
            count = "1 pair" if len(short) == 1 else f"{len(short)} pairs"
            # SGLang accepts them, but `_compact_accept_to_front` has no room for steps + 1 tokens
            # (speculative/eagle_worker_common.py:543, 0.5.23): STANDALONE 4/2/4 crashed on a CPU.
            yield (
                f"{tree.label}: {count} of num_draft_tokens and num_steps (such as {tokens} and "
                f"{steps}) verify fewer than steps + 1 tokens; their last steps are wasted, and "
                "SGLang 0.5.23 can crash in the warm-up"
            )


def name_advice(study: Study) -> Iterator[str]:
    """Warn about names and values that SGLang or NCCL does not read, or only in some versions."""
    flags: list[tuple[str, Mapping[str, object]]] = [
        ("server.flags", study.server.flags),
        ("space.flags", study.space.flags),
    ]
    for index, part in enumerate(study.space.speculation):
        flags.append((f"space.speculation[{index}].flags", part.flags))
    env: tuple[tuple[str, Mapping[str, object]], ...] = (
        ("server.env", study.server.env),
        ("space.env", study.space.env),
    )
    for place, values in flags:
        yield from _name_problems(place, values, unknown_flag)
    for place, values in env:
        yield from _name_problems(place, values, unknown_variable)
    for place, values in flags:
        for name, value in values.items():
            yield from _old_values(place, name, value)
    yield from _production(study)
    fixed = {name: value for name, value in study.server.env.items() if value is not None}
    for loser, winner in shadowed(fixed):
        yield f"server.env.{loser}: NCCL ignores it when {winner} is set; remove one of them"


def _production(study: Study) -> Iterator[str]:
    """Warn about environment variables of `production.command`."""
    if study.production is None:
        return
    env = read_launch_text(study.production.command, kind="shell").env
    for name, value in env.items():
        for problem in (value_problem(name, value), unknown_variable(name)):
            if problem is not None:
                yield f"production.command: {name}: {problem}"
    for _, _, message in crossed_bounds(env):
        yield f"production.command: {message}"


def _name_problems(
    place: str, names: Iterable[str], problem_of: Callable[[str], str | None]
) -> Iterator[str]:
    for name in names:
        if (problem := problem_of(name)) is not None:
            yield f"{place}.{name}: {problem}"


def _old_values(place: str, name: str, value: object) -> Iterator[str]:
    for each in value if isinstance(value, tuple) else (value,):
        if (problem := old_value(name, each)) is not None:
            yield f"{place}.{name}: {problem}"
