"""One client's connection: bytes in, packets handled in their order, bytes out.

Writes of one turn of the event loop leave together. A client that does not take what it is sent stops being written to;
its messages then wait in its session, within bounds. While something has to be waited for (authentication, a guard that
asks elsewhere, a packet with thousands of filters) this client's next packets wait, and nobody else's.
"""

from __future__ import annotations

import asyncio
import logging
import secrets
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from broker_plugins.engine.access import Action
from broker_plugins.engine.codec import (
    PACKET_IDS,
    PINGRESP,
    PUBACK,
    PUBCOMP,
    PUBREC,
    ConnectCode,
    PacketType,
    UnsupportedLevel,
    connack,
    decode_connect,
    decode_subscribe,
    decode_unsubscribe,
    suback,
    unsuback,
)
from broker_plugins.engine.errors import ProtocolViolation
from broker_plugins.engine.message import Message
from broker_plugins.engine.parser import Parser
from broker_plugins.engine.wheel import ticks_of
from broker_plugins.engine.work import drive

if TYPE_CHECKING:
    from collections.abc import Awaitable, Generator

    from broker_plugins.engine.codec import Connect, Will
    from broker_plugins.engine.engine import Engine
    from broker_plugins.engine.session import Session

log = logging.getLogger(__name__)

CONTROL_BACKLOG_BYTES = 262_144
"""A client that lets this much of what it is sent lie, acknowledgements too, is not read from until it takes some."""
FAN_OUT_BUDGET = 20_000
"""Deliveries one chunk of one client may cause before others get their turn."""


class Connection(asyncio.Protocol):
    """The protocol of one transport.

    Args:
        engine: the engine it belongs to.
        listener: the name of the listener it came in by.
    """

    __slots__ = (
        "acks_waiting",
        "awaiting",
        "closed",
        "engine",
        "fan_out",
        "host_session",
        "keep_alive_ticks",
        "level",
        "listener",
        "out",
        "parser",
        "peer",
        "reading",
        "seen",
        "session",
        "slot",
        "transport",
        "will",
        "writable",
    )

    def __init__(self, engine: Engine, listener: str) -> None:
        self.engine = engine
        self.listener = listener
        self.parser = Parser(self, engine.options.max_packet_bytes)
        self.transport: asyncio.Transport | None = None
        self.session: Session | None = None
        self.level = 0
        self.will: Will | None = None
        self.out: list[bytes] = []
        self.seen = 0
        self.slot = 0
        """The tick at which the wheel looks at this connection."""
        self.keep_alive_ticks = 0
        self.acks_waiting = 0
        self.fan_out = 0
        self.awaiting = False
        self.reading = True
        self.writable = True
        self.closed = False
        self.peer: tuple[str, int] | None = None
        self.host_session: Any = None
        """What the host's plugins know this client by until it has its session."""

    # Transport.

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """A client connected."""
        self.transport = transport  # type: ignore[assignment]  # a stream transport
        peer = transport.get_extra_info("peername")
        self.peer = (str(peer[0]), int(peer[1])) if isinstance(peer, tuple) else None
        engine = self.engine
        if not engine.admits(self.listener):
            engine.counters.connections_refused += 1
            self.closed = True
            transport.abort()  # type: ignore[attr-defined]
            return
        self.transport.set_write_buffer_limits(high=engine.options.max_write_buffer_bytes)  # type: ignore[union-attr]
        engine.counters.connections += 1
        engine.admit(self)
        self.seen = engine.wheel.now
        self.keep_alive_ticks = ticks_of(engine.options.connect_timeout_s)
        engine.wheel.watch(self, self.keep_alive_ticks)

    def data_received(self, data: bytes) -> None:
        """Bytes arrived."""
        if self.closed:
            return
        engine = self.engine
        self.seen = engine.wheel.now
        engine.counters.bytes_received += len(data)
        self.fan_out = 0
        engine.gathering = engine.loop_gathers_writes
        try:
            self.parser.feed(data)
        except ProtocolViolation as violation:
            self.violate(violation)
        if engine.gathering:
            engine.gathering = False
            engine.flush()

    def connection_lost(self, exc: Exception | None) -> None:
        """The transport is gone."""
        self.close(f"connection lost: {exc}" if exc else "connection closed without DISCONNECT")

    def eof_received(self) -> bool:
        """The client will send nothing more: that is the end of it."""
        return False

    def pause_writing(self) -> None:
        """The socket takes no more: messages wait in the session from now on."""
        self.writable = False
        if self.session is not None:
            self.session.out = None

    def resume_writing(self) -> None:
        """The socket takes more again."""
        self.writable = True
        self._read_if_free()
        if self.session is not None and self.session.connection is self:
            self.session.out = self.out
            self.session.pump()

    # Writing.

    def touch(self) -> None:
        """There is something to write at the end of this turn."""
        self.engine.touched(self)

    def send(self, packet: bytes) -> None:
        """Write a packet at the end of this turn, whether the client keeps up or not."""
        if self.closed:
            return
        if not self.out:
            self.engine.touched(self)
        self.out.append(packet)

    def flush(self) -> None:
        """Hand everything over to the socket."""
        out = self.out
        if not out or self.closed:
            return
        data = out[0] if len(out) == 1 else b"".join(out)
        out.clear()
        self.engine.counters.bytes_sent += len(data)
        transport = self.transport
        assert transport is not None
        transport.write(data)
        if not self.writable and transport.get_write_buffer_size() > CONTROL_BACKLOG_BYTES * 2:
            self._stop_reading()

    def _stop_reading(self) -> None:
        if self.reading and not self.closed:
            self.reading = False
            assert self.transport is not None
            self.transport.pause_reading()

    def _read_if_free(self) -> None:
        if (
            not self.reading
            and not self.closed
            and not self.awaiting
            and self.writable
            and self.acks_waiting <= self.engine.options.max_unacknowledged
        ):
            self.reading = True
            assert self.transport is not None
            self.transport.resume_reading()

    # Waiting.

    def _do(self, work: Generator[Awaitable[Any] | None, Any, None]) -> None:
        """Do something that may take several turns; the next packets of this client wait for its end."""
        self.parser.paused = True
        finished = False

        def done() -> None:
            nonlocal finished
            finished = True
            if self.awaiting:
                self.awaiting = False
                self._go_on()

        drive(self.engine.loop, work, done)
        if finished:
            self.parser.paused = False
        else:
            self.awaiting = True
            self._stop_reading()

    def _go_on(self) -> None:
        if self.closed:
            return
        self.fan_out = 0
        try:
            self.parser.resume()
        except ProtocolViolation as violation:
            self.violate(violation)
        if not self.parser.paused:
            self._read_if_free()

    # Packets.

    def take_publish(
        self, first: int, topic: bytes, packet_id: int, chunk: bytes, start: int, payload: int, end: int
    ) -> None:
        """PUBLISH."""
        session = self.session
        if session is None:
            raise ProtocolViolation("MQTT-3.1.0-1", "PUBLISH before CONNECT")
        engine = self.engine
        route = engine.routes.by_topic.get(topic)
        if route is not None and first == 0x30 and route.plain:
            # The packet of a QoS 0 message is the same for everybody: it is passed on as it came.
            engine.sequence += 1
            packet = chunk[start:end]
            sessions = route.sessions
            engine.counters.deliveries += len(sessions)
            for receiver in sessions:
                out = receiver.out
                if out is None:
                    if receiver.connection is not None:
                        receiver.wait_qos0(packet)
                else:
                    if not out:
                        engine.touched(receiver.connection)
                    out.append(packet)
            if len(sessions) > 16:
                self._count_fan_out(len(sessions))
            return
        qos = first >> 1 & 3
        if qos == 2 and session.inbound is not None and packet_id in session.inbound:
            self._acknowledge(PUBREC + PACKET_IDS[packet_id], -1)  # seen before [MQTT-4.3.3-2]
            return
        clauses = None
        if route is None:
            route, clauses = engine.route_of(topic)
        store = engine.store
        marks = store.marks if store is not None else 0
        if qos == 2:
            engine.note_inbound(session, packet_id)
        if route is not None:
            message = Message(route.topic, chunk[payload:end], qos, bool(first & 1), session)
            message.clauses = clauses
            if engine.guard is not None:
                self._do(self._publish_guarded(message, packet_id, marks))
                return
            engine.publish(message, route)
            if len(route.sessions) > 16:
                self._count_fan_out(len(route.sessions))
        if qos:
            self._acknowledge((PUBACK if qos == 1 else PUBREC) + PACKET_IDS[packet_id], marks)

    def _publish_guarded(
        self, message: Message, packet_id: int, marks: int
    ) -> Generator[Awaitable[Any] | None, Any, None]:
        engine = self.engine
        assert message.sender is not None
        allowed = engine.may(message.sender, message.topic, Action.PUBLISH)
        if not isinstance(allowed, bool):
            allowed = yield allowed
        if not allowed:
            # MQTT 3.1.1 knows no refusal of a PUBLISH: it is acknowledged and goes nowhere [MQTT-3.3.5-2].
            engine.refused_publish(message, "access control")
        else:
            yield from engine.publish_guarded(message)
        if message.qos:
            self._acknowledge((PUBACK if message.qos == 1 else PUBREC) + PACKET_IDS[packet_id], marks)

    def _count_fan_out(self, receivers: int) -> None:
        self.fan_out += receivers
        if self.fan_out > FAN_OUT_BUDGET and not self.parser.paused:
            self.parser.paused = True
            self.awaiting = True
            self._stop_reading()
            self.engine.loop.call_soon(self._rested)

    def _rested(self) -> None:
        self.awaiting = False
        self._go_on()

    def _acknowledge(self, packet: bytes, marks: int) -> None:
        """Acknowledge a publish once what it owes is safe, in their order [MQTT-4.6.0-2] [MQTT-4.6.0-3]."""
        store = self.engine.store
        if store is None or (store.marks == marks and not self.acks_waiting):
            self.send(packet)
            return
        self.acks_waiting += 1
        if self.acks_waiting > self.engine.options.max_unacknowledged:
            self._stop_reading()
        store.when_safe(self._safe, packet)

    def _safe(self, packet: bytes) -> None:
        self.acks_waiting -= 1
        self.send(packet)
        if not self.reading:
            self._read_if_free()

    def take_ack(self, kind: int, packet_id: int) -> None:
        """PUBACK, PUBREC, PUBREL or PUBCOMP."""
        session = self.session
        if session is None:
            raise ProtocolViolation("MQTT-3.1.0-1", "an acknowledgement before CONNECT")
        if kind == 0x40:
            session.acknowledged(packet_id)
        elif kind == 0x50:
            session.received(packet_id)
        elif kind == 0x70:
            session.completed(packet_id)
        else:
            store = self.engine.store
            marks = store.marks if store is not None else 0
            self.engine.release_inbound(session, packet_id)
            self._acknowledge(PUBCOMP + PACKET_IDS[packet_id], marks)

    def take_packet(self, kind: int, body: bytes) -> None:
        """Any packet that is neither a PUBLISH nor an acknowledgement of one."""
        session = self.session
        if kind == PacketType.CONNECT:
            if self.level:
                raise ProtocolViolation("MQTT-3.1.0-2", "a second CONNECT")
            self._connect(body)
        elif session is None:
            raise ProtocolViolation("MQTT-3.1.0-1", f"{PacketType(kind).name} before CONNECT")
        elif kind == PacketType.PINGREQ:
            self.send(PINGRESP)  # [MQTT-3.12.4-1]
        elif kind == PacketType.SUBSCRIBE:
            packet_id, filters = decode_subscribe(body)
            self._do(self._subscribe(session, packet_id, filters))
        elif kind == PacketType.UNSUBSCRIBE:
            packet_id, texts = decode_unsubscribe(body)
            self._do(self._unsubscribe(session, packet_id, texts))
        else:  # DISCONNECT
            self._goodbye(session)

    def _goodbye(self, session: Session) -> None:
        """DISCONNECT: nothing more is read, and there is no will any more, on disk either [MQTT-3.1.2-10]."""
        self.parser.paused = True
        store = self.engine.store
        if self.will is None or store is None:
            self.will = None
            self.close("")
            return
        self.will = None
        self.engine.forget_will(session)
        store.when_safe(self.close, "")

    def _subscribe(
        self, session: Session, packet_id: int, filters: list[tuple[str, int]]
    ) -> Generator[Awaitable[Any] | None, Any, None]:
        codes = bytearray()
        made = yield from self.engine.subscribe(session, filters, codes)
        self._when_safe(suback(packet_id, bytes(codes)))
        for subscription in made:
            self.engine.feeds.begin(subscription)
        if session.feeds:
            self._when_safe_do(session.pump)

    def _unsubscribe(
        self, session: Session, packet_id: int, texts: list[str]
    ) -> Generator[Awaitable[Any] | None, Any, None]:
        yield from self.engine.unsubscribe(session, texts)
        self._when_safe(unsuback(packet_id))  # [MQTT-3.10.4-5]

    def _when_safe(self, packet: bytes) -> None:
        self._when_safe_do(lambda: self.send(packet))

    def _when_safe_do(self, action: Any) -> None:
        session = self.session
        if session is not None and session.persistent and self.engine.store is not None:
            self.engine.store.when_safe(action)
        else:
            action()

    def _connect(self, body: bytes) -> None:
        try:
            connect = decode_connect(body)
        except UnsupportedLevel as unsupported:
            self.refuse(ConnectCode.UNACCEPTABLE_LEVEL, unsupported.reason)  # [MQTT-3.1.2-2]
            return
        self.level = connect.level
        self._do(self._admit(connect))

    def _admit(self, connect: Connect) -> Generator[Awaitable[Any] | None, Any, None]:
        if not connect.client_id:
            if not connect.clean_session:
                self.refuse(ConnectCode.IDENTIFIER_REJECTED, "no client id and no clean session")  # [MQTT-3.1.3-8]
                return
            connect = replace(connect, client_id=f"auto-{secrets.token_hex(8)}")  # [MQTT-3.1.3-6]
        guard = self.engine.doorkeeper
        if guard is not None:
            known = guard.authenticate(self, connect)
            if not isinstance(known, bool):
                known = yield known
            if self.closed:
                return
            if not known:
                code = ConnectCode.BAD_CREDENTIALS if connect.username is not None else ConnectCode.NOT_AUTHORIZED
                self.refuse(code, "not authenticated")
                return
        yield from self.engine.connect(self, connect)

    def welcome(self, session: Session, connect: Connect, present: bool) -> None:
        """The client is in: its CONNACK is the first packet it gets [MQTT-3.2.0-1]."""
        self.session = session
        self.will = connect.will
        self.keep_alive_ticks = ticks_of(connect.keep_alive_s * 1.5)  # [MQTT-3.1.2-24]
        if self.keep_alive_ticks:
            self.engine.wheel.watch(self, self.keep_alive_ticks)
        else:
            self.engine.wheel.forget(self)  # 0 turns the mechanism off (3.1.2.10)
        self.send(connack(ConnectCode.ACCEPTED, present))

    def refuse(self, code: ConnectCode, reason: str) -> None:
        """Answer CONNECT with a refusal and close [MQTT-3.2.2-5]."""
        self.engine.counters.connects_refused += 1
        log.info("%s: refused with code %d: %s", self.name, code, reason)
        self.send(connack(code))
        self.close("refused")

    # The end.

    @property
    def name(self) -> str:
        """How the log calls this connection."""
        peer = f"{self.peer[0]}:{self.peer[1]}" if self.peer else "unknown peer"
        return f"client {self.session.client_id} at {peer}" if self.session is not None else peer

    def ticks_left(self, now: int) -> int:
        """In how many ticks this connection is overdue."""
        return max(0, self.seen + self.keep_alive_ticks - now)

    def overdue(self) -> None:
        """Nothing was heard for too long."""
        if self.session is None and self.level == 0:
            self.engine.counters.connect_timeouts += 1
            self.close("no CONNECT in time", abort=True)
        elif not self.awaiting:
            self.engine.counters.keep_alive_timeouts += 1
            log.info("%s: silent for 1.5 times its keep-alive, disconnected", self.name)
            self.close("keep-alive", abort=True)
        else:
            self.engine.wheel.watch(self, self.keep_alive_ticks)

    def violate(self, violation: ProtocolViolation) -> None:
        """Close because the client broke the protocol [MQTT-4.8.0-1]."""
        self.engine.counters.violations += 1
        log.warning("%s: %s; connection closed", self.name, violation)
        self.close(str(violation))

    def close(self, reason: str, abort: bool = False) -> None:
        """End the connection, now and once; `reason` is empty where the client said DISCONNECT."""
        if self.closed:
            return
        self.flush()
        self.closed = True
        self.parser.paused = True
        self.parser.pieces.clear()
        engine = self.engine
        engine.dismiss(self)
        engine.wheel.forget(self)
        transport = self.transport
        if transport is not None:
            if abort:
                transport.abort()
            else:
                transport.close()
                # A client that does not take the last bytes must not keep the socket open.
                if transport.get_write_buffer_size():
                    engine.loop.call_later(engine.options.connect_timeout_s, transport.abort)
        session = self.session
        if session is not None and session.connection is self:
            engine.disconnected(self, session, reason)
