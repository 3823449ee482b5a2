"""One client's connection: what its packets mean, handled in their order.

The socket under it is the business of `link`.
"""

from __future__ import annotations

import logging
import secrets
from collections import deque
from dataclasses import replace
from functools import partial
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
from broker_plugins.engine.link import Link
from broker_plugins.engine.message import Message
from broker_plugins.engine.wheel import ticks_of

if TYPE_CHECKING:
    from collections.abc import Awaitable, Generator

    from broker_plugins.engine.codec import Connect
    from broker_plugins.engine.session import Session

log = logging.getLogger(__name__)


class Acknowledgement:
    """An acknowledgement that waits: for the store, and for what plugins owe to its message."""

    __slots__ = ("packet", "waits_for")

    def __init__(self, packet: bytes) -> None:
        self.packet = packet
        self.waits_for = 1


class Connection(Link):
    """One client, from its CONNECT to its end."""

    __slots__ = ()

    def take_publish(
        self, first: int, topic: bytes, packet_id: int, chunk: bytes, start: int, payload: int, end: int
    ) -> None:
        """PUBLISH."""
        session = self.session
        if session is None:
            raise ProtocolViolation("MQTT-3.1.0-1", "PUBLISH before CONNECT")
        engine = self.engine
        route = engine.routes.by_topic.get(topic)
        clauses = None
        if route is None:
            route, clauses = engine.route_of(topic)
        if (
            first == 0x30
            and route is not None
            and route.plain
            and clauses is None
            and engine.sequence < engine.sampled_after
        ):
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
        store = engine.store
        marks = store.marks if store is not None else 0
        if qos == 2:
            engine.note_inbound(session, packet_id)
        message = None
        if route is not None:
            message = Message(route.topic, chunk[payload:end], qos, bool(first & 1), session)
            message.clauses = clauses
            if engine.guard is not None:
                self._do(self._publish_guarded(message, packet_id, marks))
                return
            before = engine.counters.deliveries
            engine.publish(message, route)
            receivers = engine.counters.deliveries - before
            if route.selectors:
                # To find receivers costs as much as some fifty plain deliveries, and each of them as much as two.
                self._count_fan_out(50 + 2 * receivers)
            elif receivers > 16:
                self._count_fan_out(receivers)
        if qos:
            self._acknowledge((PUBACK if qos == 1 else PUBREC) + PACKET_IDS[packet_id], marks, message)

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
            self._acknowledge((PUBACK if message.qos == 1 else PUBREC) + PACKET_IDS[packet_id], marks, message)

    def _acknowledge(self, packet: bytes, marks: int, message: Message | None = None) -> None:
        """Acknowledge a publish once what it owes is safe, in their order [MQTT-4.6.0-2] [MQTT-4.6.0-3]."""
        if self.owed_acks or (message is not None and message.debts):
            self._acknowledge_in_turn(Acknowledgement(packet), message)
            return
        store = self.engine.store
        if store is None or (store.marks == marks and not self.acks_waiting):
            self.send(packet)
            return
        self.acks_waiting += 1
        if self.acks_waiting > self.engine.options.max_unacknowledged:
            self._stop_reading()
        store.when_safe(self._safe, packet)

    def _acknowledge_in_turn(self, acknowledgement: Acknowledgement, message: Message | None) -> None:
        """The same where plugins let this message, or one before it, wait for something else."""
        if self.owed_acks is None:
            self.owed_acks = deque()
        self.owed_acks.append(acknowledgement)
        self.acks_waiting += 1
        if self.acks_waiting > self.engine.options.max_unacknowledged:
            self._stop_reading()
        if message is not None and message.debts:
            acknowledgement.waits_for += 1
            message.when_settled = partial(self._settled, acknowledgement)
        store = self.engine.store
        if store is None:
            self._settled(acknowledgement)
        else:
            store.when_safe(self._settled, acknowledgement)

    def _settled(self, acknowledgement: Acknowledgement) -> None:
        acknowledgement.waits_for -= 1
        owed = self.owed_acks
        while owed and not owed[0].waits_for:
            self._safe(owed.popleft().packet)

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
        for subscription in made:
            self.engine.feeds.begin(subscription)
        yield from self.engine.grants(made)
        self._when_safe(suback(packet_id, bytes(codes)))
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
