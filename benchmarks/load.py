"""The load generator: raw sockets and pre-encoded packets in one epoll loop, in a process apart from the broker's.

It must never be what is measured. So nothing is encoded while a load runs, all deliveries of a load have the same
size, and what arrives is counted by its bytes; only packet identifiers that must be answered are cut out, by NumPy
where many come at once. Each load tells how busy the generator's own processor was.
"""

from __future__ import annotations

import contextlib
import functools
import select
import socket
import struct
import time
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, TypeAlias

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from numpy.typing import NDArray

    from benchmarks.peers import RunningBroker

    Bytes: TypeAlias = NDArray[np.uint8]
    Receivers: TypeAlias = dict[int, Callable[[], int]]

PAYLOAD_BYTES = 64
SILENCE_SECONDS = 3.0
"""After this long without a delivery what is still missing counts as dropped."""
RECEIVE_BYTES = 1 << 18
_CONNACK_BYTES = 4
_RING = 10_000
"""How many different packets a publisher has ready; each has its own packet identifier."""


class LoadError(RuntimeError):
    """A broker refused or broke off something a load needs."""


@dataclass(slots=True, frozen=True)
class Packets:
    """Packets of one size, one after the other."""

    joined: bytes
    size: int


@dataclass(slots=True, frozen=True)
class Outcome:
    """What one run of a load gave.

    Args:
        figures: the values measured, by the name of their row.
        busy: the share of one processor the generator used while it measured.
        broker_busy: the same of the broker.
        dropped: deliveries owed that never came.
        sent: messages published.
    """

    figures: dict[str, float]
    busy: float
    broker_busy: float
    dropped: int = 0
    sent: int = 0


class Meter:
    """Processor time of the generator and of a broker from now on, as shares of the time that passes."""

    def __init__(self, broker: RunningBroker | None) -> None:
        self._broker = broker
        self._broker_cpu = self._broker_seconds()
        self._cpu, self._started = time.process_time(), time.perf_counter()

    def outcome(self, figures: dict[str, float], dropped: int = 0, sent: int = 0) -> Outcome:
        """Stop here, with these figures."""
        elapsed = time.perf_counter() - self._started
        busy = (time.process_time() - self._cpu) / elapsed
        return Outcome(figures, busy, (self._broker_seconds() - self._broker_cpu) / elapsed, dropped, sent)

    def broker_seconds(self) -> float:
        """Processor time of the broker so far."""
        return self._broker_seconds() - self._broker_cpu

    def _broker_seconds(self) -> float:
        return self._broker.cpu_seconds() if self._broker else 0.0


def packet(first: int, body: bytes) -> bytes:
    """A packet with a first byte and a body of less than 128 bytes, or any body for SUBSCRIBE."""
    length, head = len(body), bytearray([first])
    while True:
        length, byte = length >> 7, length & 0x7F
        head.append(byte | 0x80 if length else byte)
        if not length:
            return bytes(head) + body


def text(value: str) -> bytes:
    """A string with its two bytes of length."""
    raw = value.encode()
    return struct.pack("!H", len(raw)) + raw


def connect_packet(client_id: str) -> bytes:
    """CONNECT with a clean session and no keep-alive."""
    return packet(0x10, text("MQTT") + b"\x04\x02\x00\x00" + text(client_id))


def subscribe_packet(filters: Sequence[str], qos: int) -> bytes:
    """SUBSCRIBE to many filters at once."""
    return packet(0x82, b"\x00\x01" + b"".join(text(each) + bytes([qos]) for each in filters))


@functools.lru_cache(maxsize=32)
def publish_packets(topics: tuple[str, ...], qos: int, count: int = _RING) -> Packets:
    """`count` PUBLISH packets to the topics in turn, with identifiers from 1 on; no two payloads are the same."""
    heads = [text(topic) for topic in topics]
    packets = []
    for at in range(count):
        identifier = struct.pack("!H", at + 1) if qos else b""
        payload = b"%08d" % at + bytes(PAYLOAD_BYTES - 8)
        packets.append(packet(0x30 | qos << 1, heads[at % len(heads)] + identifier + payload))
    if len({len(each) for each in packets}) != 1:
        raise LoadError(f"topics of a load are equally long, so that deliveries can be counted; {topics[0]!r} is not")
    return Packets(b"".join(packets), len(packets[0]))


def open_socket(port: int, client_id: str) -> socket.socket:
    """A connection whose CONNECT has been accepted."""
    connection = socket.create_connection(("127.0.0.1", port), timeout=30)
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    connection.sendall(connect_packet(client_id))
    answer = _receive_exactly(connection, _CONNACK_BYTES)
    if answer[3]:
        raise LoadError(f"the broker on port {port} refused client {client_id!r} with return code {answer[3]}")
    return connection


def subscribe(connection: socket.socket, filters: Sequence[str], qos: int) -> None:
    """Subscribe, and wait for the answer."""
    for start in range(0, len(filters), 100):
        some = filters[start : start + 100]
        connection.sendall(subscribe_packet(some, qos))
        granted = _receive_exactly(connection, 4 + len(some))[4:]
        if set(granted) != {qos}:
            raise LoadError(f"asked for QoS {qos} on {some[0]!r} and {len(some) - 1} others, granted {set(granted)}")


def _receive_exactly(connection: socket.socket, count: int) -> bytes:
    parts = b""
    while len(parts) < count:
        part = connection.recv(count - len(parts))
        if not part:
            raise LoadError("the broker closed a connection the load needs; its log says why")
        parts += part
    return parts


class Publisher:
    """Sends ready-made packets in a ring and counts what the broker acknowledges."""

    def __init__(self, connection: socket.socket, packets: Packets, qos: int) -> None:
        self.socket = connection
        self.backlog = bytearray()
        self._qos = qos
        self._size = packets.size
        self._ring = memoryview(packets.joined)
        self._at = 0
        self._rest = b""

    def send(self, count: int) -> None:
        """Send the next packets of the ring, in as few writes as the ring's end allows."""
        left = count * self._size
        while left:
            part = self._ring[self._at : self._at + left]
            self._write(part)
            left -= len(part)
            self._at = (self._at + len(part)) % len(self._ring)

    def receive(self) -> int:
        """Read acknowledgements, answer PUBREC with PUBREL, and tell how many messages are done with."""
        data = self._rest + self.socket.recv(RECEIVE_BYTES)
        whole = len(data) & ~3
        self._rest = data[whole:]
        if self._qos < 2:
            return whole >> 2
        answers = np.frombuffer(data, np.uint8, whole).reshape(-1, 4)
        releases = answers[answers[:, 0] == 0x50]
        if len(releases):
            releases[:, 0] = 0x62
            self._write(releases.tobytes())
        return len(answers) - len(releases)

    def flush(self) -> None:
        """Try again what the socket did not take."""
        part, self.backlog = self.backlog, bytearray()
        self._write(part)

    def _write(self, part: bytes | bytearray | memoryview) -> None:
        if self.backlog:
            self.backlog += part
            return
        try:
            taken = self.socket.send(part)
        except BlockingIOError:
            taken = 0
        if taken < len(part):
            self.backlog += part[taken:]


class Subscriber:
    """Counts deliveries of one size by their bytes; acknowledges them where their QoS wants it."""

    def __init__(self, connection: socket.socket, size: int, qos: int) -> None:
        self.socket = connection
        self.receive: Callable[[], int] = (self._count, self._count_and_acknowledge, self._count_twice)[qos]
        self._size = size
        self._identifier_at = size - PAYLOAD_BYTES - 2
        self._buffer = bytearray(RECEIVE_BYTES)
        self._bytes = 0
        self._rest = b""

    def _count(self) -> int:
        count, self._bytes = divmod(self._bytes + self.socket.recv_into(self._buffer), self._size)
        return count

    def _count_and_acknowledge(self) -> int:
        data = self._rest + self.socket.recv(RECEIVE_BYTES)
        count, rest = divmod(len(data), self._size)
        self._rest = data[len(data) - rest :] if rest else b""
        at = self._identifier_at
        if count == 1:
            self._answer(b"\x40\x02" + data[at : at + 2])
        elif count:
            deliveries = np.frombuffer(data, np.uint8, count * self._size).reshape(count, self._size)
            answers: Bytes = np.empty((count, 4), np.uint8)
            answers[:, 0], answers[:, 1], answers[:, 2:] = 0x40, 0x02, deliveries[:, at : at + 2]
            self._answer(answers.tobytes())
        return count

    def _count_twice(self) -> int:
        data = self._rest + self.socket.recv(RECEIVE_BYTES)
        answers: list[bytes] = []
        count, at, end, size, identifier_at = 0, 0, len(data), self._size, self._identifier_at
        while at + 4 <= end:
            if data[at] == 0x62:
                answers.append(b"\x70\x02" + data[at + 2 : at + 4])
                at += 4
            elif at + size <= end:
                start = at + identifier_at
                answers.append(b"\x50\x02" + data[start : start + 2])
                at += size
                count += 1
            else:
                break
        self._rest = data[at:]
        self._answer(b"".join(answers))
        return count

    def _answer(self, answers: bytes) -> None:
        while answers:
            with contextlib.suppress(BlockingIOError):
                answers = answers[self.socket.send(answers) :]


@dataclass(slots=True)
class Stream:
    """Publishers and subscribers between which messages flow, at most `window` of them under way at a time.

    A window as large as the number of publishers is one message at a time for each; a larger one is pipelining, and
    then a quarter of it is written at once. The bound is low enough that no broker has to drop anything.

    Args:
        publishers: who sends, in equal shares.
        subscribers: who receives.
        copies: deliveries each message causes.
        qos: of messages and subscriptions.
        window: messages sent but not yet delivered everywhere and acknowledged.
        broker: whose processor time is told, if there is one.
    """

    publishers: list[Publisher]
    subscribers: list[Subscriber]
    copies: int
    qos: int
    window: int
    broker: RunningBroker | None = None

    def warm_up(self, seconds: float) -> None:
        """Send for so long, one at a time: a broker's first messages pay for what it sets up once."""
        replace(self, window=len(self.publishers)).run(seconds)

    def run(self, seconds: float) -> Outcome:
        """Send for so long, wait until everything has arrived, and tell the deliveries per second."""
        poll, deliveries, acknowledgements = self._watch()
        publishers, qos, copies, window = self.publishers, self.qos, self.copies, self.window
        at_once = max(len(publishers), window // 4)
        sent = delivered = acknowledged = 0
        meter = Meter(self.broker)
        started = last = time.perf_counter()
        end = started + seconds
        blocked: list[Publisher] = []
        while True:
            settled = min(delivered // copies, acknowledged) if qos else delivered // copies
            room = window - (sent - settled)
            if room >= at_once and time.perf_counter() < end:
                share = room // len(publishers)
                for publisher in publishers:
                    publisher.send(share)
                sent += share * len(publishers)
                blocked = [publisher for publisher in publishers if publisher.backlog]
            elif settled >= sent:
                break
            if blocked:
                for publisher in blocked:
                    publisher.flush()
                blocked = [publisher for publisher in blocked if publisher.backlog]
            events = poll(0.001 if blocked else SILENCE_SECONDS)
            for descriptor, _ in events:
                if descriptor in deliveries:
                    delivered += deliveries[descriptor]()
                else:
                    acknowledged += acknowledgements[descriptor]()
            now = time.perf_counter()
            if events:
                last = now
            elif now - last > SILENCE_SECONDS:
                break
        return meter.outcome({"": delivered / max(last - started, 1e-9)}, sent * copies - delivered, sent)

    def _watch(self) -> tuple[Callable[[float], list[tuple[int, int]]], Receivers, Receivers]:
        """Poll every socket; what reads deliveries, and what reads acknowledgements, by descriptor."""
        epoll = select.epoll()
        deliveries: Receivers = {each.socket.fileno(): each.receive for each in self.subscribers}
        acknowledgements: Receivers = {each.socket.fileno(): each.receive for each in self.publishers}
        for connection in [each.socket for each in self.subscribers] + [each.socket for each in self.publishers]:
            connection.setblocking(False)
            epoll.register(connection.fileno(), select.EPOLLIN)
        return epoll.poll, deliveries, acknowledgements


@contextlib.contextmanager
def stream(
    broker: RunningBroker,
    *,
    topics: Sequence[Sequence[str]],
    filters: Sequence[Sequence[str]],
    copies: int,
    qos: int,
    window: int,
) -> Iterator[Stream]:
    """Connect a publisher for each list of topics and a subscriber for each list of filters; all topics are as long."""
    with contextlib.ExitStack() as stack:
        subscribers = []
        port = broker.port
        packets = [publish_packets(tuple(each), qos) for each in topics]
        for at, some in enumerate(filters):
            connection = stack.enter_context(open_socket(port, f"subscriber-{at}"))
            subscribe(connection, some, qos)
            subscribers.append(Subscriber(connection, packets[0].size, qos))
        publishers = [
            Publisher(stack.enter_context(open_socket(port, f"publisher-{at}")), some, qos)
            for at, some in enumerate(packets)
        ]
        yield Stream(publishers, subscribers, copies, qos, window, broker)


def ceiling(seconds: float) -> float:
    """Messages per second the generator handles when nothing stands between its publisher and its subscriber."""
    left, right = socket.socketpair()
    with left, right:
        packets = publish_packets(("t/one",), 0)
        direct = Stream([Publisher(left, packets, 0)], [Subscriber(right, packets.size, 0)], 1, 0, window=500)
        return direct.run(seconds).figures[""]
