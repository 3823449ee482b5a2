"""A million messages for a subscriber that does not read: bounded, counted, and nobody else waits."""

from __future__ import annotations

import time

import pytest

from tests.brokers import RunningBroker, locus
from tests.mqtt_wire import Kind, Wire, connect, publish, subscribe

MESSAGES = 1_000_000
QUEUED_BYTES = 4_000_000


def rate(broker: RunningBroker, deaf: Wire | None) -> float:
    """Messages a second from a publisher to a subscriber that reads; a deaf one is subscribed to them too."""
    burst = publish("flood", b"x" * 64) * 500
    size = len(burst)
    count = MESSAGES // 500 if deaf else 400
    with connect(broker.port, "reader") as reader, connect(broker.port, "writer") as writer:
        reader.subscribe(("flood", 0))
        began = time.monotonic()
        for _ in range(count):
            writer.socket.sendall(burst)
            left = size
            while left:
                data = reader.socket.recv(min(left, 1 << 18))
                assert data
                left -= len(data)
        return count * 500 / (time.monotonic() - began)


@pytest.mark.timeout(300)
def test_a_deaf_subscriber_costs_its_bound_and_no_more() -> None:
    with locus(engine={"max_queued_bytes": QUEUED_BYTES, "max_queued_messages": 1_000_000}) as broker:
        alone = max(rate(broker, None), rate(broker, None))
        before = broker.memory()
        with connect(broker.port, "deaf") as deaf:
            deaf.send(subscribe(("flood", 0)))
            deaf.expect(Kind.SUBACK)
            beside = rate(broker, deaf)
            grown = broker.memory() - before
            print(f"{alone:,.0f} msg/s alone, {beside:,.0f} beside a deaf one; memory grew {grown:,} bytes")
            # Python objects around 4 MB of 85-byte packets, and the socket's own buffer.
            assert grown < QUEUED_BYTES * 4
            assert beside > alone / 3
            deaf.socket.settimeout(20)
            newest = b""
            while len(newest) < QUEUED_BYTES // 2:
                newest += deaf.socket.recv(1 << 20)
            assert newest.count(b"flood") > 10_000, "what was kept arrives once it reads again"
