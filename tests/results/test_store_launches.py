from __future__ import annotations

import dataclasses
import math

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from results import tables
from results.errors import StoreError, StudyNotFound
from results.records import (
    Failure,
    LaunchState,
    Measurement,
    ProcessIdentity,
    Purpose,
    RequestSample,
    TrialState,
)
from search_spaces.configuration import Setting
from search_spaces.workload import OperatingPoint

OOM = Failure("cuda_oom", "kv_cache", "configuration", "not enough memory")


def test_a_launch_is_stored_step_by_step(store, study, intent, configuration):
    asked = dataclasses.replace(intent(2), settings=(Setting(2), Setting(5)))
    launch = store.add_launch(
        study.id, asked, [(configuration(2), Purpose.BASELINE), (configuration(5), Purpose.SEARCH)]
    )
    assert (launch.id, launch.trials, launch.state) == (0, (0, 1), LaunchState.RUNNING)
    assert store.launches(study.id) == (launch,)
    assert store.launches(study.id)[0].created == launch.created is not None

    process = ProcessIdentity(4711, 1_800_000_000.12, asked.mark, 30001, "box")
    command = ("python", "-m", "sglang.launch_server")
    environment = (("NCCL_PROTO", "LL"), ("NCCL_ALGO", None))
    store.set_process(study.id, 0, process, command, environment)
    phases = (("weights", 12.5), ("cuda_graph", 3.25))
    store.launch_ready(study.id, 0, 41.2, phases, "0.5.23")
    store.finish_launch(study.id, 0, LaunchState.COMPLETE, 70.3)
    assert store.launches(study.id) == (
        dataclasses.replace(
            launch,
            state=LaunchState.COMPLETE,
            command=command,
            environment=environment,
            process=process,
            phases=phases,
            ready_s=41.2,
            seconds=70.3,
            sglang_version="0.5.23",
        ),
    )


def test_trees_are_stored_and_older_studies_have_chains_by_their_steps_alone(
    store, study, intent, configuration
):
    settings = (Setting(2, 6), Setting(3, 4))
    store.add_launch(study.id, dataclasses.replace(intent(2), settings=settings), [])
    assert store.launches(study.id)[0].intent.settings == settings
    with store._writing() as connection:
        old = [{"num_steps": 2}, {"num_steps": 5}]
        connection.execute(tables.launches.update().values(settings=old))
    (launch,) = store.launches(study.id)
    assert launch.intent.settings == (Setting(2), Setting(5)) == (Setting(2, 3), Setting(5, 6))


def test_the_first_ready_launch_tells_the_study_its_version(store, study, intent):
    for number, version in enumerate(("0.5.23", "0.5.24")):
        store.add_launch(study.id, intent(1), [])
        store.launch_ready(study.id, number, 1.0, (), version)
    assert store.study("kimi").sglang_version == "0.5.23"
    assert [launch.sglang_version for launch in store.launches(study.id)] == ["0.5.23", "0.5.24"]


def test_numbers_are_consecutive_per_study(store, new_study, intent, configuration):
    first, second = (store.create_study(new_study(name)) for name in ("a", "b"))
    for number in range(3):
        for study in (first, second):
            launch = store.add_launch(
                study.id, intent(number), [(configuration(number), Purpose.SEARCH)]
            )
            assert (launch.id, launch.trials) == (number, (number,))
    assert [trial.number for trial in store.trials(second.id)] == [0, 1, 2]


def test_trials_of_a_launch_keep_their_order(store, study, intent, configuration):
    store.add_launch(
        study.id, intent(1), [(configuration(steps), Purpose.SEARCH) for steps in (1, 2, 3)]
    )
    launch = store.add_launch(study.id, intent(1), [2, (configuration(4), Purpose.RETRY), 0])
    assert launch.trials == (2, 3, 0)
    assert store.launches(study.id)[1].trials == (2, 3, 0)
    assert store.trial(study.id, 2).launches == (0, 1)
    assert store.trial(study.id, 3).purpose is Purpose.RETRY


def test_a_launch_with_an_unknown_trial_stores_nothing(store, study, intent, configuration):
    with pytest.raises(StoreError, match="has no trial 9"):
        store.add_launch(study.id, intent(1), [(configuration(1), Purpose.SEARCH), 9])
    assert store.launches(study.id) == ()
    assert store.trials(study.id) == ()


def test_a_launch_of_no_study_is_refused(store, intent):
    with pytest.raises(StudyNotFound):
        store.add_launch(3, intent(1), [])


def test_a_mark_is_used_once(store, study, intent):
    asked = intent(1)
    store.add_launch(study.id, asked, [])
    with pytest.raises(StoreError, match="cannot write to the database"):
        store.add_launch(study.id, asked, [])


def test_a_trial_comes_back_as_it_was_judged(  # noqa: PLR0917 - fixtures
    store, study, intent, configuration, resolved, measurement
):
    store.add_launch(
        study.id,
        intent(2),
        [(configuration(2), Purpose.SEARCH), (configuration(3), Purpose.SEARCH)],
    )
    running = store.trial(study.id, 0)
    assert (running.state, running.resolved, running.measurements) == (TrialState.RUNNING, None, ())
    for concurrency in (8, 1):
        store.add_measurement(
            study.id, 0, 0, measurement(90.0 + concurrency, concurrency), Purpose.SEARCH
        )
    store.finish_trial(study.id, 0, TrialState.COMPLETE, resolved(2))
    store.finish_trial(study.id, 1, TrialState.INFEASIBLE, failure=OOM)
    judged, infeasible = store.trials(study.id)
    assert judged == dataclasses.replace(
        running,
        state=TrialState.COMPLETE,
        resolved=configuration(2),
        measurements=(measurement(98.0, 8), measurement(91.0, 1)),
    )
    assert (infeasible.state, infeasible.failure) == (TrialState.INFEASIBLE, OOM)
    assert store.server_info(study.id, 0) == {"a": [1]}
    assert store.server_info(study.id, 1) is None


def test_what_is_finished_stays_so(store, study, intent, configuration):
    store.add_launch(study.id, intent(1), [(configuration(1), Purpose.SEARCH)])
    store.finish_trial(study.id, 0, TrialState.INVALID)
    store.finish_launch(study.id, 0, LaunchState.COMPLETE, 1.0)
    with pytest.raises(StoreError, match=r"trial 0 .* is already finished"):
        store.finish_trial(study.id, 0, TrialState.COMPLETE)
    with pytest.raises(StoreError, match=r"launch 0 .* already ended"):
        store.finish_launch(study.id, 0, LaunchState.LOST)
    assert store.trial(study.id, 0).state is TrialState.INVALID
    assert store.launches(study.id)[0].state is LaunchState.COMPLETE


@pytest.mark.parametrize(
    "write",
    [
        lambda store, study: store.finish_trial(study, 0, TrialState.COMPLETE),
        lambda store, study: store.finish_launch(study, 0, LaunchState.LOST),
        lambda store, study: store.launch_ready(study, 0, 1.0, (), "0.5.23"),
        lambda store, study: store.trial(study, 0),
    ],
)
def test_the_unknown_is_named(store, study, write):
    with pytest.raises(StoreError, match=r"has no (trial|launch) 0"):
        write(store, study.id)


def test_running_is_no_end(store, study):
    with pytest.raises(ValueError, match="does not finish as running"):
        store.finish_trial(study.id, 0, TrialState.RUNNING)
    with pytest.raises(ValueError, match="does not finish as running"):
        store.finish_launch(study.id, 0, LaunchState.RUNNING)


def test_a_resumed_trial_shows_only_the_launch_that_judged_it(  # noqa: PLR0917 - fixtures
    store, study, intent, configuration, resolved, measurement
):
    store.add_launch(
        study.id,
        intent(1),
        [(configuration(1), Purpose.SEARCH), (configuration(2), Purpose.SEARCH)],
    )
    store.add_measurement(study.id, 0, 0, measurement(90.0), Purpose.SEARCH)
    store.finish_trial(study.id, 0, TrialState.COMPLETE, resolved(1))
    store.add_measurement(study.id, 1, 0, measurement(50.0), Purpose.SEARCH)
    assert [m.output_tok_s for m in store.trial(study.id, 1).measurements] == [50.0]
    assert store.launches_spent(study.id) == 0

    # Killed here. What it left is found, and ended.
    left = store.unfinished(study.id)
    assert [launch.id for launch in left.launches] == [0]
    assert [trial.number for trial in left.trials] == [1]
    store.finish_launch(study.id, 0, LaunchState.LOST)
    assert store.launches_spent(study.id) == 0  # lost to a kill: listed, not counted

    store.add_launch(study.id, intent(2), [1])
    assert store.trial(study.id, 1).measurements == ()
    store.add_measurement(study.id, 1, 1, measurement(94.0), Purpose.SEARCH)
    store.finish_trial(study.id, 1, TrialState.COMPLETE, resolved(2))
    store.finish_launch(study.id, 1, LaunchState.COMPLETE, 9.0)

    trial = store.trial(study.id, 1)
    assert [m.output_tok_s for m in trial.measurements] == [94.0]
    assert trial.launches == (0, 1)
    everything = store.measurements(study.id, 1)
    assert [(m.launch, m.measurement.output_tok_s) for m in everything] == [(0, 50.0), (1, 94.0)]
    assert store.launches_spent(study.id) == 1
    assert store.unfinished(study.id).launches == ()
    assert store.unfinished(study.id).trials == ()


def test_only_verdicts_spend_launches(store, study, intent, configuration):
    for number, state in enumerate(
        state for state in TrialState if state is not TrialState.RUNNING
    ):
        store.add_launch(study.id, intent(number), [(configuration(number), Purpose.SEARCH)])
        store.finish_trial(study.id, number, state)
        store.finish_launch(study.id, number, LaunchState.COMPLETE, 1.0)
    store.add_launch(study.id, intent(9), [(configuration(9), Purpose.SEARCH)])
    assert store.launches_spent(study.id) == 3  # complete, infeasible, invalid


def test_a_launch_of_many_verdicts_is_one_and_a_resumed_trial_counts_where_it_was_judged(
    store, study, intent, configuration
):
    store.add_launch(study.id, intent(1), [(configuration(n), Purpose.SEARCH) for n in range(3)])
    store.finish_launch(study.id, 0, LaunchState.LOST)
    assert store.launches_spent(study.id) == 0
    store.add_launch(study.id, intent(1), [0, 1, 2])
    for number in range(3):
        store.finish_trial(study.id, number, TrialState.COMPLETE)
    assert store.launches_spent(study.id) == 0  # while it runs it may yet be lost
    store.finish_launch(study.id, 1, LaunchState.COMPLETE)
    assert store.launches_spent(study.id) == 1
    # An anchor measures a judged trial once more, and judges nothing.
    store.add_launch(study.id, intent(1), [1])
    assert store.launches_spent(study.id) == 1


def test_the_judging_launch_can_be_named(store, study, intent, configuration, measurement):
    store.add_launch(study.id, intent(1), [(configuration(1), Purpose.SEARCH)])
    store.add_measurement(study.id, 0, 0, measurement(90.0), Purpose.SEARCH)
    store.add_launch(study.id, intent(1), [0])
    store.finish_trial(study.id, 0, TrialState.COMPLETE, launch=0)
    assert [m.output_tok_s for m in store.trial(study.id, 0).measurements] == [90.0]


def test_one_measurement_per_point_and_no_anchors(store, study, intent, configuration, measurement):
    store.add_launch(study.id, intent(1), [(configuration(1), Purpose.SEARCH)])
    for value, concurrency, purpose in (
        (90.0, 1, Purpose.SEARCH),
        (300.0, 8, Purpose.SEARCH),
        (91.0, 1, Purpose.SEARCH),
        (70.0, 1, Purpose.ANCHOR),
        (71.0, 8, Purpose.CONFIRMATION),
    ):
        store.add_measurement(study.id, 0, 0, measurement(value, concurrency), purpose)
    assert [m.output_tok_s for m in store.trial(study.id, 0).measurements] == [91.0, 300.0]
    assert len(store.measurements(study.id, 0)) == 5


def test_a_confirmation_trial_shows_its_own(store, study, intent, configuration, measurement):
    store.add_launch(study.id, intent(1), [(configuration(1), Purpose.CONFIRMATION)])
    store.add_measurement(study.id, 0, 0, measurement(90.0), Purpose.CONFIRMATION)
    assert [m.output_tok_s for m in store.trial(study.id, 0).measurements] == [90.0]


def test_samples_come_on_request_and_in_order(store, study, intent, configuration, measurement):
    good = tuple(
        RequestSample(
            f"chat/{n:03}", n * 0.5, 0.07, 2.1, 100, 256, 0, 170, 85, (100, 55, 15), "length"
        )
        for n in range(40)
    )
    bad = RequestSample("chat/040", 0.1, math.nan, 0.2, 0, 0, finish_reason="error", error="500")
    samples = (*good, bad)
    measured = measurement(94.0, samples=samples)
    store.add_launch(study.id, intent(1), [(configuration(1), Purpose.SEARCH)])
    store.add_measurement(study.id, 0, 0, measured, Purpose.SEARCH)
    bare = dataclasses.replace(measured, samples=())
    assert store.trials(study.id)[0].measurements == (bare,)
    for trial in (store.trials(study.id, samples=True)[0], store.trial(study.id, 0)):
        (read,) = trial.measurements
        assert read.samples[:40] == samples[:40]
        assert math.isnan(read.samples[40].ttft_s)
        assert read.samples[40].error == "500"
    (stored,) = store.measurements(study.id, 0, samples=True)
    assert len(stored.measurement.samples) == 41


def test_texts_that_databases_refuse_are_cleaned(store, study, intent, configuration):
    store.add_launch(study.id, intent(1), [(configuration(1), Purpose.SEARCH)])
    broken = b"worker died: \xff\x00 ".decode("utf-8", "surrogateescape")
    failure = Failure("died", "load", "host", broken)
    store.finish_trial(study.id, 0, TrialState.FAILED, failure=failure)
    store.finish_launch(study.id, 0, LaunchState.FAILED, 1.0, failure)
    for stored in (store.trial(study.id, 0).failure, store.launches(study.id)[0].failure):
        assert stored.kind == "died"
        assert stored.message.startswith("worker died: ")


def test_a_server_info_that_json_hardly_takes_does_not_lose_the_trial(
    store, study, intent, configuration, resolved
):
    store.add_launch(study.id, intent(1), [(configuration(1), Purpose.SEARCH)])
    odd = {"seed": 2**80, "name": "\udcff", "n": 1}
    answer = dataclasses.replace(resolved(1), server_info=odd)
    store.finish_trial(study.id, 0, TrialState.COMPLETE, answer)
    assert store.server_info(study.id, 0) == odd


FIGURES = st.floats(min_value=0, max_value=1e12) | st.just(math.nan)
COUNTS = st.integers(min_value=0, max_value=2**31 - 1)


@settings(
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
    deadline=None,
    derandomize=True,
    max_examples=30,
)
@given(
    measured=st.builds(
        Measurement,
        point=st.builds(
            OperatingPoint,
            concurrency=st.integers(1, 4096),
            weight=st.floats(0.001, 1.0),
            requests=st.none() | st.integers(1, 10_000),
        ),
        started_at=st.floats(0, 4e9),
        **dict.fromkeys(
            ("window_s", "output_tok_s", "ttft_p50_ms", "ttft_p95_ms"),
            FIGURES,
        ),
        **dict.fromkeys(("tpot_p50_ms", "tpot_p95_ms", "e2e_p50_ms", "e2e_p95_ms"), FIGURES),
        **dict.fromkeys(
            ("requests", "failed_requests", "output_tokens", "prompt_tokens", "cached_tokens"),
            COUNTS,
        ),
        accept_length=st.none() | st.floats(0, 16),
        histogram=st.lists(COUNTS, max_size=11).map(tuple),
        workload_fingerprint=st.text("0123456789abcdef", max_size=16),
        simulated=st.booleans(),
        invalid=st.lists(st.sampled_from(["cached tokens", "degenerate text"])).map(tuple),
        samples=st.just(()),
    )
)
def test_every_measurement_comes_back_bit_for_bit(measured, configuration, intent, new_study):
    from results.store import Store

    with Store.open("sqlite://") as store:
        study = store.create_study(new_study())
        store.add_launch(study.id, intent(1), [(configuration(1), Purpose.SEARCH)])
        store.add_measurement(study.id, 0, 0, measured, Purpose.SEARCH)
        (read,) = store.trial(study.id, 0).measurements
    assert repr(read) == repr(measured)  # by repr: NaN is not equal to itself


@pytest.mark.parametrize(("fault", "spent"), [("host", 0), ("client", 0), ("configuration", 1)])
def test_a_launch_lost_to_the_host_spends_nothing(  # noqa: PLR0917 - fixtures
    store, study, intent, configuration, resolved, fault, spent
):
    store.add_launch(
        study.id,
        intent(1),
        [(configuration(1), Purpose.SEARCH), (configuration(2), Purpose.SEARCH)],
    )
    store.finish_trial(study.id, 0, TrialState.COMPLETE, resolved(1))
    failure = Failure("crash", "load", fault, "it ended")
    store.finish_launch(study.id, 0, LaunchState.FAILED, 9.0, failure)
    assert store.launches_spent(study.id) == spent
    assert store.launches(study.id)[0].is_lost is (spent == 0)
