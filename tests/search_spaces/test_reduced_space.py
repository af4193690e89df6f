"""A space without some of its points."""

from __future__ import annotations

import pytest

from search_spaces.space.reduced import ReducedSpace
from search_spaces.space.space import NotInSpaceError, Space


def without(study, left_out):
    return ReducedSpace(study, lambda _: True, left_out)


def test_what_is_left_out_is_no_point(make_study):
    study = make_study()
    whole = Space(study)
    trees = [point for point in whole if point.speculation.topk == 2]
    assert trees
    space = without(study, lambda point: point.speculation.topk == 2)
    assert space.points == tuple(p for p in whole if p not in trees)
    assert len(space) == len(whole) - len(trees) == len(space.points)
    assert all(point in space for point in space.points)
    assert not any(tree in space for tree in trees)
    assert "point" not in space


def test_it_is_searched_as_what_the_study_says(make_study):
    study = make_study()
    whole, space = Space(study), without(study, lambda point: point.speculation.topk == 2)
    assert space.digest == whole.digest
    assert not space.is_empty
    for point in space:
        assert space.assignments(point) == whole.assignments(point)


def test_nothing_may_be_left(make_study):
    space = without(make_study(), lambda _: True)
    assert space.is_empty
    assert len(space) == 0
    with pytest.raises(NotInSpaceError):
        space.sample(lambda parameter: parameter.choices[0])
