"""Many retained messages and a client that takes its time: none is lost, nothing piles up, nobody else waits."""

from __future__ import annotations

import socket
from typing import TYPE_CHECKING

import pytest

from benchmarks.peers import default_plugins
from tests.brokers import locus
from tests.mqtt_wire import Kind, Wire, acknowledge, connect, publish, subscribe

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.brokers import RunningBroker

COUNT = 50_000
PAYLOAD = b"x" * 200


def topic(number: int) -> str:
    return f"many/{number:06}"


@pytest.fixture(scope="module")
def broker() -> Iterator[RunningBroker]:
    with locus(plugins=default_plugins()) as running:
        with connect(running.port, "filler") as filler:
            for first in range(0, COUNT, 5_000):
                several = [publish(topic(number), PAYLOAD, retain=True) for number in range(first, first + 5_000)]
                filler.send(*several)
            filler.messages_until_ping(60)
        yield running


def narrow(wire: Wire) -> None:
    """Let the kernel keep little for a client, so that it is the broker who has to wait."""
    wire.socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 262_144)


@pytest.mark.parametrize("qos", [0, 1])
def test_none_is_lost_and_nothing_piles_up(broker: RunningBroker, qos: int) -> None:
    # QoS 0 publishes are retained at QoS 0; those of the second round at QoS 1.
    with connect(broker.port, "slow") as slow, connect(broker.port, "bystander") as bystander:
        narrow(slow)
        if qos:
            with connect(broker.port, "filler") as filler:
                for first in range(1, COUNT, 1_000):
                    filler.send(
                        *(
                            publish(topic(number), PAYLOAD, qos=1, packet_id=number - first + 1, retain=True)
                            for number in range(first, min(first + 1_000, COUNT))
                        )
                    )
                    for _ in range(first, min(first + 1_000, COUNT)):
                        filler.expect(Kind.PUBACK)
        before = broker.memory()
        bystander.subscribe(("other", 0))
        slow.send(subscribe(("many/#", 1)))
        slow.expect(Kind.SUBACK)
        seen: list[str] = []
        peak = before
        while len(seen) < COUNT:
            arrived = slow.read()
            assert arrived.retain
            seen.append(arrived.topic)
            if arrived.qos:
                slow.send(acknowledge(Kind.PUBACK, arrived.packet_id))
            if len(seen) % 1_000 == 0:  # while the feed goes on, others are served
                bystander.send(publish("other", b"%d" % len(seen)))
                assert bystander.messages(1)[0].payload == b"%d" % len(seen)
                peak = max(peak, broker.memory())
        assert seen == [topic(number) for number in range(COUNT)]
        assert slow.messages_until_ping() == []
        assert peak - before < 8 << 20, f"memory grew by {peak - before:,} bytes while {COUNT:,} messages were fed"


def test_what_changes_while_they_are_fed(broker: RunningBroker) -> None:
    with connect(broker.port, "changing") as slow, connect(broker.port, "changer") as changer:
        narrow(slow)
        slow.send(subscribe(("many/#", 0)))
        slow.expect(Kind.SUBACK)
        last, cleared, replaced, live = (topic(COUNT - number) for number in (1, 2, 3, 4))
        changer.send(
            publish(cleared, b"", retain=True), publish(replaced, b"newer", retain=True), publish(live, b"live")
        )
        changer.messages_until_ping()
        got: dict[str, list[tuple[bytes, bool]]] = {}
        while last not in got:
            [arrived] = slow.messages(1)
            got.setdefault(arrived.topic, []).append((arrived.payload, arrived.retain))
        assert got[cleared] == [(b"", False)]
        assert got[replaced] == [(b"newer", False)]
        assert got[live] == [(PAYLOAD, True), (b"live", False)]
        assert len(got) == COUNT
