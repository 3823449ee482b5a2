"""Loads of connections instead of messages: how fast they come, how many stand, and what each costs in memory."""

from __future__ import annotations

import collections
import contextlib
import itertools
import socket
import time
from typing import TYPE_CHECKING

from benchmarks.load import LoadError, Meter, Outcome, connect_packet

if TYPE_CHECKING:
    from collections.abc import Iterator

    from benchmarks.peers import RunningBroker

AT_ONCE = 50
"""Connections under way, opened but not yet answered."""
_DISCONNECT = b"\xe0\x00"
_PINGREQ = b"\xc0\x00"
_PINGRESP = b"\xd0\x00"


@contextlib.contextmanager
def standing(port: int, count: int, prefix: str = "standing") -> Iterator[list[socket.socket]]:
    """Hold idle connections; each has been answered."""
    connections: list[socket.socket] = []
    try:
        for start in range(0, count, AT_ONCE):
            some = range(start, min(start + AT_ONCE, count))
            connections += [_knock(port, connect_packet(f"{prefix}-{at}")) for at in some]
            for connection in connections[start:]:
                _must_be_accepted(connection)
        yield connections
    finally:
        for connection in connections:
            connection.close()


def _knock(port: int, connect: bytes) -> socket.socket:
    """Open a connection and send CONNECT, without waiting for the answer."""
    connection = socket.socket()
    connection.settimeout(30)
    connection.connect(("127.0.0.1", port))
    connection.send(connect)
    return connection


def _must_be_accepted(connection: socket.socket) -> None:
    answer = connection.recv(4)
    if answer[:1] != b"\x20" or answer[3:] != b"\x00":
        raise LoadError(f"a CONNECT was answered with {answer!r} instead of an accepting CONNACK")


def connect_rate(broker: RunningBroker, *, beside: int, seconds: float) -> Outcome:
    """Clients that connect, are answered and leave, per second, while `beside` others stay connected.

    `AT_ONCE` of them are always under way. Opening and closing a connection costs the kernel as much on the client's
    side as on the broker's, so a fast broker waits for the generator; therefore also connects per second of the
    broker's own processor time.
    """
    with standing(broker.port, beside), contextlib.ExitStack() as stack:
        head, digits = connect_packet("passing-0000000")[:-7], itertools.count()
        waiting = collections.deque(_knock(broker.port, head + b"%07d" % next(digits)) for _ in range(AT_ONCE))
        count = 0
        meter, started = Meter(broker), time.perf_counter()
        while time.perf_counter() < started + seconds:
            with waiting.popleft() as connection:
                _must_be_accepted(connection)
                connection.send(_DISCONNECT)
            count += 1
            waiting.append(_knock(broker.port, head + b"%07d" % next(digits)))
        elapsed = time.perf_counter() - started
        for connection in waiting:
            stack.enter_context(connection)
        return meter.outcome({"": count / elapsed, "per cpu": count / max(meter.broker_seconds(), 0.01)})


def memory_per_connection(broker: RunningBroker, count: int) -> Outcome:
    """Bytes of a fresh broker's own memory per idle connection, and how many of them still answer a ping at the end.

    The first two hundred connections are not counted: they pay for what a broker loads and reserves once. The kernel's
    socket buffers are not in it either, they are the same for everyone.
    """
    meter = Meter(broker)
    with standing(broker.port, 200, "first"):
        before = broker.memory()
        with standing(broker.port, count) as connections:
            after = broker.memory()
            for connection in connections:
                connection.send(_PINGREQ)
            held = sum(connection.recv(2) == _PINGRESP for connection in connections)
            return meter.outcome({"bytes": (after - before) / count, "held": held}, dropped=count - held)
