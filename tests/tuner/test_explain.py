"""`tuner explain` on the story's machine: which trial, what it says, and what it says without."""

from __future__ import annotations

import json

import pytest

from results.store import Store

from .cycles import replayed


@pytest.fixture
def kimi(tuner, small):
    """The story's study in the tuner's folder, finished."""
    with Store.open(f"sqlite:///{tuner.folder / 'tuner.db'}") as store:
        return replayed(small(steps="[1, 2, 3]"), store, name="kimi")


def test_it_says_what_the_story_says(kimi, call):
    out, _ = call("explain", "--study", "kimi")
    data = json.loads(call("explain", "--study", "kimi", "--json")[0])
    assert data["shares"]["verify"] > 0.95
