"""What is legal in a study but likely not what its author wants."""

from __future__ import annotations

from typing import TYPE_CHECKING

from search_spaces.algorithms import ALGORITHMS, Shape
from search_spaces.flags.flag_values import old_value, unknown_flag
from search_spaces.launch_commands import read_launch_text
from search_spaces.nccl.allreduce import advice as all_reduce
from search_spaces.nccl.pairs import crossed_bounds, shadowed
from search_spaces.rules.defaults import family_is_guessed, model_family
from search_spaces.rules.legality import violations
from search_spaces.simulated_acceptance import CAUTION, simulates_acceptance
from search_spaces.space.baseline import baselines, default_baseline
from search_spaces.space.condition_effects import without_effect
from search_spaces.space.parameters import sub_space_trees
from search_spaces.space.production import production_warnings
from search_spaces.variables import unknown_variable, value_problem

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping

    from search_spaces.study_file.study import Study


_ENOUGH_ARRIVALS = 100
"""Requests of an open loop of which one is a hundredth: fewer have no 99th percentile."""


def warnings(study: Study) -> tuple[str, ...]:
    """Sentences for the author of a study, the gravest first; empty for a clean one."""
    return (
        *((CAUTION,) if simulates_acceptance(study) else ()),
        *name_advice(study),
        *_not_a_whole_server(study),
        *_budget(study),
        *_unfair(study),
        *_baselines(study),
        *without_effect(study),
        *production_warnings(study),
        *_small_windows(study),
        *_equal_answers(study),
        *all_reduce(study),
        *_wasted(study),
    )


def _not_a_whole_server(study: Study) -> Iterator[str]:
    flags = study.server.flags
    if (mode := flags.get("disaggregation-mode")) not in {None, "null"}:
        yield (
            f"server.flags.disaggregation-mode: {mode} is one half of a pair, which answers "
            "nothing by itself, so every launch would fail; leave it out"
        )
    if (config := flags.get("config")) is not None:
        yield (
            f"server.flags.config: {config} is not read, so that the rules know nothing of the "
            "flags in it, and a baseline may lack them; write them under server.flags"
        )


def _unfair(study: Study) -> Iterator[str]:
    fixed = {name for name, value in study.server.flags.items() if value is not None}
    flags = fixed | {*study.space.tuned_flags}
    speculates = any(part.algorithm != "none" for part in study.space.speculation)
    if speculates and "max-running-requests" not in flags:
        yield (
            "max-running-requests is not set: SGLang 0.5.23 caps it at 48 with speculation and "
            "not without, which is unfair above 48 requests; set it under server.flags"
        )
    trees = any(part.topk is not None and max(part.topk) > 1 for part in study.space.speculation)
    if (
        trees
        and "attention-backend" not in flags
        and study.server.flags.get("device", "cuda") == "cuda"
    ):
        yield (
            "attention-backend is not set: SGLang 0.5.23 chooses another one for topk > 1 on some "
            "GPUs, so that trees and chains differ in more than topk; set it under server.flags"
        )


def _budget(study: Study) -> Iterator[str]:
    count = len(baselines(study))
    if study.budget.launches <= count:
        yield (
            f"budget.launches {study.budget.launches} is spent on the {count} baselines; write "
            f"`launches: {count + 10}` or more for a search"
        )


def _small_windows(study: Study) -> Iterator[str]:
    workload = study.to_workload()
    for index, point in enumerate(workload.points):
        if point.is_open and (count := workload.requests_at(point)) < _ENOUGH_ARRIVALS:
            yield (
                f"workload.points[{index}] ({point.name}) sends {count} requests: percentiles and "
                f"goodput of an open loop need more; write `requests: {_ENOUGH_ARRIVALS}` or more"
            )


def _equal_answers(study: Study) -> Iterator[str]:
    workload = study.to_workload()
    users = max((point.concurrency or 1 for point in workload.points), default=1)
    if workload.output_spread or workload.natural_length or users == 1:
        return
    yield (
        f"workload.output_tokens has spread 0: windows at {users} users can run in lock-step, and "
        "such windows are invalid; write "
        f"`output_tokens: {{mean: {workload.output_tokens}, spread: 0.5}}`"
    )


def _baselines(study: Study) -> Iterator[str]:
    default = default_baseline(study)
    if default is None:
        yield "No speculative algorithm is searched, so there is no baseline of SGLang's defaults"
        return
    if "default" not in baselines(study):
        reason = "; ".join(str(v) for v in violations(default, study))
        yield f"SGLang's own defaults cannot be a baseline under this study's flags: {reason}"
    matters = default.speculation.algorithm in {"EAGLE", "EAGLE3"}
    if matters and family_is_guessed(study.model):
        numbers = default.speculation
        yield (
            f"The model's family is guessed from its name ({model_family(study.model)}), which "
            f"makes {numbers.num_steps} steps, topk {numbers.topk} SGLang's default; if that is "
            "wrong, set model.family"
        )


def _wasted(study: Study) -> Iterator[str]:
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
            # SGLang's checks pass them, but `_compact_accept_to_front` cannot hold steps + 1
            # tokens in a narrower tree (speculative/eagle_worker_common.py:543, 0.5.23): seen with
            # STANDALONE 4/2/4 on a CPU.
            yield (
                f"{tree.label}: {count} of num_draft_tokens and num_steps (such as {tokens} and "
                f"{steps}) verify fewer tokens than steps + 1: SGLang accepts them, but their last "
                "steps are wasted, and 0.5.23 was seen to die of one in its warm-up"
            )


def name_advice(study: Study) -> Iterator[str]:
    """Names that nothing reads, or only some versions of it."""
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
        yield from _each(place, values, unknown_flag)
    for place, values in env:
        yield from _each(place, values, unknown_variable)
    for place, values in flags:
        for name, value in values.items():
            yield from _old_values(place, name, value)
    yield from _production(study)
    fixed = {name: value for name, value in study.server.env.items() if value is not None}
    for loser, winner in shadowed(fixed):
        yield f"server.env.{loser}: NCCL does not look at it beside {winner}; leave one of them out"


def _production(study: Study) -> Iterator[str]:
    """Today's variables: it runs with them, though not as its author thinks."""
    if study.production is None:
        return
    env = read_launch_text(study.production.command, kind="shell").env
    for name, value in env.items():
        for problem in (value_problem(name, value), unknown_variable(name)):
            if problem is not None:
                yield f"production.command: {name}: {problem}"
    for _, _, message in crossed_bounds(env):
        yield f"production.command: {message}"


def _each(
    place: str, names: Iterable[str], problem_of: Callable[[str], str | None]
) -> Iterator[str]:
    for name in names:
        if (problem := problem_of(name)) is not None:
            yield f"{place}.{name}: {problem}"


def _old_values(place: str, name: str, value: object) -> Iterator[str]:
    for each in value if isinstance(value, tuple) else (value,):
        if (problem := old_value(name, each)) is not None:
            yield f"{place}.{name}: {problem}"
