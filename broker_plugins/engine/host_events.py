"""amqtt's events for plugins that listen to them. An event nobody listens to has no hook, and costs nothing."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

from amqtt.adapters import BufferReader
from amqtt.broker import RetainedApplicationMessage
from amqtt.events import BrokerEvents, Events, MQTTEvents
from amqtt.mqtt import packet_class
from amqtt.mqtt.packet import MQTTFixedHeader
from amqtt.session import IncomingApplicationMessage

from broker_plugins.engine.codec import PacketType, encode_length
from broker_plugins.engine.connection import Connection
from broker_plugins.engine.hooks import Hooks
from broker_plugins.engine.parser import REQUIRED_FLAGS

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from broker_plugins.engine.message import Message
    from broker_plugins.engine.session import Session
    from broker_plugins.engine.subscription import Subscription


class _EventHook(Hooks):
    """Fires one kind of event."""

    def __init__(self, manager: Any, host_session_of: Callable[[Session], Any]) -> None:
        self._manager = manager
        self._host_session_of = host_session_of
        self._tasks: set[asyncio.Task[None]] = set()

    def _fire(self, event: Events, **arguments: Any) -> None:
        task = asyncio.ensure_future(self._manager.fire_event(event, **arguments))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)


class _Connected(_EventHook):
    def on_connected(self, session: Session) -> None:
        self._fire(
            BrokerEvents.CLIENT_CONNECTED, client_id=session.client_id, client_session=self._host_session_of(session)
        )


class _Disconnected(_EventHook):
    def on_disconnected(self, session: Session, reason: str) -> None:  # noqa: ARG002  a hook's own signature
        self._fire(
            BrokerEvents.CLIENT_DISCONNECTED,
            client_id=session.client_id,
            client_session=self._host_session_of(session),
        )


class _Subscribed(_EventHook):
    def on_subscribed(self, subscription: Subscription) -> None:
        self._fire(
            BrokerEvents.CLIENT_SUBSCRIBED,
            client_id=subscription.session.client_id,
            topic=subscription.text,
            qos=subscription.qos,
        )


class _Unsubscribed(_EventHook):
    def on_unsubscribed(self, subscription: Subscription) -> None:
        self._fire(BrokerEvents.CLIENT_UNSUBSCRIBED, client_id=subscription.session.client_id, topic=subscription.text)


class _Published(_EventHook):
    def __init__(self, manager: Any, host_session_of: Callable[[Session], Any], heard: set[str]) -> None:
        super().__init__(manager, host_session_of)
        self._events = [
            event for event in (BrokerEvents.MESSAGE_RECEIVED, BrokerEvents.MESSAGE_BROADCAST) if str(event) in heard
        ]
        self._retained = str(BrokerEvents.RETAINED_MESSAGE) in heard

    def on_published(self, messages: Sequence[Message]) -> None:
        for message in messages:
            if message.sender is not None and self._events:
                told = IncomingApplicationMessage(None, message.topic, message.qos, message.payload, message.retain)
                for event in self._events:
                    self._fire(event, client_id=message.sender.client_id, message=told)
            if message.retain and self._retained:
                kept = RetainedApplicationMessage(None, message.topic, message.payload, message.qos)
                self._fire(BrokerEvents.RETAINED_MESSAGE, client_id=None, retained_message=kept)


def event_hooks(manager: Any, heard: set[str], host_session_of: Callable[[Session], Any]) -> list[Hooks]:
    """Hooks for the events that somebody listens to."""
    kinds: list[tuple[BrokerEvents, type[_EventHook]]] = [
        (BrokerEvents.CLIENT_CONNECTED, _Connected),
        (BrokerEvents.CLIENT_DISCONNECTED, _Disconnected),
        (BrokerEvents.CLIENT_SUBSCRIBED, _Subscribed),
        (BrokerEvents.CLIENT_UNSUBSCRIBED, _Unsubscribed),
    ]
    hooks: list[Hooks] = [kind(manager, host_session_of) for event, kind in kinds if str(event) in heard]
    of_messages = {str(BrokerEvents.MESSAGE_RECEIVED), str(BrokerEvents.MESSAGE_BROADCAST)}
    if heard & {*of_messages, str(BrokerEvents.RETAINED_MESSAGE)}:
        hooks.append(_Published(manager, host_session_of, heard))
    return hooks


def tapped_connection(
    manager: Any, heard: set[str], host_session_of: Callable[[Session], Any]
) -> type[Connection] | None:
    """A connection that fires an event for each packet, if somebody listens to those; None otherwise."""
    received, sent = str(MQTTEvents.PACKET_RECEIVED) in heard, str(MQTTEvents.PACKET_SENT) in heard
    if not received and not sent:
        return None
    tasks: set[asyncio.Task[None]] = set()

    async def tell(event: Events, packet: bytes, session: Session | None) -> None:
        reader = BufferReader(packet)
        header = await MQTTFixedHeader.from_stream(reader)
        if header is None:
            return
        decoded = await packet_class(header).from_stream(reader, fixed_header=header)
        host_session = host_session_of(session) if session is not None else None
        await manager.fire_event(event, packet=decoded, session=host_session)

    def fire(event: Events, packet: bytes, session: Session | None) -> None:
        task = asyncio.ensure_future(tell(event, packet, session))
        tasks.add(task)
        task.add_done_callback(tasks.discard)

    class TappedConnection(Connection):
        """Sees every packet."""

        __slots__ = ()

        def take_publish(
            self, first: int, topic: bytes, packet_id: int, chunk: bytes, start: int, payload: int, end: int
        ) -> None:
            if received:
                fire(MQTTEvents.PACKET_RECEIVED, chunk[start:end], self.session)
            super().take_publish(first, topic, packet_id, chunk, start, payload, end)

        def take_ack(self, kind: int, packet_id: int) -> None:
            if received:
                fire(MQTTEvents.PACKET_RECEIVED, bytes((kind, 2)) + packet_id.to_bytes(2, "big"), self.session)
            super().take_ack(kind, packet_id)

        def take_packet(self, kind: int, body: bytes) -> None:
            if received:
                first = bytes((kind << 4 | REQUIRED_FLAGS[PacketType(kind)],))
                fire(MQTTEvents.PACKET_RECEIVED, first + encode_length(len(body)) + body, self.session)
            super().take_packet(kind, body)

        def flush(self) -> None:
            if sent and self.out and not self.closed:
                for packet in split_packets(b"".join(self.out)):
                    fire(MQTTEvents.PACKET_SENT, packet, self.session)
            super().flush()

    return TappedConnection


def split_packets(data: bytes) -> list[bytes]:
    """Cut bytes that hold whole packets only."""
    packets: list[bytes] = []
    start = 0
    while start < len(data):
        position, length, shift = start + 1, 0, 0
        while True:
            digit = data[position]
            position += 1
            length |= (digit & 0x7F) << shift
            shift += 7
            if digit < 128:
                break
        packets.append(data[start : position + length])
        start = position + length
    return packets
