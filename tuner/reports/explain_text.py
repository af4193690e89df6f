"""Sentences of `tuner explain`: summary, assumptions and next steps."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from tuner.analysis.bounds import gain_if_instant, gain_if_shorter
from tuner.analysis.explanation import WORTH
from tuner.analysis.knob_effects import DRAFTING, OWN_KERNEL, Limit
from tuner.analysis.knobs import DRAFT_TP, Kind
from tuner.analysis.mean_cycle import part_name
from tuner.analysis.selected_trial import has_clock, is_unfinished
from tuner.formatting import describe_gain

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from results.records import Trial
    from tuner.analysis.explanation import Explanation, PointExplanation
    from tuner.analysis.knob_effects import KnobEffect
    from tuner.analysis.observed_effects import Seen
    from tuner.reports.report import StudyReport


def next_steps(report: StudyReport, trial: Trial) -> Iterator[str]:
    """Next steps as sentences with commands; the last one exports the best trial."""
    name = report.study.name
    if is_unfinished(report):
        of = f" of {most}" if (most := report.study.budget_launches) is not None else ""
        made = f"The study is unfinished after {report.launches_spent}{of} launches"
        yield (
            f"{made}; its sweep is running."
            if report.owner_lives
            else f"{made}; continue with `tuner resume --study {name}`."
        )
    elif report.study.stopped == "budget":
        fork = f"`tuner resume --study {name} --fork NEW --launches N`"
        yield f"The study's budget is used; continue with {fork}."
    best = report.leaderboard.best
    if best is None or best.number == trial.number:
        return
    gains = [
        f", {describe_gain(gain, len(best.measurements))} over baseline '{baseline}'"
        for baseline, _, gain in report.leaderboard.leads(best)[:1]
    ]
    command = f": `tuner explain --study {name} --trial {best.number}`" if has_clock(best) else ""
    end = command or "; its cycle times were not recorded."
    yield f"Best trial: {best.number}{''.join(gains)}{end}"


MUCH_SHORTER = 0.1
"""The cut of a part whose worth is told beside that of having it for nothing."""

OVERWHELMING = 0.95
"""A part that takes more than this share is said to."""

MANY_TIMES = 9.0
"""A gain from which on a bound is written as a factor. It is of no use beside a measured figure."""

_OF_ALL = (
    (
        "Bounds are for the decoding speed (accept length / cycle time). Prefills are not "
        "included, so the tok/s of a client gain less."
    ),
    (
        "The bound of a part assumes that the part takes no time and that nothing else changes: "
        "the other parts, the accept length and the batch size. Parts do not overlap."
    ),
)
_OF_COLLECTIVES = (
    "The bound of collectives assumes that the forwards with collectives take no time. The share "
    "of communication in a forward is not known, so the true bound is smaller."
)
_OF_STEPS = (
    "The bound of num_steps assumes that a forward's time per token does not grow with its number "
    "of tokens, that a verify takes at least as long as a measured decode forward at the same "
    "settings, that drafts are accepted as in the measured histogram, and that more steps do not "
    "shorten a cycle."
)
_OF_TREES = (
    "The bound of topk assumes that a tree of the chain's depth has all drafts accepted and that "
    "its cycle is not shorter."
)


def knob_name(knob_effect: KnobEffect) -> str:
    """`"--attention-backend"`, `"NCCL_PROTO"`, `"num_steps"`."""
    return f"--{knob_effect.name}" if knob_effect.knob.kind is Kind.FLAG else knob_effect.name


def describe_bound(gain: float | None) -> str:
    """Format a bound: `"+3.4%"`, `"25x"` for large gains, `"no limit"`, `"?"`."""
    if gain is None:
        return "?"
    if not math.isfinite(gain):
        return "no limit"
    return f"{gain + 1:.0f}x" if gain >= MANY_TIMES else f"{gain:+.1%}"


def describe_gains(seen: Seen) -> str:
    """Format a gain at each point: `"+26.3%"`, `"+3.0% / -10.2%"`."""
    return " / ".join(_gain(gain) for gain in seen.gains)


def summary(explanation: Explanation) -> list[str]:
    """Summarize an explanation in a few sentences; parts are those of the first point."""
    first = explanation.points[0]
    at_first = (
        *_dominant(explanation, first),
        *_placement(explanation, first),
        *_collectives(explanation, first),
        *_measured_collectives(explanation),
    )
    return [
        *(_at(explanation, sentence) for sentence in at_first),
        *_worth(explanation),
        *(_at(explanation, sentence) for sentence in _break_even(first)),
        *next_steps(explanation.report, explanation.trial),
    ]


def _at(explanation: Explanation, sentence: str) -> str:
    """Name of the operating point, if there are several."""
    if len(explanation.trial.measurements) == 1:
        return sentence
    name = sentence[:2].isupper()
    rest = sentence if name else sentence[0].lower() + sentence[1:]
    return f"At {explanation.points[0].measurement.point.name}: {rest}"


def assumptions(explanation: Explanation) -> list[str]:
    """Assumptions of the bounds."""
    found = list(_OF_ALL)
    if any(knob_effect.collective for knob_effect in explanation.knob_effects):
        found.append(_OF_COLLECTIVES)
    if any(knob_effect.limit is Limit.DEPTH for knob_effect in explanation.knob_effects):
        found.append(_OF_STEPS)
    if any(knob_effect.limit is Limit.WIDTH for knob_effect in explanation.knob_effects):
        found.append(_OF_TREES)
    return found


def _dominant(explanation: Explanation, point: PointExplanation) -> Iterator[str]:
    name = point.cycle.dominant
    share = point.cycle.share((name,))
    speculates = explanation.trial.configuration.speculation.enabled
    whole = part_name(name, speculates=speculates)
    how = f"over {OVERWHELMING:.0%} of a cycle" if share > OVERWHELMING else "most of a cycle"
    if share <= 0.5:
        how = "the largest part of a cycle"
    cut = gain_if_shorter(share, MUCH_SHORTER)
    text = f"{whole} takes {share:.1%}, {how}. A {MUCH_SHORTER:.0%} faster {whole} gains {cut:+.1%}"
    others = gain_if_instant(1.0 - share)
    yield f"{text}. Making everything else free gains at most {describe_bound(others)}."


def _placement(explanation: Explanation, point: PointExplanation) -> Iterator[str]:
    if all(knob_effect.name != DRAFT_TP.name for knob_effect in explanation.knob_effects):
        return
    if not set(DRAFTING) <= set(point.told):
        return
    share = point.cycle.share(DRAFTING)
    bound = point.bounds[DRAFT_TP.name]
    yield (
        f"draft and draft extend take {share:.1%} together. Draft placement (draft_tp) cannot "
        "remove all of this time, because the draft must run on at least one GPU. A free draft "
        f"gains {describe_bound(bound)}."
    )


def _collectives(explanation: Explanation, point: PointExplanation) -> Iterator[str]:
    forward = part_name("verify", speculates=explanation.trial.configuration.speculation.enabled)
    verify = f"{forward} ({point.cycle.share(('verify',)):.1%} of a cycle)"
    acting = [knob_effect for knob_effect in explanation.knob_effects if knob_effect.collective]
    if not acting:
        if explanation.untouched:
            yield (
                f"The study varies nothing that affects the collectives in {verify}, for example "
                "NCCL variables."
            )
        return
    names = [knob_name(knob_effect) for knob_effect in acting]
    also = " and of the draft" if len(acting[0].parts) > 1 else ""
    but = f" ({OWN_KERNEL})" if any(OWN_KERNEL in knob_effect.how for knob_effect in acting) else ""
    bound = point.instant["collective"]
    end = f"free communication gains less than {describe_bound(bound)}, the bound of free forwards"
    if bound >= MANY_TIMES and any(knob_effect.name in explanation.seen for knob_effect in acting):
        end = "there is no tighter bound than the measurement"
    yield (
        f"{_and(names)} {'affects' if len(names) == 1 else 'affect'} the collectives of "
        f"{verify}{also}{but}. The cycle clock cannot separate communication "
        f"from compute, so {end}."
    )


def _measured_collectives(explanation: Explanation) -> Iterator[str]:
    forward = part_name("verify", speculates=explanation.trial.configuration.speculation.enabled)
    for knob_effect in (one for one in explanation.knob_effects if one.collective):
        seen = explanation.seen.get(knob_effect.name)
        change = seen.parts.get("verify") if seen is not None else None
        if seen is not None and change is not None:
            value = " not set" if seen.value is None else f"={seen.value}"
            yield (
                f"Measured: {knob_name(knob_effect)}{value} changed {forward} by {change:+z.1%}, "
                f"decoding by {seen.gain:+z.1%} (trial {seen.trial}, all else equal)."
            )


def _worth(explanation: Explanation) -> Iterator[str]:
    by_worth: dict[bool | None, list[KnobEffect]] = {True: [], False: [], None: []}
    done = [
        knob_effect for knob_effect in explanation.knob_effects if explanation.is_done(knob_effect)
    ]
    if done:
        names = [_outcome(explanation, knob_effect) for knob_effect in done]
        yield f"All values are measured, everything else equal: {_and(names)}."
    for knob_effect in (one for one in explanation.knob_effects if one not in done):
        by_worth[explanation.is_worth(knob_effect)].append(knob_effect)
    if by_worth[True]:
        yield f"Worth a launch: {_and([knob_name(knob_effect) for knob_effect in by_worth[True]])}."
    fixed = [one for one in by_worth[False] if explanation.is_worth_varying(one)]
    if fixed:
        names = [knob_name(knob_effect) for knob_effect in fixed]
        yield f"Could gain, but the study has only one value: {_and(names)}."
    if names := [
        knob_name(knob_effect) for knob_effect in by_worth[False] if knob_effect not in fixed
    ]:
        yield f"Not worth a launch (gains at most {WORTH:.0%}): {_and(names)}."
    if by_worth[None]:
        names = [knob_name(knob_effect) for knob_effect in by_worth[None]]
        yield f"Only a launch can measure: {_and(names)}."


def _outcome(explanation: Explanation, knob_effect: KnobEffect) -> str:
    seen = explanation.seen.get(knob_effect.name)
    if seen is None:
        return knob_name(knob_effect)
    points = [point.measurement.point.name for point in explanation.points]
    told = [
        f"{_gain(gain)} at {name}" if len(points) > 1 else _gain(gain)
        for gain, name in zip(seen.gains, points, strict=True)
    ]
    return f"{knob_name(knob_effect)} (best {', '.join(told)}, trial {seen.trial})"


def _gain(gain: float | None) -> str:
    return "?" if gain is None else f"{gain:+z.1%}"


def _break_even(point: PointExplanation) -> Iterator[str]:
    found = point.break_even
    if found is None:
        return
    source = "" if found.source == "clock" else " by its time per output token"
    if point.times.source == "device_timer":
        source = " of GPU time"
    other = "" if found.same_settings else " at other settings"
    how = "faster" if found.gain >= 0 else "slower"
    yield (
        f"Break-even with no speculation{other} (trial {found.trial}, "
        f"{1000 * found.decode_s:.2f} ms per token{source}) needs an accept length of "
        f"{found.needed:.2f}; it is {found.accept_length:.2f}, so decoding is "
        f"{abs(found.gain):.1%} {how}."
    )


def _and(names: Sequence[str]) -> str:
    return names[0] if len(names) == 1 else f"{', '.join(names[:-1])} and {names[-1]}"
