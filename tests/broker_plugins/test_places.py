"""Where a message is, read from its clauses and its payload."""

from __future__ import annotations

import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from broker_plugins.engine.message import Message
from broker_plugins.grammar import WGS84, parse_topic, plane
from broker_plugins.places import (
    BadRuleError,
    PayloadCounters,
    Payloads,
    PlaceFinder,
    PlaceRule,
    as_number,
    geometry_place,
    number_at,
)


def test_a_payload_is_parsed_once_however_many_ask() -> None:
    payloads = Payloads(PayloadCounters())
    message = Message("t", b'{"a": 1}')
    assert payloads.read(message) is payloads.read(message)
    assert payloads.counters.payloads_parsed == 1


def test_what_cannot_be_read_is_counted() -> None:
    payloads = Payloads(PayloadCounters(), most_bytes=100_000)
    for payload in (b"no", b"\xff\xfe", b"", b'{"a": \xff}'):
        assert payloads.read(Message("t", payload)) is None
    assert payloads.read(Message("t", b"[" * 50_000 + b"]" * 50_000)) is None
    assert payloads.read(Message("t", b'"' + b"x" * 100_000 + b'"')) is None
    counters = payloads.counters
    assert (
        counters.payloads_parsed,
        counters.payloads_not_json,
        counters.payloads_too_deep,
        counters.payloads_too_large,
    ) == (0, 4, 1, 1)


values = st.recursive(
    st.none() | st.booleans() | st.floats() | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
)


@settings(deadline=None)
@given(values)
def test_no_payload_breaks_the_finder(value) -> None:
    finder = PlaceFinder(WGS84)
    place = finder.in_content(value, None)
    assert place is None or all(isinstance(each, float) for each in place)
    for rule in (PlaceRule.of("#", {"lon": "/0", "lat": "/a"}), PlaceRule.of("#", {"geojson": ""})):
        finder.in_content(value, rule)


coordinates = st.floats(-200, 200)


@settings(max_examples=60, deadline=None)
@given(coordinates, coordinates, st.sampled_from([("lon", "lat"), ("lng", "lat"), ("longitude", "latitude")]))
def test_members_are_read_where_they_are_on_earth(lon, lat, names) -> None:
    finder = PlaceFinder(WGS84)
    content = Payloads(PayloadCounters()).read(Message("t", json.dumps({names[0]: lon, names[1]: lat}).encode()))
    on_earth = -180 <= lon <= 180 and -90 <= lat <= 90
    assert finder.in_content(content, None) == ((lon, lat) if on_earth else None)
    assert finder.outside == (not on_earth)


def test_a_plane_knows_x_and_y() -> None:
    finder = PlaceFinder(plane(0, 0, 60, 25))
    assert finder.in_content({"x": 12, "y": 8}, None) == (12, 8)
    assert finder.in_content({"x": 12, "y": 26}, None) is None
    assert PlaceFinder(WGS84).in_content({"x": 12, "y": 8}, None) is None


@pytest.mark.parametrize(
    ("geometry", "place"),
    [
        ({"type": "Point", "coordinates": [1, 2]}, (1, 2)),
        ({"type": "MultiPoint", "coordinates": [[1, 2], [3, 0]]}, (1, 0, 3, 2)),
        ({"type": "Polygon", "coordinates": [[[0, 0], [4, 0], [4, 5], [0, 0]]]}, (0, 0, 4, 5)),
        ({"type": "Feature", "geometry": {"type": "Point", "coordinates": [1, 2]}}, (1, 2)),
        ({"type": "Feature", "geometry": None}, None),
        ({"type": "GeometryCollection", "geometries": []}, None),
        ({"type": "LineString", "coordinates": []}, None),
        ({"type": "Point", "coordinates": [1]}, None),
        ({"coordinates": [1, 2]}, None),
        ("Point", None),
    ],
)
def test_a_geometry_is_a_point_or_the_box_around_it(geometry, place) -> None:
    assert geometry_place(geometry) == place


def test_a_pointer_goes_through_objects_and_lists_and_escapes() -> None:
    rule = PlaceRule.of("a/+", {"lon": "/p~1q/1/m~0n", "lat": "/y"})
    finder = PlaceFinder(WGS84, [rule])
    assert finder.rule_for("a/b") is rule
    assert finder.rule_for("a/b/c") is None
    assert finder.in_content({"p/q": [0, {"m~n": 5}], "y": 6, "lon": 1, "lat": 1}, rule) == (5, 6)
    for content in ({"p/q": [0], "y": 6}, {"p/q": {"1": {"m~n": "5"}}, "y": 6}, [], None, {"lon": 1, "lat": 1}):
        assert finder.in_content(content, rule) is None


@pytest.mark.parametrize(
    "options", [{}, {"lon": "/a"}, {"lon": "/a", "lat": "b"}, {"lon": "", "lat": "", "geojson": ""}]
)
def test_a_rule_that_cannot_be_used_is_named(options) -> None:
    with pytest.raises(BadRuleError, match="places: 't'"):
        PlaceRule.of("t", options)


def test_a_place_in_clauses_is_kept_for_the_retained_message() -> None:
    finder = PlaceFinder(WGS84)
    for topic, place in (("t/@at:1,2", (1, 2)), ("t/@area:1,2,3,4", (1, 2, 3, 4)), ("t/@top:3", None)):
        message = Message("t", b"x", retain=True)
        _, message.clauses = parse_topic(topic)
        assert finder.said(message) == place
        message.keep_place()
        message.clauses = None
        if message.properties is not None:
            message.properties = json.loads(json.dumps(message.properties))
        assert finder.said(message) == place


@settings(deadline=None)
@given(st.one_of(st.integers(), st.floats(allow_nan=False), st.booleans(), st.none(), st.text()))
def test_numbers_are_numbers_only(value) -> None:
    expected = float(value) if isinstance(value, int | float) and not isinstance(value, bool) else None
    assert as_number(value) == expected
    assert number_at({"a": {"b": value}}, ("a", "b")) == expected
    assert number_at({"a": value}, ("a", "b")) is None
