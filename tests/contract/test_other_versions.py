"""Differences between the simulated server (0.5.23) and two older versions of SGLang."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from .exchange import ask
from .meanings import INFO, generation
from .simulated import simulated
from .test_planted_drift import FLAGS

BODIES = Path(__file__).parents[1] / "data" / "bodies"

NEW_IN_0_5_23 = {"storage_prefetch_wait", "storage_staging_wait", "weight_versions"}
NEWER_THAN_0_5_9 = NEW_IN_0_5_23 | {
    *("num_retractions", "forward_entry_time", "prefill_finished_time", "reasoning_tokens"),
    *("dp_rank", "first_token_latency", "api_server_dispatch_finish_ts", "request_finished_ts"),
    "decode_throughput",
}
ONLY_0_5_17 = {"spec_accepted_drafts", "spec_proposed_drafts", "spec_accept_histogram"}
ONLY_0_5_9 = {
    *("total_retractions", "prefill_launch_delay", "prefill_launch_latency"),
    *("prefill_finished_ts", "request_sent_to_scheduler_ts", "decode_finished_ts"),
    "inference_time",
}


def recorded(name):
    """Return the JSON of a recording, without request and headers."""
    text = (BODIES / name).read_text()
    return json.loads(text[text.index("{") : text.rindex("}") + 1])


@pytest.fixture(scope="module")
def simulated_answers(tmp_path_factory):
    """Return `meta_info` of an answer, and `/server_info`."""
    with simulated(FLAGS, tmp_path_factory.mktemp("server")) as server:
        server.wait_ready()
        meta = ask(server.url, generation(0)).json()["meta_info"]
        return set(meta), ask(server.url, INFO).json()


@pytest.mark.parametrize(
    ("name", "not_there_yet", "only_there"),
    [
        (
            "0.5.17-h200/e3_1gpu_POST_generate.txt",
            NEW_IN_0_5_23 | {"first_token_latency"},
            ONLY_0_5_17,
        ),
        ("0.5.9-cpu/generate.json", NEWER_THAN_0_5_9, ONLY_0_5_9),
    ],
    ids=["0.5.17", "0.5.9"],
)
def test_names_of_the_counts(simulated_answers, name, not_there_yet, only_there):
    ours, _ = simulated_answers
    theirs = set(recorded(name)["meta_info"])
    if not any(key.startswith("spec_") for key in theirs):  # recorded without speculation
        ours = {key for key in ours if not key.startswith("spec_")}
    assert ours - theirs == not_there_yet
    assert theirs - ours == only_there


def test_reported_version(simulated_answers):
    _, info = simulated_answers
    assert info["version"] == "0.5.23"


def test_0_5_17_means_the_same_by_the_same_names():
    """0.5.17 has old and new names with equal numbers."""
    meta = recorded("0.5.17-h200/e3_1gpu_POST_generate.txt")["meta_info"]
    calls, correct = meta["spec_verify_ct"], meta["spec_num_correct_drafts"]
    histogram = meta["spec_correct_drafts_histogram"]
    assert (sum(histogram), sum(k * n for k, n in enumerate(histogram))) == (calls, correct)
    assert meta["spec_accept_length"] == meta["completion_tokens"] / calls
    assert meta["spec_accepted_drafts"] == correct
    assert meta["spec_proposed_drafts"] == meta["spec_num_proposed_drafts"]
    assert meta["spec_accept_histogram"] == histogram
