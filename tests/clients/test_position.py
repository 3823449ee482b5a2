from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from broker_plugins.grammar import WGS84, Position, plane
from clients.errors import PositionError
from clients.position import checked_position, distance_m, has_moved
from spatial_index.spaces import WGS84 as EARTH

LON, LAT = st.floats(-180, 180), st.floats(-90, 90)


@given(LON, LAT, LON, LAT)
def test_distances_are_those_the_broker_measures(lon, lat, to_lon, to_lat):
    measured = distance_m(WGS84, Position(lon, lat), Position(to_lon, to_lat))
    assert measured == pytest.approx(EARTH.distance(lon, lat, to_lon, to_lat), abs=1e-3)


def test_a_degree_at_the_equator():
    assert distance_m(WGS84, Position(0, 0), Position(0, 1)) == pytest.approx(111_195, abs=1)
    assert distance_m(WGS84, Position(179.5, 0), Position(-179.5, 0)) == pytest.approx(111_195, abs=1)


def test_a_plane_is_flat():
    assert distance_m(plane(0, 0, 10, 10), Position(1, 1), Position(4, 5)) == 5


def test_the_first_position_is_news_and_small_steps_are_not():
    here, near, far = Position(0, 0), Position(0, 0.0001), Position(0, 0.001)  # 0, 11 and 111 m
    assert has_moved(WGS84, None, here, 1e9)
    assert not has_moved(WGS84, here, near, 50)
    assert has_moved(WGS84, here, far, 50)
    assert has_moved(WGS84, here, here, 0)


@pytest.mark.parametrize("distance", [-1, math.nan])
def test_a_distance_that_is_none_is_refused(distance):
    with pytest.raises(PositionError, match="least_distance_m"):
        has_moved(WGS84, None, Position(0, 0), distance)


@pytest.mark.parametrize(
    ("lon", "lat", "named"), [(181, 0, "longitude 181"), (0, 91, "latitude 91"), (math.nan, 0, "nan")]
)
def test_positions_outside_are_refused(lon, lat, named):
    with pytest.raises(PositionError, match=named):
        checked_position(WGS84, lon, lat)
