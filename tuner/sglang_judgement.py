"""SGLang's own word on a study, before any launch: asked for, told, and heeded."""

from __future__ import annotations

import sys
from collections import defaultdict
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from runners.gpu_locks import DeviceBusyError, DeviceLocks
from runners.server_environment import EnvironmentUnusableError, server_environment
from runners.sglang_judgement import Judgement, NotAskedError, judge
from search_spaces.baseline import PRODUCTION
from search_spaces.conditions import shown
from search_spaces.reduced_space import ReducedSpace
from tuner.errors import CommandError
from tuner.planners import LaunchBuilder
from tuner.words import counted, describe, fixed_names

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from runners.base import Runner
    from search_spaces import Space, Study
    from search_spaces.configuration import Configuration
    from tuner.assembly import Problem

_LOOK = (200, 20.0)
"""Points and seconds where somebody waits for the answer."""
_SWEEP = (2_000, 60.0)
"""Points and seconds before hours of launches."""
_MOST_LINES = 6


def look(
    study: Study,
    space: Space,
    baselines: Iterable[Configuration],
    servers: Runner,
    *,
    gpu: str | None = None,
) -> Judgement:
    """Asks SGLang, where somebody waits for the answer, and nothing is measured meanwhile.

    Args:
        study: The study.
        space: Its points.
        baselines: What is measured beside them.
        servers: Its runner.
        gpu: The GPU that is meant where there is none.

    Raises:
        NotAskedError: It could not be asked, or another tuner measures here.
    """
    if servers.name != "sglang":
        raise NotAskedError("the study runs on simulated servers")
    _nothing_is_measured(servers, study.name)
    return _ask(study, space, baselines, _LOOK, gpu)


def heeded(
    problem: Problem,
    servers: Runner,
    *,
    hot_switch: bool,
    study: str = "",
    storage: str = "",
    held: bool = False,
    quick: bool = False,
) -> Problem:
    """The problem without what SGLang would refuse; its notes tell what it would do.

    A problem on other servers than real ones is returned as it is.

    Args:
        problem: What is to be solved.
        servers: Its runner.
        hot_switch: As in `assembly.pose`.
        study: The stored study's name, where it has one.
        storage: Its database.
        held: Whether the devices are this tuner's already.
        quick: Whether somebody waits for the answer.

    Raises:
        CommandError: What every launch has, or a baseline, is refused.
    """
    if servers.name != "sglang":
        return problem
    baselines, limits = problem.baselines.values(), _LOOK if quick else _SWEEP
    try:
        if not held:
            _nothing_is_measured(servers, study or problem.study.name, storage)
        judgement = _ask(problem.study, problem.space, baselines, limits, None)
    except NotAskedError as error:
        return replace(problem, notes=(*problem.notes, not_asked(error)))
    return without_refused(problem, judgement, servers, hot_switch=hot_switch)


def without_refused(
    problem: Problem, judgement: Judgement, servers: Runner, *, hot_switch: bool
) -> Problem:
    """See `heeded`."""
    notes = [*problem.notes, *told(judgement)]
    if (stops := refused_for_all(problem.baselines, judgement)) is not None:
        raise CommandError(stops)
    kept = {n: c for n, c in problem.baselines.items() if judgement.refusal(c) is None}
    space = problem.space
    if judgement.refused:
        space = ReducedSpace(
            problem.study,
            servers.supports_draft_tp,
            lambda point: judgement.refusal(point) is not None,
        )
    return replace(
        problem,
        space=space,
        baselines=kept,
        launches=LaunchBuilder(space, servers.can_switch, hot_switch=hot_switch),
        notes=tuple(notes),
    )


def refused_for_all(baselines: Mapping[str, Configuration], judgement: Judgement) -> str | None:
    """What is said where the study as a whole cannot run, else `None`."""
    refused = judgement.refused
    if not refused:
        return None
    correct = "Correct the study, or run an SGLang that takes it"
    answered = [c for c in judgement.asked if c not in judgement.unanswered]
    if len(refused) == len(answered):
        reasons = list(dict.fromkeys(refused.values()))
        also = f" ({counted(len(reasons) - 1, 'further reason')})" if len(reasons) > 1 else ""
        return (
            f"SGLang {judgement.version}, which would run, refuses every configuration of the "
            f"study: {reasons[0]}{also}. {correct}"
        )
    for name in ("none", PRODUCTION):
        configuration = baselines.get(name)
        if configuration is not None and (why := judgement.refusal(configuration)) is not None:
            return (
                f"SGLang {judgement.version}, which would run, refuses the baseline '{name}': "
                f"{why}. {correct}"
            )
    return None


def told(judgement: Judgement) -> tuple[str, ...]:
    """What SGLang makes of a study, as sentences; the first says what was asked."""
    return (
        _head(judgement),
        *_cut([*_refused(judgement), *_rewritten(judgement)]),
        *_cut(list(_own_choices(judgement))),
    )


def not_asked(error: NotAskedError) -> str:
    """What is said where SGLang was not asked."""
    return f"SGLang was not asked what it makes of the configurations: {error}"


def as_json(judgement: Judgement) -> dict[str, Any]:
    """The JSON shape of a judgement."""
    return {
        "version": judgement.version,
        "as_if_on": judgement.gpu.name if judgement.gpu is not None else None,
        "asked": len(judgement.asked),
        "points": judgement.points,
        "seconds": round(judgement.seconds, 1),
        "refused": [
            {"configuration": c.to_dict(), "reason": why} for c, why in judgement.refused.items()
        ],
        "unanswered": [
            {"configuration": c.to_dict(), "reason": why} for c, why in judgement.unanswered.items()
        ],
        "rewritten": [
            {"flag": r.flag, "asked": r.asked, "runs": r.run, "configurations": len(r.points)}
            for r in judgement.rewrites
        ],
        "sets_itself": [
            {
                "flag": choice.flag,
                "by": choice.by,
                "values": [{"value": v, "at": list(at)} for v, at in choice.values],
            }
            for choice in judgement.own_choices
        ],
    }


def _ask(
    study: Study,
    space: Space,
    baselines: Iterable[Configuration],
    limits: tuple[int, float],
    gpu: str | None,
) -> Judgement:
    most, seconds = limits
    sys.stderr.write("asking SGLang what it makes of the configurations\n")
    return judge(
        study,
        space,
        baselines,
        server_environment(study),
        most=most,
        seconds=seconds,
        gpu_names=(gpu,) if gpu is not None else _gpus_of_profile(study),
    )


def _gpus_of_profile(study: Study) -> tuple[str, ...]:
    """The GPUs of the machine that a study names for its simulation: those that it is about."""
    if "profile" not in study.simulated.model_fields_set:
        return ()
    from runners.simulated_server.profile import load_profile  # noqa: PLC0415 - where it is named

    try:
        return tuple(load_profile(study.simulated.profile).gpus)
    except (OSError, ValueError):
        return ()  # `profile_check` tells


def _nothing_is_measured(servers: Runner, study: str, storage: str = "") -> None:
    """To ask takes a core for seconds, and looks at the GPUs: never beside a measurement."""
    try:
        with DeviceLocks(servers.devices(), study, storage):
            return
    except (DeviceBusyError, EnvironmentUnusableError) as error:
        raise NotAskedError(str(error)) from error
    except OSError:
        return  # without locks nobody measures here (`holding` refuses)


def _head(judgement: Judgement) -> str:
    where = ""
    if judgement.gpu is not None:
        where = f", as if on {judgement.gpu.name} (there is no GPU here)"
    refused, asked = len(judgement.refused), len(judgement.asked)
    takes = f"takes all of {counted(asked, 'launch')}"
    if unanswered := len(judgement.unanswered):
        takes = f"says nothing of {unanswered} of {counted(asked, 'launch')}"
    if refused:
        takes = f"refuses {refused} of {counted(asked, 'launch')}"
    return (
        f"SGLang {judgement.version} {takes} that it was asked about{where}, for "
        f"{counted(judgement.points, 'point')}; those that differ in NCCL's variables alone "
        f"count once ({judgement.seconds:.0f} s)"
    )


def _refused(judgement: Judgement) -> Iterator[str]:
    for reason, of in _by_reason(judgement.refused).items():
        yield f"{_such(of, judgement)} would not start: {reason}"
    for reason, of in _by_reason(judgement.unanswered).items():
        yield f"{_such(of, judgement)}: nothing can be said ({reason})"


def _rewritten(judgement: Judgement) -> Iterator[str]:
    for rewrite in judgement.rewrites:
        yield (
            f"{_such(rewrite.points, judgement)} would run with --{rewrite.flag} "
            f"{rewrite.run} in place of {rewrite.asked}"
        )


def _own_choices(judgement: Judgement) -> Iterator[str]:
    for choice in judgement.own_choices:
        parts = [
            f"{shown(value)} at {choice.by} {' or '.join(map(shown, at))}" if at else shown(value)
            for value, at in choice.values
        ]
        yield f"--{choice.flag} is not given, and SGLang sets it by itself: {', '.join(parts)}"


def _by_reason(found: Mapping[Configuration, str]) -> dict[str, list[Configuration]]:
    out: dict[str, list[Configuration]] = defaultdict(list)
    for configuration, reason in found.items():
        out[reason].append(configuration)
    return dict(sorted(out.items(), key=lambda item: -len(item[1])))


def _such(of: Iterable[Configuration], judgement: Judgement) -> str:
    first, *others = of
    text = describe(first, fixed_names(judgement.study))
    return text if not others else f"{text} and {len(others)} more"


def _cut(lines: list[str]) -> list[str]:
    if len(lines) <= _MOST_LINES:
        return lines
    more = len(lines) - _MOST_LINES + 1
    return [*lines[: _MOST_LINES - 1], f"and {more} more; `tuner validate --json` lists them"]
