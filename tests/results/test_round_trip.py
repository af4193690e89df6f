"""Whatever a window may hold comes back from the database as it was."""

from __future__ import annotations

import dataclasses
import math
from contextlib import ExitStack

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from results.records import (
    PARTS,
    BatchCycles,
    CycleTimes,
    LaunchIntent,
    Measurement,
    PartTime,
    Purpose,
    RequestSample,
)
from results.store import Store
from results.studies import NewStudy
from search_spaces.configuration import Configuration, Speculation
from search_spaces.workload import OperatingPoint

texts = st.text(st.characters(exclude_characters="\x00", exclude_categories=("Cs",)), max_size=20)
counts = st.integers(0, 2**31 - 1)
figures = st.floats(0, 1e9) | st.just(math.nan)
times = st.floats(-1e6, 1e6).map(lambda time: time + 0.0)  # SQLite knows no -0.0
histograms = st.lists(counts, max_size=9).map(tuple)
points = st.one_of(
    st.builds(OperatingPoint, st.integers(1, 4096), weight=st.floats(0.1, 9), requests=counts),
    st.builds(OperatingPoint, request_rate=st.floats(1e-3, 1e4)),
    st.builds(OperatingPoint, trace=texts),
)
samples = st.builds(
    RequestSample,
    prompt=texts,
    sent_s=times,
    ttft_s=figures,
    e2e_s=figures,
    prompt_tokens=counts,
    completion_tokens=counts,
    cached_tokens=counts,
    verify_calls=counts,
    correct_drafts=counts,
    histogram=histograms,
    finish_reason=texts,
    error=st.none() | texts,
    proposed_drafts=counts,
    chunks=counts,
    late_s=figures,
)
seconds = st.floats(0, 1e9)
part_times = st.builds(
    PartTime,
    counts,
    seconds,
    median_s=st.none() | seconds,
    p05_s=st.none() | seconds,
    p95_s=st.none() | seconds,
    graph_share=st.none() | st.floats(0, 1),
)
cycles = st.builds(
    CycleTimes,
    st.sampled_from(("plugin", "device_timer")),
    st.lists(
        st.builds(
            BatchCycles, counts, part_times, st.dictionaries(st.sampled_from(PARTS), part_times)
        ),
        max_size=3,
    ).map(tuple),
)
REASONS = ("invalid", "warnings")
MAY_BE_NONE = ("accept_length", "accept_rate", "offered_request_s", "goodput_request_s")
FIGURES = [
    field.name
    for field in dataclasses.fields(Measurement)
    if field.type == "float" and field.name != "started_at"
]
measurements = st.builds(
    Measurement,
    point=points,
    started_at=st.floats(0, 4e9),
    requests=counts,
    failed_requests=counts,
    output_tokens=st.integers(0, 2**62),
    prompt_tokens=st.integers(0, 2**62),
    cached_tokens=st.integers(0, 2**62),
    histogram=histograms,
    workload_fingerprint=texts,
    simulated=st.booleans(),
    samples=st.lists(samples, max_size=3).map(tuple),
    cycle=st.none() | cycles,
    **dict.fromkeys(FIGURES, figures),
    **dict.fromkeys(MAY_BE_NONE, st.none() | st.floats(0, 1e9)),
    **dict.fromkeys(REASONS, st.lists(texts, max_size=3).map(tuple)),
)


@pytest.fixture(scope="module", params=["memory", "postgres"])
def kept(request):
    with ExitStack() as stack:
        address = "sqlite://"
        if request.param == "postgres":
            postgres = request.getfixturevalue("postgres")
            address = stack.enter_context(postgres.database(template="with_tables"))
        store = stack.enter_context(Store.open(address))
        study = store.create_study(NewStudy("kept", "study: kept\n", "d", "s", "simulated", True))
        store.claim(study.id)
        configuration = Configuration.of(Speculation())
        intent = LaunchIntent(configuration, (), "mark", "log")
        launch = store.add_launch(study.id, intent, [(configuration, Purpose.SEARCH)])
        yield store, study.id, launch.trials[0], launch.id


def shown(record):
    """With NaN equal to itself."""
    return repr(record)


@settings(suppress_health_check=[HealthCheck.too_slow], deadline=None, max_examples=60)
@given(measurement=measurements)
def test_a_measurement_comes_back_as_it_was(kept, measurement):
    store, study, trial, launch = kept
    store.add_measurement(study, trial, launch, measurement, Purpose.ANCHOR)
    stored = store.measurements(study, trial, samples=True)[-1].measurement
    assert shown(stored) == shown(measurement)
    # Bit for bit, where `repr` could round.
    for name in FIGURES:
        mine, theirs = getattr(measurement, name), getattr(stored, name)
        assert mine == theirs or (math.isnan(mine) and math.isnan(theirs))


def test_every_field_of_a_record_is_varied():
    """A new field that this module does not know would pass unseen."""
    assert {field.name for field in dataclasses.fields(RequestSample)} == {
        "prompt", "sent_s", "ttft_s", "e2e_s", "prompt_tokens", "completion_tokens",
        "cached_tokens", "verify_calls", "correct_drafts", "histogram", "finish_reason", "error",
        "proposed_drafts", "chunks", "late_s",
    }  # fmt: skip
    varied = {
        *FIGURES, *MAY_BE_NONE, *REASONS, "point", "started_at", "requests", "failed_requests",
        "output_tokens", "prompt_tokens", "cached_tokens", "histogram", "workload_fingerprint",
        "simulated", "samples", "cycle",
    }  # fmt: skip
    assert {field.name for field in dataclasses.fields(Measurement)} == varied
