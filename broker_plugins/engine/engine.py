"""The engine: one broker's data path, between connections, plugins and the store.

It stands in four layers, each in its module and on the one before: `core`, `publishing`, `subscribing`, and the
sessions of clients here.
"""

from __future__ import annotations

import logging
import time
from typing import TYPE_CHECKING, Any

from broker_plugins.engine.codec import Connect, ConnectCode
from broker_plugins.engine.hooks import Hooks, HookTable
from broker_plugins.engine.message import Message
from broker_plugins.engine.recovery import recover
from broker_plugins.engine.session import Outgoing, Session
from broker_plugins.engine.subscribing import Subscribing
from broker_plugins.engine.wheel import TICK_S
from broker_plugins.engine.work import drive

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Awaitable, Generator, Sequence

    from broker_plugins.engine.connection import Connection

log = logging.getLogger(__name__)


class Engine(Subscribing):
    """One broker's data path: see `EngineCore` for what it is made of."""

    _ticking: asyncio.TimerHandle | None = None

    def start(self, plugins: Sequence[Hooks] = ()) -> None:
        """Load what the store has, start the plugins and the clock."""
        self.hooks = HookTable(plugins)
        self.reconsider_plain()
        self.routes.use(self.hooks)
        for plugin in plugins:
            plugin.start(self)
        if self.store is not None:
            recover(self, self.store)
        self._tick()

    async def stop(self) -> None:
        """Let plugins finish, close every connection and write what is to be written."""
        for plugin in self.hooks.plugins:
            plugin.stop()
        if self._ticking is not None:
            self._ticking.cancel()
        for connection in list(self.connections):
            connection.close("the broker is shutting down")
        self._end_of_turn()
        if self.store is not None:
            await self.store.close()

    def _tick(self) -> None:
        self._ticking = self.loop.call_later(TICK_S, self._tick)
        self.wheel.turn()
        if self.options.session_expiry_s and self.wheel.now % 20 == 0:
            self._expire_sessions()

    def _expire_sessions(self) -> None:
        limit = time.time() - self.options.session_expiry_s
        for session in [each for each in self.sessions.values() if each.left_at and each.left_at < limit]:
            self.counters.sessions_expired += 1
            self.end_session(session)

    # Sessions.

    def connect(self, connection: Connection, connect: Connect) -> Generator[Awaitable[Any] | None, Any, None]:
        """Give an authenticated client its session."""
        client_id = connect.client_id
        for hook in self.hooks.connecting:
            awaited = self._call(hook, connect)
            if awaited is not None:
                yield awaited
                if connection.closed:
                    return
        session = self.sessions.get(client_id)
        if session is not None and session.connection is not None:
            self.counters.takeovers += 1
            log.info("client %s connected again; its old connection is closed", client_id)
            session.connection.close("taken over")  # [MQTT-3.1.4-2]
            session = self.sessions.get(client_id)
        if session is not None and connect.clean_session:
            self.end_session(session)  # [MQTT-3.1.2-6]
            session = None
        if session is None and len(self.sessions) >= self.options.max_sessions:
            connection.refuse(ConnectCode.SERVER_UNAVAILABLE, f"max_sessions ({self.options.max_sessions}) is reached")
            return
        present = session is not None  # [MQTT-3.2.2-1] [MQTT-3.2.2-2] [MQTT-3.2.2-3]
        if session is None:
            session = Session(self, client_id, connect.clean_session)
        session.username = connect.username
        if self.doorkeeper is not None:
            self.doorkeeper.adopt(connection, session)
        for hook in self.hooks.connect:
            code = self._call(hook, session)
            if code is not None:
                connection.refuse(code, f"by {getattr(hook, '__qualname__', hook)}")
                return
        self.sessions[client_id] = session
        store = self.store
        if store is not None:
            if session.persistent:
                store.put("sessions", (client_id,), (0.0,))
            if connect.will is not None:
                will = connect.will
                store.put("wills", (client_id,), (will.topic, will.payload, will.qos, int(will.retain)))
            if store.busy and (session.persistent or connect.will is not None):
                safe = self.loop.create_future()
                store.when_safe(safe.set_result, None)
                yield safe
                if connection.closed or self.sessions.get(client_id) is not session or session.connection is not None:
                    connection.close("overtaken while connecting")
                    return
        connection.welcome(session, connect, present)
        session.attach(connection)
        if not connection.writable:
            session.out = None
        for hook in self.hooks.connected:
            self._call(hook, session)
        if present:
            session.resend()

    def disconnected(self, connection: Connection, session: Session, reason: str) -> None:
        """A connection is over: publish its will, and end its session if that was clean."""
        session.detach()
        session.left_at = time.time()
        will, connection.will = connection.will, None
        for hook in self.hooks.disconnected:
            self._call(hook, session, reason)
        if will is not None:  # [MQTT-3.1.2-8]
            self.forget_will(session)
            self.publish_as(session, Message(will.topic, will.payload, will.qos, will.retain, session))
        if session.clean:
            self.end_session(session)
        elif self.store is not None:
            self.store.put("sessions", (session.client_id,), (session.left_at,))

    def forget_will(self, session: Session) -> None:
        """A will is published or not wanted any more."""
        if self.store is not None:
            self.store.delete("wills", (session.client_id,))

    def end_session(self, session: Session) -> None:
        """Forget a session and all that was owed to it [MQTT-3.1.2-6]."""
        session.ended = True
        if self.sessions.get(session.client_id) is session:
            del self.sessions[session.client_id]
        self.feeds.end_all(session)
        if self.store is not None and session.persistent:
            self.store.delete("sessions", (session.client_id,))
            for text in session.subscriptions:
                self.store.delete("subscriptions", (session.client_id, text))
            for packet_id in session.inbound or ():
                self.store.delete("inbound", (session.client_id, packet_id))
        owed = session.clear()
        for hook in self.hooks.session_ended:
            self._call(hook, session)
        if session.subscriptions:
            drive(self.loop, self._drop_subscriptions(session, owed))

    def _drop_subscriptions(
        self, session: Session, owed: list[Outgoing]
    ) -> Generator[Awaitable[Any] | None, Any, None]:
        subscriptions, session.subscriptions = session.subscriptions, {}
        self.subscription_count -= len(subscriptions)
        for number, subscription in enumerate(subscriptions.values()):
            self._unindex(subscription)
            if number % 64 == 63:
                yield None
        for entry in owed:
            # Another member of a shared subscription may still do what this one did not.
            if entry.group is not None and entry.qos == 1:
                members = self.routes.find(entry.message.topic).groups.get(entry.group)
                chosen = self.routes.choose(entry.group, members) if members else None
                if chosen is not None:
                    chosen.session.deliver(entry.message, min(chosen.qos, entry.qos), group=entry.group)

    # QoS 2 from clients.

    def note_inbound(self, session: Session, packet_id: int) -> None:
        """A QoS 2 message was received; until it is released its packet identifier means this message."""
        if session.inbound is None:
            session.inbound = set()
        session.inbound.add(packet_id)
        if self.store is not None and session.persistent:
            self.store.put("inbound", (session.client_id, packet_id), (1,))

    def release_inbound(self, session: Session, packet_id: int) -> None:
        """PUBREL: the packet identifier is free for another message."""
        if session.inbound is not None and packet_id in session.inbound:
            session.inbound.discard(packet_id)
            if self.store is not None and session.persistent:
                self.store.delete("inbound", (session.client_id, packet_id))
