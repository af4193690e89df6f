"""JSON of `tuner explain` (`docs/contract.md`)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tuner.reports.explain_text import assumptions, summary

if TYPE_CHECKING:
    from results.records import BatchCycles, PartTime
    from tuner.analysis.bounds import BreakEven
    from tuner.analysis.explanation import Explanation, PointExplanation
    from tuner.analysis.knob_effects import KnobEffect

SCHEMA = 1


def to_dict(explanation: Explanation) -> dict[str, Any]:
    """Return the JSON. The keys of the first operating point are repeated at the top level."""
    study, trial = explanation.report.study, explanation.trial
    first = _point(explanation.points[0])
    return {
        "schema": SCHEMA,
        "study": study.name,
        "simulated": study.simulated,
        "simulated_acceptance": explanation.report.simulated_acceptance,
        "sglang_version": study.sglang_version,
        "trial": trial.number,
        "chosen": explanation.choice.why,
        "configuration": trial.configuration.to_dict(),
        **{name: first[name] for name in ("source", "dominant", "shares", "bounds", "instant")},
        "break_even": first["break_even"],
        "knobs": [
            _knob_effect(explanation, knob_effect) for knob_effect in explanation.knob_effects
        ],
        "points": [_point(point) for point in explanation.points],
        "summary": summary(explanation),
        "assumptions": assumptions(explanation),
        "notes": list(explanation.choice.notes),
    }


def _point(point: PointExplanation) -> dict[str, Any]:
    shares = {n: share if n in point.told else None for n, share in point.cycle.shares.items()}
    return {
        "point": point.measurement.point.to_dict(),
        "source": point.times.source,
        "cycles": point.cycle.count,
        "cycle_ms": 1000 * point.cycle.total_s,
        "parts_ms": {
            name: 1000 * seconds if name in point.told else None
            for name, seconds in point.cycle.parts.items()
        },
        "accept_length": point.measurement.accept_length,
        "dominant": point.cycle.dominant,
        "shares": shares,
        "rest_known": point.cycle.rest_known,
        "bounds": point.bounds,
        "hoped_num_steps": point.depth,
        "instant": point.instant,
        "break_even": _break_even(point.break_even) if point.break_even is not None else None,
        "batches": [_batch(batch) for batch in point.times.batches],
        "notes": list(point.notes),
    }


def _break_even(found: BreakEven) -> dict[str, Any]:
    return {
        "baseline_trial": found.trial,
        "needed_accept_length": found.needed,
        "accept_length": found.accept_length,
        "decoding_gain": found.gain,
        "decode_ms": 1000 * found.decode_s,
        "source": found.source,
        "same_settings": found.same_settings,
    }


def _knob_effect(explanation: Explanation, knob_effect: KnobEffect) -> dict[str, Any]:
    seen = explanation.seen.get(knob_effect.name)
    return {
        "name": knob_effect.name,
        "kind": str(knob_effect.knob.kind),
        "acts_on": list(knob_effect.parts),
        "limit": str(knob_effect.limit),
        "bound": explanation.bound(knob_effect),
        "worth_a_launch": explanation.is_worth(knob_effect),
        "worth_varying": explanation.is_worth_varying(knob_effect),
        "all_measured": explanation.is_done(knob_effect),
        "left": list(explanation.left[knob_effect.name]),
        "varied": knob_effect.varied,
        "how": knob_effect.how,
        "measured": None
        if seen is None
        else {
            "trial": seen.trial,
            "value": seen.value,
            "decoding_gain": seen.gain,
            "decoding_gains": list(seen.gains),
            "parts": seen.parts,
        },
    }


def _batch(batch: BatchCycles) -> dict[str, Any]:
    return {
        "size": batch.size,
        "cycle": _part(batch.cycle),
        "parts": {name: _part(part) for name, part in batch.parts.items()},
    }


def _part(part: PartTime) -> dict[str, Any]:
    return {
        "count": part.count,
        "mean_ms": 1000 * part.total_s / part.count if part.count > 0 else None,
        "median_ms": None if part.median_s is None else 1000 * part.median_s,
        "p95_ms": None if part.p95_s is None else 1000 * part.p95_s,
        "graph_share": part.graph_share,
    }
