"""Whatever is refused is refused with an exception that names it, and leaves the index as it was."""

from __future__ import annotations

import math

import numpy as np
import pytest

from spatial_index import (
    WGS84,
    BadBox,
    BadCoordinate,
    BadCount,
    BadPolygon,
    BadShape,
    Circle,
    DuplicateId,
    Plane,
    Point,
    Polygon,
    QRIndex,
    SpatialIndexError,
    UnknownId,
)

FLOOR = Plane(0, 0, 100, 100)

BAD_SHAPES = [
    ((math.nan, 0, 1, 1), BadCoordinate, "nan"),
    ((0, 0, math.inf, 1), BadCoordinate, "inf"),
    ((0, -math.inf, 1, 1), BadCoordinate, "-inf"),
    ((0, 0, 1, 91), BadCoordinate, "91"),
    ((0, -90.5, 1, 0), BadCoordinate, "-90.5"),
    ((-181, 0, 1, 1), BadCoordinate, "-181"),
    ((0, 5, 1, 2), BadBox, "5"),
    ((7, 5, 7, 6), BadBox, "empty"),
    ((7, 5, 8, 5), BadBox, "empty"),
    ((7, 5, 8), BadBox, "8"),
    ((), BadBox, "no box"),
    (("a", 0, 1, 1), BadCoordinate, "'a'"),
    ((None, 0, 1, 1), BadCoordinate, "None"),
    ("bbox", BadShape, "bbox"),
    (None, BadShape, "None"),
    (12, BadShape, "12"),
    (Point(0, 95), BadCoordinate, "95"),
    (Circle(0, 0, 0), BadShape, "0"),
    (Circle(0, 0, -3), BadShape, "-3"),
    (Circle(0, 0, math.nan), BadCoordinate, "nan"),
    (Circle(0, 0, 1e9), BadShape, "1000000000"),
    (Circle(math.inf, 0, 5), BadCoordinate, "inf"),
    (Circle(0, 99, 5), BadCoordinate, "99"),
    (Polygon([(0, 0), (1, 1), (0, 0)]), BadPolygon, "3 corners"),
    (Polygon([(0, 0), (4, 0), (4, 4), (0, 4)]), BadPolygon, "not closed"),
    (Polygon([(0, 0), (4, 4), (4, 0), (0, 4), (0, 0)]), BadPolygon, "2 2"),
    (Polygon([(0, 0), (4, 4), (8, 8), (0, 0)]), BadPolygon, "(8, 8)"),
    (Polygon([(0, 0), (4, math.nan), (4, 4), (0, 0)]), BadCoordinate, "nan"),
    (Polygon([(0, 0), (4, 0), (4, 91), (0, 0)]), BadCoordinate, "91"),
    (Polygon([(0, 80), (120, 80), (-120, 80), (0, 80)]), BadPolygon, "pole"),
    (Polygon([1, 2, 3, 4]), BadPolygon, "no ring"),
    (Polygon([(0, 0), (9, 0), (9, 9), (0, 0)], holes=[[(20, 20), (21, 20), (21, 21), (20, 20)]]), BadPolygon, "(9, 9)"),
]


def filled(space=WGS84):
    index = QRIndex(space)
    index.insert("box", (1, 1, 5, 5))
    index.insert("circle", Circle(3, 3, 1))
    index.insert("polygon", Polygon([(2, 2), (6, 2), (6, 6), (2, 2)]))
    index.insert("mover", (0, 0, 9, 9), moving=True)
    return index


def state(index):
    answers = [sorted(index.at(x, y)) for x in (0.5, 1, 3, 5.5) for y in (0.5, 2.5, 3, 5)]
    return answers, sorted(index), index.stats()


@pytest.mark.parametrize(("shape", "error", "named"), BAD_SHAPES)
def test_a_bad_shape_is_refused_by_name_and_changes_nothing(shape, error, named):
    index = filled()
    before = state(index)
    for call in (lambda: index.insert("new", shape), *(lambda key=key: index.move(key, shape) for key in index)):
        with pytest.raises(error) as refusal:
            call()
        assert named in str(refusal.value)
        assert isinstance(refusal.value, SpatialIndexError)
        assert state(index) == before


def test_a_plane_has_no_antimeridian():
    with pytest.raises(BadBox, match=r"\(5, 1, 2, 3\)|5\.0, 1\.0, 2\.0, 3\.0"):
        QRIndex(FLOOR).insert(1, (5, 1, 2, 3))
    with pytest.raises(BadCoordinate, match="101"):
        QRIndex(FLOOR).insert(1, (5, 1, 101, 3))


@pytest.mark.parametrize("bounds", [(0, 0, 0, 5), (0, 5, 5, 1), (0, 0, math.inf, 5), (math.nan, 0, 1, 1)])
def test_a_plane_needs_bounds(bounds):
    with pytest.raises(SpatialIndexError):
        Plane(*bounds)


@pytest.mark.parametrize("place", [(math.nan, 0), (0, math.inf), (181, 0), (0, -91), ("x", 0), (None, None)])
def test_a_bad_place_is_refused(place):
    index = filled()
    with pytest.raises(BadCoordinate) as refusal:
        index.at(*place)
    assert repr(place[0]) in str(refusal.value) or repr(place[1]) in str(refusal.value)


@pytest.mark.parametrize("shape", [(0, 0, 0, 0), (0, 3, 1, 2), (math.nan, 0, 1, 1), (1, 2), "box", None])
def test_a_bad_question_box_is_refused(shape):
    with pytest.raises(SpatialIndexError):
        filled().intersecting(shape)


def test_unknown_and_doubled_ids():
    index = filled()
    before = state(index)
    with pytest.raises(DuplicateId, match="'box'"):
        index.insert("box", (1, 1, 2, 2))
    with pytest.raises(UnknownId, match="'ghost'"):
        index.move("ghost", (1, 1, 2, 2))
    with pytest.raises(UnknownId, match="'ghost'"):
        index.remove("ghost")
    assert state(index) == before


GOOD = [[1, 1, 2, 2], [2, 2, 3, 3]]


@pytest.mark.parametrize(
    ("keys", "rows", "error", "named"),
    [
        (["a", "a"], GOOD, DuplicateId, "'a'"),
        (["a", "box"], GOOD, DuplicateId, "'box'"),
        (["a"], GOOD, BadCount, "1 ids and 2 boxes"),
        (["a", "b"], [[1, 1, 2, 2], [2, 2, math.nan, 3]], BadCoordinate, "nan"),
        (["a", "b"], [[1, 1, 2, 2], [2, 3, 4, 3]], BadBox, "empty"),
        (["a", "b"], [[1, 1], [2, 2]], BadBox, "(2, 2)"),
        (["a", "b"], [["x", 1, 2, 3], [1, 1, 2, 2]], BadBox, "numbers"),
    ],
)
def test_a_bad_batch_takes_nothing_in(keys, rows, error, named):
    index = filled()
    before = state(index)
    with pytest.raises(error) as refusal:
        index.insert_many(keys, rows)
    assert named in str(refusal.value)
    assert state(index) == before


@pytest.mark.parametrize(
    ("keys", "rows", "error"),
    [
        (["box", "ghost"], GOOD, UnknownId),
        (["box", "box"], GOOD, DuplicateId),
        (["mover", "box"], [[1, 1, 2, 2], [2, 2, 3, 99]], BadCoordinate),
    ],
)
def test_a_bad_batch_moves_nothing(keys, rows, error):
    index = filled()
    before = state(index)
    with pytest.raises(error):
        index.move_many(keys, np.array(rows))
    assert state(index) == before


@pytest.mark.parametrize(("keys", "error"), [(["box", "ghost"], UnknownId), (["box", "box"], DuplicateId)])
def test_a_bad_batch_removes_nothing(keys, error):
    index = filled()
    before = state(index)
    with pytest.raises(error):
        index.remove_many(keys)
    assert state(index) == before


def test_bad_batches_of_questions():
    index = filled()
    with pytest.raises(BadCoordinate, match="nan"):
        index.at_many([1, math.nan], [1, 1])
    with pytest.raises(BadCount, match="shape"):
        index.at_many([1, 2], [1])
    with pytest.raises(BadCoordinate, match="numbers"):
        index.at_many(["x"], [1])
    with pytest.raises(BadBox, match="empty"):
        index.intersecting_many([[1, 1, 2, 2], [3, 3, 3, 4]])


def test_empty_batches_are_no_mistake():
    index = filled()
    index.insert_many([], np.empty((0, 4)))
    index.move_many([], np.empty((0, 4)))
    index.remove_many([])
    assert list(index.at_many([], [])) == []
    assert list(index.intersecting_many(np.empty((0, 4)))) == []
    assert list(QRIndex().at_many([1.0], [2.0])) == [[]]
    assert list(QRIndex().intersecting_many([[1, 1, 2, 2]])) == [[]]
