"""Fences that are polygons, and payloads that are none."""

from __future__ import annotations

import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from broker_plugins.geo.fences import BadFenceError, read_fence
from spatial_index.spaces import WGS84, Plane
from tests.broker_plugins.smart import SQUARE, polygon


def test_a_polygon_and_a_feature_are_read_alike() -> None:
    feature = json.dumps({"type": "Feature", "geometry": json.loads(SQUARE), "properties": {"name": "x"}}).encode()
    assert read_fence(SQUARE, WGS84, 100) == read_fence(feature, WGS84, 100)
    assert read_fence(SQUARE, WGS84, 100).ring == [(0, 0), (1, 0), (1, 1), (0, 1), (0, 0)]


def test_heights_are_left_out() -> None:
    high = SQUARE.replace(b"[0, 1]", b"[0, 1, 55.5]")
    assert read_fence(high, WGS84, 100) == read_fence(SQUARE, WGS84, 100)


@pytest.mark.parametrize(
    ("payload", "reason"),
    [
        (b"", "not JSON"),
        (b"\xff", "not JSON"),
        (b"[" * 5_000, "not JSON"),
        (b"[]", "no GeoJSON Polygon"),
        (b'{"type":"Point","coordinates":[1,2]}', "no GeoJSON Polygon"),
        (b'{"type":"MultiPolygon","coordinates":[]}', "no GeoJSON Polygon"),
        (b'{"type":"Feature","geometry":null}', "no GeoJSON Polygon"),
        (b'{"type":"Polygon"}', "list of rings"),
        (b'{"type":"Polygon","coordinates":[]}', "list of rings"),
        (b'{"type":"Polygon","coordinates":[1]}', "list of rings"),
        (b'{"type":"Polygon","coordinates":[[1,2,3,4]]}', "a ring is a list"),
        (b'{"type":"Polygon","coordinates":[[[1],[2],[3],[1]]]}', "a ring is a list"),
        (b'{"type":"Polygon","coordinates":[[["a","b"],[2,3],[3,4],["a","b"]]]}', "finite number"),
        (b'{"type":"Polygon","coordinates":[[[0,0],[1,0],[1,1]]]}', "corners"),
        (b'{"type":"Polygon","coordinates":[[[0,0],[1,0],[1,1],[0,1]]]}', "not closed"),
        (polygon((0, 0), (1, 1), (1, 0), (0, 1)), "not simple"),
        (polygon((0, 0), (1, 1), (2, 2)), "not simple|no area"),
        (polygon((0, 0), (1, 0), (1, 91)), "90"),
        (polygon(*((x / 200, (x % 2) * 1e-3) for x in range(300))), "more than the 100 allowed"),
        (b" " * 30_000, "more than 100 points need"),
    ],
)
def test_what_is_no_fence_is_refused_with_a_reason(payload, reason) -> None:
    with pytest.raises(BadFenceError, match=reason):
        read_fence(payload, WGS84, 100)


def test_a_plane_has_its_own_bounds() -> None:
    with pytest.raises(BadFenceError, match=r"0 to 0\.5"):
        read_fence(SQUARE, Plane(0, 0, 0.5, 0.5), 100)


@settings(deadline=None)
@given(st.binary(max_size=200))
def test_no_payload_does_worse_than_be_refused(payload) -> None:
    with pytest.raises(BadFenceError):
        read_fence(payload, WGS84, 100)
