from __future__ import annotations

import json
import math
from dataclasses import dataclass

from hypothesis import given
from hypothesis import strategies as st
from paho.mqtt.client import topic_matches_sub

from broker_plugins.grammar import WGS84, Position, SmartFilter, parse_filter, plane
from clients.messages import Message
from clients.routing import choose, topic_matches

LEVELS = st.sampled_from(["a", "b", "", "$x"])
TOPICS = st.lists(LEVELS, min_size=1, max_size=4).map("/".join).filter(bool)
FILTERS = (
    st.tuples(st.lists(LEVELS | st.just("+"), max_size=4), st.booleans())
    .map(lambda parts: "/".join([*parts[0], *(["#"] if parts[1] else [])]))
    .filter(bool)
)


@dataclass(frozen=True)
class Filter:
    smart: SmartFilter


def parsed(*texts: str, space=WGS84) -> list[Filter]:
    return [Filter(parse_filter(text, space)) for text in texts]


def chosen(filters: list[Filter], payload: object, *, space=WGS84, place_of=lambda message: message.place):
    raw = payload if isinstance(payload, bytes) else json.dumps(payload).encode()
    picked = choose(filters, Message("v", raw), space, place_of)
    return [filters.index(one) for one in picked]


@given(FILTERS, TOPICS)
def test_topics_match_as_paho_has_it(topic_filter, topic):
    assert topic_matches(topic_filter, topic) == topic_matches_sub(topic_filter, topic)


def test_numbers_tell_subscriptions_apart():
    fast, slow, nested = parsed("$where/speed>80/v", "$where/speed<=20/v", "$where/engine.t=90..95/v")
    assert chosen([fast, slow, nested], {"speed": 90}) == [0]
    assert chosen([fast, slow, nested], {"speed": 20, "engine": {"t": 95}}) == [1, 2]


def test_a_truth_value_is_no_number():
    assert chosen(parsed("$where/on=1/v", "v"), {"on": True}) == [1]


def test_places_tell_subscriptions_apart():
    filters = parsed("$geo/bbox:0,0,10,10/v", "$geo/circle:20,20,1km/v", "$geo/cell:s0/v", "$geo/bbox:170,-5,-170,5/v")
    assert chosen(filters, {"lon": 5, "lat": 9}) == [0]
    assert chosen(filters, {"lng": 20.001, "lat": 20}) == [1]
    assert chosen(filters, {"longitude": 1, "latitude": 1}) == [0, 2]
    assert chosen(filters, {"type": "Point", "coordinates": [-175, 0]}) == [3]
    feature = {"type": "Feature", "geometry": {"type": "Point", "coordinates": [180, 5, 17]}, "properties": {}}
    assert chosen(filters, feature) == [3]


def test_one_place_with_two_names():
    west, east = parsed("$geo/bbox:-180,-5,-170,90/v", "$geo/bbox:160,-5,170,5/v")
    assert chosen([west, east], {"lon": 180, "lat": 0}) == [0]
    assert chosen([west, east], {"lon": 33, "lat": 90}) == [0]


def test_what_only_the_broker_knows_is_given_the_benefit_of_the_doubt():
    filters = parsed("$geo/near:1m/v", "$geo/fence:harbour/v", "$geo/bbox:0,0,1,1;detect=exit/v", "$geo/bbox:0,0,1,1/v")
    assert chosen(filters, {"lon": 50, "lat": 50}) == [0, 1, 2]


def test_a_message_that_hides_its_place_goes_to_all():
    assert chosen(parsed("$geo/bbox:0,0,1,1/v", "$geo/bbox:5,5,6,6/v"), b"\xff binary") == [0, 1]


def test_a_message_that_seems_to_be_for_nobody_goes_to_all():
    """Its place came in a clause that the broker took off, whatever the payload says."""
    assert chosen(parsed("$geo/bbox:0,0,1,1/v", "$geo/bbox:5,5,6,6/v"), {"lon": 50, "lat": 50}) == [0, 1]


def test_the_application_may_know_better_where_a_message_is():
    filters = parsed("$geo/bbox:0,0,1,1/v", "$geo/bbox:5,5,6,6/v")
    assert chosen(filters, {"lon": 0, "lat": 0}, place_of=lambda message: Position(5.5, 5.5)) == [1]
    assert chosen(filters, {"lon": 0, "lat": 0}, place_of=None) == [0, 1]


def test_a_single_candidate_is_not_judged():
    assert chosen(parsed("$where/speed>80/v"), b"not even JSON") == [0]


def test_planes_are_flat():
    floor = plane(0, 0, 400, 400)
    filters = parsed("$geo/bbox:0,0,10,10/v", "$geo/circle:200,200,5/v", space=floor)
    assert chosen(filters, {"lon": 200, "lat": 204}, space=floor) == [1]
    assert chosen(filters, {"lon": 365, "lat": 5}, space=floor) == [0, 1]  # 5 + 360 is not 5, so nobody, so all


@given(st.floats(-179, 179), st.floats(-89, 89), st.floats(0.001, 300), st.floats(-180, 180), st.floats(-90, 90))
def test_boxes_hold_what_is_in_them(west, south, width, lon, lat):
    east = west + width if west + width <= 180 else west + width - 360
    north = min(90.0, south + 5)
    inside = south <= lat <= north and any(west <= lon + turn <= west + width for turn in (-360, 0, 360))
    edges = [abs((lon - edge) % 360) for edge in (west, west + width)]
    near_an_edge = any(min(edge, 360 - edge) < 1e-6 for edge in edges) or min(abs(lat - south), abs(lat - north)) < 1e-6
    if near_an_edge or abs(lat) > 90 - 1e-6:
        return
    filters = [Filter(parse_filter(f"$geo/bbox:{west:.12f},{south:.12f},{east:.12f},{north:.12f}/v")), *parsed("v")]
    assert chosen(filters, {"lon": lon, "lat": lat}) == ([0, 1] if inside else [1])
    assert math.isfinite(lon)
