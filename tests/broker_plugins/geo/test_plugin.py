"""`$geo` subscriptions over real sockets: every kind of area, every way to say where a message is."""

from __future__ import annotations

import itertools
import json
from typing import TYPE_CHECKING

import pytest

from tests.broker_plugins.smart import GEO, PLUGINS, SQUARE, heard, payloads, plugins, polygon, topics_heard
from tests.brokers import ALLOW_ANONYMOUS, RunningBroker, free_port, locus
from tests.mqtt_wire import DISCONNECT, Kind, Wire, acknowledge, connect, publish, unsubscribe, wait_for

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

numbers = itertools.count()


@pytest.fixture(scope="module")
def broker() -> Iterator[RunningBroker]:
    rules = {"buses/+": {"lon": "/gps/0", "lat": "/gps/1"}, "shapes/#": {"geojson": "/feature"}}
    with locus(plugins=plugins({"places": rules, "track": ["taxis/+/pos"]})) as running:
        yield running


@pytest.fixture
def topic() -> str:
    """A topic that no other test uses."""
    return f"t{next(numbers)}"


@pytest.fixture
def clients(broker: RunningBroker) -> Iterator[tuple[Wire, Wire]]:
    number = next(numbers)
    with connect(broker.port, f"listener-{number}") as listener, connect(broker.port, f"sender-{number}") as sender:
        yield listener, sender


AREAS = {
    "bbox:126.9,37.4,127.1,37.6": ([(127, 37.5), (126.9, 37.4), (127.1, 37.6)], [(126.8, 37.5), (127, 37.61)]),
    "bbox:170,-20,-170,-10": ([(175, -15), (-175, -15), (180, -15), (-180, -12)], [(165, -15), (0, -15)]),
    "circle:126.97,37.56,500m": ([(126.97, 37.56), (126.97, 37.5644)], [(126.97, 37.5646), (127.97, 37.56)]),
    "circle:179.999,0,1km": ([(-179.999, 0), (179.995, 0)], [(-179.98, 0)]),
    "circle:0,89.999,1km": ([(180, 89.995), (-90, 90)], [(180, 89.98)]),
    "cell:wydm9": ([(126.97, 37.55)], [(126.95, 37.55)]),
}


@pytest.mark.parametrize("area", AREAS)
def test_an_area_hears_what_happens_in_it_and_nothing_else(area, clients, topic) -> None:
    listener, sender = clients
    inside, outside = AREAS[area]
    assert listener.subscribe((f"$geo/{area}/{topic}/#", 0)) == [0]
    for lon, lat in [*inside, *outside]:
        sender.send(publish(f"{topic}/x/@at:{lon},{lat}", f"{lon},{lat}".encode()))
    assert heard(sender, listener) == [[f"{lon},{lat}" for lon, lat in inside]]


@pytest.mark.parametrize("area", AREAS)
def test_areas_are_the_same_when_there_are_many(area, clients, topic) -> None:
    listener, sender = clients
    inside, outside = AREAS[area]
    listener.subscribe(*((f"$geo/bbox:{x},60,{x + 0.5},61/{topic}/#", 0) for x in range(40)))
    assert listener.subscribe((f"$geo/{area}/{topic}/#", 0)) == [0]
    for lon, lat in [*inside, *outside]:
        sender.send(publish(f"{topic}/x/@at:{lon},{lat}", f"{lon},{lat}".encode()))
    assert heard(sender, listener) == [[f"{lon},{lat}" for lon, lat in inside]]


PLACES = {
    "lon and lat": b'{"lon": 0.5, "lat": 0.5}',
    "lng and lat": b'{"lat": 0.5, "lng": 0.5}',
    "longitude and latitude": b'{"longitude": 0.5, "latitude": 0.5, "speed": 3}',
    "a point": b'{"type": "Point", "coordinates": [0.5, 0.5, 12]}',
    "a feature": b'{"type": "Feature", "geometry": {"type": "Point", "coordinates": [0.5, 0.5]}, "properties": {}}',
    "a line that only its box brings there": b'{"type": "LineString", "coordinates": [[-1, 0.5], [0.1, 2]]}',
}
NO_PLACES = {
    "nothing": b"",
    "binary": b"\x00\xff\xfe",
    "text": b"hello",
    "no object": b"[0.5, 0.5]",
    "no numbers": b'{"lon": "0.5", "lat": "0.5"}',
    "booleans": b'{"lon": true, "lat": true}',
    "half of it": b'{"lon": 0.5}',
    "not on earth": b'{"lon": 0.5, "lat": 91}',
    "a number beyond floats": b'{"lon": 0.5, "lat": ' + b"9" * 400 + b"}",
    "not finite": b'{"lon": 1e999, "lat": 0.5}',
    "huge": b'{"lon": 0.5, "lat": 0.5, "filler": "' + b"x" * 70_000 + b'"}',
    "deep": b'{"lon": 0.5, "lat": 0.5, "filler": ' + b"[" * 30_000 + b"]" * 30_000 + b"}",
    "an empty geometry": b'{"type": "Polygon", "coordinates": []}',
    "a ragged geometry": b'{"type": "LineString", "coordinates": [[0.5, 0.5], [1]]}',
}


@pytest.mark.parametrize("payload", PLACES.values(), ids=PLACES)
def test_a_payload_says_where_it_is(payload, clients, topic) -> None:
    listener, sender = clients
    listener.subscribe((f"$geo/bbox:0,0,1,1/{topic}", 0))
    sender.send(publish(topic, payload))
    assert heard(sender, listener) == [[payload.decode()]]


@pytest.mark.parametrize("payload", NO_PLACES.values(), ids=NO_PLACES)
def test_a_payload_without_a_place_goes_to_nobody_who_asks_for_one(payload, clients, topic) -> None:
    listener, sender = clients
    listener.subscribe((f"$geo/bbox:0,0,1,1/{topic}", 0))
    sender.send(publish(topic, payload), publish(f"{topic}/@at:0.5,0.5", b"with one"))
    assert heard(sender, listener) == [["with one"]]


def test_a_clause_goes_before_the_payload(clients, topic) -> None:
    listener, sender = clients
    listener.subscribe((f"$geo/bbox:0,0,1,1/{topic}", 0))
    sender.send(
        publish(f"{topic}/@at:5,5", b'{"lon": 0.5, "lat": 0.5}'),
        publish(f"{topic}/@at:0.5,0.5", b'{"lon": 5, "lat": 5}'),
    )
    assert heard(sender, listener) == [['{"lon": 5, "lat": 5}']]


def test_a_message_that_matters_in_an_area_reaches_all_who_listen_in_part_of_it(clients, topic) -> None:
    listener, sender = clients
    listener.subscribe((f"$geo/bbox:0,0,1,1/{topic}", 0))
    for area in ("0.9,0.9,3,3", "1,1,2,2", "-5,0.4,-0.1,0.6", "1.1,0,2,1", "0.5,0.5,0.5,0.5", "-1,0.5,2,0.5"):
        sender.send(publish(f"{topic}/@area:{area}", area.encode()))
    assert heard(sender, listener) == [["0.9,0.9,3,3", "1,1,2,2", "0.5,0.5,0.5,0.5", "-1,0.5,2,0.5"]]


def test_a_rule_says_where_the_place_of_a_payload_is(clients) -> None:
    listener, sender = clients
    listener.subscribe(("$geo/bbox:0,0,1,1/buses/+", 0), ("$geo/bbox:0,0,1,1/shapes/#", 0))
    sender.send(
        publish("buses/1", b'{"gps": [0.5, 0.5], "lon": 7, "lat": 7}'),
        publish("buses/2", b'{"gps": [5, 5], "lon": 0.5, "lat": 0.5}'),
        publish("buses/3", b'{"gps": [0.5]}'),
        publish("shapes/a/b", b'{"feature": {"type": "Point", "coordinates": [0.1, 0.1]}}'),
    )
    assert topics_heard(sender, listener) == ["buses/1", "shapes/a/b"]


def test_near_follows_its_client_and_positions_are_never_delivered(clients, topic) -> None:
    listener, sender = clients
    listener.subscribe((f"$geo/near:1km/{topic}", 0), ("locus/#", 0))
    sender.send(publish(f"{topic}/@at:10,10", b"before anyone knows where it is"))
    assert heard(sender, listener) == [[]]
    for position in ((10, 10), (20, 20)):
        listener.send(
            publish("locus/me/position", json.dumps(dict(zip(("lon", "lat"), position, strict=True))).encode())
        )
        assert listener.messages_until_ping() == []
        sender.send(publish(f"{topic}/@at:10,10.001", b"ten"), publish(f"{topic}/@at:20,20.001", b"twenty"))
        assert heard(sender, listener) == [["ten" if position == (10, 10) else "twenty"]]
    listener.send(publish("locus/me/position", b"nonsense"), publish("locus/me/position", b'{"lon": 300, "lat": 0}'))
    listener.messages_until_ping()
    sender.send(publish(f"{topic}/@at:20,20.001", b"still there"))
    assert heard(sender, listener) == [["still there"]]


def test_a_tracked_topic_moves_who_publishes_to_it(clients, topic) -> None:
    listener, sender = clients
    listener.subscribe((f"$geo/near:1km/{topic}", 0), ("taxis/#", 0))
    listener.send(publish("taxis/7/pos", b'{"lon": 30, "lat": 30}'))
    assert [each.topic for each in listener.messages_until_ping()] == ["taxis/7/pos"]
    sender.send(publish(f"{topic}/@at:30,30", b"here"), publish(f"{topic}/@at:10,10", b"there"))
    assert heard(sender, listener) == [["here"]]


def test_who_subscribes_after_telling_its_position_is_there(clients, topic) -> None:
    listener, sender = clients
    listener.send(publish("locus/me/position/@at:40,40", b""))
    listener.subscribe((f"$geo/near:1km/{topic}", 0), (f"$geo/near:100km/{topic}/wide", 0))
    sender.send(publish(f"{topic}/@at:40,40.1", b"far"), publish(f"{topic}/wide/@at:40,40.1", b"wide"))
    assert heard(sender, listener) == [["wide"]]


def report(sender: Wire, topic: str, *places: tuple[float, float]) -> None:
    for number, (lon, lat) in enumerate(places):
        sender.send(publish(f"{topic}/@at:{lon},{lat}", str(number).encode()))


OUT_IN_OUT_OVER = [(-1, 0.5), (0.5, 0.5), (0.6, 0.5), (5, 0.5), (-5, 0.5), (-5, 5), (5, 5)]


@pytest.mark.parametrize(
    ("detect", "expected"), [("inside", ["1", "2"]), ("enter", ["1"]), ("exit", ["3"]), ("cross", ["4"])]
)
@pytest.mark.parametrize("area", ["bbox:0,0,1,1", "circle:0.5,0.5,50km", "fence:detected"])
def test_what_an_object_does_is_detected(detect, expected, area, clients, topic) -> None:
    listener, sender = clients
    sender.send(publish("locus/fence/detected", SQUARE, retain=True))
    sender.messages_until_ping()
    listener.subscribe((f"$geo/{area};detect={detect}/{topic}/+", 0))
    report(sender, f"{topic}/one", *OUT_IN_OUT_OVER)
    assert heard(sender, listener) == [expected]


def test_objects_are_told_apart_by_their_topics(clients, topic) -> None:
    listener, sender = clients
    listener.subscribe((f"$geo/bbox:0,0,1,1;detect=enter/{topic}/+", 0))
    report(sender, f"{topic}/one", (0.5, 0.5))
    report(sender, f"{topic}/two", (0.5, 0.5))
    report(sender, f"{topic}/one", (0.6, 0.6))
    assert topics_heard(sender, listener) == [f"{topic}/one", f"{topic}/two"]


def test_the_way_across_the_antimeridian_is_the_short_one(clients, topic) -> None:
    listener, sender = clients
    listener.subscribe(
        (f"$geo/bbox:179,-1,-179,1;detect=cross/{topic}/pacific", 0),
        (f"$geo/bbox:-1,-1,1,1;detect=cross/{topic}/zero", 0),
    )
    for name in ("pacific", "zero"):
        report(sender, f"{topic}/{name}", (170, 0), (-170, 0))
    assert topics_heard(sender, listener) == [f"{topic}/pacific"]


def test_an_object_enters_for_a_subscriber_that_comes_to_it(clients, topic) -> None:
    listener, sender = clients
    listener.subscribe((f"$geo/near:1km;detect=enter/{topic}", 0), (f"$geo/near:1km;detect=exit/{topic}", 0))
    got = []
    for step, lon in enumerate((50, 60, 60, 50)):
        listener.send(publish(f"locus/me/position/@at:{lon},0", b""))
        assert listener.messages_until_ping() == []
        sender.send(publish(f"{topic}/@at:60,0", f"step {step}".encode()))
        got += heard(sender, listener)[0]
    assert got == ["step 1", "step 3"]


def test_a_fence_follows_what_is_retained_and_is_silent_when_that_is_deleted(clients, topic) -> None:
    listener, sender = clients
    name = f"{topic}-harbour"
    assert listener.subscribe((f"$geo/fence:{name}/{topic}", 0), (f"$geo/fence:{name};detect=exit/{topic}/out", 0)) == [
        0,
        0,
    ]

    def tell(what: str) -> None:
        sender.send(
            publish(f"{topic}/@at:0.5,0.5", f"{what} 0".encode()), publish(f"{topic}/@at:5,5", f"{what} 5".encode())
        )

    tell("none")
    sender.send(publish(f"locus/fence/{name}", SQUARE, retain=True))
    tell("here")
    sender.send(publish(f"{topic}/out/@at:0.5,0.5", b"it is in"))
    sender.send(publish(f"locus/fence/{name}", b'{"type": "Polygon"}', retain=True))
    sender.send(publish(f"locus/fence/{name}", polygon((0, 0), (1, 1), (1, 0), (0, 1)), retain=True))
    sender.send(publish(f"locus/fence/{name}", SQUARE.replace(b"1", b"100"), retain=True))
    tell("refused")
    sender.send(publish(f"locus/fence/{name}", polygon((4, 4), (6, 4), (6, 6), (4, 6)), retain=True))
    tell("there")
    sender.send(publish(f"{topic}/out/@at:0.5,0.5", b"it is out, for the fence has gone"))
    sender.send(publish(f"{topic}/out/@at:5,5", b"it is in again"))
    sender.send(publish(f"locus/fence/{name}", b"", retain=True))
    tell("deleted")
    sender.send(publish(f"{topic}/out/@at:0.5,0.5", b"silence"))
    assert heard(sender, listener) == [["here 0", "refused 0", "there 5", "it is out, for the fence has gone"]]


def test_a_hole_in_a_fence_is_outside(clients, topic) -> None:
    listener, sender = clients
    ring = polygon((0, 0), (9, 0), (9, 9), (0, 9), holes=(((3, 3), (6, 3), (6, 6), (3, 6)),))
    feature = b'{"type": "Feature", "properties": {}, "geometry": ' + ring + b"}"
    sender.send(publish(f"locus/fence/{topic}", feature, retain=True))
    sender.messages_until_ping()
    listener.subscribe((f"$geo/fence:{topic}/{topic}", 0))
    report(sender, topic, (1, 1), (4, 4), (8, 8))
    assert heard(sender, listener) == [["0", "2"]]


def test_a_fence_with_too_many_points_is_refused_with_a_line_in_the_log(topic) -> None:
    with locus(plugins=plugins({"max_fence_points": 5})) as broker, connect(broker.port, "c") as client:
        client.send(publish("locus/fence/small", SQUARE, retain=True))
        pentagon = polygon((0, 0), (2, 0), (2, 1), (1, 2), (0, 1))
        client.send(publish("locus/fence/large", pentagon, retain=True))
        client.messages_until_ping()
        client.subscribe(("locus/fence/#", 0))
        assert [each.topic for each in client.messages_until_ping()] == ["locus/fence/small"]
        assert "fence 'large' stays as it is: 6 points are more than the 5 allowed (max_fence_points)" in broker.log


def test_a_retained_message_is_offered_only_where_it_happened(clients, topic) -> None:
    listener, sender = clients
    sender.send(
        publish(f"{topic}/a/@at:0.5,0.5", b"by clause", retain=True),
        publish(f"{topic}/b", b'{"lon":0.5,"lat":0.5}', retain=True),
        publish(f"{topic}/c/@at:5,5", b"elsewhere", retain=True),
        publish(f"{topic}/d", b"nowhere", retain=True),
        publish(f"{topic}/e/@area:0.5,0.5,7,7", b"partly", retain=True),
    )
    sender.messages_until_ping()
    listener.subscribe((f"$geo/bbox:0,0,1,1/{topic}/#", 0))
    got = listener.messages_until_ping()
    assert payloads(got) == ["by clause", '{"lon":0.5,"lat":0.5}', "partly"]
    assert all(each.retain for each in got)
    listener.subscribe((f"$geo/bbox:0,0,1,1;detect=enter/{topic}/#", 0))
    assert listener.messages_until_ping() == []


@pytest.mark.parametrize("qos", [0, 1, 2])
def test_a_delivery_has_the_lower_of_both_qos(qos, clients, topic) -> None:
    listener, sender = clients
    assert listener.subscribe((f"$geo/bbox:0,0,1,1/{topic}", qos)) == [qos]
    for number in (0, 1):
        sender.send(publish(f"{topic}/@at:0.5,0.5", str(number).encode(), qos=number, packet_id=7))
    sender.messages_until_ping()
    assert [each.qos for each in listener.messages_until_ping()] == [0, min(qos, 1)]


def test_a_client_with_several_matching_filters_gets_one_copy_at_the_highest_qos(clients, topic) -> None:
    listener, sender = clients
    listener.subscribe((f"$geo/bbox:0,0,1,1/{topic}", 0), (f"$geo/circle:0.5,0.5,5km/{topic}", 1), (topic, 0))
    sender.send(publish(f"{topic}/@at:0.5,0.5", b"once", qos=1))
    sender.messages_until_ping()
    assert [(each.payload, each.qos) for each in listener.messages_until_ping()] == [(b"once", 1)]


def test_unsubscribe_takes_the_string_that_was_subscribed(clients, topic) -> None:
    listener, sender = clients
    listener.subscribe((f"$geo/circle:0.50,0.5,5km/{topic}", 0))
    listener.send(unsubscribe(f"$geo/circle:0.5,0.5,5km/{topic}"))
    listener.expect(Kind.UNSUBACK)
    sender.send(publish(f"{topic}/@at:0.5,0.5", b"another string"))
    assert heard(sender, listener) == [["another string"]]
    listener.send(unsubscribe(f"$geo/circle:0.50,0.5,5km/{topic}"))
    listener.expect(Kind.UNSUBACK)
    sender.send(publish(f"{topic}/@at:0.5,0.5", b"the same"))
    assert heard(sender, listener) == [[]]


def test_members_of_a_group_share_what_happens_in_their_area(broker, clients, topic) -> None:
    one, sender = clients
    with connect(broker.port, "another member") as two:
        for member in (one, two):
            member.subscribe((f"$share/g/$geo/bbox:0,0,1,1/$where/n>=0/{topic}", 0))
        for number in range(4):
            sender.send(publish(f"{topic}/@at:0.5,0.5", json.dumps({"n": number}).encode()))
        sender.send(publish(f"{topic}/@at:5,5", b'{"n":9}'), publish(f"{topic}/@at:0.5,0.5", b'{"n":-1}'))
        first, second = heard(sender, one, two)
    assert len(first) == len(second) == 2
    assert sorted(first + second) == [json.dumps({"n": number}) for number in range(4)]


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("$geo/circle:126.97,37.56,500/v/#", "RADIUS needs a unit"),
        ("$geo/bbox:0,0,1,91/v", "latitude 91 is not in -90..90"),
        ("$geo/box:0,0,1,1/v", "not a kind of area"),
        ("$geo/near:5m/$geo/near:5m/v", "said twice"),
        ("$geo/near:5m", "a filter is missing"),
    ],
)
def test_what_does_not_parse_gets_0x80_and_one_line(text, reason, broker, clients) -> None:
    listener, _ = clients
    before = broker.log.count(reason)
    assert listener.subscribe((text, 1), ("fine", 1)) == [0x80, 1]
    wait_for(lambda: broker.log.count(reason) == before + 1, "the line in the log")


def test_without_the_plugin_geo_is_refused() -> None:
    with locus(plugins=ALLOW_ANONYMOUS) as broker, connect(broker.port, "c") as client:
        assert client.subscribe(("$geo/near:5m/v", 0)) == [0x80]
        assert "no plugin of this broker serves $geo" in broker.log


def test_a_plane_has_coordinates_of_its_own() -> None:
    with (
        locus(plugins={**ALLOW_ANONYMOUS, GEO: {"plane": [0, 0, 60, 25]}}) as broker,
        connect(broker.port, "listener") as listener,
        connect(broker.port, "sender") as sender,
    ):
        assert listener.subscribe(("$geo/circle:12,8.5,2.5/robots/#", 0)) == [0]
        assert listener.subscribe(("$geo/circle:12,28.5,2.5/robots/#", 0)) == [0x80]
        sender.send(
            publish("robots/1", b'{"x": 12, "y": 11}'),
            publish("robots/2", b'{"x": 12, "y": 11.1}'),
            publish("robots/3/@at:10,8", b""),
            publish("robots/4", b'{"x": 70, "y": 8.5}'),
        )
        assert topics_heard(sender, listener) == ["robots/1", "robots/3"]


def test_everything_is_there_again_after_a_crash(tmp_path: Path) -> None:
    port = free_port()
    with locus(plugins=PLUGINS, directory=tmp_path, port=port) as broker:
        client = connect(port, "roamer", clean=False)
        sender = connect(port, "sender")
        sender.send(
            publish("locus/fence/f", SQUARE, qos=1, packet_id=1, retain=True),
            publish("r/in/@at:0.5,0.5", b"retained", qos=1, packet_id=2, retain=True),
            publish("r/out/@at:5,5", b"retained elsewhere", qos=1, packet_id=3, retain=True),
        )
        for _ in range(3):
            sender.expect(Kind.PUBACK)
        assert client.subscribe(("$geo/fence:f/$where/n>1/live/#", 1)) == [1]
        client.send(DISCONNECT)
        client.wait_until_closed()
        sender.send(publish("live/1/@at:0.5,0.5", b'{"n":2}', qos=1, packet_id=4))
        sender.expect(Kind.PUBACK)
        broker.kill()
    with locus(plugins=PLUGINS, directory=tmp_path, port=port):
        sender = connect(port, "sender")
        for number, (topic, payload) in enumerate(
            [("live/2/@at:0.5,0.5", b'{"n":3}'), ("live/3/@at:5,5", b'{"n":4}'), ("live/4/@at:0.5,0.5", b'{"n":0}')], 1
        ):
            sender.send(publish(topic, payload, qos=1, packet_id=number))
            sender.expect(Kind.PUBACK)
        client = connect(port, "roamer", clean=False)
        assert [each.topic for each in client.messages(2)] == ["live/1", "live/2"]
        assert client.messages_until_ping() == []
        assert sender.subscribe(("$geo/fence:f/r/#", 0)) == [0]
        assert payloads(sender.messages_until_ping()) == ["retained"]


def test_qos_2_is_delivered_once(clients, topic) -> None:
    listener, sender = clients
    listener.subscribe((f"$geo/bbox:0,0,1,1/{topic}", 2))
    sender.send(publish(f"{topic}/@at:0.5,0.5", b"exactly once", qos=2, packet_id=9))
    sender.expect(Kind.PUBREC)
    sender.send(acknowledge(Kind.PUBREL, 9))
    sender.expect(Kind.PUBCOMP)
    assert payloads(listener.messages(1)) == ["exactly once"]
    assert listener.messages_until_ping() == []
