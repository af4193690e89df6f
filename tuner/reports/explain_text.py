"""Text of `tuner explain`: sentences, and next steps."""

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
    from tuner.analysis.knob_effects import Lever
    from tuner.analysis.observed_effects import Seen
    from tuner.reports.report import StudyReport


def next_steps(report: StudyReport, trial: Trial) -> Iterator[str]:
    """In sentences, with the commands to go on by; the best trial's is the last."""
    name = report.study.name
    if is_unfinished(report):
        of = f" of {most}" if (most := report.study.budget_launches) is not None else ""
        made = f"The study is unfinished, {report.launches_spent}{of} launches made"
        yield (
            f"{made}: its sweep is running."
            if report.owner_lives
            else f"{made}: `tuner resume --study {name}` goes on."
        )
    elif report.study.stopped == "budget":
        fork = f"`tuner resume --study {name} --fork NEW --launches N`"
        yield f"The study's budget is spent: {fork} goes on from it."
    best = report.standing.best
    if best is None or best.number == trial.number:
        return
    gains = [
        f", {describe_gain(gain, len(best.measurements))} on baseline '{baseline}'"
        for baseline, _, gain in report.standing.leads(best)[:1]
    ]
    command = f": `tuner explain --study {name} --trial {best.number}`" if has_clock(best) else ""
    end = command or ", and has no record of its cycles."
    yield f"The study's best is trial {best.number}{''.join(gains)}{end}"


MUCH_SHORTER = 0.1
"""The cut of a part whose worth is told beside that of having it for nothing."""

OVERWHELMING = 0.95
"""A part that takes more than this share is said to."""

MANY_TIMES = 9.0
"""A gain from which on a bound is written as a factor. It is of no use beside a measured figure."""

_OF_ALL = (
    (
        "A bound is of decoding: accept length / cycle time. Prefills are not counted, so the "
        "tok/s that a client sees gain less."
    ),
    (
        "Of a part: it takes no time at all, and everything else (the other parts, accept length, "
        "how many requests run together) stays as it is. Parts do not overlap."
    ),
)
_OF_COLLECTIVES = (
    "Of collectives: the forwards that have them take no time at all. What part of a forward they "
    "are is not known, so the true bound is smaller."
)
_OF_STEPS = (
    "Of steps: a forward's time per token never grows with its tokens, and a verify is no shorter "
    "than a decode forward at the same settings, where that was measured; drafts are right as "
    "often as in the histogram of correct drafts; more steps never shorten a cycle."
)
_OF_TREES = (
    "Of topk: a tree as deep as the chain has all of its drafts accepted, in a cycle that is no "
    "shorter."
)


def lever_name(lever: Lever) -> str:
    """`"--attention-backend"`, `"NCCL_PROTO"`, `"num_steps"`."""
    return f"--{lever.name}" if lever.knob.kind is Kind.FLAG else lever.name


def describe_bound(gain: float | None) -> str:
    """`"+3.4%"`; `"25x"` the speed, where it is that much; `"no limit"`, `"?"`."""
    if gain is None:
        return "?"
    if not math.isfinite(gain):
        return "no limit"
    return f"{gain + 1:.0f}x" if gain >= MANY_TIMES else f"{gain:+.1%}"


def describe_gains(seen: Seen) -> str:
    """`"+26.3%"`, `"+3.0% / -10.2%"`: at each of the points."""
    return " / ".join(_gain(gain) for gain in seen.gains)


def summary(explanation: Explanation) -> list[str]:
    """What is to be learned from it, in a few sentences; of its parts, of the first point."""
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
    """With the operating point, where several were measured."""
    if len(explanation.trial.measurements) == 1:
        return sentence
    name = sentence[:2].isupper()
    rest = sentence if name else sentence[0].lower() + sentence[1:]
    return f"At {explanation.points[0].measurement.point.name}: {rest}"


def assumptions(explanation: Explanation) -> list[str]:
    """What the bounds rest on."""
    found = list(_OF_ALL)
    if any(lever.collective for lever in explanation.levers):
        found.append(_OF_COLLECTIVES)
    if any(lever.limit is Limit.DEPTH for lever in explanation.levers):
        found.append(_OF_STEPS)
    if any(lever.limit is Limit.WIDTH for lever in explanation.levers):
        found.append(_OF_TREES)
    return found


def _dominant(explanation: Explanation, point: PointExplanation) -> Iterator[str]:
    name = point.cycle.dominant
    share = point.cycle.share((name,))
    speculates = explanation.trial.configuration.speculation.enabled
    whole = part_name(name, speculates=speculates)
    how = f"over {OVERWHELMING:.0%} of a cycle" if share > OVERWHELMING else "most of a cycle"
    if share <= 0.5:
        how = "more of a cycle than any other part"
    cut = gain_if_shorter(share, MUCH_SHORTER)
    text = f"{whole} takes {share:.1%}, {how}: {MUCH_SHORTER:.0%} off it would buy {cut:+.1%}"
    others = gain_if_instant(1.0 - share)
    yield f"{text}, all the rest in no time at all no more than {describe_bound(others)}."


def _placement(explanation: Explanation, point: PointExplanation) -> Iterator[str]:
    if all(lever.name != DRAFT_TP.name for lever in explanation.levers):
        return
    if not set(DRAFTING) <= set(point.told):
        return
    share = point.cycle.share(DRAFTING)
    bound = point.bounds[DRAFT_TP.name]
    yield (
        f"draft and draft extend take {share:.1%} together: the draft's placement (draft_tp) can "
        "buy less than that share of a cycle's time, as the draft is computed wherever it is; "
        f"if it took no time at all, decoding would gain {describe_bound(bound)}."
    )


def _collectives(explanation: Explanation, point: PointExplanation) -> Iterator[str]:
    forward = part_name("verify", speculates=explanation.trial.configuration.speculation.enabled)
    verify = f"{forward} ({point.cycle.share(('verify',)):.1%} of a cycle)"
    acting = [lever for lever in explanation.levers if lever.collective]
    if not acting:
        if explanation.untouched:
            yield (
                f"The study varies nothing that acts on the collectives in {verify}, such as "
                "NCCL's variables."
            )
        return
    names = [lever_name(lever) for lever in acting]
    who = "NCCL acts" if any(name.startswith("NCCL_") for name in names) else "Collectives act"
    also = ", and on the draft as far as it has collectives" if len(acting[0].parts) > 1 else ""
    but = f" ({OWN_KERNEL})" if any(OWN_KERNEL in lever.how for lever in acting) else ""
    bound = point.instant["collective"]
    end = (
        "infinitely fast ones would buy less than forwards in no time at all, "
        f"{describe_bound(bound)}"
    )
    if bound >= MANY_TIMES and any(lever.name in explanation.seen for lever in acting):
        end = "so that there is no useful bound beside what was measured"
    colon = "," if end.startswith("so") else ":"
    yield (
        f"{who} on {verify}{also}: {_and(names)}{but}. What part of these forwards its collectives "
        f"are, no clock tells{colon} {end}."
    )


def _measured_collectives(explanation: Explanation) -> Iterator[str]:
    forward = part_name("verify", speculates=explanation.trial.configuration.speculation.enabled)
    for lever in (one for one in explanation.levers if one.collective):
        seen = explanation.seen.get(lever.name)
        change = seen.parts.get("verify") if seen is not None else None
        if seen is not None and change is not None:
            value = " not set" if seen.value is None else f"={seen.value}"
            yield (
                f"Measured: {lever_name(lever)}{value} changed {forward} by {change:+z.1%}, "
                f"decoding by {seen.gain:+z.1%} (trial {seen.trial}, all else equal)."
            )


def _worth(explanation: Explanation) -> Iterator[str]:
    by_worth: dict[bool | None, list[Lever]] = {True: [], False: [], None: []}
    done = [lever for lever in explanation.levers if explanation.is_done(lever)]
    if done:
        names = [_outcome(explanation, lever) for lever in done]
        yield f"No choice is left to launch, all else equal: {_and(names)}."
    for lever in (one for one in explanation.levers if one not in done):
        by_worth[explanation.is_worth(lever)].append(lever)
    if by_worth[True]:
        yield f"Worth a launch: {_and([lever_name(lever) for lever in by_worth[True]])}."
    fixed = [one for one in by_worth[False] if explanation.is_worth_varying(one)]
    if fixed:
        names = [lever_name(lever) for lever in fixed]
        yield f"Something could come of what the study has one choice of: {_and(names)}."
    if names := [lever_name(lever) for lever in by_worth[False] if lever not in fixed]:
        yield f"Not worth one, as no more than {WORTH:.0%} can come of it: {_and(names)}."
    if by_worth[None]:
        names = [lever_name(lever) for lever in by_worth[None]]
        yield f"Not known from a clock, only from a launch: {_and(names)}."


def _outcome(explanation: Explanation, lever: Lever) -> str:
    seen = explanation.seen.get(lever.name)
    if seen is None:
        return lever_name(lever)
    points = [point.measurement.point.name for point in explanation.points]
    told = [
        f"{_gain(gain)} at {name}" if len(points) > 1 else _gain(gain)
        for gain, name in zip(seen.gains, points, strict=True)
    ]
    return f"{lever_name(lever)} (at best {', '.join(told)}, trial {seen.trial})"


def _gain(gain: float | None) -> str:
    return "?" if gain is None else f"{gain:+z.1%}"


def _break_even(point: PointExplanation) -> Iterator[str]:
    found = point.break_even
    if found is None:
        return
    source = "" if found.source == "clock" else ", by its time per output token"
    if point.times.source == "device_timer":
        source = " of GPU time"
    other = "" if found.same_settings else " at other settings"
    how = "faster" if found.gain >= 0 else "slower"
    yield (
        f"To break even with no speculation{other} (trial {found.trial}, "
        f"{1000 * found.decode_s:.2f} ms per token{source}) a cycle must yield {found.needed:.2f} "
        f"tokens; it yields {found.accept_length:.2f}, so decoding is {abs(found.gain):.1%} {how}."
    )


def _and(names: Sequence[str]) -> str:
    return names[0] if len(names) == 1 else f"{', '.join(names[:-1])} and {names[-1]}"
