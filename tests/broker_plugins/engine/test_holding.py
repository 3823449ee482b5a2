"""A session that moves keeps what comes, in its order and within its bounds, until it is known where it goes."""

from __future__ import annotations

import asyncio

import pytest
from hypothesis import given
from hypothesis import strategies as st

from broker_plugins.engine import Message
from broker_plugins.engine.engine import Engine
from broker_plugins.engine.options import EngineOptions
from broker_plugins.engine.session import RELEASED, SENT, Outgoing, Session
from tests.broker_plugins.smart import NoSocket


class Socket(NoSocket):
    def flush(self) -> None:
        pass

    def send(self, packet: bytes) -> None:
        self.out.append(packet)


def session_of(loop: asyncio.AbstractEventLoop, **options: int) -> Session:
    engine = Engine(loop, EngineOptions(durability="off", **options))
    engine.start([])
    session = Session(engine, "c", clean=False)
    engine.sessions["c"] = session
    subscription = engine.read_filter(session, "t/#", 2)
    engine.adopt(subscription)
    return session


@pytest.fixture
def loop():
    made = asyncio.new_event_loop()
    yield made
    made.close()


def texts(socket: Socket) -> list[str]:
    """The messages written, by the last letter of their payloads."""
    return [packet[-1:].decode() for packet in socket.out if packet[-1:].isalpha()]


def test_what_is_held_follows_what_waited_before_when_the_client_is_there(loop) -> None:
    session = session_of(loop)
    session.deliver(Message("t/1", b"a", 1), 1)
    session.hold()
    for text, qos in (("b", 0), ("c", 1), ("d", 2), ("e", 0)):
        assert session.deliver(Message("t/1", text.encode(), qos), qos)
    session.put_first([])
    assert session.discard(lambda entry: entry.message.payload == b"c") == 1
    socket = Socket()
    session.attach(socket)
    session.resend()
    assert texts(socket) == ["b", "e", "a", "d"], "QoS 0 first, then the others in their order"
    assert session.held is None
    assert session.queued_bytes == 0


def test_without_a_client_qos_0_is_not_kept_any_longer(loop) -> None:
    session = session_of(loop)
    session.hold()
    session.deliver(Message("t/1", b"a", 0), 0)
    session.deliver(Message("t/1", b"b", 1), 1)
    session.release()
    assert [entry.message.payload for entry in session.queue] == [b"b"]
    assert session.queued_bytes == session.queue[0].message.size


def test_what_is_held_is_bounded_and_what_is_too_much_counted(loop) -> None:
    session = session_of(loop, max_queued_messages=3)
    session.hold()
    taken = [session.deliver(Message("t/1", b"x", qos), qos) for qos in (0, 1, 0, 1, 0)]
    assert taken == [True, True, True, False, False]
    assert session.engine.counters.dropped_queue_full == 2
    session.clear()
    assert session.queued_bytes == session.engine.queued_bytes == 0


def test_messages_published_here_do_not_pass_a_held_session_by(loop) -> None:
    """The short way of QoS 0 messages knows no sessions that are held: it must not be taken."""
    session = session_of(loop)
    route = session.engine.routes.find("t/1")
    assert route.plain
    session.hold()
    assert not session.engine.routes.find("t/1").plain
    session.engine.publish(Message("t/1", b"x", 0))
    assert [entry.message.payload for entry in session.held] == [b"x"]
    session.release()
    assert session.engine.routes.find("t/1").plain


@given(st.lists(st.tuples(st.integers(0, 2), st.booleans()), max_size=30))
def test_bytes_are_accounted_for(deliveries: list[tuple[int, bool]]) -> None:
    made = asyncio.new_event_loop()
    session = session_of(made)
    session.hold()
    for qos, _ in deliveries:
        session.deliver(Message("t/1", b"x", qos), qos)
    wanted = iter([unwanted for _, unwanted in deliveries])
    session.discard(lambda _: next(wanted))
    kept = [qos for qos, unwanted in deliveries if not unwanted]
    assert [entry.qos for entry in session.held] == kept
    assert session.queued_bytes == sum(entry.message.size for entry in session.held) == session.engine.queued_bytes
    session.release()
    assert session.queued_bytes == sum(entry.message.size for entry in session.queue or ())
    made.close()


def test_a_delivery_that_another_broker_began_goes_on_under_its_identifier(loop) -> None:
    session = session_of(loop)
    session.number_from(500)
    socket = Socket()
    session.attach(socket)
    session.deliver(Message("t/1", b"a", 2), 2)
    assert list(session.inflight) == [501]
    for packet_id, state in ((7, SENT), (8, RELEASED), (501, SENT)):
        entry = Outgoing(Message("t/1", b"b", 2), 2, retain=False, group=None)
        entry.packet_id, entry.state = packet_id, state
        socket.out.clear()
        assert session.take_up(entry) == (packet_id != 501)
        if packet_id == 7:
            assert socket.out[0][0] == 0x3C, "PUBLISH with DUP at QoS 2"
        elif packet_id == 8:
            assert socket.out == [b"\x62\x02\x00\x08"], "PUBREL"
    session.completed(8)
    session.deliver(Message("t/1", b"c", 1), 1)
    assert list(session.inflight) == [501, 7, 502], "identifiers below are left to the other broker"
    session.acknowledged(502)
    session.deliver(Message("t/1", b"d", 1), 1)
    assert list(session.inflight) == [501, 7, 502], "one of its own is free when its delivery is over"


def test_identifiers_stay_above_the_floor_when_a_session_is_restored(loop) -> None:
    session = session_of(loop)
    session.number_from(500)
    session.restore(
        [(Message("t/1", b"a", 2), 2, False, 3, SENT, 0), (Message("t/1", b"b", 2), 2, False, 502, SENT, 0)]
    )
    session.attach(Socket())
    for text in (b"c", b"d"):
        session.deliver(Message("t/1", text, 2), 2)
    assert list(session.inflight) == [3, 502, 501, 503]
