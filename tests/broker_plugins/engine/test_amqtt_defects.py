"""What is wrong in amqtt's own data path, each shown on stock amqtt and shown to be right on Locus.

Every test runs twice. On Locus its last step must hold; on stock amqtt, marked `stock_amqtt`, that same step must fail,
so that a test which cannot see the defect does not pass, and a later amqtt without the defect is noticed. Only that
step stands inside `right_here_wrong_there`: everything before it must work on both.
"""

from __future__ import annotations

import contextlib
import socket
import threading
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import pytest

from benchmarks.peers import default_plugins
from tests.brokers import ANONYMOUS, RunningBroker, locus, stock_amqtt
from tests.mqtt_wire import (
    DISCONNECT,
    PINGREQ,
    SECONDS,
    Closed,
    Kind,
    Silence,
    Wire,
    connect,
    connect_packet,
    packet,
    publish,
    subscribe,
    text,
    unsubscribe,
    wait_for,
)

if TYPE_CHECKING:
    from collections.abc import Iterator

PLUGINS = "tests.broker_plugins.engine.topic_plugins."
# amqtt keeps nothing for clients it calls anonymous; with this setting it asks for a name, and any will do.
NAMED = {ANONYMOUS: {"allow_anonymous": False}}
IN_VAIN = 1.0
"""Seconds to wait on stock amqtt for what never comes; Locus is given as long as it may need on a busy machine."""
Start = Callable[..., contextlib.AbstractContextManager[RunningBroker]]

BROKERS = [pytest.param(locus, id="locus"), pytest.param(stock_amqtt, id="amqtt", marks=pytest.mark.stock_amqtt)]


@pytest.fixture(params=BROKERS)
def start(request: pytest.FixtureRequest) -> Start:
    """How to start the broker under test with further plugins."""

    def with_plugins(*names: str) -> contextlib.AbstractContextManager[RunningBroker]:
        more: dict[str, dict[str, Any]] = {PLUGINS + name: {} for name in names}
        return request.param(plugins={**NAMED, **more})

    return with_plugins


@pytest.fixture
def broker(start: Start) -> Iterator[RunningBroker]:
    with start() as running:
        yield running


@contextlib.contextmanager
def right_here_wrong_there(broker: RunningBroker) -> Iterator[None]:
    """What stands in the block holds on Locus and, being the defect, does not hold on stock amqtt."""
    if broker.name == "locus":
        yield
        return
    with pytest.raises(AssertionError) as defect:
        yield
    print(f"stock amqtt: {defect.value}")


def patience(broker: RunningBroker, in_vain: float = IN_VAIN) -> float:
    """Seconds to wait for what Locus does and stock amqtt does not."""
    return SECONDS if broker.name == "locus" else in_vain


def client(broker: RunningBroker, client_id: str, *, clean: bool = True, keep_alive: int = 0) -> Wire:
    return connect(broker.port, client_id, clean=clean, keep_alive=keep_alive, username="tester")


def publish_acknowledged(wire: Wire, *packets: bytes) -> None:
    """Send QoS 1 messages and wait until each is acknowledged."""
    wire.send(*packets)
    for _ in packets:
        while wire.read().kind is not Kind.PUBACK:  # a client may get its own message before the acknowledgement
            pass


def several_barriers(wire: Wire) -> list[Any]:
    """What arrives in a while, past several round trips; stock amqtt answers pings before it delivers."""
    found = []
    for _ in range(5):
        found += wire.messages_until_ping()
        time.sleep(0.05)
    return found


def test_retained_messages_go_only_to_those_who_subscribed(broker: RunningBroker) -> None:
    with client(broker, "owner") as owner, client(broker, "sender") as sender:
        owner.subscribe(("private/#", 1))
        publish_acknowledged(sender, publish("private/key", b"secret", qos=1, retain=True))
        owner.messages(1)
        with client(broker, "stranger") as stranger:
            received = several_barriers(stranger)
    with right_here_wrong_there(broker):
        assert received == []


def test_what_a_fast_publisher_got_acknowledged_is_delivered_though_it_leaves(broker: RunningBroker) -> None:
    with client(broker, "receiver") as receiver, client(broker, "fast") as fast:
        receiver.subscribe(("t", 1))
        publish_acknowledged(fast, *[publish("t", b"%d" % at, qos=1, packet_id=at) for at in range(1, 2001)])
        fast.send(DISCONNECT)
        with right_here_wrong_there(broker):
            assert [message.payload for message in receiver.messages(2000, patience(broker))] == [
                b"%d" % at for at in range(1, 2001)
            ]


def test_a_connect_among_many_filters_and_retained_messages_stalls_nobody(broker: RunningBroker) -> None:
    with client(broker, "holder") as holder, client(broker, "bystander") as bystander:
        bystander.subscribe(("done", 0))
        for first in range(0, 10_000, 500):
            holder.subscribe(*[(f"filter/{at}/+/deep", 0) for at in range(first, first + 500)])
        kept = [publish(f"kept/{at}/x/y", b"x", qos=1, packet_id=at + 1, retain=True) for at in range(400)]
        publish_acknowledged(holder, *kept)
        holder.send(publish("done"))
        bystander.messages(1)
        with Wire(broker.port) as newcomer:
            newcomer.send(connect_packet("newcomer", username="tester"))
            began = asked = time.monotonic()
            longest = 0.0
            while asked < began + 0.5:
                bystander.send(PINGREQ)
                bystander.expect(Kind.PINGRESP)
                longest, asked = max(longest, time.monotonic() - asked), time.monotonic()
    with right_here_wrong_there(broker):
        assert longest < 0.5


@pytest.mark.parametrize(("published", "subscribed"), [(0, 1), (0, 2), (1, 2)])
def test_a_delivery_has_the_lower_of_both_qos(broker: RunningBroker, published: int, subscribed: int) -> None:
    with client(broker, "receiver") as receiver, client(broker, "sender") as sender:
        receiver.subscribe(("t", subscribed))
        sender.send(publish("t", b"x", qos=published))
        (message,) = receiver.messages(1)
        with right_here_wrong_there(broker):
            assert message.qos == published  # [MQTT-3.8.4-6]


def test_the_plugins_of_make_run_leave_the_engine_in_charge() -> None:
    """amqtt goes on without a plugin that fails to start, so a fault in any of ours would bring all of this back."""
    with (
        locus(plugins=default_plugins()) as broker,
        client(broker, "receiver") as receiver,
        client(broker, "sender") as sender,
    ):
        receiver.subscribe(("t", 2))
        sender.send(publish("t", b"x"))
        assert [message.qos for message in receiver.messages(1)] == [0]


def test_subscribing_again_changes_the_qos(broker: RunningBroker) -> None:
    with client(broker, "receiver") as receiver, client(broker, "sender") as sender:
        receiver.subscribe(("t", 0))
        receiver.subscribe(("t", 1))
        publish_acknowledged(sender, publish("t", b"x", qos=1))
        (message,) = receiver.messages(1)
        with right_here_wrong_there(broker):
            assert message.qos == 1  # [MQTT-3.8.4-3]


def test_an_unacknowledged_message_is_sent_again(broker: RunningBroker) -> None:
    with client(broker, "receiver", clean=False) as receiver, client(broker, "sender") as sender:
        receiver.subscribe(("t", 1))
        publish_acknowledged(sender, publish("t", b"x", qos=1))
        first = receiver.expect(Kind.PUBLISH)
    with client(broker, "receiver", clean=False) as receiver, right_here_wrong_there(broker):
        again = receiver.expect(Kind.PUBLISH, patience(broker))  # [MQTT-4.4.0-1]
        assert (again.payload, again.packet_id, again.dup) == (b"x", first.packet_id, True)


def test_messages_that_waited_for_a_client_are_not_marked_as_retained(broker: RunningBroker) -> None:
    with client(broker, "receiver", clean=False) as receiver:
        receiver.subscribe(("t", 1))
        receiver.send(DISCONNECT)
        receiver.wait_until_closed()
    with client(broker, "sender") as sender:
        publish_acknowledged(sender, publish("t", b"x", qos=1))
        several_barriers(sender)
    with client(broker, "receiver", clean=False) as receiver:
        (message,) = receiver.messages(1)
    assert message.payload == b"x"
    with right_here_wrong_there(broker):
        assert not message.retain  # [MQTT-3.3.1-9]


def test_a_client_silent_beyond_its_keep_alive_is_disconnected(broker: RunningBroker) -> None:
    with client(broker, "silent", keep_alive=1) as silent, right_here_wrong_there(broker):
        silent.wait_until_closed(patience(broker, 3.0))  # [MQTT-3.1.2-24] after 1.5 s


def test_a_take_over_closes_the_old_connection(broker: RunningBroker) -> None:
    with client(broker, "same") as old, client(broker, "same") as new:
        new.send(PINGREQ)
        new.expect(Kind.PINGRESP)
        with right_here_wrong_there(broker):
            old.wait_until_closed(patience(broker))  # [MQTT-3.1.4-2]


def test_a_publish_to_a_dollar_topic_leaves_no_half_dead_connection(broker: RunningBroker) -> None:
    with client(broker, "curious") as curious:
        curious.send(publish("$mine/x", b"x"))
        several_barriers(curious)
        with right_here_wrong_there(broker):
            curious.send(subscribe(("t", 0)))
            with contextlib.suppress(Closed):
                curious.expect(Kind.SUBACK, patience(broker))


def test_nothing_is_smuggled_in_the_payload_of_a_bad_publish(broker: RunningBroker) -> None:
    with client(broker, "observer") as observer, client(broker, "smuggler") as smuggler:
        observer.subscribe(("target", 0))
        smuggler.send(publish("bad/#", publish("target", b"smuggled")))
        with contextlib.suppress(Silence):
            smuggler.wait_until_closed(patience(broker))
        received = several_barriers(observer)
    with right_here_wrong_there(broker):
        assert received == []


MALFORMED = {
    "bad UTF-8 in a topic [MQTT-1.5.3-1]": publish(b"t/\xff\xfe", b"x"),
    "NUL in a topic [MQTT-1.5.3-2]": publish(b"t/\x00", b"x"),
    "QoS 3 [MQTT-3.3.1-4]": publish("t/x", b"x", qos=3),
    "packet id 0 [MQTT-2.3.1-1]": publish("t/x", b"x", qos=1, packet_id=0),
    "PUBREL with flags 0 [MQTT-3.6.1-1]": packet(Kind.PUBREL, 0, b"\x00\x01"),
    "SUBSCRIBE with flags 0 [MQTT-3.8.1-1]": packet(Kind.SUBSCRIBE, 0, b"\x00\x01" + text("t/y") + b"\x00"),
    "SUBSCRIBE with id 0 [MQTT-2.3.1-1]": packet(Kind.SUBSCRIBE, 2, b"\x00\x00" + text("t/y") + b"\x00"),
    "UNSUBSCRIBE with flags 0 [MQTT-3.10.1-1]": packet(Kind.UNSUBSCRIBE, 0, b"\x00\x01" + text("t/y")),
    "PINGREQ with flags 5 [MQTT-2.2.2-2]": packet(Kind.PINGREQ, 5),
}


def test_malformed_packets_end_the_connection(broker: RunningBroker) -> None:
    with contextlib.ExitStack() as stack:
        senders = {name: stack.enter_context(client(broker, f"sender {at}")) for at, name in enumerate(MALFORMED)}
        for name, sender in senders.items():
            sender.send(MALFORMED[name])
        let_through = []
        for name, sender in senders.items():
            try:
                sender.wait_until_closed(patience(broker, 0.2))  # [MQTT-4.8.0-1]
            except Silence:
                let_through.append(name)
    assert let_through == ([] if broker.name == "locus" else list(MALFORMED))


BAD_FIRST_PACKETS = [
    packet(Kind.PINGREQ, 0),
    publish("t", b"x"),
    b"\xff\xff\xff\xff\xff\xff",
    packet(Kind.CONNECT, 0, text("MQTT")),
    packet(Kind.CONNECT, 0, text("MQIsdp") + b"\x03\x02\x00\x00" + text("old")),
    packet(Kind.CONNECT, 0, text("MQTT") + b"\x04\x03\x00\x00" + text("reserved")),
]


def test_bad_first_packets_leak_no_descriptors(broker: RunningBroker) -> None:
    before = broker.descriptors()
    knocked = []
    for at in range(60):
        wire = Wire(broker.port)
        wire.send(BAD_FIRST_PACKETS[at % len(BAD_FIRST_PACKETS)])
        knocked.append(wire)
    for wire in knocked:
        with contextlib.suppress(Silence):
            wire.wait_until_closed(0.02)
    for wire in knocked:
        wire.close()
    with right_here_wrong_there(broker):
        wait_for(lambda: broker.descriptors() <= before, "descriptors to be given back", patience(broker))


def test_a_subscriber_that_does_not_read_costs_bounded_memory(broker: RunningBroker) -> None:
    megabyte = 1 << 20
    with client(broker, "sender") as sender, Wire(broker.port) as deaf:
        deaf.socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        deaf.send(connect_packet("deaf", username="tester"))
        deaf.expect(Kind.CONNACK)
        deaf.subscribe(("flood", 0))
        before = broker.memory()
        flood = publish("flood", bytes(1000)) * 500
        for _ in range(80):  # 40 MB of messages; one in five hundred is followed by a ping, so that none is under way
            sender.send(flood)
            sender.messages_until_ping(60)
        grown = (broker.memory() - before) / megabyte
    with right_here_wrong_there(broker):
        assert grown < 24  # the engine's bound is 8 MB of messages


def test_filters_that_are_gone_cost_nothing(broker: RunningBroker) -> None:
    with client(broker, "receiver") as receiver, client(broker, "sender") as sender:
        receiver.subscribe(("t", 0))

        def best_round() -> float:
            """Seconds for fifty messages, the best of five rounds."""
            rounds = []
            for _ in range(5):
                began = time.monotonic()
                sender.send(publish("t", b"x") * 50)
                receiver.messages(50)
                rounds.append(time.monotonic() - began)
            return min(rounds)

        before = best_round()
        with client(broker, "passing") as passing:
            names = [f"passing/{at}/+/x" for at in range(10_000)]
            for start in range(0, len(names), 500):
                passing.subscribe(*[(name, 0) for name in names[start : start + 500]])
            for start in range(0, len(names), 500):
                passing.send(unsubscribe(*names[start : start + 500]))
                passing.expect(Kind.UNSUBACK)
            passing.send(DISCONNECT)
            passing.wait_until_closed()
        after = best_round()
    with right_here_wrong_there(broker):
        assert after < 5 * before


def test_a_topic_plugin_without_an_opinion_denies_nothing(
    start: Start,
) -> None:
    with start("NoOpinion") as broker, client(broker, "receiver") as receiver, right_here_wrong_there(broker):
        assert receiver.subscribe(("t", 0)) == [0]


def test_receiving_a_retained_message_needs_permission_too(
    start: Start,
) -> None:
    with start("NoSecrets") as broker, client(broker, "sender") as sender, client(broker, "receiver") as receiver:
        publish_acknowledged(sender, publish("secret/key", b"x", qos=1, retain=True))
        publish_acknowledged(sender, publish("public/key", b"x", qos=1, retain=True))
        several_barriers(sender)
        receiver.send(subscribe(("+/key", 0)))
        received = several_barriers(receiver)
    assert "public/key" in [message.topic for message in received]
    with right_here_wrong_there(broker):
        assert [message.topic for message in received] == ["public/key"]


def test_subscribing_while_others_publish_loses_nothing(
    start: Start,
) -> None:
    with (
        start("AllowEverything") as broker,
        client(broker, "sender") as sender,
        client(broker, "eager") as eager,
        contextlib.ExitStack() as stack,
    ):
        # amqtt asks its plugins about each receiver in turn, and meanwhile the dictionary it walks through changes.
        filters = ["t/x", "t/+", "t/#", "+/x", "+/+", "+/#", "#", "t/x/#"]
        receivers = [stack.enter_context(client(broker, f"receiver {name}")) for name in filters]
        for receiver, name in zip(receivers, filters, strict=True):
            receiver.subscribe((name, 1))
        eager.send(*[subscribe((f"eager/{at}", 0), packet_id=at) for at in range(1, 301)])
        publish_acknowledged(sender, *[publish("t/x", b"%d" % at, qos=1, packet_id=at) for at in range(1, 301)])
        with right_here_wrong_there(broker):
            for receiver in receivers:
                receiver.messages(300, patience(broker))


def test_subscribing_while_others_connect_breaks_no_session(
    start: Start,
) -> None:
    with start() as broker, client(broker, "owner") as owner, client(broker, "eager") as eager:
        owner.subscribe(*[(f"kept/{at}", 0) for at in range(100)])
        publish_acknowledged(
            owner, *[publish(f"kept/{at}", b"x", qos=1, packet_id=at + 1, retain=True) for at in range(100)]
        )

        def subscribe_eagerly() -> None:
            for at in range(200):
                eager.subscribe((f"eager/{at}", 0))

        subscriber = threading.Thread(target=subscribe_eagerly)
        subscriber.start()
        with contextlib.ExitStack() as stack:
            newcomers = [stack.enter_context(client(broker, f"newcomer-{at}")) for at in range(20)]
            subscriber.join()
            with right_here_wrong_there(broker):
                for newcomer in newcomers:
                    newcomer.subscribe(("t", 0))


def test_a_plugin_can_decide_a_delivery(
    start: Start,
) -> None:
    with (
        start("NothingFor") as broker,
        client(broker, "barred") as barred,
        client(broker, "welcome") as welcome,
        client(broker, "sender") as sender,
    ):
        barred.subscribe(("t", 0))
        welcome.subscribe(("t", 0))
        sender.send(publish("t", b"x"))
        assert [message.payload for message in welcome.messages(1)] == [b"x"]
        received = several_barriers(barred)
    with right_here_wrong_there(broker):
        assert received == []
