from __future__ import annotations

import math
import pickle

import hypothesis.strategies as st
import numpy as np
import pytest
from hypothesis import given, settings

from spatial_index import BadCoordinate, BadCount, Observations, SpatialIndexError
from spatial_index.spaces import Plane

FLOOR = Plane(0, 0, 10, 10)
COLUMNS = ("users", "times", "xs", "ys")

reports = st.lists(
    st.tuples(st.integers(-3, 12), st.integers(0, 9), st.integers(0, 10), st.integers(0, 10)), max_size=80
)


def summary(rows, **options):
    columns = np.array(rows, dtype=np.int64).reshape(-1, 4).T
    return Observations.of(*columns, space=FLOOR, **options)


def same(a, b):
    return all(np.array_equal(getattr(a, name), getattr(b, name)) for name in COLUMNS)


@settings(max_examples=100, deadline=None)
@given(reports, st.integers(2, 5), st.integers(1, 8), st.lists(st.integers(0, 2), min_size=80, max_size=80))
def test_merged_parts_are_the_whole(rows, trail, most_users, parts):
    options = {"trail": trail, "most_users": most_users}
    whole = summary(rows, **options)
    pieces = [summary([row for row, p in zip(rows, parts, strict=False) if p == part], **options) for part in range(3)]
    assert same(pieces[0].merge(pieces[1], pieces[2]), whole)
    assert same(pieces[2].merge(pieces[0]).merge(pieces[1]), whole)
    assert same(whole.merge(whole), whole)  # delivered twice


@settings(max_examples=100, deadline=None)
@given(reports, st.integers(2, 5))
def test_the_latest_reports_of_each_user_are_kept(rows, trail):
    whole = summary(rows, trail=trail)
    per_user = {}
    for user, time, x, y in rows:
        seen = per_user.setdefault(user, {})
        seen[time] = min(seen.get(time, (99, 99)), (x, y))
    expected = sorted((time, *place) for seen in per_user.values() for time, place in sorted(seen.items())[-trail:])
    assert sorted(zip(whole.times, whole.xs, whole.ys, strict=True)) == expected
    assert whole.users_kept == whole.users_seen == len(per_user)


def test_a_sample_tells_how_many_there_were():
    whole = Observations.of(np.arange(100_000), np.zeros(100_000), np.ones(100_000), np.ones(100_000), most_users=5000)
    assert whole.users_kept == 5000
    assert whole.users_seen == pytest.approx(100_000, rel=0.05)


def test_names_and_numbers_are_users():
    names = Observations.of(["ann", "bob", "ann"], [0, 0, 1], [1, 2, 3], [1, 2, 3], space=FLOOR)
    assert names.users_kept == 2
    assert len(names) == 3
    objects = Observations.of(
        np.array(["ann", "bob", "ann"], dtype=object), [0, 0, 1], [1, 2, 3], [1, 2, 3], space=FLOOR
    )
    assert same(names, objects)
    assert same(pickle.loads(pickle.dumps(names)), names)


@pytest.mark.parametrize(
    ("columns", "error"),
    [
        (([1], [0], [math.nan], [0]), BadCoordinate),
        (([1], [0], [11], [0]), BadCoordinate),
        (([1], [math.inf], [1], [0]), BadCoordinate),
        (([1, 2], [0], [1], [0]), BadCount),
        (([1.5], [0], [1], [0]), SpatialIndexError),
        (([[1]], [0], [1], [0]), BadCount),
    ],
)
def test_bad_reports_are_refused(columns, error):
    with pytest.raises(error):
        Observations.of(*columns, space=FLOOR)


def test_summaries_of_different_kinds_do_not_merge():
    with pytest.raises(BadCount, match="do not merge"):
        summary([], trail=5).merge(summary([], trail=6))
    with pytest.raises(BadCount, match="trail"):
        summary([], trail=1)
    with pytest.raises(BadCount, match="most_users"):
        summary([], most_users=0)
