"""Conversations in MQTT 3.1.1 over a real socket, clause by clause."""

from __future__ import annotations

import itertools
import time
from typing import TYPE_CHECKING

import pytest

from tests.broker_plugins.engine.packets import BAD, BAD_CONNECTS
from tests.brokers import RunningBroker, locus
from tests.mqtt_wire import (
    DISCONNECT,
    PINGREQ,
    Kind,
    Will,
    Wire,
    acknowledge,
    connect,
    connect_packet,
    packet,
    publish,
    subscribe,
    unsubscribe,
    wait_for,
)

if TYPE_CHECKING:
    from collections.abc import Iterator

numbers = itertools.count()


@pytest.fixture(scope="module")
def broker() -> Iterator[RunningBroker]:
    with locus() as running:
        yield running


@pytest.fixture
def name() -> str:
    """A name nobody else in this module uses, for client ids and topics."""
    return f"n{next(numbers)}"


def client(broker: RunningBroker, name: str, *, clean: bool = True, will: Will | None = None) -> Wire:
    return connect(broker.port, name, clean=clean, will=will)


def say_hello(port: int, name: str, *, clean: bool) -> tuple[Wire, bool]:
    """Connect, and say whether a session was there."""
    wire = Wire(port)
    wire.send(connect_packet(name, clean=clean))
    answer = wire.expect(Kind.CONNACK)
    assert answer.return_code == 0
    return wire, answer.session_present


def leave(wire: Wire) -> None:
    wire.send(DISCONNECT)
    wire.wait_until_closed()
    wire.close()


# Connecting.


def test_session_present_only_for_a_session_that_was_kept(broker: RunningBroker, name: str) -> None:
    for clean, present in [(False, False), (False, True), (True, False), (False, False)]:  # [MQTT-3.2.2-1..3]
        wire, was_there = say_hello(broker.port, name, clean=clean)
        assert was_there is present
        leave(wire)


def test_an_empty_client_id_needs_a_clean_session(broker: RunningBroker) -> None:
    first, _ = say_hello(broker.port, "", clean=True)  # [MQTT-3.1.3-6]
    second, _ = say_hello(broker.port, "", clean=True)
    first.send(PINGREQ)
    first.expect(Kind.PINGRESP)
    second.close()
    first.close()
    with Wire(broker.port) as wire:
        wire.send(connect_packet("", clean=False))
        assert wire.expect(Kind.CONNACK).return_code == 2  # [MQTT-3.1.3-8]
        wire.wait_until_closed()


@pytest.mark.parametrize("level", [3, 5])
def test_another_level_is_refused_with_code_1(broker: RunningBroker, level: int) -> None:
    with Wire(broker.port) as wire:
        wire.send(connect_packet("c", level=level))
        assert wire.expect(Kind.CONNACK).return_code == 1  # [MQTT-3.1.2-2]
        wire.wait_until_closed()


def test_the_first_packet_is_a_connect(broker: RunningBroker) -> None:
    for first in (PINGREQ, publish("a"), subscribe(("a", 0)), acknowledge(Kind.PUBACK, 1)):  # [MQTT-3.1.0-1]
        with Wire(broker.port) as wire:
            wire.send(first)
            wire.wait_until_closed()


def test_a_second_connect_is_a_violation(broker: RunningBroker, name: str) -> None:
    with client(broker, name) as wire:
        wire.send(connect_packet(name))  # [MQTT-3.1.0-2]
        wire.wait_until_closed()


def test_packets_may_follow_connect_at_once(broker: RunningBroker, name: str) -> None:
    with Wire(broker.port) as wire:
        wire.send(connect_packet(name), subscribe((name, 0)), publish(name, b"early"), PINGREQ)  # section 3.1.4
        wire.expect(Kind.CONNACK)
        assert wire.messages(1)[0].payload == b"early"


@pytest.mark.parametrize("clean", [True, False])
def test_a_client_that_connects_again_takes_over(broker: RunningBroker, name: str, clean: bool) -> None:
    first, _ = say_hello(broker.port, name, clean=clean)
    second, present = say_hello(broker.port, name, clean=clean)  # [MQTT-3.1.4-2]
    first.wait_until_closed()
    assert present is not clean
    second.send(PINGREQ)
    second.expect(Kind.PINGRESP)
    second.close()


@pytest.mark.parametrize("case", BAD_CONNECTS, ids=lambda case: case.name)
def test_a_bad_connect_closes_the_connection(broker: RunningBroker, case: object) -> None:
    with Wire(broker.port) as wire:
        wire.send(case.data)
        wire.wait_until_closed()
    wait_for(lambda: f"[{case.clause}]" in broker.log, f"a log line with {case.clause}")


@pytest.mark.parametrize("case", BAD, ids=lambda case: case.name)
def test_a_bad_packet_closes_its_connection_and_no_other(broker: RunningBroker, name: str, case: object) -> None:
    with client(broker, name) as honest, client(broker, name + "-bad") as bad:
        honest.subscribe((name, 0))
        bad.send(case.data)
        bad.wait_until_closed()
        honest.send(publish(name, b"still here"))
        assert honest.messages(1)[0].payload == b"still here"
    wait_for(lambda: f"{name}-bad" in broker.log and f"[{case.clause}]" in broker.log, "a log line")


# Wills.


def test_a_will_is_published_when_a_client_is_gone(broker: RunningBroker, name: str) -> None:
    with client(broker, name) as watcher:
        watcher.subscribe((f"{name}/will", 2))
        client(broker, name + "-a", will=Will(f"{name}/will", b"gone", 1)).reset()  # [MQTT-3.1.2-8]
        (message,) = watcher.messages(1)
        assert (message.payload, message.qos, message.retain) == (b"gone", 1, False)


def test_a_will_is_not_published_after_disconnect(broker: RunningBroker, name: str) -> None:
    with client(broker, name) as watcher:
        watcher.subscribe((f"{name}/will", 0))
        leave(client(broker, name + "-a", will=Will(f"{name}/will", b"gone")))  # [MQTT-3.1.2-10]
        watcher.send(publish(f"{name}/will", b"mark"))
        assert [message.payload for message in watcher.messages(1)] == [b"mark"]


def test_a_will_can_be_retained(broker: RunningBroker, name: str) -> None:
    with client(broker, name) as watcher:
        watcher.subscribe((f"{name}/will", 0))
        client(broker, name + "-a", will=Will(f"{name}/will", b"gone", retain=True)).reset()  # [MQTT-3.1.2-17]
        assert not watcher.messages(1)[0].retain
    with client(broker, name) as late:
        late.send(subscribe((f"{name}/will", 0)))
        (message,) = late.messages(1)
        assert (message.payload, message.retain) == (b"gone", True)


def test_a_violation_publishes_the_will(broker: RunningBroker, name: str) -> None:
    with client(broker, name) as watcher:
        watcher.subscribe((f"{name}/will", 0))
        bad = client(broker, name + "-a", will=Will(f"{name}/will", b"thrown out"))
        bad.send(publish("#"))
        assert watcher.messages(1)[0].payload == b"thrown out"


def test_a_take_over_publishes_the_will(broker: RunningBroker, name: str) -> None:
    with client(broker, name) as watcher:
        watcher.subscribe((f"{name}/will", 0))
        with client(broker, name + "-a", will=Will(f"{name}/will", b"taken over")), client(broker, name + "-a"):
            assert watcher.messages(1)[0].payload == b"taken over"


# Keep-alive.


def test_a_silent_client_is_disconnected_after_its_keep_alive(broker: RunningBroker, name: str) -> None:
    with connect(broker.port, name, keep_alive=1) as wire:
        began = time.monotonic()
        wire.wait_until_closed()  # [MQTT-3.1.2-24]
        assert time.monotonic() - began >= 1.5


def test_a_client_that_pings_stays(broker: RunningBroker, name: str) -> None:
    with connect(broker.port, name, keep_alive=1) as wire:
        began = time.monotonic()
        while time.monotonic() - began < 2.5:
            wire.send(PINGREQ)
            wire.expect(Kind.PINGRESP)  # [MQTT-3.12.4-1]
            time.sleep(0.2)


# Publishing and subscribing.


@pytest.mark.parametrize("published", [0, 1, 2])
@pytest.mark.parametrize("granted", [0, 1, 2])
def test_a_delivery_has_the_lower_qos_and_no_flags(
    broker: RunningBroker, name: str, published: int, granted: int
) -> None:
    with client(broker, name) as receiver, client(broker, name + "-p") as sender:
        assert receiver.subscribe((f"{name}/+", granted)) == [granted]  # [MQTT-3.9.3-2]
        sender.send(publish(f"{name}/x", b"m", qos=published, packet_id=9))
        if published:
            answer = sender.expect(Kind.PUBACK if published == 1 else Kind.PUBREC)
            assert answer.packet_id == 9
        if published == 2:
            sender.send(acknowledge(Kind.PUBREL, 9))
            assert sender.expect(Kind.PUBCOMP).packet_id == 9  # [MQTT-4.3.3-2]
        (message,) = receiver.messages(1)
        expected = (min(published, granted), False, False, f"{name}/x", b"m")
        assert (message.qos, message.dup, message.retain, message.topic, message.payload) == expected


def test_a_repeated_qos_2_publish_is_delivered_once(broker: RunningBroker, name: str) -> None:
    with client(broker, name) as receiver, client(broker, name + "-p") as sender:
        receiver.subscribe((name, 2))
        for _ in range(3):
            sender.send(publish(name, b"once", qos=2, packet_id=5, dup=True))
            sender.expect(Kind.PUBREC)
        sender.send(acknowledge(Kind.PUBREL, 5))
        sender.expect(Kind.PUBCOMP)
        sender.send(publish(name, b"next", qos=2, packet_id=5))
        sender.expect(Kind.PUBREC)
        assert [message.payload for message in receiver.messages(2)] == [b"once", b"next"]


def test_pubrel_of_an_unknown_packet_id_is_completed(broker: RunningBroker, name: str) -> None:
    with client(broker, name) as wire:
        wire.send(acknowledge(Kind.PUBREL, 77))
        assert wire.expect(Kind.PUBCOMP).packet_id == 77


def test_acknowledgements_keep_the_order_of_the_publishes(broker: RunningBroker, name: str) -> None:
    with client(broker, name, clean=False) as keeper, client(broker, name + "-p") as sender:
        keeper.subscribe((f"{name}/kept", 1))
        packets = []
        for at in range(1, 101):
            topic = f"{name}/kept" if at % 3 else f"{name}/unheard"
            packets.append(publish(topic, b"x", qos=1, packet_id=at))
        sender.send(*packets)  # [MQTT-4.6.0-2]
        assert [sender.expect(Kind.PUBACK).packet_id for _ in range(100)] == list(range(1, 101))


@pytest.mark.parametrize("qos", [0, 1, 2])
def test_messages_of_a_publisher_keep_their_order(broker: RunningBroker, name: str, qos: int) -> None:
    with client(broker, name) as receiver, client(broker, name + "-p") as sender:
        receiver.subscribe((f"{name}/#", qos))
        sent = [publish(f"{name}/{at % 3}", b"%d" % at, qos=qos, packet_id=at + 1) for at in range(500)]
        sender.send(*sent)
        assert [int(message.payload) for message in receiver.messages(500)] == list(range(500))  # [MQTT-4.6.0-6]


def test_overlapping_filters_deliver_once_at_the_highest_qos(broker: RunningBroker, name: str) -> None:
    with client(broker, name) as wire:
        wire.subscribe((f"{name}/#", 0), (f"{name}/+", 2), (f"{name}/x", 1))
        wire.send(publish(f"{name}/x", b"m", qos=2, packet_id=3))
        found = wire.messages_until_ping()  # [MQTT-3.3.5-1]
        assert [message.qos for message in found] == [2]


def test_subscribing_again_changes_the_qos(broker: RunningBroker, name: str) -> None:
    with client(broker, name) as wire:
        wire.subscribe((name, 0))
        wire.subscribe((name, 1))  # [MQTT-3.8.4-3]
        wire.send(publish(name, b"m", qos=1, packet_id=3))
        assert [message.qos for message in wire.messages_until_ping()] == [1]


def test_unsubscribe_ends_exactly_the_named_filter(broker: RunningBroker, name: str) -> None:
    with client(broker, name) as wire:
        wire.subscribe((f"{name}/+", 0), (f"{name}/x", 0))
        wire.send(unsubscribe(f"{name}/+", f"{name}/never", packet_id=8))
        assert wire.expect(Kind.UNSUBACK).packet_id == 8  # [MQTT-3.10.4-5]
        wire.send(publish(f"{name}/y"), publish(f"{name}/x"))
        assert [message.topic for message in wire.messages_until_ping()] == [f"{name}/x"]


def test_each_filter_of_a_subscribe_has_its_code(broker: RunningBroker, name: str) -> None:
    with client(broker, name) as wire:
        filters = [(f"{name}/a", 1), ("bad/#/filter", 0), (f"{name}/b", 2), ("$share//x", 0), ("$geo/nowhere/x", 0)]
        assert wire.subscribe(*filters) == [1, 0x80, 2, 0x80, 0x80]  # [MQTT-3.8.4-5]


def test_dollar_topics_are_apart_from_wildcards_and_closed_to_clients(broker: RunningBroker, name: str) -> None:
    with client(broker, name) as wire:
        wire.subscribe(("#", 0), ("+/x", 0), (f"${name}/x", 0))
        wire.send(publish(f"${name}/x", b"no"), publish(f"{name}/x", b"yes"))  # [MQTT-4.7.2-1]
        found = wire.messages_until_ping()
        assert [message.payload for message in found if message.topic.endswith(f"{name}/x")] == [b"yes"]


def test_clauses_are_removed_and_other_levels_with_an_at_sign_are_not(broker: RunningBroker, name: str) -> None:
    with client(broker, name) as wire:
        wire.subscribe((f"{name}/#", 1))
        for at, level in enumerate(["@at:1,2;top:3", "@home", "@nonsense:1", "@ttl:1s"]):
            wire.send(publish(f"{name}/x/{level}", b"%d" % at, qos=1, packet_id=at + 1))
        found = {message.payload: message.topic for message in wire.messages_until_ping()}
        assert found == {b"0": f"{name}/x", b"1": f"{name}/x/@home", b"3": f"{name}/x"}


# Retained messages.


def test_retained_messages_come_with_their_flag_and_can_be_replaced_and_cleared(
    broker: RunningBroker, name: str
) -> None:
    with client(broker, name) as sender:
        sender.subscribe((f"{name}/a", 0))
        sender.send(publish(f"{name}/a", b"1", retain=True), publish(f"{name}/a", b"2", retain=True))
        assert [message.retain for message in sender.messages(2)] == [False, False]  # [MQTT-3.3.1-9]
        sender.send(publish(f"{name}/b", b"3", qos=1, retain=True))
        sender.expect(Kind.PUBACK)
        with client(broker, name + "-l") as late:
            late.send(subscribe((f"{name}/#", 1)))
            late.expect(Kind.SUBACK)
            found = [(message.topic, message.payload, message.qos, message.retain) for message in late.messages(2)]
            assert found == [(f"{name}/a", b"2", 0, True), (f"{name}/b", b"3", 1, True)]  # [MQTT-3.3.1-6] [-8]
            late.send(subscribe((f"{name}/#", 1)))
            late.expect(Kind.SUBACK)
            assert len(late.messages(2)) == 2, "subscribing again sends them again"  # [MQTT-3.8.4-3]
        sender.send(publish(f"{name}/a", retain=True))  # [MQTT-3.3.1-10]
        assert sender.messages(1)[0].payload == b""
        with client(broker, name + "-l") as late:
            late.subscribe((f"{name}/#", 0))
            assert [message.topic for message in late.messages_until_ping()] == [f"{name}/b"]


def test_a_message_without_the_flag_leaves_the_retained_one_alone(broker: RunningBroker, name: str) -> None:
    with client(broker, name) as wire:
        wire.send(publish(name, b"kept", retain=True), publish(name, b"live"))  # [MQTT-3.3.1-12]
        wire.subscribe((name, 0))
        assert [message.payload for message in wire.messages_until_ping()] == [b"kept"]


# Sessions.


def test_a_persistent_session_gets_what_it_missed(broker: RunningBroker, name: str) -> None:
    wire = client(broker, name, clean=False)
    wire.subscribe((f"{name}/1", 1), (f"{name}/0", 0))
    leave(wire)
    with client(broker, name + "-p") as sender:
        sender.send(publish(f"{name}/0", b"lost"), publish(f"{name}/1", b"kept", qos=1))
        sender.expect(Kind.PUBACK)
    wire, present = say_hello(broker.port, name, clean=False)
    assert present
    (message,) = wire.messages(1)
    assert (message.payload, message.retain, message.dup) == (b"kept", False, False)
    wire.close()


def test_what_was_not_acknowledged_is_sent_again_in_order(broker: RunningBroker, name: str) -> None:
    wire = client(broker, name, clean=False)
    wire.subscribe((name, 2))
    with client(broker, name + "-p") as sender:
        sender.send(publish(name, b"1", qos=1), publish(name, b"2", qos=2, packet_id=2), publish(name, b"3", qos=1))
        first = [wire.expect(Kind.PUBLISH) for _ in range(3)]
    by_payload = {message.payload: message for message in first}
    wire.send(acknowledge(Kind.PUBREC, by_payload[b"2"].packet_id))
    assert wire.expect(Kind.PUBREL).packet_id == by_payload[b"2"].packet_id
    wire.reset()
    wire, _ = say_hello(broker.port, name, clean=False)
    again = [wire.read() for _ in range(3)]  # [MQTT-4.4.0-1]
    published = {each.payload: each for each in again if each.kind is Kind.PUBLISH}
    assert set(published) == {b"1", b"3"}
    assert all(each.dup for each in published.values())  # [MQTT-3.3.1-1]
    assert {each.packet_id for each in published.values()} == {
        by_payload[b"1"].packet_id,
        by_payload[b"3"].packet_id,
    }
    assert [each.packet_id for each in again if each.kind is Kind.PUBREL] == [by_payload[b"2"].packet_id]
    wire.close()


def test_a_clean_connect_forgets_the_session(broker: RunningBroker, name: str) -> None:
    wire = client(broker, name, clean=False)
    wire.subscribe((name, 1))
    leave(wire)
    leave(client(broker, name, clean=True))  # [MQTT-3.1.2-6]
    with client(broker, name + "-p") as sender:
        sender.send(publish(name, b"nobody", qos=1))
        sender.expect(Kind.PUBACK)
    wire, present = say_hello(broker.port, name, clean=False)
    assert not present
    assert wire.messages_until_ping() == []
    wire.close()


# Shared subscriptions.


def test_a_shared_subscription_spreads_its_messages(broker: RunningBroker, name: str) -> None:
    with client(broker, name + "-1") as one, client(broker, name + "-2") as two, client(broker, name) as sender:
        for wire in (one, two):
            wire.subscribe((f"$share/g/{name}/+", 1))
        sender.send(*[publish(f"{name}/x", b"%d" % at, qos=1, packet_id=at + 1) for at in range(10)])
        for _ in range(10):
            sender.expect(Kind.PUBACK)
        first, second = one.messages_until_ping(), two.messages_until_ping()
        assert len(first) == len(second) == 5
        assert {int(message.payload) for message in first + second} == set(range(10))


def test_each_group_and_each_plain_subscriber_has_its_copy(broker: RunningBroker, name: str) -> None:
    with client(broker, name + "-1") as one, client(broker, name + "-2") as two, client(broker, name) as plain:
        one.subscribe((f"$share/g/{name}", 0))
        two.subscribe((f"$share/h/{name}", 0))
        plain.subscribe((name, 0))
        plain.send(publish(name, b"m"))
        for wire in (one, two, plain):
            assert [message.payload for message in wire.messages(1)] == [b"m"]


def test_a_message_a_group_member_did_not_acknowledge_goes_to_another(broker: RunningBroker, name: str) -> None:
    with client(broker, name + "-1") as one, client(broker, name) as sender:
        one.subscribe((f"$share/g/{name}", 1))
        sender.send(publish(name, b"m", qos=1))
        one.expect(Kind.PUBLISH)
        with client(broker, name + "-2") as two:
            two.subscribe((f"$share/g/{name}", 1))
            one.reset()
            assert [message.payload for message in two.messages(1)] == [b"m"]


def test_a_group_whose_members_are_away_keeps_its_messages(broker: RunningBroker, name: str) -> None:
    wire = client(broker, name, clean=False)
    wire.subscribe((f"$share/g/{name}", 1))
    leave(wire)
    with client(broker, name + "-p") as sender:
        sender.send(publish(name, b"m", qos=1))
        sender.expect(Kind.PUBACK)
    with client(broker, name, clean=False) as back:
        assert [message.payload for message in back.messages(1)] == [b"m"]


def test_shared_subscriptions_get_no_retained_messages_and_end_by_their_text(broker: RunningBroker, name: str) -> None:
    with client(broker, name) as wire:
        wire.send(publish(name, b"kept", retain=True))
        wire.subscribe((f"$share/g/{name}", 0))
        assert wire.messages_until_ping() == []
        wire.send(unsubscribe(f"$share/g/{name}"))
        wire.expect(Kind.UNSUBACK)
        wire.send(publish(name, b"live"))
        assert wire.messages_until_ping() == []


def test_a_packet_in_single_bytes(broker: RunningBroker, name: str) -> None:
    with Wire(broker.port) as wire:
        for byte in connect_packet(name) + subscribe((name, 0)) + publish(name, b"bit by bit"):
            wire.send(bytes([byte]))
        wire.expect(Kind.CONNACK)
        assert wire.messages(1)[0].payload == b"bit by bit"


def test_a_connection_closes_after_disconnect_and_reads_nothing_more(broker: RunningBroker, name: str) -> None:
    with client(broker, name) as watcher, client(broker, name + "-p") as wire:
        watcher.subscribe((name, 0))
        wire.send(DISCONNECT, publish(name, b"too late"))  # [MQTT-3.14.4-1] [MQTT-3.14.4-2]
        wire.wait_until_closed()
        assert watcher.messages_until_ping() == []


def test_packets_of_the_largest_size_pass(broker: RunningBroker, name: str) -> None:
    with client(broker, name) as wire:
        wire.subscribe((name, 1))
        payload = bytes(1_000_000)
        wire.send(publish(name, payload, qos=1))
        assert wire.messages(1)[0].payload == payload
        wire.send(packet(Kind.PUBLISH, 0, b"\x00\x01a" + bytes(1_048_576)))
        wire.wait_until_closed()
