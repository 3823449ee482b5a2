"""A zone asked directly, against the index and against walking along the way."""

from __future__ import annotations

import math

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from broker_plugins.geo.zones import Zone, circle_shape, fixed_shape, index_space, solid
from broker_plugins.grammar import WGS84 as GLOBE
from broker_plugins.grammar import Box, Cell, Circle, plane
from spatial_index.qr_index import QRIndex
from spatial_index.shapes import Point, Polygon
from spatial_index.spaces import WGS84, Plane

PLANE = Plane(-10.0, -10.0, 10.0, 10.0)
lons = st.one_of(st.integers(-180, 180).map(float), st.floats(-180, 180))
lats = st.one_of(st.integers(-90, 90).map(float), st.floats(-90, 90))
radii = st.floats(1, 3e6)


@st.composite
def shapes(draw):
    kind = draw(st.sampled_from(["box", "circle", "polygon", "point"]))
    if kind == "circle":
        return circle_shape(draw(lons), draw(lats), draw(radii), WGS84)
    if kind == "point":
        return Point(draw(lons), draw(lats))
    if kind == "box":
        south, north = sorted((draw(lats), draw(lats)))
        return solid((draw(lons), south, draw(lons), north), WGS84)
    x, y, size = draw(st.floats(-170, 170)), draw(st.floats(-70, 70)), draw(st.floats(0.1, 15))
    ring = [(x - size, y - size), (x + size, y - size), (x + size / 3, y), (x + size, y + size), (x - size, y + size)]
    wrapped = [((px + 180) % 360 - 180, py) for px, py in ring]
    return Polygon([*wrapped, wrapped[0]])


@settings(max_examples=150, deadline=None)
@given(shapes(), lons, lats)
def test_a_zone_holds_what_the_index_finds(shape, lon, lat) -> None:
    index: QRIndex[int] = QRIndex(WGS84)
    index.insert(1, shape)
    assert Zone(WGS84, shape).holds((lon, lat)) == bool(index.at(lon, lat))


@settings(max_examples=150, deadline=None)
@given(shapes(), lons, lons, lats, lats)
def test_a_zone_touches_what_the_index_finds(shape, west, east, one, other) -> None:
    index: QRIndex[int] = QRIndex(WGS84)
    index.insert(1, shape)
    south, north = sorted((one, other))
    box = solid((west, south, east, north), WGS84)
    found = index.at(box.x, box.y) if isinstance(box, Point) else index.intersecting(box)
    assert Zone(WGS84, shape).holds((west, south, east, north)) == bool(found)


def walk(start, end, steps, globe):
    (x0, y0), (x1, y1) = start, end
    if globe and abs(x1 - x0) > 180:
        x1 += 360 if x1 < x0 else -360
    for step in range(steps + 1):
        x, y = x0 + (x1 - x0) * step / steps, y0 + (y1 - y0) * step / steps
        yield ((x + 180) % 360 - 180 if globe else x), y


@settings(max_examples=100, deadline=None)
@given(shapes(), lons, lats, st.floats(-20, 20), st.floats(-20, 20))
def test_a_way_that_walks_through_crosses(shape, lon, lat, dx, dy) -> None:
    end = ((lon + dx + 180) % 360 - 180, min(90.0, max(-90.0, lat + dy)))
    zone = Zone(WGS84, shape)
    places = list(walk((lon, lat), end, 400, globe=True))
    # Where a place of the way is inside by more than rounding, the way must be found to cross.
    if any(zone.holds(place) and zone.holds((place[0], min(90.0, place[1] + 1e-7))) for place in places):
        assert zone.crossed((lon, lat), end)


@settings(max_examples=100, deadline=None)
@given(st.tuples(*[st.floats(-9, 9)] * 4), st.floats(-8, 8), st.floats(-8, 8), st.floats(0.1, 2))
def test_a_way_that_stays_away_does_not_cross(way, x, y, size) -> None:
    start, end = way[:2], way[2:]
    zones = [
        (Zone(PLANE, (x - size, y - size, x + size, y + size)), size * math.sqrt(2)),
        (Zone(PLANE, circle_shape(x, y, size, PLANE)), size),
        (Zone(PLANE, Polygon([(x - size, y), (x, y - size), (x + size, y), (x, y + size), (x - size, y)])), size),
    ]
    nearest = min(math.hypot(px - x, py - y) for px, py in walk(start, end, 2000, globe=False))
    for zone, reach in zones:
        if nearest > reach + 0.02:
            assert not zone.crossed(start, end)
        if nearest < size / math.sqrt(2) - 0.02:
            assert zone.crossed(start, end)


def test_a_flat_box_is_widened_within_the_space() -> None:
    assert solid((180, 90, 180, 90), WGS84) == Point(180, 90)
    west, south, east, north = solid((180, 0, 180, 90), WGS84)  # type: ignore[misc]
    assert west < east == 180
    assert (south, north) == (0, 90)
    assert Zone(WGS84, solid((5, 5, 6, 5), WGS84)).holds((5.5, 5))


def test_areas_of_the_grammar_become_shapes() -> None:
    assert fixed_shape(Box(1, 2, 3, 4), WGS84) == (1, 2, 3, 4)
    assert Zone(WGS84, fixed_shape(Cell("wydm9"), WGS84)).holds((126.97, 37.55))
    assert fixed_shape(Circle(1, 2, 1e9), WGS84).radius == WGS84.longest_radius()  # type: ignore[union-attr]
    assert index_space(GLOBE) is WGS84
    assert index_space(plane(0, 0, 60, 25)) == Plane(0, 0, 60, 25)


@pytest.mark.parametrize(("start", "end", "crosses"), [((170, 0), (-170, 0), True), ((-90, 0), (80, 0), False)])
def test_the_short_way_round(start, end, crosses) -> None:
    ring = [(179, -1), (-179, -1), (-179, 1), (179, 1), (179, -1)]
    for shape in ((179, -1, -179, 1), Polygon(ring), circle_shape(180, 0, 1e5, WGS84)):
        assert Zone(WGS84, shape).crossed(start, end) is crosses
