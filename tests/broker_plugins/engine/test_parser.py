from __future__ import annotations

import contextlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from broker_plugins.engine.errors import ProtocolViolation
from broker_plugins.engine.parser import Parser
from broker_plugins.engine.topics import check_topic_name
from tests.broker_plugins.engine.packets import BAD, GOOD
from tests.mqtt_wire import Kind, packet, publish

LIMIT = 4_000_000
SMALL = [case for case in GOOD if len(case.data) < 1000]


class Recorder:
    """Takes packets and notes them; a body is noted with the packet that carries it."""

    def __init__(self) -> None:
        self.taken: list[tuple[object, ...]] = []
        self.pause_after = -1
        self.parser = Parser(self, LIMIT)

    def _note(self, *what: object) -> None:
        self.taken.append(what)
        if len(self.taken) == self.pause_after:
            self.parser.paused = True

    def take_publish(
        self, first: int, topic: bytes, packet_id: int, chunk: bytes, start: int, payload: int, end: int
    ) -> None:
        check_topic_name(topic)
        self._note("publish", first, topic, packet_id, chunk[payload:end], chunk[start:end])

    def take_ack(self, kind: int, packet_id: int) -> None:
        self._note("ack", kind, packet_id)

    def take_packet(self, kind: int, body: bytes) -> None:
        from broker_plugins.engine.codec import decode_subscribe, decode_unsubscribe

        if kind == Kind.SUBSCRIBE:
            decode_subscribe(body)
        if kind == Kind.UNSUBSCRIBE:
            decode_unsubscribe(body)
        self._note("packet", kind, body)


def whole(data: bytes) -> list[tuple[object, ...]]:
    recorder = Recorder()
    recorder.parser.feed(data)
    return recorder.taken


@pytest.mark.parametrize("case", GOOD, ids=lambda case: case.name)
def test_a_good_packet_is_taken_once(case: object) -> None:
    assert len(whole(case.data)) == 1


@pytest.mark.parametrize("case", BAD, ids=lambda case: case.name)
def test_a_bad_packet_names_its_clause(case: object) -> None:
    with pytest.raises(ProtocolViolation) as violation:
        whole(case.data)
    assert violation.value.clause == case.clause


@given(st.lists(st.sampled_from(SMALL), max_size=8), st.lists(st.integers(1, 20), max_size=200))
def test_where_a_stream_is_cut_makes_no_difference(cases: list[object], cuts: list[int]) -> None:
    data = b"".join(case.data for case in cases)
    recorder = Recorder()
    position = 0
    for cut in cuts:
        recorder.parser.feed(data[position : position + cut])
        position += cut
    recorder.parser.feed(data[position:])
    assert recorder.taken == whole(data)


@given(st.lists(st.sampled_from(SMALL), min_size=1, max_size=8), st.integers(1, 8), st.integers(0, 300))
def test_a_paused_parser_keeps_the_rest(cases: list[object], after: int, cut: int) -> None:
    data = b"".join(case.data for case in cases)
    recorder = Recorder()
    recorder.pause_after = after
    recorder.parser.feed(data[:cut])
    recorder.parser.feed(data[cut:])
    assert len(recorder.taken) <= after
    recorder.parser.resume()
    assert recorder.taken == whole(data)


def test_a_packet_over_the_limit_is_refused_by_its_header() -> None:
    with pytest.raises(ProtocolViolation, match="max_packet_bytes") as violation:
        whole(b"\x30" + b"\xff\xff\xff\x7f")
    assert violation.value.clause == "limit"


def test_a_header_nobody_may_send_is_refused_before_its_body_comes() -> None:
    with pytest.raises(ProtocolViolation):
        whole(b"\xf0\x7f")


def test_a_large_packet_in_many_pieces() -> None:
    data = publish("big", b"x" * 1_000_000)
    recorder = Recorder()
    for at in range(0, len(data), 1000):
        recorder.parser.feed(data[at : at + 1000])
    assert len(recorder.taken) == 1


@given(st.binary(max_size=200))
def test_no_bytes_break_the_parser(data: bytes) -> None:
    with contextlib.suppress(ProtocolViolation):  # anything else is a fault
        whole(data)


def test_a_publish_passes_on_as_it_came() -> None:
    data = publish("a/b", b"payload")
    (taken,) = whole(data + packet(Kind.PINGREQ, 0))[:1]
    assert taken[-1] == data
