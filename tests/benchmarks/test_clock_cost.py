"""The benchmark of the clock's cost drives the plugin's real hooks."""

from __future__ import annotations

import sys

import pytest

from benchmarks.clock_cost import configuration_of, measure_hooks
from search_spaces.study_file.load import load_study


def test_the_hooks_are_driven_with_and_without_the_clock():
    found = measure_hooks(sys.executable, cycles=2000, repeats=3, real=False)
    assert set(found) == {"bare", "stopped", "events", "cpu"}
    assert 0 < found["bare"] < found["stopped"] < found["events"], "processor time, least of three"


def test_a_chain_of_the_study_is_launched():
    study = load_study("tiny")
    found = [configuration_of(study, steps).speculation for steps in (None, 3)]
    assert [one.topk for one in found] == [1, 1]
    assert (found[1].num_steps, found[1].num_draft_tokens) == (3, 4)


def test_a_study_without_a_chain_is_refused():
    study = load_study("tiny")
    trees = [
        part.model_copy(update={"topk": [2]} if part.canonical_algorithm == "STANDALONE" else {})
        for part in study.space.speculation
    ]
    space = study.space.model_copy(update={"speculation": trees})
    with pytest.raises(SystemExit, match="no chain"):
        configuration_of(study.model_copy(update={"space": space}), None)
