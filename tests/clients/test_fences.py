from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from broker_plugins.grammar import plane
from clients.errors import FenceError
from clients.fences import fence_topic, read_fence

SQUARE = [[0, 0], [1, 0], [1, 1], [0, 1], [0, 0]]
HOLE = [[0.25, 0.25], [0.75, 0.25], [0.75, 0.75], [0.25, 0.75], [0.25, 0.25]]


def polygon(*rings) -> bytes:
    return json.dumps({"type": "Polygon", "coordinates": list(rings)}).encode()


def test_a_square_degree():
    fence = read_fence(polygon(SQUARE))
    assert fence.vertices == 4
    assert fence.area_m2 == pytest.approx(12_363.7e6, rel=1e-4)  # R² Δλ (sin 1° - sin 0°)


def test_a_hole_is_left_out():
    whole, hole = read_fence(polygon(SQUARE)), read_fence(polygon(HOLE))
    fence = read_fence(polygon(SQUARE, HOLE))
    assert fence.vertices == 8
    assert fence.area_m2 == pytest.approx(whole.area_m2 - hole.area_m2)


def test_across_the_antimeridian_it_is_as_large_as_elsewhere():
    shifted = [[((lon + 179.5 + 180) % 360) - 180, lat] for lon, lat in SQUARE]
    assert read_fence(polygon(shifted)).area_m2 == pytest.approx(read_fence(polygon(SQUARE)).area_m2)


@given(st.floats(-170, 160), st.floats(-80, 70), st.floats(0.01, 9), st.floats(0.01, 9))
def test_a_slanted_fence_is_half_of_its_box(west, south, width, height):
    east, north = west + width, south + height
    box = read_fence(polygon([[west, south], [east, south], [east, north], [west, north], [west, south]]))
    lower = read_fence(polygon([[west, south], [east, south], [east, north], [west, south]]))
    upper = read_fence(polygon([[west, south], [east, north], [west, north], [west, south]]))
    assert lower.area_m2 + upper.area_m2 == pytest.approx(box.area_m2, rel=1e-6)


def test_in_a_plane_the_area_is_plain():
    fence = read_fence(polygon([[0, 0], [4, 0], [4, 3], [0, 0]]), plane(0, 0, 10, 10))
    assert fence.area_m2 == 6


def test_a_feature_is_stripped_to_its_geometry():
    geometry = json.loads(polygon(SQUARE))
    feature = {"type": "Feature", "properties": {"owner": "port"}, "geometry": geometry}
    for document in (feature, {"type": "FeatureCollection", "features": [feature]}):
        assert read_fence(json.dumps(document).encode()).geometry == geometry


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        (b"{", "not JSON"),
        (b"\xff", "not JSON"),
        (b"[]", "no GeoJSON"),
        (b'{"type": "Point", "coordinates": [1, 2]}', "'Point' is no fence"),
        (b'{"type": "MultiPolygon", "coordinates": []}', "name of its own"),
        (b'{"type": "FeatureCollection", "features": []}', "0 features"),
        (b'{"type": "Polygon"}', "no coordinates"),
        (polygon(), "no coordinates"),
        (polygon([[0, 0], [1, 1], [0, 0]]), "fewer than 4"),
        (polygon([[0, 0], [1, 0], [1, 1], [0, 1]]), r"ends at \[0, 1\]"),
        (polygon([[0, 0], [1, 0], [1, "1"], [0, 0]]), r"\[1, '1'\] in the outline is no position"),
        (polygon([[0, 0], [1, 0], [True, 1], [0, 0]]), "no position"),
        (polygon([[37.5, 126.9], [37.6, 126.9], [37.6, 127], [37.5, 126.9]]), "longitude comes first"),
        (polygon([[0, 0], [1, 1], [1, 0], [0, 1], [0, 0]]), r"not valid: Self-intersection\[0.5 0.5\]"),
        (polygon([[0, 0], [1, 1], [2, 2], [0, 0]]), "not valid|no area"),
        (polygon(SQUARE, [[5, 5], [6, 5], [6, 6], [5, 5]]), "not valid: Hole lies outside"),
        (polygon([[0, 80], [120, 80], [-120, 80], [0, 80]]), "around a pole"),
    ],
)
def test_what_is_wrong_is_named(text, reason):
    with pytest.raises(FenceError, match=reason):
        read_fence(text)


def test_names_are_those_a_filter_can_say():
    assert fence_topic("harbour.north-2") == "locus/fence/harbour.north-2"
    for name in ("", "a/b", "a+", "#", "a;detect=exit", "two words", "x" * 129):
        with pytest.raises(FenceError, match="cannot be the name"):
            fence_topic(name)
