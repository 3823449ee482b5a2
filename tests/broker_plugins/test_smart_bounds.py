"""Smart subscriptions leave nothing behind, grow no table without end and do nothing in vain."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest

from broker_plugins.geo import GeoOptions
from broker_plugins.places import BadRuleError
from broker_plugins.ranked import RankedOptions
from tests.broker_plugins.smart import GEO, RANKED, SQUARE, Desk, polygon
from tests.brokers import ALLOW_ANONYMOUS, locus

if TYPE_CHECKING:
    from collections.abc import Iterator


@pytest.fixture
def desk() -> Iterator[Desk]:
    made = Desk()
    yield made
    made.close()


FILTERS = [
    "$geo/bbox:0,0,1,1/t/#",
    "$geo/circle:0.5,0.5,5km/t/#",
    "$geo/cell:s/t/#",
    "$geo/fence:f/t/#",
    "$geo/fence:g;detect=exit/t/#",
    "$geo/near:5km/t/#",
    "$geo/near:5km;detect=cross/t/#",
    "$geo/near:7km/$where/v>1/t/+",
    "$where/v=1..2,w>3/t/+",
    "$where/v=1..2,w>3/t/x",
    "$share/g/$where/v=1..2/t/x",
    "$share/g/$geo/bbox:0,0,1,1/t/x",
]


def kept(desk: Desk) -> list[int]:
    """How much the plugins remember."""
    geo, ranked = desk.geo, desk.ranked
    tables = (geo._groups, geo._tree, geo._fences, geo._near, geo._tracks, geo._positions)
    more = (ranked._shelves, ranked._tree, ranked._wishes)
    return [len(table) for table in (*tables, *more)]


def test_nothing_is_left_of_clients_that_have_gone(desk) -> None:
    empty = kept(desk)
    for how in ("unsubscribe", "end"):
        sessions = [desk.session(f"{how}-{number}") for number in range(40)]
        for session in sessions:
            for text in FILTERS:
                desk.subscribe(session, text)
                desk.subscribe(session, text, qos=1)
            desk.publish("locus/me/position/@at:0.5,0.5", sender=session)
        desk.publish("locus/fence/g", SQUARE, retain=True)
        assert len(set(desk.publish("t/x/@at:0.5,0.5", b'{"v":1.5,"w":4}'))) == 40
        assert desk.geo.counters.subscriptions == 40 * 9
        assert desk.ranked.counters.subscriptions == 40 * 3
        for session in sessions:
            if how == "unsubscribe":
                for text in FILTERS:
                    desk.unsubscribe(session, text)
            desk.end(session)
        assert kept(desk) == empty
        assert desk.geo.counters.subscriptions == desk.ranked.counters.subscriptions == 0
        assert desk.geo.counters.filters == desk.ranked.counters.filters == desk.geo.counters.fences == 0
        assert desk.publish("t/x/@at:0.5,0.5", b'{"v":1.5,"w":4}') == []


def test_nobody_parses_what_nobody_needs(desk) -> None:
    session = desk.session("s")
    payloads = desk.geo.payloads
    assert payloads is desk.ranked.payloads
    payload = b'{"lon": 0.5, "lat": 0.5, "v": 5}'
    desk.subscribe(session, "t")
    desk.publish("t", payload)
    desk.publish("t/@top:1;at:1,1", payload)
    assert payloads.counters.payloads_parsed == 0
    desk.subscribe(session, "$geo/bbox:0,0,1,1/g")
    desk.publish("g/@at:0.5,0.5", payload)
    desk.publish("other", payload)
    assert payloads.counters.payloads_parsed == 0
    desk.subscribe(session, "$geo/bbox:0,0,1,1/$where/v>1/t")
    desk.subscribe(session, "$where/v>1/t")
    desk.subscribe(session, "$where/v>2/+")
    desk.publish("t", payload)
    assert payloads.counters.payloads_parsed == 1


def test_messages_and_positions_without_a_place_are_counted(desk) -> None:
    session = desk.session("s")
    desk.subscribe(session, "$geo/bbox:0,0,1,1/t")
    for payload in (b"x", b'{"lon": 0.5, "lat": 0.5}', b'{"lon": 200, "lat": 0.5}'):
        desk.publish("t", payload)
        desk.publish("locus/me/position", payload)
    desk.publish("locus/me/position/@area:0,0,1,1")
    counters = desk.geo.counters
    assert (counters.messages, counters.without_place) == (1, 2)
    assert (counters.positions, counters.bad_positions) == (1, 3)
    assert counters.outside_space == 2
    assert desk.geo.payloads.counters.payloads_not_json == 2


def test_objects_are_forgotten_beyond_the_bound() -> None:
    desk = Desk(GeoOptions(max_tracked_objects=10))
    session = desk.session("s")
    desk.subscribe(session, "$geo/bbox:0,0,1,1;detect=enter/t/+")
    for _ in range(2):
        entered = [len(desk.publish(f"t/{number}/@at:0.5,0.5")) for number in range(20)]
        assert entered == [1] * 20  # those forgotten are new again
    assert desk.publish("t/19/@at:0.5,0.5") == []
    assert desk.geo.counters.tracked_objects == 10
    assert desk.geo.counters.forgotten_objects == 30
    desk.close()


def test_topics_are_forgotten_beyond_the_bound() -> None:
    desk = Desk(GeoOptions(max_topics=10), RankedOptions(max_topics=10))
    session = desk.session("s")
    desk.subscribe(session, "$geo/bbox:0,0,1,1/t/+")
    desk.subscribe(session, "$where/v>0/t/+")
    for number in range(100):
        assert desk.publish(f"t/{number}/@at:0.5,0.5", b'{"v":1}') == ["s"]
    assert len(desk.geo._plans) <= 10
    assert len(desk.ranked._plans) <= 10
    desk.close()


def test_many_filters_with_few_areas_each(desk) -> None:
    session = desk.session("s")
    for number in range(3_000):
        desk.subscribe(session, f"$geo/bbox:{number % 10},0,{number % 10 + 1},1/t/{number // 3}")
        desk.subscribe(session, f"$where/v={number % 10}/u/{number // 3}")
    assert desk.geo.counters.filters == desk.ranked.counters.filters == 1_000
    assert desk.publish("t/100/@at:0.5,0.5") == ["s"]
    assert desk.publish("t/101/@at:0.5,0.5") == []
    assert [desk.publish("u/100", json.dumps({"v": value}).encode()) for value in (0, 3)] == [["s"], []]
    # Small filters are lists, not indexes of their own.
    assert all(group._index is None for group in desk.geo._groups.values())
    assert not any(shelf._indexes for shelf in desk.ranked._shelves.values())


def test_equal_areas_are_one_spot(desk) -> None:
    desk.publish("locus/fence/f", polygon((0, 0), (1, 0), (1, 1)), retain=True)
    for number in range(100):
        session = desk.session(f"s{number}")
        desk.subscribe(session, "$geo/fence:f/t")
        desk.subscribe(session, "$geo/bbox:0,0,1,1;detect=exit/t")
        desk.subscribe(session, "$geo/bbox:0,0,1,1/t")
    assert len(desk.geo._groups["t"].spots) == 2
    assert len(desk.publish("t/@at:0.7,0.1")) == 100


def test_an_index_for_another_rule_is_built_while_messages_flow() -> None:
    rules = {"jobs/a": {"attributes": {"v": [0, 100]}}, "jobs/b": {"attributes": {"w": [0, 100]}}}
    desk = Desk(ranked=RankedOptions(topics=rules))
    for number in range(600):
        session = desk.session(f"s{number}")
        desk.subscribe(session, f"$where/v=0..{number % 90 + 1},w=0..{90 - number % 90}/jobs/+")
    payload = b'{"v":0.5,"w":0.5}'
    first = desk.publish("jobs/a/@top:3", payload)
    assert first == ["s0", "s90", "s180"]
    shelf = desk.ranked._shelves["jobs/+"]
    assert shelf._building
    while shelf._building:
        assert desk.publish("jobs/b/@top:3", payload) == ["s89", "s179", "s269"]
        desk.turn()
    assert desk.publish("jobs/b/@top:3", payload) == ["s89", "s179", "s269"]
    assert {rule.text for rule in shelf._indexes} >= {"jobs/a", "jobs/b"}
    desk.close()


def test_a_plugin_that_refuses_an_area_leaves_nothing(desk) -> None:
    session = desk.session("s")
    empty = kept(desk)
    assert "latitude 95" in desk.refusal(session, "$geo/bbox:0,0,1,95/t")
    assert kept(desk) == empty


@pytest.mark.parametrize(
    ("options", "values"),
    [
        (GeoOptions, {"max_topics": 0}),
        (GeoOptions, {"plane": [1, 2, 3]}),
        (RankedOptions, {"max_receipt_receivers": 0}),
    ],
)
def test_options_that_make_no_sense_are_named(options, values) -> None:
    with pytest.raises(BadRuleError, match=next(iter(values))):
        options(**values)


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        ({GEO: {"places": {"t": {"lon": "/x"}}}}, "places: 't' has"),
        ({GEO: {"places": {"a+": {"geojson": ""}}}}, "places: 'a\\+' is no topic filter"),
        ({GEO: {"plane": [0, 0]}}, "plane: \\[0, 0\\] is not west"),
        ({RANKED: {"topics": {"t": {"top": -1}}}}, "top is -1"),
        ({RANKED: {"unheard_of": 1}}, "unheard_of"),
    ],
)
def test_a_broker_does_not_start_with_rules_that_make_no_sense(options, reason) -> None:
    with pytest.raises(RuntimeError, match=reason), locus(plugins={**ALLOW_ANONYMOUS, **options}):
        pass
