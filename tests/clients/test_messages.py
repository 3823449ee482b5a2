from __future__ import annotations

import pytest

from broker_plugins.grammar import Position
from clients.messages import Message, encode, number_at


def test_payloads_are_bytes_text_or_json():
    assert encode(b"\xff") == b"\xff"
    assert encode("서울") == "서울".encode()
    assert encode(None) == b""
    assert encode({"lon": 1.5}) == b'{"lon":1.5}'
    assert encode([1, True]) == b"[1,true]"
    assert encode(7) == b"7"


def test_what_cannot_be_written_is_refused():
    with pytest.raises(TypeError):
        encode({"x": object()})


def test_a_message_reads_as_text_and_json():
    message = Message("a/b", b'{"x": 1}')
    assert message.text == '{"x": 1}'
    assert message.json() == {"x": 1}
    assert message.json() is message.json()


@pytest.mark.parametrize("payload", [b"", b"{", b"\xff\xfe", b"[" * 100_000, b"NaN"])
def test_what_is_no_json_says_so(payload):
    message = Message("a/b", payload)
    with pytest.raises(ValueError, match="'a/b' is no JSON"):
        message.json()
    assert message.place is None


@pytest.mark.parametrize(
    "payload",
    [
        b'{"lon": 1, "lat": 2}',
        b'{"lng": 1, "lat": 2}',
        b'{"longitude": 1, "latitude": 2, "lon": "x"}',
        b'{"type": "Point", "coordinates": [1, 2]}',
        b'{"type": "Feature", "geometry": {"type": "Point", "coordinates": [1, 2, 3]}}',
    ],
)
def test_places_are_found(payload):
    assert Message("t", payload).place == Position(1, 2)


@pytest.mark.parametrize(
    "payload",
    [
        b"3",
        b'{"lon": 1}',
        b'{"lon": true, "lat": 2}',
        b'{"lon": "1", "lat": 2}',
        b'{"type": "Point", "coordinates": [1]}',
        b'{"type": "Point", "coordinates": [null, 2]}',
        b'{"type": "LineString", "coordinates": [[1, 2], [3, 4]]}',
    ],
)
def test_what_says_no_place_has_none(payload):
    assert Message("t", payload).place is None


def test_numbers_are_reached_by_dots():
    document = {"a": {"b": 2, "on": True, "text": "2", "huge": 10**400}}
    assert number_at(document, ("a", "b")) == 2.0
    for path in [("a",), ("a", "on"), ("a", "text"), ("a", "huge"), ("x", "b"), ("a", "b", "c")]:
        assert number_at(document, path) is None
