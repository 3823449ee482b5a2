"""The clients of `locus bench geo`: many connections in one epoll loop that count, read or time deliveries."""

from __future__ import annotations

import select
import time
from typing import TYPE_CHECKING, Final

from benchmarks.load import LoadError, open_socket, packet, subscribe, text

if TYPE_CHECKING:
    import socket
    from collections.abc import Sequence

    from benchmarks.peers import RunningBroker

WINDOW: Final = 20_000
"""Deliveries under way at most, so that no broker has to drop any."""
SILENCE_SECONDS: Final = 5.0
LISTENED_TO: Final = 50
"""Clients whose deliveries are timed one by one."""
PINGREQ, PINGRESP = b"\xc0\x00", b"\xd0\x00"


class Crowd:
    """The clients of one broker: they count bytes, or read every message when asked to.

    Args:
        broker: where they are.
        filters: what each subscribes to.
    """

    def __init__(self, broker: RunningBroker, filters: Sequence[Sequence[str]]) -> None:
        self.broker = broker
        self.sockets: list[socket.socket] = []
        for number, some in enumerate(filters):
            connection = open_socket(broker.port, f"client-{number}")
            self.sockets.append(connection)
            subscribe(connection, some, 0)
        self.publisher = open_socket(broker.port, "publisher")
        self._epoll = select.epoll()
        self._buffer = bytearray(1 << 18)
        self._by_descriptor = {connection.fileno(): connection for connection in self.sockets}
        for connection in self.sockets:
            connection.setblocking(False)
            self._epoll.register(connection.fileno(), select.EPOLLIN)

    def close(self) -> None:
        """Leave."""
        for connection in [*self.sockets, self.publisher]:
            connection.close()
        self._epoll.close()

    def tell(self, packets: Sequence[bytes]) -> None:
        """Let each client send a packet, and wait until the broker has taken all of them."""
        for connection, each in zip(self.sockets, packets, strict=True):
            connection.setblocking(True)
            connection.sendall(each + PINGREQ)
        for connection in self.sockets:
            answer = connection.recv(2)
            if answer != PINGRESP:
                raise LoadError(f"waited for PINGRESP, got {answer!r}")
            connection.setblocking(False)

    def resubscribe(self, changes: Sequence[tuple[Sequence[str], Sequence[str]]]) -> None:
        """Let each client leave some filters and subscribe to others, and wait for the answers."""
        for connection, (left, new) in zip(self.sockets, changes, strict=True):
            connection.setblocking(True)
            if left:
                connection.sendall(packet(0xA2, b"\x00\x01" + b"".join(map(text, left))))
            if new:
                connection.sendall(packet(0x82, b"\x00\x01" + b"".join(text(each) + b"\x00" for each in new)))
            connection.sendall(PINGREQ)
        for connection in self.sockets:
            answer = b""
            while not answer.endswith(PINGRESP):
                answer += connection.recv(1 << 16)
            connection.setblocking(False)

    def tell_all(self, packets: Sequence[bytes]) -> None:
        """The same while deliveries may come in between: they are read and not looked at."""
        for connection, each in zip(self.sockets, packets, strict=True):
            connection.setblocking(True)
            connection.sendall(each + PINGREQ)
            connection.setblocking(False)
        waiting = set(self._by_descriptor)
        ends = dict.fromkeys(waiting, b"")
        while waiting:
            events = self._epoll.poll(SILENCE_SECONDS)
            if not events:
                raise LoadError(f"{len(waiting)} clients wait for PINGRESP, then silence")
            for descriptor, _ in events:
                # No delivery has these two bytes in it, so wherever they are they are the answer.
                data = ends[descriptor] + self._by_descriptor[descriptor].recv(1 << 18)
                ends[descriptor] = data[-1:]
                if PINGRESP in data:
                    waiting.discard(descriptor)

    def burst(self, packets: Sequence[bytes], copies: Sequence[int], size: int = 0) -> tuple[float, int]:
        """Publish, at most WINDOW deliveries ahead; seconds until all have arrived, and how many bytes.

        Args:
            packets: what is published, all of a size.
            copies: how many deliveries each causes.
            size: the size of a delivery, that of a packet if not said.
        """
        size = size or len(packets[0])
        owed = sent = received = 0
        total = sum(copies) * size
        poll, sockets, buffer = self._epoll.poll, self._by_descriptor, self._buffer
        started = last = time.perf_counter()
        while received < total:
            waiting = owed - received // size
            if sent < len(packets) and waiting <= WINDOW // 2:
                first = sent
                while sent < len(packets) and waiting < WINDOW:
                    waiting += copies[sent]
                    owed += copies[sent]
                    sent += 1
                self.publisher.sendall(b"".join(packets[first:sent]))
            events = poll(SILENCE_SECONDS)
            for descriptor, _ in events:
                received += sockets[descriptor].recv_into(buffer)
            last = time.perf_counter()
            if not events:
                break
        if received != total:
            raise LoadError(f"{received / size:,.0f} deliveries of {total / size:,.0f} arrived; the rest is lost")
        return last - started, received

    def read(self, packets: Sequence[bytes], copies: Sequence[int], size: int = 0) -> list[list[int]]:
        """Publish and read what each client gets: the numbers of the events."""
        size = size or len(packets[0])
        parts: dict[int, list[bytes]] = {descriptor: [] for descriptor in self._by_descriptor}
        received, total = 0, sum(copies) * size
        for start in range(0, len(packets), 20):
            self.publisher.sendall(b"".join(packets[start : start + 20]))
            while received < sum(copies[: start + 20]) * size:
                events = self._epoll.poll(SILENCE_SECONDS)
                if not events:
                    raise LoadError(f"{received / size:,.0f} deliveries of {total / size:,.0f} arrived, then silence")
                for descriptor, _ in events:
                    part = self._by_descriptor[descriptor].recv(1 << 18)
                    parts[descriptor].append(part)
                    received += len(part)
        found = []
        for connection in self.sockets:
            data = b"".join(parts[connection.fileno()])
            ends = range(size, len(data) + 1, size)
            found.append([int(data[end - 10 : end - 2]) for end in ends])
        return found

    def latency(self, packets: Sequence[bytes], rate: float, seconds: float) -> list[float]:
        """Publish at a steady rate; how long each delivery to some of the clients took since it was due."""
        size = len(packets[0])
        clock = time.perf_counter
        listened = {connection.fileno() for connection in self.sockets[:LISTENED_TO]}
        rest = dict.fromkeys(listened, b"")
        place_of = {int(each[-10:-2]): place for place, each in enumerate(packets)}
        waits: list[float] = []
        count = round(rate * seconds)
        started = clock() + 0.05
        sent = 0
        quiet_at = started + seconds + 1.0
        while sent < count or clock() < quiet_at:
            now = clock()
            due = min(count, int((now - started) * rate) + 1) if now >= started else 0
            if due > sent:
                ring = (packets[number % len(packets)] for number in range(sent, due))
                self.publisher.sendall(b"".join(ring))
                sent = due
                if sent == count:
                    quiet_at = clock() + 0.5
            pause = 0.1 if sent == count else max(0.0, started + sent / rate - clock())
            for descriptor, _ in self._epoll.poll(min(pause, 0.01)):
                if descriptor not in listened:
                    self._by_descriptor[descriptor].recv_into(self._buffer)
                    continue
                data = rest[descriptor] + self._by_descriptor[descriptor].recv(1 << 18)
                now = clock()
                whole = len(data) // size * size
                rest[descriptor] = data[whole:]
                for end in range(size, whole + 1, size):
                    place = place_of[int(data[end - 10 : end - 2])]
                    # The last time this event was due before now.
                    turn = (int((now - started) * rate) - place) // len(packets)
                    waits.append(now - (started + (turn * len(packets) + place) / rate))
        return waits
