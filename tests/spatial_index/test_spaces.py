from __future__ import annotations

import math

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from spatial_index import WGS84, Box, Plane
from tests.spatial_index.qr_model import haversine

LONGITUDES = st.integers(-180, 180).map(float) | st.floats(-180, 180, allow_subnormal=False)
LATITUDES = st.integers(-90, 90).map(float) | st.floats(-90, 90, allow_subnormal=False)
RADII = st.floats(1, 20_000_000)


@given(x=LONGITUDES, y=LATITUDES, radius=RADII, bearing=st.floats(0, 360), share=st.floats(0, 1))
@settings(max_examples=300, deadline=None)
def test_a_cover_contains_every_place_of_its_circle(x, y, radius, bearing, share):
    lat, turn, arc = math.radians(y), math.radians(bearing), share * radius / 6_371_008.8
    to_lat = math.asin(math.sin(lat) * math.cos(arc) + math.cos(lat) * math.sin(arc) * math.cos(turn))
    step = math.atan2(math.sin(turn) * math.sin(arc) * math.cos(lat), math.cos(arc) - math.sin(lat) * math.sin(to_lat))
    to_x, to_y = (x + math.degrees(step) + 540) % 360 - 180, math.degrees(to_lat)
    if abs(to_y) > 89.999999:
        return
    pieces = WGS84.cover(x, y, radius)
    slack = 1e-6
    assert any(
        box.west - slack <= to_x <= box.east + slack and box.south - slack <= to_y <= box.north + slack
        for box in pieces
    )
    assert all(-180 <= box.west <= box.east <= 180 and -90 <= box.south <= box.north <= 90 for box in pieces)


@given(x=LONGITUDES, y=LATITUDES, a=LONGITUDES, b=LONGITUDES, c=LATITUDES, d=LATITUDES)
@settings(max_examples=200, deadline=None)
def test_distance_to_a_box_is_that_to_its_nearest_place(x, y, a, b, c, d):
    box = Box(min(a, b), min(c, d), max(a, b), max(c, d))
    away = WGS84.distance_to_box(x, y, box)
    steps = [step / 40 for step in range(41)]
    xs = [box.west + (box.east - box.west) * step for step in steps]
    ys = [box.south + (box.north - box.south) * step for step in steps]
    sampled = min(haversine(x, y, to_x, to_y) for to_x in xs for to_y in ys)
    spacing = 111_200 * math.hypot(box.east - box.west, box.north - box.south) / 40
    # Both sides of the comparison round; towards the antipode a haversine is right within some decimetres only.
    assert away <= sampled + 1
    assert sampled - spacing - 1 <= away


@given(x=LONGITUDES, y=LATITUDES, to_x=LONGITUDES, to_y=LATITUDES)
@settings(deadline=None)
def test_chords_order_as_great_circles_do(x, y, to_x, to_y):
    chord = math.dist(WGS84.position(x, y), WGS84.position(to_x, to_y))
    assert chord == pytest.approx(WGS84.chord(haversine(x, y, to_x, to_y)), abs=1e-9)
    back = WGS84.place(*WGS84.position(x, y))
    assert haversine(x, y, *back) < 0.01


def test_a_kilometre_is_a_kilometre_everywhere():
    for latitude in (0, 37.5, 70, 89.9):
        north = math.degrees(1000 / 6_371_008.8)
        assert WGS84.distance(10, latitude, 10, latitude + north) == pytest.approx(1000)


def test_plane_distances():
    floor = Plane(0, 0, 10, 10)
    assert floor.distance_to_box(0, 0, Box(3, 4, 5, 6)) == 5
    assert floor.distance_to_box(4, 5, Box(3, 4, 5, 6)) == 0
    assert floor.cover(1, 1, 3) == [Box(0, 0, 4, 4)]
