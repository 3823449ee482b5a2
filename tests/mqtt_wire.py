"""MQTT 3.1.1 over a plain socket, for tests that must say exactly which bytes travel.

Packets are built by functions (`publish`, `subscribe`, ...) that take anything, right or wrong; a `Wire` is one
connection that sends bytes and reads packets, always with a deadline. What does not come in time is an
`AssertionError`, because in a test it is one.
"""

from __future__ import annotations

import socket
import struct
import time
from dataclasses import dataclass
from enum import IntEnum
from typing import TYPE_CHECKING, Self

if TYPE_CHECKING:
    from collections.abc import Callable

SECONDS = 10.0
"""How long a test waits for what must come."""


class Kind(IntEnum):
    """The packet types of MQTT 3.1.1."""

    CONNECT = 1
    CONNACK = 2
    PUBLISH = 3
    PUBACK = 4
    PUBREC = 5
    PUBREL = 6
    PUBCOMP = 7
    SUBSCRIBE = 8
    SUBACK = 9
    UNSUBSCRIBE = 10
    UNSUBACK = 11
    PINGREQ = 12
    PINGRESP = 13
    DISCONNECT = 14


class Silence(AssertionError):
    """What was waited for did not come in time."""


class Closed(AssertionError):
    """The broker closed the connection while something was waited for."""


@dataclass(slots=True, frozen=True)
class Packet:
    """A packet as it came: its type, the low four bits of its first byte, and everything after the length."""

    kind: Kind
    flags: int
    body: bytes

    @property
    def qos(self) -> int:
        return self.flags >> 1 & 3

    @property
    def dup(self) -> bool:
        return bool(self.flags & 8)

    @property
    def retain(self) -> bool:
        return bool(self.flags & 1)

    @property
    def topic(self) -> str:
        """The topic of a PUBLISH."""
        (length,) = struct.unpack_from("!H", self.body)
        return self.body[2 : 2 + length].decode()

    @property
    def packet_id(self) -> int:
        """The packet identifier, of a PUBLISH with QoS 1 or 2 or of any acknowledgement."""
        at = 2 + struct.unpack_from("!H", self.body)[0] if self.kind is Kind.PUBLISH else 0
        (identifier,) = struct.unpack_from("!H", self.body, at)
        return int(identifier)

    @property
    def payload(self) -> bytes:
        """The payload of a PUBLISH."""
        start = 2 + struct.unpack_from("!H", self.body)[0] + (2 if self.qos else 0)
        return self.body[start:]

    @property
    def return_code(self) -> int:
        """The return code of a CONNACK."""
        return self.body[1]

    @property
    def session_present(self) -> bool:
        """The session-present flag of a CONNACK."""
        return bool(self.body[0] & 1)


def packet(kind: int, flags: int, body: bytes = b"") -> bytes:
    """Any packet: first byte, remaining length, body."""
    length = len(body)
    head = bytearray([kind << 4 | flags])
    while True:
        length, byte = length >> 7, length & 0x7F
        head.append(byte | 0x80 if length else byte)
        if not length:
            return bytes(head) + body


def text(value: str | bytes) -> bytes:
    """A string with its two bytes of length; bytes are taken as they are."""
    raw = value.encode() if isinstance(value, str) else value
    return struct.pack("!H", len(raw)) + raw


@dataclass(slots=True, frozen=True)
class Will:
    """What the broker publishes when a client is gone without DISCONNECT."""

    topic: str
    payload: bytes
    qos: int = 0
    retain: bool = False


def connect_packet(
    client_id: str,
    *,
    clean: bool = True,
    keep_alive: int = 0,
    will: Will | None = None,
    username: str | None = None,
    password: str | None = None,
    level: int = 4,
) -> bytes:
    """CONNECT."""
    flags = 2 if clean else 0
    body = text(client_id)
    if will:
        flags |= 4 | will.qos << 3 | (32 if will.retain else 0)
        body += text(will.topic) + text(will.payload)
    if username is not None:
        flags |= 128
        body += text(username)
    if password is not None:
        flags |= 64
        body += text(password)
    return packet(Kind.CONNECT, 0, text("MQTT") + bytes([level, flags]) + struct.pack("!H", keep_alive) + body)


def publish(
    topic: str | bytes,
    payload: bytes = b"",
    *,
    qos: int = 0,
    packet_id: int = 1,
    retain: bool = False,
    dup: bool = False,
) -> bytes:
    """PUBLISH; QoS 3, packet id 0 and wild topics are built as asked."""
    identifier = struct.pack("!H", packet_id) if qos else b""
    flags = (8 if dup else 0) | qos << 1 | (1 if retain else 0)
    return packet(Kind.PUBLISH, flags, text(topic) + identifier + payload)


def subscribe(*filters: tuple[str, int], packet_id: int = 1) -> bytes:
    """SUBSCRIBE to filters with the QoS asked for each."""
    body = b"".join(text(topic_filter) + bytes([qos]) for topic_filter, qos in filters)
    return packet(Kind.SUBSCRIBE, 2, struct.pack("!H", packet_id) + body)


def unsubscribe(*filters: str, packet_id: int = 1) -> bytes:
    """UNSUBSCRIBE."""
    return packet(Kind.UNSUBSCRIBE, 2, struct.pack("!H", packet_id) + b"".join(map(text, filters)))


def acknowledge(kind: Kind, packet_id: int) -> bytes:
    """PUBACK, PUBREC, PUBREL or PUBCOMP."""
    return packet(kind, 2 if kind is Kind.PUBREL else 0, struct.pack("!H", packet_id))


PINGREQ = packet(Kind.PINGREQ, 0)
DISCONNECT = packet(Kind.DISCONNECT, 0)


class Wire:
    """One connection to a broker on 127.0.0.1, at first without CONNECT."""

    def __init__(self, port: int) -> None:
        self.socket = socket.create_connection(("127.0.0.1", port), timeout=SECONDS)
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._unread = bytearray()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Leave without DISCONNECT."""
        self.socket.close()

    def reset(self) -> None:
        """Leave abruptly: the broker sees a connection reset."""
        self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self.socket.close()

    def send(self, *packets: bytes) -> None:
        """Send packets as one write."""
        self.socket.sendall(b"".join(packets))

    def read(self, seconds: float = SECONDS) -> Packet:
        """The next packet; `Silence` if none comes in time, `Closed` if the connection ends first."""
        deadline = time.monotonic() + seconds
        while (found := self._take()) is None:
            self._receive(deadline, "a packet")
        return found

    def expect(self, kind: Kind, seconds: float = SECONDS) -> Packet:
        """The next packet, which must be of this kind."""
        found = self.read(seconds)
        assert found.kind is kind, f"expected {kind.name}, got {found}"
        return found

    def messages(self, count: int, seconds: float = SECONDS) -> list[Packet]:
        """The next `count` PUBLISH packets, each acknowledged as its QoS wants; other packets are passed over."""
        deadline = time.monotonic() + seconds
        found: list[Packet] = []
        while len(found) < count:
            try:
                found += self._settled(self.read(max(0.0, deadline - time.monotonic())))
            except (Silence, Closed) as problem:
                raise type(problem)(f"{len(found)} of {count} messages, then: {problem}") from None
        return found

    def messages_until_ping(self, seconds: float = SECONDS) -> list[Packet]:
        """Send PINGREQ and return the messages that come before its answer, acknowledged.

        A broker that handles the packets of a connection in order has by then sent what it owed for them; so this is
        how to see that nothing comes, without waiting.
        """
        self.send(PINGREQ)
        deadline = time.monotonic() + seconds
        found: list[Packet] = []
        while (arrived := self.read(max(0.0, deadline - time.monotonic()))).kind is not Kind.PINGRESP:
            found += self._settled(arrived)
        return found

    def wait_until_closed(self, seconds: float = SECONDS) -> None:
        """Read on until the broker closes the connection; `Silence` if it does not."""
        deadline = time.monotonic() + seconds
        try:
            while True:
                self._receive(deadline, "the connection to be closed")
                self._unread.clear()
        except Closed:
            return

    def subscribe(self, *filters: tuple[str, int]) -> list[int]:
        """Subscribe and return what was granted; messages that come before the SUBACK are lost to the test."""
        self.send(subscribe(*filters))
        while (answer := self.read()).kind is not Kind.SUBACK:
            pass
        return list(answer.body[2:])

    def _settled(self, arrived: Packet) -> list[Packet]:
        """Answer a packet of a delivery; the packet itself if it is a message."""
        if arrived.kind is Kind.PUBREL:
            self.send(acknowledge(Kind.PUBCOMP, arrived.packet_id))
        if arrived.kind is not Kind.PUBLISH:
            return []
        if arrived.qos:
            self.send(acknowledge(Kind.PUBACK if arrived.qos == 1 else Kind.PUBREC, arrived.packet_id))
        return [arrived]

    def _take(self) -> Packet | None:
        """Cut a whole packet off what has been received."""
        length, shift = 0, 0
        for at in range(1, min(5, len(self._unread))):
            length |= (self._unread[at] & 0x7F) << shift
            shift += 7
            if self._unread[at] < 0x80:
                end = at + 1 + length
                if len(self._unread) < end:
                    return None
                head, body = self._unread[0], bytes(self._unread[at + 1 : end])
                del self._unread[:end]
                return Packet(Kind(head >> 4), head & 15, body)
        return None

    def _receive(self, deadline: float, what: str) -> None:
        """Receive something before the deadline."""
        self.socket.settimeout(max(0.001, deadline - time.monotonic()))
        try:
            data = self.socket.recv(1 << 16)
        except TimeoutError:
            raise Silence(f"waited for {what}, in vain") from None
        except ConnectionError as problem:
            raise Closed(f"waited for {what}, but the connection ended: {problem}") from None
        if not data:
            raise Closed(f"waited for {what}, but the broker closed the connection")
        self._unread += data


def connect(
    port: int,
    client_id: str,
    *,
    clean: bool = True,
    keep_alive: int = 0,
    will: Will | None = None,
    username: str | None = None,
    password: str | None = None,
) -> Wire:
    """A connection whose CONNECT has been accepted."""
    wire = Wire(port)
    wire.send(
        connect_packet(client_id, clean=clean, keep_alive=keep_alive, will=will, username=username, password=password)
    )
    answer = wire.expect(Kind.CONNACK)
    assert answer.return_code == 0, f"CONNECT of {client_id!r} was refused with {answer.return_code}"
    return wire


def wait_for(condition: Callable[[], bool], what: str, seconds: float = SECONDS) -> None:
    """Return as soon as the condition holds; `Silence` if it does not in time."""
    deadline = time.monotonic() + seconds
    while not condition():
        if time.monotonic() >= deadline:
            raise Silence(f"waited {seconds:g} s for {what}, in vain")
        time.sleep(0.01)
