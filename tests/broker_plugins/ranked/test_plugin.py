"""`$where` subscriptions and the k best receivers, over real sockets."""

from __future__ import annotations

import itertools
import json
from typing import TYPE_CHECKING

import pytest

from tests.broker_plugins.smart import PLUGINS, heard, payloads, plugins
from tests.brokers import ALLOW_ANONYMOUS, RunningBroker, free_port, locus
from tests.mqtt_wire import DISCONNECT, Kind, Wire, connect, publish, unsubscribe, wait_for

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

numbers = itertools.count()
ATTRIBUTES = {"age": [0, 100], "pay": [0, 1000]}
TOPICS = {"best/#": {"attributes": ATTRIBUTES, "top": 1}, "free/#": {}, "#": {"attributes": ATTRIBUTES}}


@pytest.fixture(scope="module")
def broker() -> Iterator[RunningBroker]:
    with locus(plugins=plugins(ranked={"topics": TOPICS})) as running:
        yield running


@pytest.fixture
def topic() -> str:
    """A topic that no other test uses."""
    return f"t{next(numbers)}"


@pytest.fixture
def clients(broker: RunningBroker) -> Iterator[list[Wire]]:
    """Four listeners and a sender."""
    wires = [connect(broker.port, f"client-{next(numbers)}") for _ in range(5)]
    yield wires
    for wire in wires:
        wire.close()


def numbers_heard(sender: Wire, *listeners: Wire) -> list[list[int]]:
    return [[json.loads(payload)["n"] for payload in each] for each in heard(sender, *listeners)]


CONDITIONS = {
    "v=7": ([7, 7.0], [6, 8, 6.999]),
    "v=20..25": ([20, 22.5, 25], [19.9, 25.1]),
    "v>5": ([5.0000001, 1e300], [5, -7]),
    "v>=5": ([5], [4.99]),
    "v<-2": ([-3], [-2, 0]),
    "v<=-2,v>-5": ([-2, -4.9], [-5, -1]),
}


@pytest.mark.parametrize("conditions", CONDITIONS)
@pytest.mark.parametrize("crowd", [0, 200])
def test_conditions_pick_payloads_by_their_numbers(conditions, crowd, clients, topic) -> None:
    listener, *_, sender = clients
    inside, outside = CONDITIONS[conditions]
    listener.subscribe(
        *((f"$where/other={number}/{topic}", 0) for number in range(crowd)), (f"$where/{conditions}/{topic}", 0)
    )
    for value in [*inside, *outside]:
        sender.send(publish(topic, json.dumps({"v": value}).encode()))
    got = [json.loads(payload)["v"] for payload in heard(sender, listener)[0]]
    assert got == inside


NO_NUMBERS = {
    "nothing": b"",
    "binary": b"\xff",
    "a number": b"7",
    "a list": b"[7]",
    "another attribute": b'{"w":7}',
    "a string": b'{"v":"7"}',
    "a truth": b'{"v":true}',
    "null": b'{"v":null}',
    "an object": b'{"v":{"v":7}}',
    "beyond floats": b'{"v":' + b"9" * 500 + b"}",
    "huge": b'{"v":7,"x":"' + b"x" * 70_000 + b'"}',
    "deep": b'{"v":7,"x":' + b"[" * 9_000 + b"]" * 9_000 + b"}",
}


@pytest.mark.parametrize("payload", NO_NUMBERS.values(), ids=NO_NUMBERS)
def test_a_payload_without_the_number_does_not_match(payload, clients, topic) -> None:
    listener, *_, sender = clients
    listener.subscribe((f"$where/v>=-1000000/{topic}", 0))
    sender.send(publish(topic, payload), publish(topic, b'{"v":1}'))
    assert heard(sender, listener) == [['{"v":1}']]


def test_dots_reach_inside(clients, topic) -> None:
    listener, *_, sender = clients
    listener.subscribe((f"$where/battery.level<20,pos.alt>0/{topic}/+", 0))
    for number, (level, alt) in enumerate([(10, 5), (30, 5), (10, -5)]):
        payload = {"n": number, "battery": {"level": level}, "pos": {"alt": alt}}
        sender.send(publish(f"{topic}/x", json.dumps(payload).encode()))
    assert numbers_heard(sender, listener) == [[0]]


def test_more_attributes_than_the_index_has_room_for(clients, topic) -> None:
    one, two, *_, sender = clients
    one.subscribe(*((f"$where/a{number}>=1/{topic}", 0) for number in range(200)))
    wide = ",".join(f"z{number}=1" for number in range(16))
    two.subscribe((f"$where/{wide}/{topic}", 0))
    sender.send(
        publish(topic, b'{"n":0,"a150":1}'),
        publish(topic, json.dumps({"n": 1, **{f"z{number}": 1 for number in range(16)}}).encode()),
        publish(topic, json.dumps({"n": 2, **{f"z{number}": 1 for number in range(15)}}).encode()),
    )
    assert numbers_heard(sender, one, two) == [[0], [1]]


def test_the_k_most_accurate_get_it(clients, topic) -> None:
    narrow, wide, undeclared, plain, sender = clients
    plain.subscribe((f"{topic}/#", 0))
    wide.subscribe((f"$where/age=20..60/{topic}/#", 0))
    undeclared.subscribe((f"$where/shoe=40..41/{topic}/#", 0))
    narrow.subscribe((f"$where/age=20..30/{topic}/#", 0))
    for number in (1, 2, 3, 4, 9):
        sender.send(publish(f"{topic}/x/@top:{number}", json.dumps({"n": number, "age": 25, "shoe": 40}).encode()))
    # Undeclared attributes do not rank: the older of the two that cover everything goes first.
    assert numbers_heard(sender, narrow, wide, plain, undeclared) == [[1, 2, 3, 4, 9], [2, 3, 4, 9], [3, 4, 9], [4, 9]]


def test_several_attributes_multiply(clients, topic) -> None:
    one, two, three, _, sender = clients
    one.subscribe((f"$where/age=0..50/{topic}", 0))
    two.subscribe((f"$where/age=0..90,pay=0..500/{topic}", 0))
    three.subscribe((f"$where/pay=0..440/{topic}", 0))
    for top in (1, 2, 3):
        sender.send(publish(f"{topic}/@top:{top}", json.dumps({"n": top, "age": 5, "pay": 5}).encode()))
    assert numbers_heard(sender, three, two, one) == [[1, 2, 3], [2, 3], [3]]


def test_ties_go_to_the_older_subscription_and_making_it_anew_keeps_its_age(clients, topic) -> None:
    one, two, *_, sender = clients
    one.subscribe((f"$where/age=0..9/{topic}", 0))
    two.subscribe((f"$where/age=1..10/{topic}", 0))
    one.subscribe((f"$where/age=0..9/{topic}", 1))
    sender.send(publish(f"{topic}/@top:1", b'{"n":1,"age":5}'))
    assert numbers_heard(sender, one, two) == [[1], []]
    one.send(unsubscribe(f"$where/age=0..9/{topic}"))
    one.expect(Kind.UNSUBACK)
    one.subscribe((f"$where/age=0..9/{topic}", 1))
    sender.send(publish(f"{topic}/@top:1", b'{"n":2,"age":5}'))
    assert numbers_heard(sender, one, two) == [[], [2]]


def test_a_rule_cuts_where_the_message_says_nothing(clients) -> None:
    one, two, *_, sender = clients
    two.subscribe(("$where/age=0..50/best/x", 0))
    one.subscribe(("$where/age=0..20/best/x", 0))
    sender.send(publish("best/x", b'{"n":1,"age":5}'), publish("best/x/@top:2", b'{"n":2,"age":5}'))
    assert numbers_heard(sender, one, two) == [[1, 2], [2]]


def test_top_counts_only_who_can_get_it(broker, topic) -> None:
    with connect(broker.port, f"{topic}-sender") as sender, connect(broker.port, f"{topic}-wide") as wide:
        wide.subscribe((f"$where/age=0..90/{topic}", 1))
        away = connect(broker.port, f"{topic}-away", clean=False)
        away.subscribe((f"$where/age=0..10/{topic}", 1))
        gone = connect(broker.port, f"{topic}-gone")
        gone.subscribe((f"$where/age=0..5/{topic}", 1))
        for client in (away, gone):
            client.send(DISCONNECT)
            client.wait_until_closed()
        sender.send(publish(f"{topic}/@top:1", b'{"n":0,"age":5}', qos=0))
        sender.send(publish(f"{topic}/@top:1", b'{"n":1,"age":5}', qos=1))
        sender.expect(Kind.PUBACK)
        # Nothing of QoS 0 waits for the persistent session that is away; at QoS 1 it is the best receiver.
        assert numbers_heard(sender, wide) == [[0]]
        with connect(broker.port, f"{topic}-away", clean=False) as back:
            assert payloads(back.messages(1)) == ['{"n":1,"age":5}']


def test_a_client_counts_once_and_gets_the_highest_qos_of_its_filters(clients, topic) -> None:
    one, two, *_, sender = clients
    one.subscribe((f"$where/age=0..10/{topic}", 0), (f"$where/age=0..20/{topic}", 0), (f"$where/age=0..90/{topic}", 1))
    two.subscribe((f"$where/age=0..50/{topic}", 1))
    sender.send(publish(f"{topic}/@top:2", b'{"n":1,"age":5}', qos=1))
    sender.expect(Kind.PUBACK)
    sender.messages_until_ping()
    assert [[each.qos for each in wire.messages_until_ping()] for wire in (one, two)] == [[1], [1]]


def test_a_shared_group_is_one_receiver(broker, clients, topic) -> None:
    one, two, three, four, sender = clients
    for member in (one, two):
        member.subscribe((f"$share/g/$where/age=0..10/{topic}", 0))
    three.subscribe((f"$where/age=0..20/{topic}", 0))
    four.subscribe((f"$where/age=0..30/{topic}", 0))
    for number in range(4):
        sender.send(publish(f"{topic}/@top:2", json.dumps({"n": number, "age": 5}).encode()))
    first, second, third, fourth = numbers_heard(sender, one, two, three, four)
    assert sorted(first + second) == third == [0, 1, 2, 3]
    assert len(first) == len(second) == 2
    assert fourth == []


@pytest.mark.parametrize("named", [False, True])
def test_a_receipt_tells_who_matched_best_first(named, topic) -> None:
    options = {"topics": TOPICS, "name_receivers": named, "max_receipt_receivers": 2}
    with locus(plugins=plugins(ranked=options)) as broker:
        wires = {name: connect(broker.port, name) for name in ("wide", "narrow", "plain", "member", "sender")}
        wires["wide"].subscribe(("$where/age=0..50/jobs", 0))
        wires["narrow"].subscribe(("$where/age=0..10/jobs", 0))
        wires["plain"].subscribe(("jobs", 0))
        wires["member"].subscribe(("$share/g/$where/age=0..20/jobs", 0))
        sender = wires["sender"]
        sender.subscribe(("receipts/#", 1))
        sender.send(publish("jobs/@top:2;reply:receipts/1", b'{"age":5}', qos=1))
        sender.send(publish("jobs/@reply:receipts/2", b'{"age":60}', qos=0))
        sender.send(publish("jobs/@reply:receipts/3", b'{"age":5}', qos=0))
        got = {each.topic: (each.qos, json.loads(each.payload)) for each in sender.messages(3)}
        who = [{"client": "narrow"}, {"group": "g"}, {"client": "plain"}] if named else [{}, {}, {}]
        best = {"rank": 1, "accuracy": 0.1, **who[0]}, {"rank": 2, "accuracy": 0.2, **who[1]}
        assert got == {
            "receipts/1": (1, {"topic": "jobs", "count": 2, "receivers": list(best)}),
            "receipts/2": (0, {"topic": "jobs", "count": 1, "receivers": [{"rank": 1, "accuracy": 1.0, **who[2]}]}),
            "receipts/3": (0, {"topic": "jobs", "count": 4, "receivers": list(best)}),
        }


def test_retained_messages_are_offered_where_their_numbers_match(clients, topic) -> None:
    listener, *_, sender = clients
    for number, age in enumerate((5, 50, "old")):
        sender.send(publish(f"{topic}/{number}", json.dumps({"n": number, "age": age}).encode(), retain=True))
    sender.messages_until_ping()
    listener.subscribe((f"$where/age<20/{topic}/#", 0))
    assert [each.topic for each in listener.messages_until_ping()] == [f"{topic}/0"]


def test_geo_and_where_rank_together(clients, topic) -> None:
    both, where, geo, _, sender = clients
    geo.subscribe((f"$geo/bbox:0,0,1,1/{topic}", 0))
    where.subscribe((f"$where/age=0..50/{topic}", 0))
    both.subscribe((f"$where/age=0..10/$geo/bbox:0,0,1,1/{topic}", 0))
    for number, place in enumerate(("0.5,0.5", "5,5")):
        sender.send(publish(f"{topic}/@top:2;at:{place}", json.dumps({"n": number, "age": 5}).encode()))
    sender.send(publish(f"{topic}/@at:0.5,0.5", b'{"n":2,"age":30}'))
    assert numbers_heard(sender, both, where, geo) == [[0], [0, 1, 2], [2]]


def test_unsubscribed_and_ended_sessions_are_forgotten(broker, clients, topic) -> None:
    one, *_, sender = clients
    text = f"$where/age=0..50/{topic}"
    one.subscribe((text, 0))
    with connect(broker.port, f"{topic}-short") as short:
        short.subscribe((text, 0))
    one.send(unsubscribe(text))
    one.expect(Kind.UNSUBACK)
    sender.send(publish(topic, b'{"age":5}'), publish(f"{topic}/@top:5", b'{"age":5}'))
    assert heard(sender, one) == [[]]


def test_what_exceeds_a_bound_is_refused(broker, clients, topic) -> None:
    listener, *_ = clients
    many = ",".join(f"a{number}=1" for number in range(17))
    assert listener.subscribe((f"$where/{many}/{topic}", 0), (f"$where/a=2..1/{topic}", 0)) == [0x80, 0x80]
    wait_for(lambda: "$where has more than the 16 attributes allowed" in broker.log, "the line in the log")


def test_ages_survive_a_restart(tmp_path: Path) -> None:
    port = free_port()
    names = ("zoe", "amy", "bob")  # not the order in which a store would return them
    with locus(plugins=PLUGINS, directory=tmp_path, port=port) as broker:
        for name in names:
            with connect(port, name, clean=False) as client:
                client.subscribe(("$where/age=0..9/t", 1))
        broker.kill()
    with locus(plugins=PLUGINS, directory=tmp_path, port=port), connect(port, "sender") as sender:
        clients = {name: connect(port, name, clean=False) for name in names}
        for top in (1, 2, 3):
            sender.send(publish(f"t/@top:{top}", json.dumps({"n": top, "age": 5}).encode(), qos=1, packet_id=top))
            sender.expect(Kind.PUBACK)
        assert numbers_heard(sender, *clients.values()) == [[1, 2, 3], [2, 3], [3]]


def test_the_order_of_the_plugins_does_not_matter() -> None:
    for order in (list(PLUGINS), list(PLUGINS)[::-1]):
        with (
            locus(plugins={name: PLUGINS[name] for name in order}) as broker,
            connect(broker.port, "geo") as geo,
            connect(broker.port, "where") as where,
            connect(broker.port, "sender") as sender,
        ):
            geo.subscribe(("$geo/bbox:0,0,1,1/t", 0))
            where.subscribe(("$where/age>0/t", 0))
            sender.send(publish("t/@top:1;at:0.5,0.5", b'{"n":1,"age":5}'))
            assert numbers_heard(sender, geo, where) == [[1], []]


def test_without_the_plugin_where_is_refused() -> None:
    with locus(plugins=ALLOW_ANONYMOUS) as broker, connect(broker.port, "c") as client:
        assert client.subscribe(("$where/a=1/v", 0)) == [0x80]
        assert "no plugin of this broker serves $where" in broker.log
