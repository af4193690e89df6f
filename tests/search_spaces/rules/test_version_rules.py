"""Rules of one version alone."""

from __future__ import annotations

import pytest

from search_spaces.configuration import Configuration, Speculation
from search_spaces.rules.legality import version_violations
from search_spaces.rules.speculation import VERSION_RULES

ADAPTIVE = {"speculative-adaptive": True}


def one(algorithm="none", steps=None, topk=None, tokens=None, **flags):
    return Configuration.of(Speculation(algorithm, steps, topk, tokens), flags=flags)


def test_adaptive_begins_at_its_deepest_candidate_in_0_5_17(make_study):
    study = make_study()
    bad = one("EAGLE3", 3, 1, 4, **ADAPTIVE)
    [found] = version_violations(bad, study, "0.5.17")
    assert found.rule == "adaptive_starts_deepest"
    assert "num_steps 7, not at 3" in found.message
    assert "0.5.17" in found.source
    for version in ("0.5.9", "0.5.23", None):
        assert version_violations(bad, study, version) == ()


@pytest.mark.parametrize(
    "good",
    [
        one("EAGLE3", 7, 1, 8, **ADAPTIVE),
        one("EAGLE3", 3, 1, 4),
        one("EAGLE3", 3, 2, 4, **ADAPTIVE),  # dropped beside a tree
        one("STANDALONE", 3, 1, 4, **ADAPTIVE),
        one("EAGLE3", 3, 1, 4, **ADAPTIVE, **{"disable-cuda-graph": True}),
        one("EAGLE3", 3, 1, 4, **ADAPTIVE, **{"speculative-adaptive-config": "own.json"}),
        one(),
    ],
    ids=str,
)
def test_what_has_room_for_its_logits_is_let_through(make_study, good):
    assert version_violations(good, make_study(), "0.5.17") == ()


def test_versions_have_rules_of_names_of_their_own():
    names = [rule.name for rules in VERSION_RULES.values() for rule in rules]
    assert len(names) == len(set(names))
