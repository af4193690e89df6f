"""What each tuned value brought: which pairs of trials say so, and what is not known."""

from __future__ import annotations

import pytest

from results.records import Failure, Purpose, Trial, TrialState
from results.studies import StoredMeasurement
from search_spaces.configuration import Configuration, Speculation
from search_spaces.metrics import OUTPUT_TOK_S, Metric
from tuner.analysis.contributions import Basis, contributions, spread
from tuner.analysis.knobs import Kind
from tuner.exports.changes import changes_json, describe_changes, describe_worth
from tuner.verdict.scores import Leaderboard

from ..verdict.test_scores import measurement, trial

NONE = Configuration.of(env={"NCCL_PROTO": None}, flags={"attention-backend": None})


def chain(steps, proto=None, backend=None, **env):
    return Configuration.of(
        Speculation("EAGLE3", steps, 1, steps + 1),
        draft_tp=8,
        flags={"attention-backend": backend},
        env={"NCCL_PROTO": proto, **env},
    )


def found(trials, chosen, baselines, **options):
    leaderboard = Leaderboard.of(trials, baselines)
    options = {"fixed_flags": {"tp-size": 8, "host": "::"}, "fixed_env": {}, **options}
    return contributions(leaderboard, trials[chosen], **options)


def by_name(result):
    return {change.knob.name: change for change in result.changes}


def test_every_change_has_the_pair_that_differs_in_nothing_else():
    trials = [
        trial(0, chain(3), 70.0),
        trial(1, chain(3, "LL"), 91.0),
        trial(2, chain(2, "LL"), 94.0),
        trial(3, chain(2), 69.0),
    ]
    result = found(trials, 2, {"default": chain(3)})
    assert (result.baseline, result.baseline_trial) == ("default", 0)
    assert result.total == pytest.approx(94 / 70)
    proto, steps = result.changes
    assert (proto.knob.kind, proto.before, proto.after) == (Kind.VARIABLE, None, "LL")
    assert (proto.worth.basis, proto.worth.trials) == (Basis.ALONE, (2, 3))
    assert proto.worth.gain == pytest.approx(94 / 69)
    assert (proto.worth.lowest, proto.worth.highest) == (
        pytest.approx(91 / 70),
        pytest.approx(94 / 69),
    )
    assert steps.knob.kind is Kind.DRAFT
    assert steps.worth.trials == (2, 1)
    assert steps.worth.gain == pytest.approx(94 / 91)
    lines = describe_changes(result, simulated=True)
    assert lines[0] == "Changes against baseline 'default' (trial 0):"
    assert lines[1].startswith(
        "  NCCL_PROTO: not set -> LL: +36.2% simulated "
        "(trial 2 against trial 3, everything else equal); +30.0% to +36.2% in 2 pairs of trials"
    )
    assert "draft steps: steps 3 -> steps 2: +3.3% simulated" in lines[2]
    assert "no launch was repeated" in lines[-1]


def test_production_comes_first_then_default_then_none():
    trials = [trial(0, NONE, 90.0), trial(1, chain(3), 70.0), trial(2, chain(5), 71.0)]
    all_three = {"none": NONE, "default": chain(3), "production": chain(5)}
    assert found(trials, 0, all_three).baseline == "production"
    assert found(trials, 0, {"none": NONE, "default": chain(3)}).baseline == "default"
    assert found(trials, 1, {"none": NONE}).baseline == "none"
    assert found(trials, 1, all_three, against="none").baseline_trial == 0
    # Never measured: not checked against it.
    assert found(trials, 0, {"none": NONE, "production": chain(4)}).baseline == "none"
    lines = describe_changes(found(trials, 0, {}), simulated=False)
    assert lines == ["No baseline was measured."]


def test_speculation_at_all_is_one_knob():
    trials = [trial(0, NONE, 90.0), trial(1, chain(2), 99.0)]
    result = found(trials, 1, {"none": NONE})
    [change] = result.changes
    assert change.knob.kind is Kind.SPECULATION
    assert (change.before, change.after) == (Speculation(), Speculation("EAGLE3", 2, 1, 3))
    assert change.worth.gain == pytest.approx(1.1)
    [line] = [x for x in describe_changes(result, simulated=False) if "speculation" in x]
    assert "speculation: no speculation -> EAGLE3 steps 2: +10.0% (trial 1" in line


def test_speculation_is_weighed_too_where_the_baseline_speculates():
    trials = [trial(0, chain(3), 70.0), trial(1, chain(2), 75.0), trial(2, NONE, 90.0)]
    result = found(trials, 1, {"default": chain(3)})
    assert result.speculation.worth.gain == pytest.approx(75 / 90)
    assert "Speculation instead of none: -16.7%" in "\n".join(
        describe_changes(result, simulated=False)
    )
    # Nothing of the kind where the baseline has none: it is one of the changes then.
    assert found(trials, 1, {"none": NONE}).speculation is None


def test_another_context_counts_where_the_trials_own_was_not_measured():
    trials = [
        trial(0, chain(3), 70.0),
        trial(1, chain(2, "LL"), 94.0),
        trial(2, chain(5), 60.0),
        trial(3, chain(5, "LL"), 90.0),
    ]
    proto = by_name(found(trials, 1, {"default": chain(3)}))["NCCL_PROTO"]
    assert proto.worth.basis is Basis.ELSEWHERE
    assert proto.worth.trials == (3, 2)
    words = describe_worth(proto, found(trials, 1, {"default": chain(3)}), simulated=False)
    assert "+50.0% (trial 3 against trial 2" in words
    assert "other settings than in this configuration" in words


def test_the_next_best_value_where_the_baselines_own_was_not_measured():
    trials = [
        trial(0, chain(3), 70.0),
        trial(1, chain(2, "LL"), 94.0),
        trial(2, chain(2, "Simple"), 80.0),
        trial(3, chain(2, "LL128"), 92.0),
    ]
    result = found(trials, 1, {"default": chain(3)})
    proto = by_name(result)["NCCL_PROTO"]
    assert proto.worth.basis is Basis.NEXT_BEST
    assert (proto.worth.trials, proto.worth.other) == ((1, 3), "LL128")
    words = describe_worth(proto, result, simulated=False)
    assert "over the next best value, LL128; not set has no comparable trial" in words


def test_what_was_changed_only_together_is_not_called_measured():
    trials = [trial(0, chain(3), 70.0), trial(1, chain(2, "LL", "fa3"), 94.0)]
    result = found(trials, 1, {"default": chain(3)})
    for change in result.changes:
        assert change.worth.basis is Basis.UNMEASURED
        assert change.worth.gain is None
        assert "not measured separately: 1 trial differs in this and in other settings" in (
            describe_worth(change, result, simulated=False)
        )
    assert result.total == pytest.approx(94 / 70)


def test_fixed_flags_that_a_baseline_replaces_or_drops_are_changes():
    production = Configuration.of(
        chain(3).speculation,
        draft_tp=8,
        flags={"attention-backend": None, "disable-radix-cache": True, "page-size": None},
        env={"NCCL_PROTO": None, "OMP_NUM_THREADS": "8"},
    )
    trials = [trial(0, production, 70.0), trial(1, chain(3), 75.0)]
    fixed = {"tp-size": 8, "page-size": 64, "api-key": "sk-1", "host": "::"}
    result = found(trials, 1, {"production": production}, fixed_flags=fixed)
    assert {(c.knob.name, c.before, c.after) for c in result.changes} == {
        ("disable-radix-cache", True, None),
        ("page-size", None, 64),
        ("OMP_NUM_THREADS", "8", None),
    }
    text = "\n".join(describe_changes(result, simulated=False))
    assert "--disable-radix-cache: on -> not given" in text
    assert "OMP_NUM_THREADS: 8 -> not set" in text


def test_no_secret_is_in_a_change():
    production = Configuration.of(env={"HF_TOKEN": "hf_secret", "NCCL_PROTO": None})
    trials = [trial(0, production, 70.0), trial(1, Configuration.of(), 75.0)]
    result = found(trials, 1, {"production": production})
    assert [change.before for change in result.changes] == ["$HF_TOKEN"]


def test_trials_without_figures_prove_nothing():
    dead = Trial(
        1,
        Purpose.SEARCH,
        TrialState.INFEASIBLE,
        chain(2),
        failure=Failure("cuda_oom", "kv_cache", "configuration", "no memory"),
    )
    trials = [trial(0, chain(3), 70.0), dead, trial(2, chain(2, "LL"), 94.0)]
    proto = by_name(found(trials, 2, {"default": chain(3)}))["NCCL_PROTO"]
    assert proto.worth.basis is Basis.UNMEASURED
    # Of a trial that died, the changes are known and none of their worth.
    result = found(trials, 1, {"default": chain(3)})
    assert result.total is None
    assert "unknown" in "\n".join(describe_changes(result, simulated=False))


def test_a_variable_of_nccl_is_not_credited_where_it_does_nothing():
    """What it did where NCCL carries decoding says nothing of a server where it does not."""
    off, own = {"disable-custom-all-reduce": True}, {"disable-custom-all-reduce": None}

    def at(flags, proto):
        return Configuration.of(flags=flags, env={"NCCL_PROTO": proto})

    why = Failure("nccl_unused", "arguments", "configuration", "not launched: ...")
    unused = Trial(3, Purpose.SEARCH, TrialState.INACTIVE, at(own, "LL"), failure=why)
    trials = [
        trial(0, at(off, "LL"), 70.0),
        trial(1, at(off, None), 77.0),
        trial(2, at(own, None), 94.0),
    ]
    before = found(trials, 2, {"production": at(off, "LL")})
    assert by_name(before)["NCCL_PROTO"].worth.basis is Basis.ELSEWHERE
    result = found([*trials, unused], 2, {"production": at(off, "LL")})
    changes = by_name(result)
    assert changes["NCCL_PROTO"].worth.basis is Basis.INACTIVE
    assert changes["NCCL_PROTO"].worth.gain is None
    assert changes["disable-custom-all-reduce"].worth.gain == pytest.approx(94 / 77)
    assert "NCCL_PROTO: LL -> not set: no effect" in "\n".join(
        describe_changes(result, simulated=False)
    )
    elsewhere = found([*trials, unused], 1, {"production": at(off, "LL")})
    assert by_name(elsewhere)["NCCL_PROTO"].worth.basis is Basis.ALONE


def test_a_baseline_changes_nothing_against_itself():
    trials = [trial(0, chain(3), 70.0)]
    result = found(trials, 0, {"default": chain(3)})
    assert result.changes == ()
    lines = describe_changes(result, simulated=False)
    assert lines[0] == "Same configuration as baseline 'default' (trial 0)."


def window(number, launch, speed, **more):
    return StoredMeasurement(number, launch, Purpose.CONFIRMATION, measurement(speed, **more))


def test_noise_is_known_from_repeats_in_other_launches_only():
    assert spread([window(1, 1, 100.0), window(1, 1, 90.0)], OUTPUT_TOK_S) is None
    assert spread([window(1, 1, 100.0), window(2, 2, 90.0)], OUTPUT_TOK_S) is None
    repeats = [window(1, 1, 100.0), window(1, 2, 96.0), window(1, 3, 1.0, invalid=("x: y",))]
    assert spread(repeats, OUTPUT_TOK_S) == pytest.approx(100 / 96 - 1)
    trials = [trial(0, chain(3), 91.0), trial(1, chain(2), 93.0), trial(2, chain(5), 60.0)]
    result = found(trials, 1, {"default": chain(3)}, windows=repeats)
    assert "within noise" in describe_worth(result.changes[0], result, simulated=False)
    assert "no launch was repeated" not in "\n".join(describe_changes(result, simulated=False))
    slower = found(trials, 2, {"default": chain(3)}, windows=repeats)
    assert "noise" not in describe_worth(slower.changes[0], slower, simulated=False)


def test_what_the_gains_are_of():
    def said(metric, *speeds):
        trials = [trial(0, chain(3), *speeds), trial(1, chain(2), *speeds)]
        leaderboard = Leaderboard.of(trials, {"default": chain(3)}, metric)
        result = contributions(leaderboard, trials[1], fixed_flags={}, fixed_env={})
        return "\n".join(describe_changes(result, simulated=False))

    assert "Gains refer to" not in said(OUTPUT_TOK_S, 70.0)
    assert "Gains refer to tok/s, geometric mean over 2 operating points." in said(
        OUTPUT_TOK_S, 70.0, 200.0
    )
    latency = Metric("ttft_p95_ms", larger_is_better=False)
    assert "Gains refer to TTFT p95 ms, as the factor by which it is shorter." in said(
        latency, 70.0
    )


def test_the_same_as_json():
    trials = [trial(0, chain(3), 70.0), trial(1, chain(2), 77.0)]
    data = changes_json(found(trials, 1, {"default": chain(3)}), simulated=True)
    assert data["against"] == {
        "baseline": "default",
        "trial": 0,
        "gain": pytest.approx(1.1),
        "noise": None,
    }
    [change] = data["changes"]
    assert change["before"] == chain(3).speculation.to_dict()
    assert change["basis"] == "alone"
    assert change["trials"] == [1, 0]
    assert change["simulated"] is True
    assert change["text"].startswith("draft steps: steps 3 -> steps 2: +10.0% simulated")
    assert changes_json(found(trials, 1, {}), simulated=True)["against"] is None
