"""The pure parts: acceptance, its bounds and its sums, shared prefixes, percentiles."""

from __future__ import annotations

import json

import pytest

from runners.load.http.acceptance import (
    accept_length,
    acceptance_of,
    adaptive_steps_of,
    largest_accept_length,
)
from runners.load.http.generate import answer_of
from search_spaces.configuration import Speculation


@pytest.mark.parametrize(
    ("meta", "expected"),
    [
        # 0.5.23
        (
            {
                "spec_verify_ct": 15,
                "spec_num_correct_drafts": 17,
                "spec_correct_drafts_histogram": [5, 3, 7],
                "spec_accept_length": 2.13,
            },
            (15, 17, (5, 3, 7)),
        ),
        # 0.5.12
        (
            {
                "spec_verify_ct": 31,
                "spec_accepted_drafts": 33,
                "spec_accept_histogram": [0, 29, 2],
            },
            (31, 33, (0, 29, 2)),
        ),
        # 0.5.9
        (
            {
                "spec_verify_ct": 20,
                "spec_accept_token_num": 24,
                "spec_draft_token_num": 100,
                "spec_accept_histogram": [5, 6, 9],
            },
            (20, 24, (5, 6, 9)),
        ),
        ({"spec_verify_ct": 47, "spec_num_correct_drafts": 0}, (47, 0, ())),
        ({"spec_accept_length": 3.0}, (0, 0, ())),
        ({"spec_verify_ct": None, "spec_num_correct_drafts": None}, (0, 0, ())),
        ({"spec_verify_ct": 0, "spec_num_correct_drafts": 0}, (0, 0, ())),
        ({}, (0, 0, ())),
    ],
)
def test_every_versions_spelling(meta, expected):
    got = acceptance_of(meta)
    assert (got.verify_calls, got.correct_drafts, got.histogram) == expected


def test_a_body_with_both_spellings(bodies):
    text = (bodies / "0.5.17-h200/e3_1gpu_POST_generate.txt").read_text().split("\n", 1)[1]
    got = acceptance_of(json.loads(text)["meta_info"])
    assert (got.verify_calls, got.correct_drafts, got.histogram) == (31, 33, (0, 29, 2))


@pytest.mark.parametrize(
    ("body", "name"),
    [
        ("0.5.9-cpu/generate.json", "total_retractions"),
        ("0.5.17-h200/nospec_1gpu_POST_generate.txt", "num_retractions"),
        ("0.5.23-cpu/plain_generate.json", "num_retractions"),
    ],
)
def test_retractions_by_every_versions_name(bodies, body, name):
    text = (bodies / body).read_text()
    event = json.loads(text[text.index("{") :])
    assert answer_of(event).retractions == event["meta_info"][name] == 0
    event["meta_info"][name] = 2
    assert answer_of(event).retractions == 2


def test_the_first_token_is_not_counted(bodies):
    # Nothing was accepted; the server's own spec_accept_length says 1.0213.
    meta = json.loads((bodies / "0.5.23-cpu/eagle3_generate.json").read_text())["meta_info"]
    got = acceptance_of(meta)
    assert accept_length(got.verify_calls, got.correct_drafts) == 1.0
    assert meta["spec_accept_length"] > 1.02


@pytest.mark.parametrize(
    ("speculation", "largest"),
    [
        (Speculation("EAGLE3", 3, 1, 4), 4),
        (Speculation("EAGLE3", 3, 4, 16), 4),
        (Speculation("EAGLE", 5, 8, 4), 4),
        (Speculation("STANDALONE", 4, 2, 8), 5),
        (Speculation("NGRAM", 1, 10, 12), 12),
        (Speculation("DFLASH", 1, 1, 16), 16),
        (Speculation("NEXTN", 1, 1, 2), 2),
        (Speculation("EAGLE3"), None),
    ],
)
def test_the_largest_accept_length(speculation, largest):
    assert largest_accept_length(speculation) == largest


@pytest.mark.parametrize(
    ("info", "steps"),
    [
        ({}, ()),
        ({"speculative_adaptive": False, "speculative_num_steps": 3}, ()),
        ({"speculative_adaptive": True, "speculative_num_steps": 3}, (0, 1, 3, 5, 7)),
        (
            {"speculative_adaptive": True, "internal_states": [{"speculative_num_steps": 9}]},
            (0, 1, 3, 5, 7, 9),
        ),
    ],
)
def test_steps_of_an_adaptive_server(info, steps):
    assert adaptive_steps_of(info) == steps


def test_steps_of_an_adaptive_server_by_its_own_table(tmp_path):
    table = tmp_path / "adaptive.json"
    table.write_text('{"1": {"candidate_steps": [1, 4]}, "8": {"candidate_steps": [2]}, "x": 1}')
    info = {"speculative_adaptive": True, "speculative_adaptive_config": str(table)}
    assert adaptive_steps_of(info) == (1, 2, 4)
    table.write_text("no JSON")
    assert adaptive_steps_of(info) == (0, 1, 3, 5, 7)


def test_an_adaptive_servers_bound_is_its_largest_candidate():
    assert largest_accept_length(Speculation("EAGLE3", 1, 1, 2), (0, 1, 5)) == 6
