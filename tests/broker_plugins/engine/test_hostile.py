"""A hundred thousand broken packets and abrupt closes, while an honest pair exchanges messages."""

from __future__ import annotations

import contextlib
import random
import threading

import pytest

from tests.broker_plugins.engine.packets import BAD, BAD_CONNECTS, GOOD
from tests.brokers import locus
from tests.mqtt_wire import Kind, Wire, connect, connect_packet, publish, wait_for

PACKETS = 100_000
SEEDS = [case.data for case in (*GOOD, *BAD, *BAD_CONNECTS) if len(case.data) < 1000]


def mutated(rng: random.Random) -> bytes:
    """A packet with something wrong in it, or several in a row."""
    data = bytearray(b"".join(rng.choices(SEEDS, k=rng.choice([1, 1, 1, 3]))))
    for _ in range(rng.randrange(4)):
        at = rng.randrange(len(data))
        change = rng.randrange(4)
        if change == 0:
            data[at] ^= 1 << rng.randrange(8)
        elif change == 1:
            data[at] = rng.choice([0, 1, 0x7F, 0x80, 0xFF])
        elif change == 2:
            del data[at:]
        else:
            data[at:at] = rng.randbytes(rng.randrange(1, 6))
        if not data:
            data = bytearray(b"\x00")
    return bytes(data)


def attack(port: int, seed: int, count: int) -> None:
    """Send mutated packets over many connections, some after a proper CONNECT, and leave abruptly."""
    rng = random.Random(seed)
    sent = 0
    while sent < count:
        burst = [mutated(rng) for _ in range(rng.choice([1, 2, 10, 60]))]
        sent += len(burst)
        with contextlib.suppress(OSError), Wire(port) as wire:
            if rng.random() < 0.8:
                wire.send(connect_packet(f"hostile{rng.randrange(50)}", clean=rng.random() < 0.9))
            for data in burst:
                wire.socket.send(data)
            if rng.random() < 0.5:
                wire.reset()


@pytest.mark.timeout(300)
def test_an_honest_pair_loses_nothing_and_memory_returns() -> None:
    # What an intruder may leave behind is bounded; with low bounds it is there after the first attack already.
    bounds = {"max_queued_messages": 200, "max_routes": 1000, "max_retained_messages": 100, "max_sessions": 300}
    with locus(engine=bounds) as broker:
        attack(broker.port, 1, PACKETS)
        settled = broker.memory()
        descriptors = broker.descriptors()
        over = threading.Event()
        attackers = [threading.Thread(target=attack, args=(broker.port, seed, PACKETS // 2)) for seed in (2, 3)]

        def watch() -> None:
            for thread in attackers:
                thread.join()
            over.set()

        for thread in attackers:
            thread.start()
        threading.Thread(target=watch).start()
        exchanged = 0
        with connect(broker.port, "honest-s") as receiver, connect(broker.port, "honest-p") as sender:
            receiver.subscribe(("honest/pair", 1))
            while not over.is_set():
                sender.send(publish("honest/pair", b"%d" % exchanged, qos=1))
                (message,) = receiver.messages(1, 20)
                assert int(message.payload) == exchanged
                assert sender.expect(Kind.PUBACK).packet_id == 1
                exchanged += 1
        assert exchanged > 100
        wait_for(lambda: broker.descriptors() <= descriptors + 10, "descriptors to be returned", 20)
        assert broker.memory() - settled < 4_000_000
        print(f"{exchanged} honest messages; memory {settled:,} before, {broker.memory():,} after")
