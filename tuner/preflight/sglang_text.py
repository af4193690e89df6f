"""What SGLang makes of a study, in words and as JSON."""

from __future__ import annotations

import re
from collections import defaultdict
from typing import TYPE_CHECKING, Any

from search_spaces.flags.flag_values import unknown_flag
from search_spaces.space.baselines import PRODUCTION
from search_spaces.space.conditions import format_value
from tuner.formatting import counted, describe, fixed_names

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from runners.sglang.preflight.preflight import PreflightResult
    from search_spaces.configuration import Configuration
    from search_spaces.space.space import Space

_MOST_LINES = 6
_UNKNOWN = re.compile(r"unrecognized arguments: --([\w-]+)")
_NOT_HERE = re.compile(r"OSError: We couldn't connect to \S+ to load the files")
"""Transformers' words for a model that has no configuration on the machine, when it is offline."""


def told(preflight_result: PreflightResult) -> tuple[str, ...]:
    """What SGLang makes of a study, as sentences; the first says what was asked."""
    return (
        _head(preflight_result),
        *_cut([*_refused(preflight_result), *_rewritten(preflight_result)]),
        *_cut(list(_own_choices(preflight_result))),
    )


def as_json(preflight_result: PreflightResult) -> dict[str, Any]:
    """The JSON shape of a judgement."""
    return {
        "version": preflight_result.version,
        "as_if_on": preflight_result.gpu.name if preflight_result.gpu is not None else None,
        "asked": len(preflight_result.asked),
        "points": preflight_result.points,
        "seconds": round(preflight_result.seconds, 1),
        "refused": [
            {"configuration": c.to_dict(), "reason": why}
            for c, why in preflight_result.refused.items()
        ],
        "unanswered": [
            {"configuration": c.to_dict(), "reason": why}
            for c, why in preflight_result.unanswered.items()
        ],
        "rewritten": [
            {"flag": r.flag, "asked": r.asked, "runs": r.run, "configurations": len(r.points)}
            for r in preflight_result.rewrites
        ],
        "sets_itself": [
            {
                "flag": choice.flag,
                "by": choice.by,
                "values": [{"value": v, "at": list(at)} for v, at in choice.values],
            }
            for choice in preflight_result.own_choices
        ],
    }


def refused_for_all(
    space: Space, baselines: Mapping[str, Configuration], preflight_result: PreflightResult
) -> str | None:
    """What is said where the study as a whole cannot run, else `None`."""
    refused = preflight_result.refused
    if not refused:
        return None
    correct = "Correct the study, or use an SGLang version that accepts it"
    answered = [c for c in preflight_result.asked if c not in preflight_result.unanswered]
    nothing_left = all(preflight_result.refusal(point) is not None for point in space)
    if len(refused) == len(answered) or nothing_left:
        reasons = list(dict.fromkeys(refused.values()))
        also = f" ({counted(len(reasons) - 1, 'further reason')})" if len(reasons) > 1 else ""
        return (
            f"SGLang {preflight_result.version} refuses every configuration of the study: "
            f"{_hinted(reasons[0])}{also}. {correct}"
        )
    for name in ("none", PRODUCTION):
        configuration = baselines.get(name)
        if (
            configuration is not None
            and (why := preflight_result.refusal(configuration)) is not None
        ):
            return (
                f"SGLang {preflight_result.version} refuses the baseline '{name}': {_hinted(why)}. "
                f"{correct}"
            )
    return None


def _hinted(reason: str) -> str:
    """A refusal, with the name that an unknown flag was probably meant to have."""
    unknown = _UNKNOWN.match(reason)
    hint = unknown_flag(unknown[1]) if unknown else None
    return f"{reason} ({hint})" if hint else reason


def _head(preflight_result: PreflightResult) -> str:
    where = ""
    if preflight_result.gpu is not None:
        where = f", for {preflight_result.gpu.name} (this machine has no GPU)"
    refused, asked = len(preflight_result.refused), len(preflight_result.asked)
    missed = preflight_result.chosen - asked
    why = preflight_result.cut_short or "time limit"
    late = f"; {missed} not checked: {why}" if missed else ""
    takes = f"accepts all of {counted(asked, 'launch')}"
    if unanswered := len(preflight_result.unanswered):
        takes = f"gives no answer for {unanswered} of {counted(asked, 'launch')}"
    if refused:
        takes = f"refuses {refused} of {counted(asked, 'launch')}"
    return (
        f"SGLang {preflight_result.version} {takes}{where}, which represent "
        f"{counted(preflight_result.points, 'point')}: points that differ only in NCCL variables "
        f"are checked once ({preflight_result.seconds:.0f} s{late})"
    )


def _refused(preflight_result: PreflightResult) -> Iterator[str]:
    for reason, of in _by_reason(preflight_result.refused).items():
        yield f"{_such(of, preflight_result)} would not start: {reason}"
    for reason, of in _by_reason(preflight_result.unanswered).items():
        why = _what_is_missing(preflight_result) if _NOT_HERE.match(reason) else reason
        yield f"{_such(of, preflight_result)}: not checked ({why})"


def _what_is_missing(preflight_result: PreflightResult) -> str:
    model = preflight_result.study.model
    names = " or ".join(name for name in (model.path, model.draft) if name is not None)
    return (
        f"this machine has no config.json of {names}, and the check downloads nothing; run "
        "`hf download NAME config.json` for each model, the weights are not needed"
    )


def _rewritten(preflight_result: PreflightResult) -> Iterator[str]:
    for rewrite in preflight_result.rewrites:
        yield (
            f"{_such(rewrite.points, preflight_result)} would run with --{rewrite.flag} "
            f"{rewrite.run} instead of {rewrite.asked}"
        )


def _own_choices(preflight_result: PreflightResult) -> Iterator[str]:
    for choice in preflight_result.own_choices:
        parts = [
            f"{format_value(value)} at {choice.by} {' or '.join(map(format_value, at))}"
            if at
            else format_value(value)
            for value, at in choice.values
        ]
        yield f"--{choice.flag} is not set, SGLang chooses: {', '.join(parts)}"


def _by_reason(found: Mapping[Configuration, str]) -> dict[str, list[Configuration]]:
    out: dict[str, list[Configuration]] = defaultdict(list)
    for configuration, reason in found.items():
        out[reason].append(configuration)
    return dict(sorted(out.items(), key=lambda item: -len(item[1])))


def _such(of: Iterable[Configuration], preflight_result: PreflightResult) -> str:
    first, *others = of
    text = describe(first, fixed_names(preflight_result.study))
    return text if not others else f"{text} and {len(others)} more"


def _cut(lines: list[str]) -> list[str]:
    if len(lines) <= _MOST_LINES:
        return lines
    more = len(lines) - _MOST_LINES + 1
    return [*lines[: _MOST_LINES - 1], f"and {more} more; `tuner validate --json` lists them"]
