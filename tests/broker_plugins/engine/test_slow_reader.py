"""A million messages for a subscriber that does not read: bounded, counted, and nobody else waits."""

from __future__ import annotations

import pytest

from tests.brokers import RunningBroker, locus
from tests.mqtt_wire import Kind, connect, publish, subscribe

MESSAGES = 1_000_000
BURST = 500
QUEUED_BYTES = 4_000_000


def cost(broker: RunningBroker, messages: int) -> float:
    """Processor time of the broker for a message from a publisher to a subscriber that reads, in microseconds."""
    burst = publish("flood", b"x" * 64) * BURST
    with connect(broker.port, "reader") as reader, connect(broker.port, "writer") as writer:
        reader.subscribe(("flood", 0))
        before = broker.cpu_seconds()
        for _ in range(messages // BURST):
            writer.socket.sendall(burst)
            left = len(burst)
            while left:
                data = reader.socket.recv(min(left, 1 << 18))
                assert data
                left -= len(data)
        return (broker.cpu_seconds() - before) / messages * 1e6


@pytest.mark.timeout(300)
def test_a_deaf_subscriber_costs_its_bound_and_no_more() -> None:
    with locus(engine={"max_queued_bytes": QUEUED_BYTES, "max_queued_messages": 1_000_000}) as broker:
        alone = cost(broker, MESSAGES // 2)
        before = broker.memory()
        with connect(broker.port, "deaf") as deaf:
            deaf.send(subscribe(("flood", 0)))
            deaf.expect(Kind.SUBACK)
            beside = cost(broker, MESSAGES)
            grown = broker.memory() - before
            print(f"{alone:.2f} us a message alone, {beside:.2f} beside a deaf one; memory grew {grown:,} bytes")
            # Python objects around 4 MB of 74-byte packets, and the socket's own buffer.
            assert grown < QUEUED_BYTES * 4
            assert beside < alone * 6, "dropping for one costs the other no more than a few receivers would"
            deaf.socket.settimeout(20)
            kept = b""
            while len(kept) < QUEUED_BYTES // 2:
                kept += deaf.socket.recv(1 << 20)
            assert kept.count(b"flood") > 10_000, "what was kept arrives once it reads again"
