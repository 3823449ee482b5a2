"""A catalogue of packets, good and bad, each with the clause it obeys or breaks."""

from __future__ import annotations

from dataclasses import dataclass

from tests.mqtt_wire import Kind, connect_packet, packet, publish, subscribe, text, unsubscribe


@dataclass(slots=True, frozen=True)
class Case:
    name: str
    data: bytes
    clause: str = ""
    """The clause a bad packet breaks; empty for a good one."""


def connect_with(flags: int, rest: bytes = b"", *, name: bytes = b"MQTT", level: int = 4) -> bytes:
    body = text(name) + bytes([level, flags]) + b"\x00\x3c" + text("c") + rest
    return packet(Kind.CONNECT, 0, body)


GOOD = [
    Case("connect", connect_packet("c")),
    Case("connect with everything", connect_with(0xEE, text("w") + text("bye") + text("user") + text("pass"))),
    Case("publish QoS 0", publish("a/b", b"x")),
    Case("publish QoS 1", publish("a/b", b"x", qos=1, packet_id=7)),
    Case("publish QoS 2 again", publish("a/b", b"x", qos=2, packet_id=7, dup=True)),
    Case("publish without payload", publish("a", retain=True)),
    Case("publish of 200 bytes", publish("a", b"x" * 200)),
    Case("publish of 20,000 bytes", publish("a", b"x" * 20_000)),
    Case("publish of 3,000,000 bytes", publish("a", b"x" * 3_000_000)),
    Case("puback", packet(Kind.PUBACK, 0, b"\x00\x01")),
    Case("pubrec", packet(Kind.PUBREC, 0, b"\x00\x01")),
    Case("pubrel", packet(Kind.PUBREL, 2, b"\x00\x01")),
    Case("pubcomp", packet(Kind.PUBCOMP, 0, b"\xff\xff")),
    Case("subscribe", subscribe(("a/#", 2), ("+", 0))),
    Case("unsubscribe", unsubscribe("a/#", "+")),
    Case("pingreq", packet(Kind.PINGREQ, 0)),
    Case("disconnect", packet(Kind.DISCONNECT, 0)),
]

BAD = [
    Case("type 0", b"\x00\x00", "MQTT-2.2.1"),
    Case("type 15", b"\xf0\x00", "MQTT-2.2.1"),
    Case("connack from a client", packet(Kind.CONNACK, 0, b"\x00\x00"), "MQTT-2.2.1"),
    Case("suback from a client", packet(Kind.SUBACK, 0, b"\x00\x01\x00"), "MQTT-2.2.1"),
    Case("pingresp from a client", packet(Kind.PINGRESP, 0), "MQTT-2.2.1"),
    Case("connect with flags", b"\x11" + connect_packet("c")[1:], "MQTT-2.2.2-2"),
    Case("subscribe without its flags", b"\x80" + subscribe(("a", 0))[1:], "MQTT-2.2.2-2"),
    Case("unsubscribe without its flags", b"\xa0" + unsubscribe("a")[1:], "MQTT-2.2.2-2"),
    Case("pubrel without its flags", packet(Kind.PUBREL, 0, b"\x00\x01"), "MQTT-2.2.2-2"),
    Case("puback with flags", packet(Kind.PUBACK, 2, b"\x00\x01"), "MQTT-2.2.2-2"),
    Case("pingreq with flags", packet(Kind.PINGREQ, 1), "MQTT-2.2.2-2"),
    Case("a length of five bytes", b"\x30\xff\xff\xff\xff\x01", "MQTT-2.2.3"),
    Case("publish QoS 3", publish("a", qos=3), "MQTT-3.3.1-4"),
    Case("publish QoS 0 again", publish("a", dup=True), "MQTT-3.3.1-2"),
    Case("publish with packet id 0", publish("a", qos=1, packet_id=0), "MQTT-2.3.1-1"),
    Case("publish shorter than its topic", packet(Kind.PUBLISH, 0, b"\x00\x05ab"), "MQTT-2.2.3"),
    Case("publish of one byte", packet(Kind.PUBLISH, 0, b"\x00"), "MQTT-2.2.3"),
    Case("publish without its packet id", packet(Kind.PUBLISH, 2, text("a")), "MQTT-2.2.3"),
    Case("publish to a wildcard", publish("a/#", b"x"), "MQTT-3.3.2-2"),
    Case("publish to nothing", publish("", b"x"), "MQTT-4.7.3-1"),
    Case("publish to bad UTF-8", publish(b"\xff\xfe"), "MQTT-1.5.3-1"),
    Case("publish to a surrogate", publish(b"\xed\xa0\x80"), "MQTT-1.5.3-1"),
    Case("publish to U+0000", publish("a\0b"), "MQTT-1.5.3-2"),
    Case("puback of packet id 0", packet(Kind.PUBACK, 0, b"\x00\x00"), "MQTT-2.3.1-1"),
    Case("puback too long", packet(Kind.PUBACK, 0, b"\x00\x01\x00"), "MQTT-2.2.3"),
    Case("puback too short", packet(Kind.PUBACK, 0, b"\x00"), "MQTT-2.2.3"),
    Case("pingreq with a body", packet(Kind.PINGREQ, 0, b"x"), "MQTT-2.2.3"),
    Case("disconnect with a body", packet(Kind.DISCONNECT, 0, b"x"), "MQTT-2.2.3"),
    Case("subscribe with packet id 0", subscribe(("a", 0), packet_id=0), "MQTT-2.3.1-1"),
    Case("subscribe to nothing", packet(Kind.SUBSCRIBE, 2, b"\x00\x01"), "MQTT-3.8.3-3"),
    Case("subscribe with QoS 3", subscribe(("a", 3)), "MQTT-3-8.3-4"),
    Case("subscribe with reserved bits", subscribe(("a", 4)), "MQTT-3-8.3-4"),
    Case("subscribe cut short", packet(Kind.SUBSCRIBE, 2, b"\x00\x01\x00\x05ab"), "MQTT-2.2.3"),
    Case("subscribe with bad UTF-8", packet(Kind.SUBSCRIBE, 2, b"\x00\x01" + text(b"\xff") + b"\x00"), "MQTT-1.5.3-1"),
    Case("unsubscribe with packet id 0", unsubscribe("a", packet_id=0), "MQTT-2.3.1-1"),
    Case("unsubscribe from nothing", packet(Kind.UNSUBSCRIBE, 2, b"\x00\x01"), "MQTT-3.10.3-2"),
]
"""What a client that is connected may not send."""

BAD_CONNECTS = [
    Case("another protocol", connect_with(2, name=b"HTTP"), "MQTT-3.1.2-1"),
    Case("the reserved flag", connect_with(3), "MQTT-3.1.2-3"),
    Case("will QoS without a will", connect_with(0x0A), "MQTT-3.1.2-13"),
    Case("will retain without a will", connect_with(0x22), "MQTT-3.1.2-13"),
    Case("will QoS 3", connect_with(0x1E, text("w") + text("m")), "MQTT-3.1.2-14"),
    Case("a password without a user", connect_with(0x42, text("p")), "MQTT-3.1.2-22"),
    Case("a will to a wildcard", connect_with(0x06, text("w/#") + text("m")), "MQTT-3.3.2-2"),
    Case("a client id with U+0000", connect_packet("a\0b"), "MQTT-1.5.3-2"),
    Case("bytes too many", connect_with(2, b"xyz"), "MQTT-2.2.3"),
    Case("bytes too few", connect_with(0x82), "MQTT-2.2.3"),
]
