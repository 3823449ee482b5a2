"""MQTT packets as bytes, without any I/O: what arrives is taken apart, what leaves is put together.

Entry points take the protocol level, so that another level can be spoken on the same engine. Level 4 is MQTT 3.1.1.
The parser that cuts a stream into packets is in `parser`; the packets a client rarely sends are decoded here whole.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum
from typing import Final

from broker_plugins.engine.errors import ProtocolViolation
from broker_plugins.engine.topics import check_topic_name, decode_utf8

LEVEL_3_1_1: Final = 4


class PacketType(IntEnum):
    """The high four bits of a packet's first byte [MQTT-2.2.1]."""

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


class ConnectCode(IntEnum):
    """Return codes of CONNACK (MQTT 3.1.1, table 3.1)."""

    ACCEPTED = 0
    UNACCEPTABLE_LEVEL = 1
    IDENTIFIER_REJECTED = 2
    SERVER_UNAVAILABLE = 3
    BAD_CREDENTIALS = 4
    NOT_AUTHORIZED = 5


SUBSCRIBE_FAILED: Final = 0x80
PINGRESP: Final = b"\xd0\x00"
PUBACK: Final = b"\x40\x02"
PUBREC: Final = b"\x50\x02"
PUBREL: Final = b"\x62\x02"
PUBCOMP: Final = b"\x70\x02"
PACKET_IDS: Final = tuple(number.to_bytes(2, "big") for number in range(65536))
"""The two bytes of every packet identifier: looking one up is cheaper than making it for each message."""


@dataclass(slots=True, frozen=True)
class Will:
    """What the broker publishes for a client that leaves without saying goodbye."""

    topic: str
    payload: bytes
    qos: int
    retain: bool


@dataclass(slots=True, frozen=True)
class Connect:
    """A CONNECT packet."""

    level: int
    clean_session: bool
    keep_alive_s: int
    client_id: str
    will: Will | None
    username: str | None
    password: bytes | None


def encode_length(length: int) -> bytes:
    """A remaining length in one to four bytes [MQTT-2.2.3]."""
    if length < 128:
        return bytes((length,))
    encoded = bytearray()
    while True:
        length, digit = length >> 7, length & 0x7F
        if length == 0:
            encoded.append(digit)
            return bytes(encoded)
        encoded.append(digit | 0x80)


def publish_head(topic: bytes, payload_length: int, qos: int, retain: bool, dup: bool = False) -> bytes:
    """A PUBLISH up to where its packet identifier (QoS 1 and 2) or its payload (QoS 0) stands.

    It is the same for every receiver of one message at one QoS, so it is made once a message.
    """
    first = 0x30 | (0x08 if dup else 0) | (qos << 1) | (1 if retain else 0)
    length = 2 + len(topic) + (2 if qos else 0) + payload_length
    return bytes((first,)) + encode_length(length) + len(topic).to_bytes(2, "big") + topic


def connack(code: ConnectCode, session_present: bool = False) -> bytes:
    """A CONNACK; a refusal never says that a session is present [MQTT-3.2.2-4]."""
    return bytes((0x20, 2, 1 if session_present and code == ConnectCode.ACCEPTED else 0, code))


def suback(packet_id: int, codes: bytes) -> bytes:
    """A SUBACK with one return code for each filter, in their order [MQTT-3.9.3-1]."""
    return b"\x90" + encode_length(2 + len(codes)) + PACKET_IDS[packet_id] + codes


def unsuback(packet_id: int) -> bytes:
    """An UNSUBACK [MQTT-3.10.4-4]."""
    return b"\xb0\x02" + PACKET_IDS[packet_id]


class Fields:
    """Reads the fields of one packet's body in turn; running past its end is a violation."""

    __slots__ = ("body", "name", "position")

    def __init__(self, body: bytes, name: str) -> None:
        self.body = body
        self.name = name
        self.position = 0

    def take(self, count: int) -> bytes:
        """The next `count` bytes."""
        end = self.position + count
        if end > len(self.body):
            raise ProtocolViolation("MQTT-2.2.3", f"{self.name} ends {end - len(self.body)} bytes short")
        taken = self.body[self.position : end]
        self.position = end
        return taken

    def byte(self) -> int:
        """The next byte."""
        return self.take(1)[0]

    def integer(self) -> int:
        """The next two bytes, most significant first."""
        high, low = self.take(2)
        return high << 8 | low

    def binary(self) -> bytes:
        """Bytes with their length before them."""
        return self.take(self.integer())

    def text(self) -> str:
        """UTF-8 text with its length before it [MQTT-1.5.3-1] [MQTT-1.5.3-2]."""
        return decode_utf8(self.binary(), self.name)

    @property
    def left(self) -> int:
        """How many bytes have not been read."""
        return len(self.body) - self.position


def decode_connect(body: bytes) -> Connect:
    """Take a CONNECT apart.

    Raises:
        UnsupportedLevel: the client speaks another level of the protocol.
        ProtocolViolation: the packet is malformed.
    """
    fields = Fields(body, "CONNECT")
    name = fields.binary()
    if name != b"MQTT":
        if name == b"MQIsdp":
            raise UnsupportedLevel(fields.byte())
        raise ProtocolViolation("MQTT-3.1.2-1", f"protocol name {name[:16]!r} instead of 'MQTT'")
    level = fields.byte()
    if level != LEVEL_3_1_1:
        raise UnsupportedLevel(level)
    flags = fields.byte()
    if flags & 0x01:
        raise ProtocolViolation("MQTT-3.1.2-3", "the reserved flag of CONNECT is set")
    has_will, will_qos, will_retain = bool(flags & 0x04), flags >> 3 & 3, bool(flags & 0x20)
    if not has_will and (will_qos or will_retain):
        raise ProtocolViolation("MQTT-3.1.2-13", "will QoS or will retain without a will")
    if will_qos == 3:
        raise ProtocolViolation("MQTT-3.1.2-14", "will QoS 3")
    has_username, has_password = bool(flags & 0x80), bool(flags & 0x40)
    if has_password and not has_username:
        raise ProtocolViolation("MQTT-3.1.2-22", "a password without a user name")
    keep_alive_s = fields.integer()
    client_id = fields.text()  # [MQTT-3.1.3-3] [MQTT-3.1.3-4]
    will = None
    if has_will:
        topic = check_topic_name(fields.binary())
        will = Will(topic, fields.binary(), will_qos, will_retain)
    username = fields.text() if has_username else None  # [MQTT-3.1.3-11]
    password = fields.binary() if has_password else None
    if fields.left:
        raise ProtocolViolation("MQTT-2.2.3", f"CONNECT has {fields.left} bytes too many")
    return Connect(level, bool(flags & 0x02), keep_alive_s, client_id, will, username, password)


def decode_subscribe(body: bytes) -> tuple[int, list[tuple[str, int]]]:
    """The packet identifier of a SUBSCRIBE and its filters with the QoS asked for."""
    fields = Fields(body, "SUBSCRIBE")
    packet_id = _packet_id(fields)
    filters: list[tuple[str, int]] = []
    while fields.left:
        text = fields.text()  # [MQTT-3.8.3-1]
        qos = fields.byte()
        if qos > 2:
            raise ProtocolViolation("MQTT-3-8.3-4", f"requested QoS byte {qos:#04x} for {text!r}")
        filters.append((text, qos))
    if not filters:
        raise ProtocolViolation("MQTT-3.8.3-3", "SUBSCRIBE without a filter")
    return packet_id, filters


def decode_unsubscribe(body: bytes) -> tuple[int, list[str]]:
    """The packet identifier of an UNSUBSCRIBE and its filters."""
    fields = Fields(body, "UNSUBSCRIBE")
    packet_id = _packet_id(fields)
    filters: list[str] = []
    while fields.left:
        filters.append(fields.text())  # [MQTT-3.10.3-1]
    if not filters:
        raise ProtocolViolation("MQTT-3.10.3-2", "UNSUBSCRIBE without a filter")
    return packet_id, filters


def _packet_id(fields: Fields) -> int:
    packet_id = fields.integer()
    if packet_id == 0:
        raise ProtocolViolation("MQTT-2.3.1-1", f"{fields.name} with packet identifier 0")
    return packet_id


class UnsupportedLevel(ProtocolViolation):
    """The client speaks a level of MQTT that this broker does not: it is told so by CONNACK 0x01 [MQTT-3.1.2-2]."""

    def __init__(self, level: int) -> None:
        super().__init__("MQTT-3.1.2-2", f"protocol level {level}; this broker speaks level {LEVEL_3_1_1} (MQTT 3.1.1)")
        self.level = level
