"""One client's session: what it subscribed to, what is on its way to it, and what waits for it.

A session outlives its connections if the client asked for that. It knows no sockets: while a client is connected and
takes what it is sent, `out` is the list its connection writes from; otherwise `out` is None and messages wait here.
"""

from __future__ import annotations

import logging
from collections import deque
from typing import TYPE_CHECKING, Any, Final

from broker_plugins.engine.codec import PACKET_IDS, PUBREL
from broker_plugins.engine.holding import MOST_IDS, Holding
from broker_plugins.engine.message import Message, message_of

if TYPE_CHECKING:
    from broker_plugins.engine.connection import Connection
    from broker_plugins.engine.engine import Engine
    from broker_plugins.engine.feed import Feed
    from broker_plugins.engine.subscription import Subscription

log = logging.getLogger(__name__)

WAITING: Final = 0  # in the queue
ASSIGNED: Final = 1  # has a packet identifier that must be on disk before it is used
SENT: Final = 2  # PUBLISH sent, not acknowledged
RELEASED: Final = 3  # QoS 2: PUBREC received


class Outgoing:
    """One QoS 1 or 2 message owed to one session."""

    __slots__ = ("group", "message", "packet_id", "position", "qos", "retain", "state")

    def __init__(self, message: Message, qos: int, retain: bool, group: tuple[str, str] | None) -> None:
        self.message = message
        self.qos = qos
        self.retain = retain
        self.group = group
        """The shared subscription it was chosen for: another member may have it if this session ends."""
        self.packet_id = 0
        self.state = WAITING
        self.position = 0
        """Its place in the session's row of deliveries, which the store keeps it by."""

    def packet0(self) -> bytes:
        """The whole PUBLISH at QoS 0."""
        message = self.message
        return message.head_for(0, self.retain, dup=False) + message.payload if self.retain else message.packet0()


def _size(item: bytes | Message) -> int:
    return len(item) if isinstance(item, bytes) else item.size


class Session(Holding):
    """The state of one client.

    Args:
        engine: the engine it belongs to.
        client_id: the client's identifier.
        clean: whether the session ends with its connection.
    """

    __slots__ = (
        "__weakref__",
        "attributes",
        "clean",
        "client_id",
        "connection",
        "dropped",
        "ended",
        "engine",
        "feeds",
        "free_ids",
        "host_session",
        "id_floor",
        "inbound",
        "inflight",
        "left_at",
        "next_position",
        "out",
        "overflowing",
        "pump_due",
        "queue",
        "queue0",
        "queued_bytes",
        "subscriptions",
        "top_id",
        "username",
    )

    def __init__(self, engine: Engine, client_id: str, clean: bool) -> None:
        self.engine = engine
        self.client_id = client_id
        self.clean = clean
        self.username: str | None = None
        self.connection: Connection | None = None
        self.out: list[bytes] | None = None
        self.subscriptions: dict[str, Subscription] = {}
        self.inflight: dict[int, Outgoing] = {}
        self.queue: deque[Outgoing] | None = None
        """QoS 1 and 2 messages that wait for room in the window."""
        self.queue0: deque[bytes | Message] | None = None
        """QoS 0 messages that wait for the socket to take more."""
        self.queued_bytes = 0
        self.inbound: set[int] | None = None
        """Packet identifiers of QoS 2 messages received and not yet released."""
        self.free_ids: list[int] | None = None
        self.top_id = 0
        self.id_floor = 0
        """New packet identifiers are above this: those below may still mean something to the client elsewhere."""
        self.next_position = 1
        self.feeds: list[Feed] | None = None
        self.held = None
        self.left_at = 0.0
        self.ended = False
        self.overflowing = False
        self.pump_due = False
        self.dropped = 0
        self.host_session: Any = None
        """What the host's plugins know this session by."""
        self.attributes: dict[str, Any] | None = None
        """What plugins keep with a session; None while nobody does."""

    def __repr__(self) -> str:
        return f"Session({self.client_id!r}, clean={self.clean}, connected={self.connection is not None})"

    @property
    def persistent(self) -> bool:
        """Whether the session outlives its connection."""
        return not self.clean

    @property
    def queued(self) -> int:
        """How many messages wait for the client."""
        return (len(self.queue) if self.queue else 0) + (len(self.queue0) if self.queue0 else 0)

    @property
    def can_take(self) -> bool:
        """Whether a message delivered now would reach the client or wait for it, not be dropped."""
        if self.connection is None and (self.clean or self.ended):
            return False
        return self.out is not None or self.has_room(0)

    def has_room(self, size: int) -> bool:
        """Whether one more message of a size may wait."""
        engine = self.engine
        options = engine.options
        return (
            self.queued_bytes + size <= options.max_queued_bytes
            and engine.queued_bytes + size <= options.max_total_queued_bytes
            and (len(self.queue) if self.queue else 0) + (len(self.queue0) if self.queue0 else 0)
            < options.max_queued_messages
        )

    # Sending.

    def deliver(self, message: Message, qos: int, retain: bool = False, group: tuple[str, str] | None = None) -> bool:
        """Send a message, or let it wait; False if it was dropped. `qos` is what it is sent at."""
        if qos == 0:
            out = self.out
            if out is not None:
                if not out:
                    self.connection.touch()  # type: ignore[union-attr]  # `out` is a connection's
                out.append(
                    message.packet0() if not retain else message.head_for(0, retain, dup=False) + message.payload
                )
                return True
            if self.held is not None:
                return self.keep(Outgoing(message, 0, retain, group))
            if self.connection is not None:
                return self.wait_qos0(message)
            self.dropped += 1  # a feed that goes on later must not take it for received
            return False
        entry = Outgoing(message, qos, retain, group)
        if self.connection is None and self.clean:
            return False
        if self.out is not None and not self.queue and len(self.inflight) < self.engine.options.max_inflight:
            self._assign(entry)
            if self.clean or self.engine.store is None:
                self._transmit(entry)
            else:
                self.record(entry)
                self._transmit_when_safe(entry)
            return True
        if self.held is not None:
            return self.keep(entry)
        if not self.has_room(message.size):
            self.overflow(message)
            return False
        if self.queue is None:
            self.queue = deque()
        self.queue.append(entry)
        self.account(message.size)
        if not self.clean and self.engine.store is not None:
            self.record(entry)
        return True

    def account(self, size: int) -> None:
        """Count bytes that wait."""
        self.queued_bytes += size
        self.engine.queued_bytes += size

    def wait_qos0(self, item: bytes | Message) -> bool:
        """Let a QoS 0 message wait for the socket, at the cost of the oldest ones where there is no room."""
        size = item.size if type(item) is Message else len(item)  # type: ignore[arg-type]  # it is bytes then
        queue0 = self.queue0
        if queue0 is None:
            queue0 = self.queue0 = deque()
        engine = self.engine
        options = engine.options
        spare = min(options.max_queued_bytes - self.queued_bytes, options.max_total_queued_bytes - engine.queued_bytes)
        slots = options.max_queued_messages - len(queue0) - (len(self.queue) if self.queue else 0)
        freed = 0
        while spare < size or slots < 1:
            if not queue0:
                self._dropped_qos0(item)
                self.account(-freed)
                return False
            oldest = queue0.popleft()
            gained = _size(oldest)
            freed += gained
            spare += gained
            slots += 1
            self._dropped_qos0(oldest)
        queue0.append(item)
        self.account(size - freed)
        return True

    def _dropped_qos0(self, item: bytes | Message) -> None:
        self.dropped += 1
        engine = self.engine
        engine.counters.dropped_qos0 += 1
        if engine.hooks.dropped:
            engine.dropped(self, message_of(item) if isinstance(item, bytes) else item, "dropped_qos0")

    def overflow(self, message: Message) -> None:
        """There is no room for a message."""
        self.dropped += 1
        self.engine.counters.dropped_queue_full += 1
        self.engine.dropped(self, message, "dropped_queue_full")
        if not self.overflowing:
            self.overflowing = True
            log.warning(
                "client %s: queue full with %d messages and %d bytes; QoS 1 and 2 messages for it are dropped until"
                " there is room (max_queued_messages, max_queued_bytes)",
                self.client_id,
                self.queued,
                self.queued_bytes,
            )

    def _assign(self, entry: Outgoing) -> None:
        """Give a message a packet identifier that no other one on the way has [MQTT-2.3.1-4]."""
        if self.free_ids:
            packet_id = self.free_ids.pop()
        else:
            self.top_id += 1
            packet_id = self.top_id
        entry.packet_id = packet_id
        entry.state = ASSIGNED
        self.inflight[packet_id] = entry

    def _transmit_when_safe(self, entry: Outgoing) -> None:
        # A QoS 1 message may arrive twice, so it need not wait. A QoS 2 message sent again after a crash must have the
        # packet identifier it had before, so that goes to disk first.
        if entry.qos == 1:
            self._transmit(entry)
        else:
            assert self.engine.store is not None
            self.engine.store.when_safe(self._transmit_assigned, entry)

    def _transmit_assigned(self, entry: Outgoing) -> None:
        if entry.state != ASSIGNED or self.inflight.get(entry.packet_id) is not entry:
            return
        if self.connection is None:
            entry.state = SENT  # goes out with everything else when the client is back
        else:
            self._transmit(entry)

    def _transmit(self, entry: Outgoing, dup: bool = False) -> None:
        entry.state = SENT
        connection = self.connection
        assert connection is not None
        out = connection.out
        if not out:
            connection.touch()
        message = entry.message
        if dup or entry.retain:
            out.append(message.head_for(entry.qos, entry.retain, dup))
        else:
            out.append(message.head(entry.qos))
        out.append(PACKET_IDS[entry.packet_id])
        out.append(message.payload)

    def pump(self) -> None:
        """Send what waits, as far as the window and the socket have room; then go on with retained messages."""
        if self.held is not None:
            self.out = None  # it moves: nothing more leaves from here
            return
        queue0 = self.queue0
        if queue0:
            while queue0 and self.out is not None:
                sent = 0
                while queue0 and sent < 65_536:
                    item = queue0.popleft()
                    packet = item if isinstance(item, bytes) else item.packet0()
                    self.account(-_size(item))
                    sent += len(packet)
                    self.out.append(packet)
                self.connection.flush()  # type: ignore[union-attr]  # may set `out` to None
            if not queue0:
                self.queue0 = None
        queue = self.queue
        if queue and self.out is not None:
            window = self.engine.options.max_inflight
            durable = not self.clean and self.engine.store is not None
            while queue and self.out is not None and len(self.inflight) < window:
                entry = queue.popleft()
                self.account(-entry.message.size)
                self._assign(entry)
                if durable:
                    if entry.qos == 2:
                        self.record(entry)
                    self._transmit_when_safe(entry)
                else:
                    self._transmit(entry)
            self.overflowing = False
            if not queue:
                self.queue = None
        if self.feeds and self.out is not None and not self.queue and not self.queue0:
            self.engine.pump_feeds(self)

    # What the client acknowledges.

    def acknowledged(self, packet_id: int) -> None:
        """PUBACK [MQTT-4.3.2-1]."""
        entry = self.inflight.get(packet_id)
        if entry is not None and entry.qos == 1:
            self._finish(entry)

    def received(self, packet_id: int) -> None:
        """PUBREC: the message will not be sent again, a PUBREL goes out [MQTT-4.3.3-1]."""
        entry = self.inflight.get(packet_id)
        connection = self.connection
        assert connection is not None
        packet = PUBREL + PACKET_IDS[packet_id]
        if entry is None or entry.qos != 2 or self.clean or self.engine.store is None:
            if entry is not None and entry.qos == 2:
                entry.state = RELEASED
            connection.send(packet)
            return
        if entry.state != RELEASED:
            entry.state = RELEASED
            self.record(entry)
        self.engine.store.when_safe(connection.send, packet)

    def completed(self, packet_id: int) -> None:
        """PUBCOMP: a QoS 2 delivery is over."""
        entry = self.inflight.get(packet_id)
        if entry is not None and entry.qos == 2 and entry.state == RELEASED:
            self._finish(entry)

    def _finish(self, entry: Outgoing) -> None:
        del self.inflight[entry.packet_id]
        if self.free_ids is None:
            self.free_ids = []
        if entry.packet_id > self.id_floor:
            self.free_ids.append(entry.packet_id)
        if entry.position:
            self.forget(entry)
        if (self.queue or self.feeds) and not self.pump_due:
            self.pump_due = True
            self.engine.pump_later(self)

    # Coming and going.

    def attach(self, connection: Connection) -> None:
        """The client is connected: from now on messages go out."""
        self.connection = connection
        self.out = connection.out
        self.left_at = 0.0
        if self.held is not None:
            self.release()

    def resend(self) -> None:
        """After a reconnect, send again what was not acknowledged, in its order [MQTT-4.4.0-1] [MQTT-4.6.0-1]."""
        assert self.connection is not None
        for entry in list(self.inflight.values()):
            self.send_again(entry)
        self.pump()

    def send_again(self, entry: Outgoing) -> None:
        """Send a message, or its PUBREL, again."""
        if entry.state == SENT:
            self.engine.counters.redelivered += 1
            self._transmit(entry, dup=True)
        elif entry.state == RELEASED and self.connection is not None:
            self.connection.send(PUBREL + PACKET_IDS[entry.packet_id])

    def detach(self) -> None:
        """The client is gone: QoS 0 messages that wait for it go with it."""
        self.connection = None
        self.out = None
        if self.queue0:
            for item in self.queue0:
                self.account(-_size(item))
        self.queue0 = None

    def clear(self) -> list[Outgoing]:
        """The session ends: give up everything owed, and return it."""
        owed = list(self.inflight.values()) + (list(self.queue) if self.queue else [])
        owed += [entry for entry in self.held or () if entry.qos]
        for entry in owed:
            if entry.position:
                self.forget(entry)
        self.account(-self.queued_bytes)
        self.inflight.clear()
        self.queue = self.queue0 = self.feeds = self.inbound = self.held = None
        return owed

    # The store.

    def record(self, entry: Outgoing) -> None:
        """Note a delivery, with its message the first time."""
        store = self.engine.store
        assert store is not None
        message = entry.message
        if not entry.position:
            entry.position = self.next_position
            self.next_position += 1
            if not message.stored_id:
                message.stored_id = store.next_message_id
                store.next_message_id += 1
                store.put("messages", (message.stored_id,), (message.topic, message.payload, message.qos))
            message.stored_refs += 1
        state = SENT if entry.state == ASSIGNED else entry.state
        row = (message.stored_id, entry.qos, int(entry.retain), entry.packet_id, state)
        store.put("deliveries", (self.client_id, entry.position), row)

    def forget(self, entry: Outgoing) -> None:
        """A delivery is over."""
        store = self.engine.store
        assert store is not None
        store.delete("deliveries", (self.client_id, entry.position))
        entry.position = 0
        message = entry.message
        message.stored_refs -= 1
        if not message.stored_refs:
            store.delete("messages", (message.stored_id,))
            message.stored_id = 0

    def record_all(self) -> None:
        """Note everything owed that was restored from elsewhere than the store."""
        for entry in [*self.inflight.values(), *(self.queue or ())]:
            entry.message.stored_refs = 0
            self.record(entry)

    def restore(self, deliveries: list[tuple[Message, int, bool, int, int, int]]) -> None:
        """Take back what was owed: message, QoS, retain, packet id, state and position of each, in order.

        That a QoS 1 message left the queue is not noted. It did if one behind it has a packet identifier: it is then
        sent again before that one [MQTT-4.6.0-1].
        """
        used = {packet_id for *_, packet_id, _, _ in deliveries if packet_id}
        free = (number for number in range(self.id_floor + 1, MOST_IDS + 1) if number not in used)
        sent = max((at for at, delivery in enumerate(deliveries) if delivery[3]), default=0)
        for at, (message, qos, retain, noted_id, noted_state, position) in enumerate(deliveries):
            packet_id, state = noted_id, noted_state
            if not packet_id and qos == 1 and state == WAITING and at < sent:
                packet_id, state = next(free), SENT
            entry = Outgoing(message, qos, retain, None)
            entry.position = position
            self.next_position = max(self.next_position, position + 1)
            message.stored_refs += 1
            if packet_id:
                entry.packet_id, entry.state = packet_id, state
                self.inflight[packet_id] = entry
                used.add(packet_id)
            else:
                if self.queue is None:
                    self.queue = deque()
                self.queue.append(entry)
                self.account(message.size)
        self.top_id = max(self.id_floor, max(used, default=0))
        self.free_ids = [number for number in range(self.top_id, self.id_floor, -1) if number not in used]
