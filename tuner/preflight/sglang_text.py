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

    from runners.sglang.preflight.preflight import Judgement
    from search_spaces.configuration import Configuration
    from search_spaces.space.space import Space

_MOST_LINES = 6
_UNKNOWN = re.compile(r"unrecognized arguments: --([\w-]+)")
_NOT_HERE = re.compile(r"OSError: We couldn't connect to \S+ to load the files")
"""Transformers' words for a model that has no configuration on the machine, when it is offline."""


def told(judgement: Judgement) -> tuple[str, ...]:
    """What SGLang makes of a study, as sentences; the first says what was asked."""
    return (
        _head(judgement),
        *_cut([*_refused(judgement), *_rewritten(judgement)]),
        *_cut(list(_own_choices(judgement))),
    )


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


def refused_for_all(
    space: Space, baselines: Mapping[str, Configuration], judgement: Judgement
) -> str | None:
    """What is said where the study as a whole cannot run, else `None`."""
    refused = judgement.refused
    if not refused:
        return None
    correct = "Correct the study, or use an SGLang version that accepts it"
    answered = [c for c in judgement.asked if c not in judgement.unanswered]
    nothing_left = all(judgement.refusal(point) is not None for point in space)
    if len(refused) == len(answered) or nothing_left:
        reasons = list(dict.fromkeys(refused.values()))
        also = f" ({counted(len(reasons) - 1, 'further reason')})" if len(reasons) > 1 else ""
        return (
            f"SGLang {judgement.version} refuses every configuration of the study: "
            f"{_hinted(reasons[0])}{also}. {correct}"
        )
    for name in ("none", PRODUCTION):
        configuration = baselines.get(name)
        if configuration is not None and (why := judgement.refusal(configuration)) is not None:
            return (
                f"SGLang {judgement.version} refuses the baseline '{name}': {_hinted(why)}. "
                f"{correct}"
            )
    return None


def _hinted(reason: str) -> str:
    """A refusal, with the name that an unknown flag was probably meant to have."""
    unknown = _UNKNOWN.match(reason)
    hint = unknown_flag(unknown[1]) if unknown else None
    return f"{reason} ({hint})" if hint else reason


def _head(judgement: Judgement) -> str:
    where = ""
    if judgement.gpu is not None:
        where = f", for {judgement.gpu.name} (this machine has no GPU)"
    refused, asked = len(judgement.refused), len(judgement.asked)
    missed = judgement.chosen - asked
    why = judgement.cut_short or "time limit"
    late = f"; {missed} not checked: {why}" if missed else ""
    takes = f"accepts all of {counted(asked, 'launch')}"
    if unanswered := len(judgement.unanswered):
        takes = f"gives no answer for {unanswered} of {counted(asked, 'launch')}"
    if refused:
        takes = f"refuses {refused} of {counted(asked, 'launch')}"
    return (
        f"SGLang {judgement.version} {takes}{where}, which represent "
        f"{counted(judgement.points, 'point')}: points that differ only in NCCL variables are "
        f"checked once ({judgement.seconds:.0f} s{late})"
    )


def _refused(judgement: Judgement) -> Iterator[str]:
    for reason, of in _by_reason(judgement.refused).items():
        yield f"{_such(of, judgement)} would not start: {reason}"
    for reason, of in _by_reason(judgement.unanswered).items():
        why = _what_is_missing(judgement) if _NOT_HERE.match(reason) else reason
        yield f"{_such(of, judgement)}: not checked ({why})"


def _what_is_missing(judgement: Judgement) -> str:
    model = judgement.study.model
    names = " or ".join(name for name in (model.path, model.draft) if name is not None)
    return (
        f"this machine has no config.json of {names}, and the check downloads nothing; run "
        "`hf download NAME config.json` for each model, the weights are not needed"
    )


def _rewritten(judgement: Judgement) -> Iterator[str]:
    for rewrite in judgement.rewrites:
        yield (
            f"{_such(rewrite.points, judgement)} would run with --{rewrite.flag} "
            f"{rewrite.run} instead of {rewrite.asked}"
        )


def _own_choices(judgement: Judgement) -> Iterator[str]:
    for choice in judgement.own_choices:
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


def _such(of: Iterable[Configuration], judgement: Judgement) -> str:
    first, *others = of
    text = describe(first, fixed_names(judgement.study))
    return text if not others else f"{text} and {len(others)} more"


def _cut(lines: list[str]) -> list[str]:
    if len(lines) <= _MOST_LINES:
        return lines
    more = len(lines) - _MOST_LINES + 1
    return [*lines[: _MOST_LINES - 1], f"and {more} more; `tuner validate --json` lists them"]
