"""`tuner explain` on the story's machine: which trial, what it says, and what it says without."""

from __future__ import annotations

import io
import json
import re
import shutil
from dataclasses import replace
from pathlib import Path

import jsonschema
import pytest
from rich.console import Console

from results.records import BatchCycles, CycleTimes, Failure, PartTime, TrialState
from results.store import Store
from search_spaces.nccl.all_reduce import NCCL_UNUSED
from search_spaces.study_file.load import parse_study
from tuner.analysis.explanation import explain
from tuner.analysis.selected_trial import NothingToExplain
from tuner.reports.explain_json import to_dict
from tuner.reports.explain_table import render
from tuner.reports.explain_text import assumptions, summary
from tuner.reports.json_text import dump

from ..conftest import small_text
from ..cycles import DECODE_MS, accept_length, batch, plugin, replayed, timed

SCHEMA = Path(__file__).parents[3] / "docs" / "schemas" / "explain.schema.json"
STEPS = "[1, 2, 3, 5]"


@pytest.fixture(scope="module")
def study():
    return parse_study(small_text(steps=STEPS), "small.yaml")


@pytest.fixture(scope="module")
def report(study):
    """The story's study, finished."""
    with Store.open("sqlite://") as store:
        return replayed(study, store)


def checked(text):
    """An explanation in JSON, by the promised schema."""
    data = json.loads(text)
    jsonschema.validate(data, json.loads(SCHEMA.read_text()))
    return data


def with_trials(report, change):
    """The report with other trials; `change` gives each trial's stand-in, or `None`."""
    trials = tuple(t for trial in report.leaderboard.trials if (t := change(trial)) is not None)
    return replace(report, leaderboard=replace(report.leaderboard, trials=trials))


def with_cycles(trial, times):
    return replace(trial, measurements=tuple(replace(m, cycle=times) for m in trial.measurements))


def unfinished(report, stopped=None):
    """The report of a study that has launches to go."""
    return replace(report, study=replace(report.study, stopped=stopped))


def without(report, *numbers):
    """The report of an interrupted study in which these trials are still to come."""
    return unfinished(
        with_trials(report, lambda t: None if t.number in numbers else t), "interrupted"
    )


def number_of(report, steps, proto=None):
    [number] = [
        t.number
        for t in report.leaderboard.trials
        if t.configuration.speculation.num_steps == steps
        and dict(t.configuration.env)["NCCL_PROTO"] == proto
    ]
    return number


def told(explanation):
    return " ".join(summary(explanation))


# The story


def test_it_says_what_the_story_says(report, study):
    found = explain(report, study)
    assert found.trial.number == number_of(report, 5)  # the best with NCCL's defaults
    text = told(found)
    assert "verify takes 95.9%, over 95% of a cycle" in text
    assert "Draft placement (draft_tp) cannot remove all of this time" in text
    assert "the collectives of verify" in text
    gains = {name: f"{found.seen[name].gain:+.1%}" for name in ("NCCL_PROTO", "num_steps")}
    assert "Worth a launch" not in text
    assert (
        f"All values are measured, everything else equal: NCCL_PROTO (best {gains['NCCL_PROTO']}, "
        f"trial {number_of(report, 5, 'LL,LL128,Simple')}) and num_steps (best "
        f"{gains['num_steps']}, trial {number_of(report, 3)})." in text
    )
    assert "Not worth a launch (gains at most 5%): draft_tp" in text
    first = found.points[0]
    drafting = first.cycle.share(("draft", "draft_extend"))
    assert first.bounds["draft_tp"] == pytest.approx(drafting / (1 - drafting))
    assert first.bounds["draft_tp"] < 0.05
    assert first.instant["verify"] > 19  # 95 % of the time gone
    assert first.bounds["NCCL_PROTO"] == first.instant["collective"] > first.instant["verify"]
    assert not next(
        knob_effect for knob_effect in found.knob_effects if knob_effect.name == "draft_tp"
    ).varied


def test_what_the_study_has_measured_of_a_knob_is_told(report, study):
    seen = explain(report, study).seen
    proto, steps = seen["NCCL_PROTO"], seen["num_steps"]
    assert proto.trial == number_of(report, 5, "LL,LL128,Simple")
    assert proto.parts["verify"] == pytest.approx(-5.642 / (13.778 + 6 * 2.369))
    assert proto.gain > 0.2
    assert proto.parts["draft"] == 0
    assert (steps.value, steps.trial) == (3, number_of(report, 3))
    assert "Measured: NCCL_PROTO=LL,LL128,Simple changed verify by -20.2%" in told(
        explain(report, study)
    )


@pytest.mark.parametrize(
    ("point", "worth", "done"),
    [
        ((5, "LL,LL128,Simple"), "NCCL_PROTO", "num_steps"),
        ((1, None), "num_steps", "NCCL_PROTO"),
    ],
)
def test_a_knob_with_an_unmeasured_choice_is_worth_a_launch(report, study, point, worth, done):
    missing = number_of(report, *point)
    found = explain(without(report, missing), study)
    assert f"Worth a launch: {worth}." in told(found)
    assert f"All values are measured, everything else equal: {done} (best " in told(found)
    knobs = {knob["name"]: knob for knob in checked(dump(to_dict(found)))["knobs"]}
    assert [knobs[n]["worth_a_launch"] for n in (worth, done)] == [True, False]
    assert [knobs[n]["all_measured"] for n in (worth, done)] == [False, True]
    # One that cannot run was judged as well; one that is on its way was not.
    for state, is_done in ((TrialState.INFEASIBLE, True), (TrialState.RUNNING, False)):

        def change(trial, state=state):
            if trial.number != missing:
                return trial
            return replace(trial, state=state, measurements=())

        again = explain(unfinished(with_trials(report, change)), study)
        knob_effect = next(one for one in again.knob_effects if one.name == worth)
        assert again.is_done(knob_effect) is is_done


def named(found, name):
    return next(knob_effect for knob_effect in found.knob_effects if knob_effect.name == name)


def rows(found, monkeypatch):
    """The table of knobs as it is printed, each row's cells by its knob."""
    out = io.StringIO()
    monkeypatch.setattr("tuner.reports.explain_table.reader", lambda: Console(file=out, width=400))
    render(found)
    table = out.getvalue().split(" knob ")[1].split("ms per cycle")[0]
    cells = [re.split(r" {2,}", line.strip(), maxsplit=3) for line in table.splitlines()]
    return {row[0]: row[1:] for row in cells if len(row) == 4}


def test_the_bound_of_steps_is_over_those_that_are_left_and_names_them(report, study, monkeypatch):
    gone = [number_of(report, steps) for steps in (2, 5)]
    trial = report.leaderboard.trials[number_of(report, 3)]
    found = explain(without(report, *gone), study, trial)
    assert found.left["num_steps"] == (2, 5)
    [point] = found.points
    assert point.depth in {2, 5}
    assert found.is_worth(named(found, "num_steps"))
    at_most, launch, how = rows(found, monkeypatch)["num_steps"]
    assert (at_most, launch) == (f"{point.bounds['num_steps']:+.1%}", "yes")
    slower = f"measured {found.seen['num_steps'].gain:+.1%} (trial {number_of(report, 1)})"
    assert f"not measured: 2, 5; highest bound at {point.depth}; {slower}" in how
    [knob] = [k for k in checked(dump(to_dict(found)))["knobs"] if k["name"] == "num_steps"]
    assert (knob["left"], knob["all_measured"]) == ([2, 5], False)
    # Where none is left, JSON has the bound over all of them, and the table none.
    done = explain(report, study, trial)
    assert done.left["num_steps"] == ()
    assert done.points[0].depth == 1  # it promised most, and was slower
    assert done.points[0].bounds["num_steps"] > point.bounds["num_steps"]
    at_most, launch, how = rows(done, monkeypatch)["num_steps"]
    assert (at_most, launch) == ("-", "done")
    assert "highest" not in how
    assert "not measured" not in how


def test_a_bound_beyond_all_that_happens_gives_way_to_what_was_measured(monkeypatch):
    protos = '[null, "LL,LL128,Simple", Simple]'
    wide = parse_study(small_text(protos=protos), "small.yaml")
    with Store.open("sqlite://") as store:
        full = replayed(wide, store)
    simple = [
        t.number
        for t in full.leaderboard.trials
        if dict(t.configuration.env)["NCCL_PROTO"] == "Simple"
    ]
    found = explain(without(full, *simple), wide)
    at_most, launch, how = rows(found, monkeypatch)["NCCL_PROTO"]
    assert (at_most, launch) == ("-", "yes")
    assert how.endswith("no useful bound")
    assert "not measured: Simple; measured +" in how
    assert "so there is no tighter bound than the measurement." in told(found)
    tuned = [t.number for t in full.leaderboard.trials if dict(t.configuration.env)["NCCL_PROTO"]]
    found = explain(without(full, *tuned), wide)
    assert re.fullmatch(r"\d+x", rows(found, monkeypatch)["NCCL_PROTO"][0])
    assert "free communication gains less than 1" in told(found)


TREES = {"steps": "[2, 3]", "topk": "[1, 4]", "protos": "[null]"}


def test_a_tree_counts_for_topk_whatever_its_draft_tokens():
    study = parse_study(small_text(**TREES), "small.yaml")

    def bend(configuration, measurement):
        if configuration.speculation.topk == 4:
            wide = batch(draft=2.0, draft_extend=0.4, verify=60.0, rest=0.2)
            return replace(timed(configuration, measurement), cycle=plugin(wide))
        return timed(configuration, measurement)

    with Store.open("sqlite://") as store:
        report = replayed(study, store, bend)
    assert report.study.stopped == "exhausted"
    trees = [t for t in report.leaderboard.trials if t.configuration.speculation.topk == 4]
    of_two = [t.number for t in trees if t.configuration.speculation.num_steps == 2]
    of_three = [t.number for t in trees if t.configuration.speculation.num_steps == 3]
    chain = next(
        t
        for t in report.leaderboard.trials
        if (t.configuration.speculation.topk, t.configuration.speculation.num_steps) == (1, 2)
    )
    for state in (report, without(report, *of_three)):
        found = explain(state, study, chain)
        assert found.points[0].bounds["topk"] > 0.05
        assert found.is_done(named(found, "topk"))
        assert "Worth a launch" not in told(found)
    found = explain(without(report, of_two[-1]), study, chain)
    assert found.left["topk"] == (4,)
    assert "Worth a launch: topk." in told(found)
    # Of a tree, its draft tokens are a knob of their own.
    tree = next(t for t in trees if t.number == of_three[0])
    found = explain(without(report, of_three[-1]), study, tree)
    assert found.left["num_draft_tokens"] == (of_three_tokens(report, of_three[-1]),)


def of_three_tokens(report, number):
    [trial] = [t for t in report.leaderboard.trials if t.number == number]
    return trial.configuration.speculation.num_draft_tokens


def test_no_launch_is_worth_it_where_the_study_is_exhausted(report, study):
    tuned = {number_of(report, steps, "LL,LL128,Simple") for steps in (1, 2, 3, 5)}
    left = with_trials(report, lambda t: None if t.number in tuned else t)
    assert explain(unfinished(left), study).left["NCCL_PROTO"] == ("LL,LL128,Simple",)
    found = explain(unfinished(left, "exhausted"), study)
    assert set(found.left.values()) == {()}
    assert not any(found.is_worth(knob_effect) for knob_effect in found.knob_effects)
    assert "Worth a launch" not in told(found)


def test_a_flag_that_no_point_varies_alone_is_not_done_while_others_have_it(report):
    """As of adaptive steps, which a sub-space of their own has at another depth."""
    adaptive = (
        "  env:",
        """    - algorithm: EAGLE3
      num_steps: 7
      topk: 1
      flags: {speculative-adaptive: [true]}
  env:""",
    )
    found, knob_effects = levers_of({"steps": STEPS}, report, replaced=[adaptive])
    assert found.left["speculative-adaptive"] == (True,)
    assert found.is_worth(knob_effects["speculative-adaptive"]) is None


def test_what_another_clock_measured_is_not_compared(report, study):
    tuned = number_of(report, 5, "LL,LL128,Simple")
    forwards = {"draft": 0.5, "draft_extend": 0.4, "verify": 9.0}
    parts = {name: PartTime(100, ms / 10) for name, ms in forwards.items()}
    gpu = CycleTimes("device_timer", (BatchCycles(0, PartTime(100, 1.0), parts),))
    mixed = with_trials(report, lambda t: with_cycles(t, gpu) if t.number == tuned else t)
    found = explain(mixed, study)
    assert "NCCL_PROTO" not in found.seen
    assert found.seen["num_steps"].trial == number_of(report, 3)
    assert "everything else equal: NCCL_PROTO and num_steps (best" in told(found)


def test_what_was_measured_stays_below_the_bound(report, study):
    for trial in report.leaderboard.trials:
        found = explain(report, study, trial)
        for name, seen in found.seen.items():
            assert seen.gain <= found.points[0].bounds[name] + 1e-9, (trial.number, name)


def test_the_accept_length_that_it_takes_to_break_even(report, study):
    found = explain(
        report, study, report.leaderboard.trials[number_of(report, 2, "LL,LL128,Simple")]
    )
    even = found.points[0].break_even
    assert even is not None
    cycle = 0.25 + 0.36 + 13.778 + 3 * 2.369 - 5.642 + 0.2
    assert even.needed == pytest.approx(cycle / (DECODE_MS + 0.01))
    assert even.accept_length == accept_length(2)
    assert even.gain == pytest.approx(accept_length(2) / even.needed - 1)
    assert (even.trial, even.source, even.same_settings) == (0, "clock", False)
    assert "Break-even with no speculation at other settings (trial 0, 11.01 ms" in told(found)
    assert f"it is {accept_length(2):.2f}, so decoding is" in told(found)


def test_a_baseline_without_a_clock_gives_its_time_per_token(report, study):
    def change(trial):
        return with_cycles(trial, None) if trial.number == 0 else trial

    bare = with_trials(report, change)
    bare = replace(
        bare, leaderboard=replace(bare.leaderboard, baselines={"none": bare.leaderboard.trials[0]})
    )
    even = explain(bare, study).points[0].break_even
    assert even is not None
    assert even.source == "tpot"
    assert "by its time per output token" in told(explain(bare, study))
    # Without its decode forward less is known of what fewer steps can bring.
    known, unknown = (explain(r, study).points[0].bounds["num_steps"] for r in (report, bare))
    assert known < unknown


def test_break_even_compares_equal_batch_sizes(report, study):
    ours = plugin(batch(1, 100, verify=20.0), batch(8, 300, draft=4.0, verify=35.0, rest=1.0))
    theirs = plugin(batch(4, 500, verify=15.0), batch(8, 9, verify=24.0, rest=1.0))
    number = number_of(report, 3)

    def change(trial):
        return with_cycles(trial, {0: theirs, number: ours}.get(trial.number))

    changed = with_trials(report, change)
    baselines = {"none": changed.leaderboard.trials[0]}
    changed = replace(changed, leaderboard=replace(changed.leaderboard, baselines=baselines))
    [point] = explain(changed, study, changed.leaderboard.trials[number]).points
    assert point.break_even is not None
    assert point.break_even.needed == pytest.approx(40 / 25)
    assert point.break_even.decode_s == pytest.approx(0.025)
    # Of steps, a verify is no shorter than the decode forward of those batches.
    assert point.cycle.parts["verify"] == pytest.approx((100 * 0.02 + 300 * 0.035) / 400)


def test_a_baseline_that_is_not_believed_is_not_compared_with(report, study):
    odd = replace(report.leaderboard.trials[0], state=TrialState.INVALID)
    changed = replace(report, leaderboard=replace(report.leaderboard, baselines={"none": odd}))
    assert explain(changed, study).points[0].break_even is None


def test_where_nothing_else_is_left_a_bound_is_null(report, study):
    only = plugin(batch(verify=10.0))
    trial = with_cycles(report.leaderboard.trials[number_of(report, 3)], only)
    data = checked(dump(to_dict(explain(report, study, trial))))
    assert data["shares"]["verify"] == 1
    assert data["bounds"]["NCCL_PROTO"] is None
    assert data["instant"]["verify"] is None
    tuned = number_of(report, 3, "LL,LL128,Simple")
    data = checked(dump(to_dict(explain(without(report, tuned), study, trial))))
    [knob] = [knob for knob in data["knobs"] if knob["name"] == "NCCL_PROTO"]
    assert knob["bound"] is None
    assert knob["worth_a_launch"] is True


def test_no_baseline_no_break_even(report, study):
    bare = replace(report, leaderboard=replace(report.leaderboard, baselines={"none": None}))
    assert explain(bare, study).points[0].break_even is None
    assert "Break-even" not in told(explain(bare, study))


# Which trial


def test_the_best_at_default_settings_although_tuned_ones_are_better(report, study):
    found = explain(report, study)
    assert dict(found.trial.configuration.env) == {"NCCL_PROTO": None}
    best = report.leaderboard.best
    assert best is not None
    assert dict(best.configuration.env)["NCCL_PROTO"] is not None
    assert found.choice.why == "the best of 4 speculative trials at default system settings"


def test_one_with_a_clock_is_preferred_and_the_best_is_named(report, study):
    best = number_of(report, 5)
    bare = with_trials(report, lambda t: with_cycles(t, None) if t.number == best else t)
    found = explain(bare, study)
    assert found.trial.number == number_of(report, 3)
    assert found.choice.notes == (f"trial {best} is faster, but has no cycle times",)
    assert "with cycle times" in found.choice.why


def test_without_any_clock_it_says_what_to_do(report, study):
    bare = with_trials(report, lambda t: with_cycles(t, None))
    with pytest.raises(NothingToExplain, match="has no cycle times: a sweep records"):
        explain(bare, study)
    with pytest.raises(NothingToExplain, match="trial 2 has no cycle times"):
        explain(bare, study, bare.leaderboard.trials[2])
    empty = with_trials(report, lambda t: with_cycles(t, CycleTimes("plugin", ())))
    with pytest.raises(NothingToExplain, match="no trial of the study has cycle times"):
        explain(empty, study)
    idle = plugin(BatchCycles(1, PartTime(0, 0.0), {}))
    with pytest.raises(NothingToExplain, match="has no cycle times"):
        explain(with_trials(report, lambda t: with_cycles(t, idle)), study)


def test_a_trial_without_a_clock_is_told_by_its_state(report, study):
    trial = replace(report.leaderboard.trials[number_of(report, 2)], measurements=())
    cases = {
        TrialState.INFEASIBLE: "is infeasible and has no measurements: no memory",
        TrialState.FAILED: "failed and has no measurements: no memory",
        TrialState.INACTIVE: "is inactive and has no measurements: no memory",
    }
    failure = Failure("oom", "load", "configuration", "no memory")
    for state, words in cases.items():
        with pytest.raises(NothingToExplain, match=f"^trial {trial.number} {words}$"):
            explain(report, study, replace(trial, state=state, failure=failure))
    running = replace(trial, state=TrialState.RUNNING)
    words = f"trial {trial.number} is not measured yet; continue with `tuner resume --study s`"
    with pytest.raises(NothingToExplain, match=f"^{words}$"):
        explain(replace(report, owner_lives=False), study, running)
    with pytest.raises(NothingToExplain, match=r"is not measured yet; its sweep is running$"):
        explain(replace(report, owner_lives=True), study, running)


def test_the_reason_that_a_launch_has_for_no_clock_is_told(report, study):
    trial = with_cycles(report.leaderboard.trials[number_of(report, 2)], None)
    lost = Failure("other", "load", "study", "the server runs without the tuner's plugin")
    launches = tuple(
        replace(launch, failure=lost) if launch.id in trial.launches else launch
        for launch in report.launches
    )
    [number] = trial.launches
    told_by = f"; launch {number}: the server runs without the tuner's plugin$"
    with pytest.raises(NothingToExplain, match=told_by):
        explain(replace(report, launches=launches), study, trial)


def test_where_no_speculation_is_searched_nobody_waits_for_it(report):
    text = small_text().split("    - algorithm: EAGLE3")
    plain = parse_study(text[0] + "  env:" + text[1].split("  env:", 1)[1], "plain.yaml")
    few = with_trials(report, lambda t: None if t.configuration.speculation.enabled else t)
    numbers = ", ".join(str(t.number) for t in few.leaderboard.trials)
    words = f"^the study does not vary speculation; trials .* for --trial: {numbers}$"
    with pytest.raises(NothingToExplain, match=words):
        explain(unfinished(few), plain)
    searched = parse_study(small_text(), "small.yaml")
    with pytest.raises(NothingToExplain, match="is complete yet; trials with cycle times"):
        explain(unfinished(few), searched)
    with pytest.raises(NothingToExplain, match="is complete; trials with cycle times"):
        explain(unfinished(few, "budget"), searched)


def test_the_studys_best_and_how_to_go_on_are_told(report, study):
    best = report.leaderboard.best
    last = summary(explain(report, study))[-1]
    [(name, _, gain), *_] = report.leaderboard.leads(best)
    assert last == (
        f"Best trial: {best.number}, {gain - 1:+.1%} over baseline '{name}': "
        f"`tuner explain --study s --trial {best.number}`"
    )
    assert "Best trial" not in told(explain(report, study, best))
    assert "unfinished" not in told(explain(report, study, best))
    untimed = with_trials(report, lambda t: with_cycles(t, None) if t.number == best.number else t)
    assert summary(explain(untimed, study))[-1].endswith("; its cycle times were not recorded.")
    made = f"The study is unfinished after {report.launches_spent} of 24 launches; "
    gone = replace(unfinished(report, "interrupted"), owner_lives=False)
    assert f"{made}continue with `tuner resume --study s`." in summary(explain(gone, study))
    live = replace(unfinished(report), owner_lives=True)
    assert f"{made}its sweep is running." in summary(explain(live, study))
    spent = told(explain(unfinished(report, "budget"), study))
    assert "continue with `tuner resume --study s --fork NEW --launches N`." in spent


def test_without_a_trial_at_default_settings_the_others_are_named(report, study):
    tuned = with_trials(
        report, lambda t: t if dict(t.configuration.env)["NCCL_PROTO"] is not None else None
    )
    numbers = ", ".join(str(t.number) for t in tuned.leaderboard.trials)
    with pytest.raises(NothingToExplain, match=f"for --trial: {numbers}$"):
        explain(tuned, study)
    none = with_trials(report, lambda t: None)
    with pytest.raises(NothingToExplain, match="no trial of the study has cycle times"):
        explain(none, study)


def test_a_trial_without_speculation_has_a_decode_forward(report, study):
    found = explain(report, study, report.leaderboard.trials[0])
    assert found.points[0].cycle.shares["draft"] == 0
    assert {knob_effect.name for knob_effect in found.knob_effects} == {"NCCL_PROTO"}
    checked(dump(to_dict(found)))
    assert told(found).startswith("decode forward takes 99.9%")
    assert found.points[0].break_even is None


# What must be known of the figures


def test_the_device_timer_knows_the_forwards_alone(report, study):
    gpu_ms = {"draft": 0.5, "draft_extend": 0.5, "verify": 9.0}

    def change(trial):
        ms = gpu_ms if trial.configuration.speculation.enabled else {"verify": 5.0}
        parts = {name: PartTime(100, value / 10) for name, value in ms.items()}
        times = CycleTimes("device_timer", (BatchCycles(0, PartTime(100, 1.0), parts),))
        return with_cycles(trial, times)

    timer = with_trials(report, change)
    baselines = {"none": timer.leaderboard.trials[0]}
    timer = replace(timer, leaderboard=replace(timer.leaderboard, baselines=baselines))
    found = explain(timer, study)
    [point] = found.points
    assert point.cycle.shares == pytest.approx(
        {"draft": 0.05, "draft_extend": 0.05, "verify": 0.9, "rest": 0.0}
    )
    assert "larger than those of whole cycles" in point.notes[0]
    assert "5.00 ms per token of GPU time) needs an accept length of 2.00" in told(found)
    data = checked(dump(to_dict(found)))
    assert data["source"] == "device_timer"
    assert data["points"][0]["rest_known"] is False
    # A client's time per token is no match for GPU time.
    bare = with_cycles(timer.leaderboard.trials[0], None)
    timer = replace(timer, leaderboard=replace(timer.leaderboard, baselines={"none": bare}))
    assert explain(timer, study).points[0].break_even is None


def test_a_draft_that_the_clock_does_not_tell_apart_is_not_free(report, study, monkeypatch):
    """As with NGRAM: its proposals are made between the forwards."""

    def change(trial):
        if not trial.configuration.speculation.enabled:
            return trial
        return with_cycles(trial, plugin(batch(verify=9.0, rest=3.0)))

    found = explain(with_trials(report, change), study)
    [point] = found.points
    assert any("its time is part of rest" in note for note in point.notes)
    assert "draft and draft extend take" not in told(found)
    # Whatever makes the draft faster acts on some of the rest.
    assert point.bounds["draft_tp"] == pytest.approx(3.0 / 9.0)
    data = checked(dump(to_dict(found)))
    shares = data["shares"]
    assert (shares["draft"], shares["draft_extend"]) == (None, None)
    assert (shares["verify"], shares["rest"]) == pytest.approx((0.75, 0.25))
    assert data["instant"].keys() == {"verify", "rest", "collective"}
    out = io.StringIO()
    monkeypatch.setattr("tuner.reports.explain_table.reader", lambda: Console(file=out, width=200))
    render(found)
    assert "draft extend" not in out.getvalue().split("knob")[0]


def test_a_device_timer_beside_a_wall_clock_says_what_its_rest_is(report, study):
    totals = {"draft": 0.3, "draft_extend": 0.4, "verify": 23.0, "rest": 1.3}
    parts = {name: PartTime(100, ms / 10) for name, ms in totals.items()}
    times = CycleTimes("device_timer", (BatchCycles(0, PartTime(100, 2.5), parts),))
    timer = with_trials(report, lambda t: with_cycles(t, times))
    found = explain(timer, study)
    assert found.points[0].cycle.shares["rest"] == pytest.approx(0.052)
    assert any("rest is the remaining wall time" in note for note in found.points[0].notes)
    shown = checked(dump(to_dict(found)))["points"][0]["batches"][0]["parts"]["verify"]
    assert shown == {
        "count": 100,
        "mean_ms": pytest.approx(23.0),
        "median_ms": None,
        "p95_ms": None,
        "graph_share": None,
    }


def test_a_part_without_cuda_graphs_and_a_window_that_is_not_believed_are_told(report, study):
    trial = report.leaderboard.trials[number_of(report, 3)]
    size, cycle = 1, batch(draft=1.0, draft_extend=1.0, verify=8.0).cycle
    eager = {
        "draft": PartTime(10, 0.01, graph_share=0.99),
        "draft_extend": PartTime(10, 0.01, graph_share=0.0),
        "verify": PartTime(10, 0.08, graph_share=None),
    }
    odd = with_cycles(trial, plugin(BatchCycles(size, cycle, eager)))
    odd = replace(
        odd,
        state=TrialState.INVALID,
        measurements=tuple(replace(m, invalid=("silent: for 3 s",)) for m in odd.measurements),
    )
    assert explain(report, study, odd).points[0].notes == (
        "invalid: silent: for 3 s",
        "the time between the forwards was not measured; rest is missing",
        "draft extend did not always run as CUDA graphs",
    )


def test_a_forward_that_never_was_a_graph_and_one_that_took_long_at_times(report, study):
    """As of the real server on a CPU, with other programs beside it."""
    parts = {
        "verify": PartTime(100, 3.0, median_s=0.012, p95_s=0.17, graph_share=0.0),
        "rest": PartTime(100, 0.1, median_s=0.0001, p95_s=0.01),
    }
    seen = plugin(BatchCycles(1, PartTime(100, 3.1), parts))
    plain = with_cycles(report.leaderboard.trials[0], seen)
    graphs, spread = explain(report, study, plain).points[0].notes
    assert graphs == "no forward ran as a CUDA graph"
    assert spread.startswith("the mean of decode forward is 2.5 times its median")


# The knobs of other studies


def levers_of(text_changes, report, *, replaced=(), steps=3, failures=()):
    text = small_text(**text_changes)
    for before, after in replaced:
        assert before in text
        text = text.replace(before, after)
    study = parse_study(text, "other.yaml")
    found = next(t for t in report.leaderboard.trials if t.number == number_of(report, steps))
    if failures:
        report = replace(
            report,
            leaderboard=replace(report.leaderboard, trials=(*report.leaderboard.trials, *failures)),
        )
    explained = explain(unfinished(report), study, found)
    return explained, {knob_effect.name: knob_effect for knob_effect in explained.knob_effects}


def test_one_gpu_has_neither_collectives_nor_a_placement(report):
    found, knob_effects = levers_of({}, report, replaced=[("tp-size: 8", "tp-size: 1")])
    assert found.points[0].bounds["NCCL_PROTO"] == 0
    assert found.is_worth(knob_effects["NCCL_PROTO"]) is False
    assert "draft_tp" not in knob_effects
    assert "collective" not in found.points[0].instant
    assert "the collectives of" not in told(found)


def test_where_sglangs_own_kernel_may_carry_decoding_the_sentence_says_so_too(report):
    found, knob_effects = levers_of({}, report)
    assert "no effect where SGLang's own all-reduce kernel" in knob_effects["NCCL_PROTO"].how
    assert (
        "(no effect where SGLang's own all-reduce kernel handles decoding). The cycle clock"
        in told(found)
    )
    off = ("tp-size: 8", "tp-size: 8, disable-custom-all-reduce: true")
    assert "own all-reduce kernel" not in told(levers_of({}, report, replaced=[off])[0])


def test_nccl_is_no_knob_where_another_kernel_carries_decoding(report):
    flags = "max-running-requests: 64}"
    ipc = f"{flags}\n  env: {{SGLANG_ENABLE_PCIE_IPC_ALLREDUCE: '1'}}"
    found, knob_effects = levers_of({}, report, replaced=[(flags, ipc)])
    assert found.points[0].bounds["NCCL_PROTO"] == 0
    assert "FlashInfer" in knob_effects["NCCL_PROTO"].how
    tuned = report.leaderboard.trials[number_of(report, 3, "LL,LL128,Simple")]
    unused = replace(
        tuned,
        number=99,
        state=TrialState.INACTIVE,
        failure=Failure(NCCL_UNUSED, "load", "configuration", "..."),
        measurements=(),
    )
    found, knob_effects = levers_of({}, report, failures=[unused])
    assert found.points[0].bounds["NCCL_PROTO"] == 0
    assert "SGLang's own all-reduce kernel" in knob_effects["NCCL_PROTO"].how


def test_each_kind_of_flag_is_bounded_by_the_parts_that_it_acts_on(report):
    flags = (
        "flags: {attention-backend: [triton, flashinfer], sampling-backend: [null, pytorch], "
        "page-size: [1, 16], disable-custom-all-reduce: [null, true]}\n  env:"
    )
    found, knob_effects = levers_of({}, report, replaced=[("env:", flags)])
    bounds, shares = found.points[0].bounds, found.points[0].cycle.shares
    forwards = shares["draft"] + shares["draft_extend"] + shares["verify"]
    assert bounds["attention-backend"] == pytest.approx(forwards / (1 - forwards))
    assert bounds["sampling-backend"] == pytest.approx(shares["rest"] / (1 - shares["rest"]))
    assert bounds["disable-custom-all-reduce"] == bounds["NCCL_PROTO"]
    assert "page-size" not in bounds
    assert found.is_worth(knob_effects["page-size"]) is None
    checked(dump(to_dict(found)))
    assert "Only a launch can measure: --page-size." in told(found)


def test_a_study_that_varies_nothing_between_gpus_is_told_so(report):
    found, _ = levers_of({"protos": "[null]"}, report)
    assert "varies nothing that affects the collectives in verify" in told(found)
    assert found.points[0].instant["collective"] > 0


def test_a_tree_in_a_chains_place_is_bounded_by_its_depth(report):
    found, knob_effects = levers_of({"topk": "[1, 4]"}, report)
    assert found.points[0].bounds["topk"] == pytest.approx(4 / accept_length(3) - 1)
    assert "num_draft_tokens" not in knob_effects
    assert assumptions(found)[-1].startswith("The bound of topk ")


def test_a_placement_that_the_study_varies_is_worth_a_launch_where_drafting_costs(report):
    slow = plugin(batch(draft=5.0, draft_extend=1.0, verify=13.0, rest=1.0))
    slowed = with_trials(report, lambda t: with_cycles(t, slow))
    found, knob_effects = levers_of({}, slowed, replaced=[("  env:", "  draft_tp: [1, 8]\n  env:")])
    assert knob_effects["draft_tp"].varied
    assert found.points[0].bounds["draft_tp"] == pytest.approx(6 / 14)
    assert found.is_worth(knob_effects["draft_tp"])
    assert "verify takes 65.0%, most of a cycle" in told(found)
    assert "Worth a launch: draft_tp." in told(found)
    found, _ = levers_of({}, slowed)
    assert "Could gain, but the study has only one value: draft_tp." in told(found)


# The command


@pytest.fixture(scope="module")
def database(study, tmp_path_factory):
    """A database with the finished study, and its report."""
    path = tmp_path_factory.mktemp("stored") / "tuner.db"
    with Store.open(f"sqlite:///{path}") as store:
        return path, replayed(study, store, name="kimi")


@pytest.fixture
def stored(tuner, database):
    path, report = database
    shutil.copy(path, tuner.folder)
    return report


def test_the_command_in_words(stored, call, monkeypatch):
    for width in (60, 80, 132):
        monkeypatch.setenv("COLUMNS", str(width))
        out, _ = call("explain", "--study", "kimi")
        first, second, *rest = out.splitlines()
        assert "every figure simulated" in first
        assert second.startswith("EAGLE3 steps 5: the best of")
        assert "concurrency 1: a cycle takes 29.18 simulated ms" in out
        # Like everywhere, one line of names and figures may be longer than a narrow terminal.
        long = [line for line in rest if len(line) > width]
        allowed = ("concurrency 1: ", "- Best trial: ")
        assert not [line for line in long if not line.startswith(allowed)]
        assert "\u2026" not in out
        assert re.search(r"verify +\u2588{6,} +95\.9%", out)
        words = " ".join(out.split())
        assert "verify takes 95.9%, over 95% of a cycle" in words
        assert "the collectives of verify" in words
        assert "Assumed:" in out
        median = next(line for line in rest if line.split()[:2] == ["verify", "100"])
        assert median.split() == ["verify", "100", "27.992", "27.992", "30.791", "100%"]


def test_its_commands_name_the_database_that_it_was_given(stored, call, tmp_path):
    storage = f"sqlite:///{shutil.copy('tuner.db', tmp_path / 'other.db')}"
    out, _ = call("explain", "--storage", storage)
    best = stored.leaderboard.best.number
    assert out.count(f": `tuner explain --study kimi --trial {best} --storage {storage}`\n") == 1


def test_a_bar_where_only_ascii_can_be_written(report, study, monkeypatch):
    written = io.TextIOWrapper(io.BytesIO(), "ascii")
    monkeypatch.setattr(
        "tuner.reports.explain_table.reader", lambda: Console(file=written, width=70)
    )
    render(explain(report, study))
    written.seek(0)
    assert re.search(r"verify +#{10,} +95\.9%", written.read())


def test_the_command_as_json(stored, call):
    data = checked(call("explain", "--study", "kimi", "--json")[0])
    assert data["trial"] == number_of(stored, 5)
    assert sum(data["shares"].values()) == pytest.approx(1)
    assert data["shares"]["verify"] > 0.95
    assert data["bounds"] == data["points"][0]["bounds"]
    assert set(data["bounds"]) == {"NCCL_PROTO", "draft_tp", "num_steps"}
    assert data["simulated"] is True
    tuned = number_of(stored, 2, "LL,LL128,Simple")
    other = checked(call("explain", "--trial", str(tuned), "--json")[0])
    assert other["trial"] == tuned
    assert other["break_even"]["decoding_gain"] > 0


def test_every_point_is_explained(tuner, small, call):
    with Store.open(f"sqlite:///{tuner.folder / 'tuner.db'}") as store:

        def bend(configuration, measurement):
            measurement = timed(configuration, measurement)
            if measurement.point.concurrency == 1:
                return measurement
            parts = {"draft": 4.0, "draft_extend": 2.0, "verify": 13.0, "rest": 1.0}
            if not configuration.speculation.enabled:
                parts = {"verify": 12.0, "rest": 1.0}
            times = plugin(*(batch(size, 10 * size, **parts) for size in (1, 3, 5, 7, 8)))
            return replace(measurement, cycle=times)

        points = "[{concurrency: 1}, {concurrency: 8}]"
        replayed(small(steps="[1, 2]", points=points), store, bend, name="two")
    data = checked(call("explain", "--study", "two", "--json")[0])
    first, second = data["points"]
    assert (first["point"], second["point"]) == ({"concurrency": 1}, {"concurrency": 8})
    assert data["shares"] == first["shares"] != second["shares"]
    # What is worth a launch at any of the points is worth one.
    [placement] = [knob for knob in data["knobs"] if knob["name"] == "draft_tp"]
    assert placement["bound"] == second["bounds"]["draft_tp"] > 0.05 > first["bounds"]["draft_tp"]
    assert placement["worth_a_launch"] is False  # a launch of this study cannot vary it
    assert placement["worth_varying"] is True
    assert [b["size"] for b in second["batches"]] == [1, 3, 5, 7, 8]
    # What was measured is told of each of them, and whose the sentences are.
    [steps] = [knob for knob in data["knobs"] if knob["name"] == "num_steps"]
    one, eight = steps["measured"]["decoding_gains"]
    assert one == steps["measured"]["decoding_gain"] != eight
    out, _ = call("explain", "--study", "two")
    assert f"measured {one:+.1%} / {eight:+.1%} (trial" in " ".join(out.split())
    assert "- At concurrency 1: verify takes" in out
    assert f"(best {one:+.1%} at concurrency 1, {eight:+.1%} at" in " ".join(out.split())
    assert "- At concurrency 1: break-even" in out
    assert "concurrency 8: a cycle takes 20.00 simulated ms" in out
    assert "(2 more batch sizes with --json)" in out


def test_a_point_without_a_clock_is_named(small):
    study = small(steps="[1, 2]", points="[{concurrency: 1}, {concurrency: 8}]")

    def bend(configuration, measurement):
        cycle = timed(configuration, measurement).cycle
        return replace(measurement, cycle=cycle if measurement.point.concurrency == 8 else None)

    with Store.open("sqlite://") as store:
        found = explain(replayed(study, store, bend), study)
    assert [point.measurement.point.concurrency for point in found.points] == [8]
    assert found.choice.notes == ("cycle times are missing at concurrency 1",)
    assert told(found).startswith("At concurrency 8: verify takes")


def test_where_there_is_nothing_to_explain(tuner, small, call):
    def untimed(configuration, measurement):
        return replace(timed(configuration, measurement), cycle=None)

    with Store.open(f"sqlite:///{tuner.folder / 'tuner.db'}") as store:
        replayed(small(), store, untimed, name="old")
    _, err = call("explain", code=3)
    assert "study old: trial 1, the best speculative trial at default" in err
    assert "docs/explain.md" in err
    _, err = call("explain", "--trial", "0", code=3)
    assert "trial 0 has no cycle times" in err
    _, err = call("explain", "--trial", "77", code=2)
    assert "no trial 77" in err
    call("explain", "--study", "nobody", code=2)
    assert "tuner explain" not in call("show")[0]


def test_show_says_where_to_look(stored, call):
    out, _ = call("show", "--study", "kimi")
    assert out.count("`tuner explain --study kimi`") == 1


# The document


def test_the_document_and_the_example_are_of_one_study():
    docs = SCHEMA.parents[1]
    example = json.loads((SCHEMA.parent / "examples" / "explain.json").read_text())
    text = (docs / "explain.md").read_text()
    shown = text.split("```text\n")[1].split("```")[0]
    assert f"study {example['study']}, trial {example['trial']}, every figure simulated" in shown
    # Every run of the demo has its own simulated noise.
    masked = re.sub(r"\d+(\.\d+)?", "N", " ".join(shown.split()))
    for sentence in (*example["summary"], *example["assumptions"]):
        assert re.sub(r"\d+(\.\d+)?", "N", sentence) in masked
    assert example["dominant"] == "verify"
    assert example["shares"]["verify"] > 0.95
