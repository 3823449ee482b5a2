"""The broker is killed at random moments while clients publish and receive: nothing acknowledged is lost."""

from __future__ import annotations

import contextlib
import random
import threading
import time
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING

import pytest

from tests.brokers import free_port, locus
from tests.mqtt_wire import Closed, Kind, Silence, Wire, acknowledge, connect_packet, publish, wait_for

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

KILLS = 20
Trouble = (Closed, Silence, OSError)


def connect_persistently(port: int, name: str) -> tuple[Wire, bool]:
    """Connect with a persistent session, however often the broker dies meanwhile."""
    while True:
        try:
            wire = Wire(port)
            try:
                wire.send(connect_packet(name, clean=False))
                answer = wire.expect(Kind.CONNACK, 2)
            except Trouble:
                wire.close()
                raise
        except Trouble:
            time.sleep(0.01)
        else:
            return wire, answer.session_present


@dataclass
class Publisher:
    """Publishes numbers one after the other, sends again what was not acknowledged, as a persistent client does."""

    port: int
    qos: int
    topic: str
    acknowledged: int = 0
    stop: threading.Event = field(default_factory=threading.Event)

    def run(self) -> None:
        number, sent, released = 0, False, False
        while not (self.stop.is_set() and not sent and not released):
            wire, present = connect_persistently(self.port, f"publisher-{self.qos}")
            if sent or released:
                assert present, "a session that was acknowledged is there"
            with wire, contextlib.suppress(*Trouble):
                while not (self.stop.is_set() and not sent and not released):
                    packet_id = number % 50 + 1
                    if not released:
                        wire.send(publish(self.topic, b"%d" % number, qos=self.qos, packet_id=packet_id, dup=sent))
                        sent = True
                        kind = Kind.PUBACK if self.qos == 1 else Kind.PUBREC
                        assert wire.expect(kind, 5).packet_id == packet_id
                    if self.qos == 2:
                        released = True
                        wire.send(acknowledge(Kind.PUBREL, packet_id))
                        assert wire.expect(Kind.PUBCOMP, 5).packet_id == packet_id
                    sent = released = False
                    number += 1
                    self.acknowledged = number


@dataclass
class Subscriber:
    """A persistent client that receives as the standard wants it: QoS 2 by packet identifier, once."""

    port: int
    name: str
    filters: list[tuple[str, int]]
    received: dict[str, list[int]] = field(default_factory=dict)
    stop: threading.Event = field(default_factory=threading.Event)
    subscribed: threading.Event = field(default_factory=threading.Event)

    def run(self) -> None:
        pending: set[int] = set()
        while not self.stop.is_set():
            wire, present = connect_persistently(self.port, self.name)
            with wire, contextlib.suppress(*Trouble):
                if not self.subscribed.is_set():
                    assert wire.subscribe(*self.filters) == [qos for _, qos in self.filters]
                    self.subscribed.set()
                else:
                    assert present, "a subscription that was acknowledged is there"
                while not self.stop.is_set():
                    try:
                        self._take(wire, pending)
                    except Silence:
                        continue

    def _take(self, wire: Wire, pending: set[int]) -> None:
        arrived = wire.read(0.2)
        if arrived.kind is Kind.PUBLISH:
            if arrived.qos == 2 and arrived.packet_id in pending:
                assert arrived.dup
            else:
                self.received.setdefault(arrived.topic, []).append(int(arrived.payload))
            if arrived.qos == 2:
                pending.add(arrived.packet_id)
                wire.send(acknowledge(Kind.PUBREC, arrived.packet_id))
            else:
                wire.send(acknowledge(Kind.PUBACK, arrived.packet_id))
        elif arrived.kind is Kind.PUBREL:
            pending.discard(arrived.packet_id)
            wire.send(acknowledge(Kind.PUBCOMP, arrived.packet_id))


@pytest.mark.timeout(300)
def test_nothing_acknowledged_is_lost_and_qos_2_arrives_once(tmp_path: Path) -> None:
    rng = random.Random(20)
    port = free_port()
    publishers = [Publisher(port, 1, "one"), Publisher(port, 2, "two")]
    subscribers = [
        Subscriber(port, "always", [("one", 1), ("two", 2)]),
        Subscriber(port, "both", [("+", 2)]),
    ]
    faults: list[BaseException] = []

    def guarded(run: Callable[[], None]) -> Callable[[], None]:
        def body() -> None:
            try:
                run()
            except BaseException as fault:
                faults.append(fault)
                raise

        return body

    with locus(directory=tmp_path, port=port, engine={"max_queued_messages": 1_000_000}) as broker:
        receiving = [threading.Thread(target=guarded(subscriber.run)) for subscriber in subscribers]
        for thread in receiving:
            thread.start()
        for subscriber in subscribers:
            assert subscriber.subscribed.wait(20)
        publishing = [threading.Thread(target=guarded(publisher.run)) for publisher in publishers]
        for thread in publishing:
            thread.start()
        wait_for(lambda: all(publisher.acknowledged > 5 for publisher in publishers), "the first publishes")
        broker.kill()

    def go_on_from(counts: list[int]) -> bool:
        return bool(faults) or all(now.acknowledged > then for now, then in zip(publishers, counts, strict=True))

    for _ in range(KILLS):
        before = [publisher.acknowledged for publisher in publishers]
        with locus(directory=tmp_path, port=port, engine={"max_queued_messages": 1_000_000}) as broker:
            wait_for(partial(go_on_from, before), "publishes to go on", 30)
            time.sleep(rng.uniform(0, 0.3))  # the moment of death is the point of this test
            broker.kill()
        assert not faults
    with locus(directory=tmp_path, port=port, engine={"max_queued_messages": 1_000_000}):
        for publisher in publishers:
            publisher.stop.set()
        for thread in publishing:
            thread.join(30)
        counts = {publisher.topic: publisher.acknowledged for publisher in publishers}

        def everything_arrived() -> bool:
            return all(
                set(range(count)) <= set(subscriber.received.get(topic, []))
                for subscriber in subscribers
                for topic, count in counts.items()
            )

        wait_for(lambda: bool(faults) or everything_arrived(), "everything that was acknowledged", 60)
        for subscriber in subscribers:
            subscriber.stop.set()
        for thread in receiving:
            thread.join(30)
    assert not faults
    for subscriber in subscribers:
        once = subscriber.received["two"]
        assert once == sorted(set(once)), "QoS 2 arrives once and in order"
        assert set(subscriber.received["one"]) == set(range(max(subscriber.received["one"]) + 1))
    print(counts, "acknowledged over", KILLS + 1, "kills")
