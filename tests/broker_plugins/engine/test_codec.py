from __future__ import annotations

import contextlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from broker_plugins.engine import codec
from broker_plugins.engine.codec import ConnectCode, UnsupportedLevel, Will
from broker_plugins.engine.errors import ProtocolViolation
from tests.broker_plugins.engine.packets import BAD_CONNECTS, connect_with
from tests.mqtt_wire import Will as WireWill
from tests.mqtt_wire import connect_packet, publish, subscribe, text, unsubscribe

names = st.text(st.characters(exclude_characters="\0+#", exclude_categories=["Cs"]), min_size=1, max_size=40)


def body(packet: bytes) -> bytes:
    """What stands after the remaining length."""
    at = 1
    while packet[at] & 0x80:
        at += 1
    return packet[at + 1 :]


@given(st.integers(0, 268_435_455))
def test_a_length_is_read_back(length: int) -> None:
    encoded = codec.encode_length(length)
    assert 1 <= len(encoded) <= 4
    assert sum((byte & 0x7F) << 7 * at for at, byte in enumerate(encoded)) == length
    assert all(byte & 0x80 for byte in encoded[:-1])
    assert not encoded[-1] & 0x80


@given(names, st.binary(max_size=300), st.integers(0, 2), st.booleans(), st.booleans(), st.integers(1, 65_535))
def test_a_head_and_its_payload_are_a_publish(
    topic: str, payload: bytes, qos: int, retain: bool, dup: bool, packet_id: int
) -> None:
    dup = dup and qos > 0
    head = codec.publish_head(topic.encode(), len(payload), qos, retain, dup)
    identifier = codec.PACKET_IDS[packet_id] if qos else b""
    wanted = publish(topic, payload, qos=qos, packet_id=packet_id, retain=retain, dup=dup)
    assert head + identifier + payload == wanted


def test_connect_with_everything() -> None:
    packet = connect_packet(
        "me", clean=False, keep_alive=60, will=WireWill("w/t", b"bye", 1, True), username="u", password="p"
    )
    connect = codec.decode_connect(body(packet))
    assert connect == codec.Connect(4, False, 60, "me", Will("w/t", b"bye", 1, True), "u", b"p")


@pytest.mark.parametrize("case", BAD_CONNECTS, ids=lambda case: case.name)
def test_a_bad_connect_names_its_clause(case: object) -> None:
    with pytest.raises(ProtocolViolation) as violation:
        codec.decode_connect(body(case.data))
    assert violation.value.clause == case.clause


@pytest.mark.parametrize(("name", "level"), [(b"MQTT", 5), (b"MQTT", 3), (b"MQIsdp", 3)])
def test_another_level_is_told_from_a_violation(name: bytes, level: int) -> None:
    with pytest.raises(UnsupportedLevel) as unsupported:
        codec.decode_connect(body(connect_with(2, name=name, level=level)))
    assert unsupported.value.level == level


@given(st.integers(1, 65_535), st.lists(st.tuples(names, st.integers(0, 2)), min_size=1, max_size=5))
def test_subscribe_is_read_back(packet_id: int, filters: list[tuple[str, int]]) -> None:
    assert codec.decode_subscribe(body(subscribe(*filters, packet_id=packet_id))) == (packet_id, filters)
    only = [name for name, _ in filters]
    assert codec.decode_unsubscribe(body(unsubscribe(*only, packet_id=packet_id))) == (packet_id, only)


def test_acknowledgements() -> None:
    assert codec.connack(ConnectCode.ACCEPTED, session_present=True) == b"\x20\x02\x01\x00"
    assert codec.connack(ConnectCode.NOT_AUTHORIZED, session_present=True) == b"\x20\x02\x00\x05"
    assert codec.suback(258, b"\x01\x80") == b"\x90\x04\x01\x02\x01\x80"
    assert codec.unsuback(1) == b"\xb0\x02\x00\x01"


@given(st.binary(max_size=60))
def test_no_body_breaks_a_decoder(data: bytes) -> None:
    for decode in (codec.decode_connect, codec.decode_subscribe, codec.decode_unsubscribe):
        with contextlib.suppress(ProtocolViolation):  # anything else is a fault
            decode(data)


def test_fields_end_where_the_body_does() -> None:
    fields = codec.Fields(text("ab"), "TEST")
    assert fields.text() == "ab"
    assert fields.left == 0
    with pytest.raises(ProtocolViolation, match="TEST ends 1 bytes short"):
        fields.byte()
