"""Every bound holds, is counted, and nobody but the one who reached it notices."""

from __future__ import annotations

import contextlib
import functools
import time
from typing import TYPE_CHECKING

import pytest

from tests.brokers import ALLOW_ANONYMOUS, RunningBroker, locus
from tests.mqtt_wire import (
    DISCONNECT,
    PINGREQ,
    Kind,
    Wire,
    acknowledge,
    connect,
    connect_packet,
    publish,
    subscribe,
    unsubscribe,
    wait_for,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

STALL_S = 0.05
"""No single action of a client may hold the event loop longer; measured with a margin for a busy machine."""
MARGIN = 4
TRIES = 3
"""A machine that is busy stands still now and then; a broker that holds its loop does so each time."""


class StalledError(AssertionError):
    """Somebody waited too long."""


def judge(trips: list[float]) -> None:
    if max(trips) >= STALL_S * MARGIN:
        raise StalledError(f"a bystander waited {max(trips):.3f} s")


def tried_again(test: Callable[..., None]) -> Callable[..., None]:
    """Stalls count if they happen each time."""

    @functools.wraps(test)
    def tried(*args: object, **named: object) -> None:
        for _ in range(TRIES - 1):
            with contextlib.suppress(StalledError):
                return test(*args, **named)
        return test(*args, **named)

    return tried


@contextlib.contextmanager
def bystander(broker: RunningBroker) -> Iterator[list[float]]:
    """Round trips of an uninvolved client while something happens, in seconds."""
    import threading

    trips: list[float] = []
    over = threading.Event()

    def ping() -> None:
        with connect(broker.port, "bystander") as wire:
            while not over.is_set():
                began = time.monotonic()
                wire.send(PINGREQ)
                wire.expect(Kind.PINGRESP)
                trips.append(time.monotonic() - began)

    thread = threading.Thread(target=ping)
    thread.start()
    try:
        wait_for(lambda: len(trips) > 10, "the bystander")
        yield trips
    finally:
        over.set()
        thread.join()


def publish_all(wire: Wire, packets: list[bytes]) -> None:
    """Send QoS 1 publishes and wait for their acknowledgements, some hundred at a time."""
    for at in range(0, len(packets), 500):
        some = packets[at : at + 500]
        wire.send(*some)
        for _ in some:
            while wire.read().kind is not Kind.PUBACK:
                pass


def test_a_connection_too_many_is_closed() -> None:
    with locus(engine={"max_connections": 3}) as broker, contextlib.ExitStack() as stack:
        wires = [stack.enter_context(connect(broker.port, f"c{at}")) for at in range(3)]
        with Wire(broker.port) as extra:
            extra.wait_until_closed()
        wires[0].send(DISCONNECT)
        wires[0].wait_until_closed()
        connect(broker.port, "again").close()


def test_a_listener_has_its_own_bound() -> None:
    from tests.brokers import free_port

    port = free_port()
    listener = {"small": {"type": "tcp", "bind": f"127.0.0.1:{port}", "max_connections": 1}}
    with locus(listeners=listener) as broker, connect(port, "only"):
        with Wire(port) as extra:
            extra.wait_until_closed()
        connect(broker.port, "elsewhere").close()


def test_a_connection_without_connect_is_closed_in_time() -> None:
    with locus(engine={"connect_timeout_s": 1.0}) as broker, Wire(broker.port) as wire:
        wire.wait_until_closed()


def test_a_subscription_too_many_is_refused() -> None:
    with locus(engine={"max_subscriptions_per_client": 2}) as broker, connect(broker.port, "c") as wire:
        assert wire.subscribe(("a", 0), ("b", 0), ("c", 0), ("a", 1)) == [0, 0, 0x80, 1]
        wire.send(unsubscribe("b"))
        wire.expect(Kind.UNSUBACK)
        assert wire.subscribe(("c", 0)) == [0]


def test_a_session_too_many_is_refused() -> None:
    with locus(engine={"max_sessions": 1}) as broker, connect(broker.port, "one"), Wire(broker.port) as wire:
        wire.send(connect_packet("two"))
        assert wire.expect(Kind.CONNACK).return_code == 3


def test_the_window_bounds_what_is_on_its_way() -> None:
    with locus(engine={"max_inflight": 3}) as broker, connect(broker.port, "c") as wire:
        wire.subscribe(("t", 2))
        with connect(broker.port, "p") as sender:
            publish_all(sender, [publish("t", b"%d" % at, qos=1, packet_id=at + 1) for at in range(10)])
        first = [wire.expect(Kind.PUBLISH) for _ in range(3)]
        wire.send(PINGREQ)
        wire.expect(Kind.PINGRESP)  # and nothing else before it
        wire.send(acknowledge(Kind.PUBACK, first[0].packet_id))
        assert wire.expect(Kind.PUBLISH).payload == b"3"
        wire.send(*[acknowledge(Kind.PUBACK, message.packet_id) for message in first[1:]])
        assert [message.payload for message in wire.messages(6)] == [b"%d" % at for at in range(4, 10)]


def test_the_queue_of_an_absent_client_is_bounded_and_says_so() -> None:
    with locus(engine={"max_queued_messages": 5}) as broker:
        with connect(broker.port, "c", clean=False) as wire:
            wire.subscribe(("t", 1))
            wire.send(DISCONNECT)
            wire.wait_until_closed()
        with connect(broker.port, "p") as sender:
            publish_all(sender, [publish("t", b"%d" % at, qos=1, packet_id=at + 1) for at in range(9)])
        with connect(broker.port, "c", clean=False) as wire:
            assert [message.payload for message in wire.messages(5)] == [b"0", b"1", b"2", b"3", b"4"]
            assert wire.messages_until_ping() == []
        assert broker.log.count("queue full") == 1


def test_retained_messages_are_bounded() -> None:
    with locus(engine={"max_retained_messages": 2}) as broker, connect(broker.port, "c") as wire:
        for topic in ("a", "b", "c"):
            wire.send(publish(topic, b"1", retain=True))
        wire.send(publish("a", b"2", retain=True))
        wire.subscribe(("#", 0))
        assert sorted((m.topic, m.payload) for m in wire.messages_until_ping()) == [("a", b"2"), ("b", b"1")]


@pytest.mark.parametrize("packets", [1, 40])
@tried_again
def test_many_filters_at_once_stall_nobody(packets: int) -> None:
    filters = [f"some/+/filter/{at}/#" for at in range(20_000)]
    size = len(filters) // packets
    groups = [filters[at : at + size] for at in range(0, len(filters), size)]
    with locus() as broker, connect(broker.port, "greedy") as greedy, bystander(broker) as trips:
        for at, group in enumerate(groups):
            greedy.send(subscribe(*[(text, 0) for text in group], packet_id=at + 1))
            assert len(greedy.expect(Kind.SUBACK, 30).body) == 2 + len(group)
        for at, group in enumerate(groups):
            greedy.send(unsubscribe(*group, packet_id=at + 1))
            greedy.expect(Kind.UNSUBACK, 30)
        for at, group in enumerate(groups):
            greedy.send(subscribe(*[(text, 0) for text in group], packet_id=at + 1))
            greedy.expect(Kind.SUBACK, 30)
        greedy.reset()
        with connect(broker.port, "after") as after:
            after.send(publish("some/x/filter/7/y"))
            after.send(PINGREQ)
            after.expect(Kind.PINGRESP)
    judge(trips)


@tried_again
def test_a_subscriber_to_many_retained_messages_stalls_nobody() -> None:
    with locus() as broker, connect(broker.port, "p") as sender:
        packets = [publish(f"r/{at}", b"x" * 20, qos=1, packet_id=at % 60_000 + 1, retain=True) for at in range(20_000)]
        publish_all(sender, packets)
        with bystander(broker) as trips, connect(broker.port, "late") as late:
            late.send(subscribe(("r/#", 1)))
            late.expect(Kind.SUBACK)
            found = late.messages(20_000, 60)
    topics = [message.topic for message in found]
    assert len(set(topics)) == 20_000
    assert topics == sorted(topics)
    judge(trips)


@tried_again
def test_a_full_queue_that_goes_stalls_nobody() -> None:
    with locus(engine={"max_queued_messages": 20_000}) as broker, connect(broker.port, "p") as sender:
        for clean in (False, True):
            with connect(broker.port, "c", clean=False) as wire:
                wire.subscribe(("t", 1))
                wire.send(DISCONNECT)
                wire.wait_until_closed()
            publish_all(sender, [publish("t", b"x", qos=1, packet_id=at % 60_000 + 1) for at in range(20_000)])
            with bystander(broker) as trips:
                connect(broker.port, "c", clean=clean).reset()
                connect(broker.port, "c", clean=True).reset()
            judge(trips)


def test_a_client_that_never_reads_its_pings_is_not_read_for_ever() -> None:
    with locus(plugins=ALLOW_ANONYMOUS) as broker, connect(broker.port, "deaf") as deaf:
        before = broker.memory()
        deaf.socket.settimeout(1.0)
        sent = 0
        with contextlib.suppress(TimeoutError):
            while sent < 200_000_000:
                deaf.socket.sendall(PINGREQ * 50_000)
                sent += 100_000
        assert sent < 200_000_000, "the broker went on reading"
        assert broker.memory() - before < 20_000_000
        with connect(broker.port, "other") as other:
            other.send(PINGREQ)
            other.expect(Kind.PINGRESP)
