from __future__ import annotations

import pytest

from spatial_index import WGS84, BadPolygon, Box, Circle, Plane, Polygon, QRIndex
from spatial_index.shapes import Outline

FIJI = Polygon([(177, -20), (-178, -20), (-178, -15), (177, -15), (177, -20)])


def test_a_ring_across_the_antimeridian_is_taken_the_short_way():
    outline = Outline(WGS84, FIJI)
    assert outline.contains(179, -17)
    assert outline.contains(-179, -17)
    assert outline.contains(180, -17)
    assert outline.contains(-180, -17)
    assert not outline.contains(0, -17)
    assert sorted(outline.pieces()) == [Box(-180, -20, -178, -15), Box(177, -20, 180, -15)]


def test_a_hole_is_outside_wherever_its_ring_was_unwrapped():
    island = [(-179.5, -18), (-179, -18), (-179, -17), (-179.5, -17), (-179.5, -18)]
    outline = Outline(WGS84, Polygon(FIJI.ring, holes=[island]))
    assert not outline.contains(-179.2, -17.5)
    assert outline.contains(-178.5, -17.5)
    assert outline.contains(179, -17.5)


def test_borders_belong_to_a_polygon():
    outline = Outline(Plane(0, 0, 10, 10), Polygon([(1, 1), (5, 1), (5, 5), (1, 1)]))
    assert outline.contains(1, 1)
    assert outline.contains(3, 1)
    assert outline.contains(3, 3)
    assert not outline.contains(3, 3.001)
    assert outline.touches(Box(5, 5, 6, 6))
    assert not outline.touches(Box(1, 4, 2, 6))


def test_a_polygon_touching_the_meridian_has_one_piece():
    ring = [(170, 0), (180, 0), (180, 10), (170, 0)]
    assert Outline(WGS84, Polygon(ring)).pieces() == [Box(170, 0, 180, 10)]


def test_what_encloses_a_pole_must_be_cut_there():
    ring = [(0, 70), (90, 70), (180, 70), (-90, 70), (0, 70)]
    with pytest.raises(BadPolygon, match="pole"):
        Outline(WGS84, Polygon(ring))
    cut = [(-180, 70), (-60, 70), (60, 70), (180, 70), (180, 90), (60, 90), (-60, 90), (-180, 90), (-180, 70)]
    outline = Outline(WGS84, Polygon(cut))
    assert outline.contains(0, 80)
    assert outline.contains(180, 75)
    assert not outline.contains(0, 60)
    index = QRIndex()
    index.insert("arctic", Polygon(cut))
    assert index.at(33, 90) == ["arctic"]
    assert index.intersecting((170, 85, -170, 88)) == ["arctic"]


def test_an_id_changes_its_kind_of_shape():
    index = QRIndex()
    index.insert("a", (0, 0, 4, 4))
    shapes = [Circle(2, 2, 1000), Polygon([(0, 0), (4, 0), (4, 4), (0, 0)]), FIJI, Circle(180, 0, 1000), (0, 0, 4, 4)]
    inside = [(2, 2), (3, 1), (180, -17), (-179.995, 0), (3.9, 0.1)]
    for place, shape in enumerate(shapes):
        index.move("a", shape)
        assert [bool(index.at(x, y)) for x, y in inside][place]
        assert len(index) == 1
    assert index.at(180, 0) == []
    assert index._exact.count == 0
