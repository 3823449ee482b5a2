"""Cuts a stream of bytes into MQTT packets, incrementally and without I/O.

The parser calls its handler for each packet. The two kinds that make up nearly all traffic, PUBLISH and the four
acknowledgements, have calls of their own with their fields found; the others are handed over as a body. For a PUBLISH
the handler gets the chunk and the places in it, so that a packet which is passed on as it is costs one slice.
"""

from __future__ import annotations

from typing import Protocol

from broker_plugins.engine.codec import PacketType
from broker_plugins.engine.errors import ProtocolViolation

# The flags each kind of packet must carry [MQTT-2.2.2-2]; PUBLISH has its own meaning for them.
REQUIRED_FLAGS = {
    PacketType.CONNECT: 0,
    PacketType.PUBACK: 0,
    PacketType.PUBREC: 0,
    PacketType.PUBREL: 2,
    PacketType.PUBCOMP: 0,
    PacketType.SUBSCRIBE: 2,
    PacketType.UNSUBSCRIBE: 2,
    PacketType.PINGREQ: 0,
    PacketType.DISCONNECT: 0,
}


class PacketHandler(Protocol):
    """Who takes the packets of one stream."""

    def take_publish(
        self, first: int, topic: bytes, packet_id: int, chunk: bytes, start: int, payload: int, end: int
    ) -> None:
        """A PUBLISH stands at `chunk[start:end]`, its payload at `chunk[payload:end]`; `packet_id` is 0 for QoS 0."""

    def take_ack(self, kind: int, packet_id: int) -> None:
        """A PUBACK, PUBREC, PUBREL or PUBCOMP; `kind` is its first byte."""

    def take_packet(self, kind: int, body: bytes) -> None:
        """Any other packet."""


class Parser:
    """One stream's bytes so far.

    Args:
        handler: who takes the packets.
        max_packet_bytes: the largest packet taken, its header included.
    """

    __slots__ = ("handler", "held", "max_packet_bytes", "need", "paused", "pieces")

    def __init__(self, handler: PacketHandler, max_packet_bytes: int) -> None:
        self.handler: PacketHandler | None = handler
        self.max_packet_bytes = max_packet_bytes
        self.paused = False
        """Set by the handler to keep the rest until `resume`: packets are taken one after the other."""
        self.pieces: list[bytes] = []
        self.held = 0
        self.need = 0

    def feed(self, data: bytes) -> None:
        """Take the next bytes of the stream.

        Raises:
            ProtocolViolation: they are not MQTT; the stream is of no use any more.
        """
        if self.pieces or self.paused:
            self.pieces.append(data)
            self.held += len(data)
            if self.paused or self.held < self.need:
                return
            data = b"".join(self.pieces)
            self.pieces.clear()
            self.held = 0
        self._cut(data)

    def resume(self) -> None:
        """Go on after `paused` was set."""
        self.paused = False
        if self.pieces:
            data = b"".join(self.pieces)
            self.pieces.clear()
            self.held = 0
            self._cut(data)

    def stop(self) -> None:
        """Take nothing more, and let the handler go: a cycle of the two would wait for the garbage collector."""
        self.paused = True
        self.pieces.clear()
        self.held = 0
        self.handler = None

    def _keep(self, rest: bytes, need: int) -> None:
        self.pieces.append(rest)
        self.held = len(rest)
        self.need = need

    def _cut(self, data: bytes) -> None:
        handler = self.handler
        assert handler is not None
        take_publish = handler.take_publish
        limit = self.max_packet_bytes
        position = 0
        size = len(data)
        while position < size:
            if self.paused:
                self._keep(data[position:], 0)
                return
            if size - position < 2:
                self._keep(data[position:], 2)
                return
            first = data[position]
            length = data[position + 1]
            body = position + 2
            if length > 127:
                length &= 0x7F
                shift = 7
                while True:
                    if body >= size:
                        self._keep(data[position:], body - position + 1)
                        return
                    digit = data[body]
                    body += 1
                    length |= (digit & 0x7F) << shift
                    if digit < 128:
                        break
                    shift += 7
                    if shift > 21:
                        raise ProtocolViolation("MQTT-2.2.3", "a remaining length of more than four bytes")
            end = body + length
            if end - position > limit:
                raise ProtocolViolation("limit", f"a packet of {end - position} bytes; max_packet_bytes is {limit}")
            if end > size:
                # What the standard forbids is refused before the rest of it is waited for.
                if first & 0xF0 != 0x30:
                    self._check_header(first)
                self._keep(data[position:], end - position)
                return
            if first & 0xF0 == 0x30:
                if length < 2:
                    raise ProtocolViolation("MQTT-2.2.3", "PUBLISH ends before its topic")
                topic_start = body + 2
                payload = topic_start + (data[body] << 8 | data[body + 1])
                topic_end = payload
                qos_bits = first & 0x06
                if qos_bits:
                    if qos_bits == 0x06:
                        raise ProtocolViolation("MQTT-3.3.1-4", "PUBLISH with QoS 3")
                    payload += 2
                    if payload > end:
                        raise ProtocolViolation("MQTT-2.2.3", "PUBLISH ends before its packet identifier")
                    packet_id = data[topic_end] << 8 | data[topic_end + 1]
                    if not packet_id:
                        raise ProtocolViolation("MQTT-2.3.1-1", "PUBLISH with packet identifier 0")
                else:
                    if payload > end:
                        raise ProtocolViolation("MQTT-2.2.3", "PUBLISH ends before its topic does")
                    if first & 0x08:
                        raise ProtocolViolation("MQTT-3.3.1-2", "PUBLISH with QoS 0 and DUP")
                    packet_id = 0
                take_publish(first, data[topic_start:topic_end], packet_id, data, position, payload, end)
            elif 0x40 <= first <= 0x70 and length == 2 and first in (0x40, 0x50, 0x62, 0x70):
                packet_id = data[body] << 8 | data[body + 1]
                if not packet_id:
                    raise ProtocolViolation("MQTT-2.3.1-1", "an acknowledgement of packet identifier 0")
                handler.take_ack(first, packet_id)
            else:
                kind = self._check_header(first)
                if PacketType.PUBACK <= kind <= PacketType.PUBCOMP:
                    raise ProtocolViolation("MQTT-2.2.3", f"{kind.name} of {length} bytes instead of 2")
                if kind in (PacketType.PINGREQ, PacketType.DISCONNECT) and length:
                    raise ProtocolViolation("MQTT-2.2.3", f"{kind.name} with a body of {length} bytes")
                handler.take_packet(kind, data[body:end])
            position = end

    @staticmethod
    def _check_header(first: int) -> PacketType:
        try:
            kind = PacketType(first >> 4)
            required = REQUIRED_FLAGS[kind]
        except (ValueError, KeyError):
            raise ProtocolViolation("MQTT-2.2.1", f"a client does not send packets of type {first >> 4}") from None
        if first & 0x0F != required:
            raise ProtocolViolation(
                "MQTT-2.2.2-2", f"{kind.name} with flags {first & 0x0F:#x} instead of {required:#x}"
            )
        return kind
