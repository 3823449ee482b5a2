"""The engine: sessions, subscriptions and messages of one broker, between connections, plugins and the store."""

from __future__ import annotations

import logging
import time
from typing import TYPE_CHECKING, Any

import msgspec

from broker_plugins.engine.access import Action
from broker_plugins.engine.codec import SUBSCRIBE_FAILED, Connect, ConnectCode
from broker_plugins.engine.counters import Counters
from broker_plugins.engine.feed import Feeds
from broker_plugins.engine.hooks import Hooks, HookTable, Refused, Selection
from broker_plugins.engine.message import Message
from broker_plugins.engine.retained import RetainedMessages
from broker_plugins.engine.routes import Route, Routes
from broker_plugins.engine.session import Outgoing, Session
from broker_plugins.engine.subscription import Subscription
from broker_plugins.engine.topics import check_topic_name, filter_fault
from broker_plugins.engine.wheel import TICK_S, Wheel
from broker_plugins.engine.work import drive
from broker_plugins.grammar import WGS84, GrammarError, is_smart, parse_filter, parse_topic

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Awaitable, Generator, Sequence

    from broker_plugins.engine.access import Guard
    from broker_plugins.engine.connection import Connection
    from broker_plugins.engine.options import EngineOptions
    from broker_plugins.engine.store import Store
    from broker_plugins.grammar import Clauses, Space

log = logging.getLogger(__name__)


class Engine:
    """One broker's data path.

    Args:
        loop: the event loop everything happens on.
        options: bounds and durability.
        store: where sessions and retained messages are kept; None keeps them in memory only.
        doorkeeper: who authenticates clients; None lets everybody in.
    """

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        options: EngineOptions,
        store: Store | None = None,
        doorkeeper: Guard | None = None,
    ) -> None:
        self.loop = loop
        self.options = options
        self.store = store
        self.doorkeeper = doorkeeper
        self.guard: Guard | None = doorkeeper if doorkeeper is not None and doorkeeper.guards_topics else None
        self.counters = Counters()
        self.hooks = HookTable()
        self.sessions: dict[str, Session] = {}
        self.connections: set[Connection] = set()
        self.listener_limits: dict[str, int] = {}
        """The most connections a listener takes, where it has a bound of its own."""
        self._by_listener: dict[str, int] = {}
        self.routes = Routes(options.max_routes)
        self.retained = RetainedMessages()
        self.feeds = Feeds(self)
        self.wheel = Wheel()
        self.sequence = 0
        """How many messages were published so far."""
        self.subscriptions_made = 0
        self.subscription_count = 0
        self.queued_bytes = 0
        self.space: Space = WGS84
        """Where places are: the globe, unless a plugin says otherwise when it starts."""
        self.loop_gathers_writes = type(loop).__module__.startswith("uvloop")
        """uvloop gathers the writes of one turn itself: handing them over at once saves a turn of the loop."""
        self.gathering = False
        """While bytes of a client are looked at: what they cause to be written is handed over when that is done."""
        self.started_at = time.time()
        self._dirty: list[Connection] = []
        self._flush_due = False
        self._ticking: asyncio.TimerHandle | None = None
        self._published: list[Message] = []
        self._delivered: list[tuple[Session, Message, int]] = []
        self._dropped: list[tuple[Session | None, Message, str]] = []

    # Beginning and end.

    def start(self, plugins: Sequence[Hooks] = ()) -> None:
        """Load what the store has, start the plugins and the clock."""
        self.hooks = HookTable(plugins)
        self.reconsider_plain()
        self.routes.use(self.hooks)
        for plugin in plugins:
            plugin.start(self)
        if self.store is not None:
            from broker_plugins.engine.recovery import recover

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

    def reconsider_plain(self) -> None:
        """Find out anew whether QoS 0 messages may take the short way."""
        hooks = self.hooks
        plain = not (self.guard or hooks.published or hooks.delivered or hooks.dropped or self.feeds.count)
        if plain != self.routes.all_plain:
            self.routes.all_plain = plain
            self.routes.forget()

    def forget_routes(self, inner: str | None = None) -> None:
        """A plugin's `concerns` may answer differently from now on, for the topics a filter matches or for all."""
        if inner is None:
            self.routes.forget()
        else:
            self.routes.changed(inner)

    # The end of a turn.

    def touched(self, connection: Connection | None) -> None:
        """A connection has something to write."""
        if connection is None:
            return
        self._dirty.append(connection)
        if not self._flush_due and not self.gathering:
            self._tell_later()

    def flush(self) -> None:
        """Hand what connections have to write over to their sockets."""
        dirty = self._dirty
        if dirty:
            self._dirty = []
            for connection in dirty:
                connection.flush()

    def _end_of_turn(self) -> None:
        self._flush_due = False
        self.flush()
        if self._published or self._delivered or self._dropped:
            self._tell()

    def _tell(self) -> None:
        published, self._published = self._published, []
        delivered, self._delivered = self._delivered, []
        dropped, self._dropped = self._dropped, []
        for batch, hooks in (
            (published, self.hooks.published),
            (delivered, self.hooks.delivered),
            (dropped, self.hooks.dropped),
        ):
            if batch:
                for hook in hooks:
                    self._call(hook, batch)

    def _tell_later(self) -> None:
        if not self._flush_due:
            self._flush_due = True
            self.loop.call_soon(self._end_of_turn)

    def _call(self, hook: Any, *arguments: Any) -> Any:
        """Call a plugin; what it raises is its own fault and nobody else's."""
        try:
            return hook(*arguments)
        except Refused:
            raise
        except Exception:
            self.counters.plugin_faults += 1
            log.exception("plugin %s failed", getattr(hook, "__qualname__", hook))
            return None

    def dropped(self, session: Session | None, message: Message, counter: str) -> None:
        """A message did not reach a receiver."""
        if self.hooks.dropped:
            self._dropped.append((session, message, counter))
            self._tell_later()

    # Access.

    def may(self, session: Session, topic: str, action: Action) -> bool | Awaitable[bool]:
        """Whether a session may do something with a topic."""
        return True if self.guard is None else self.guard.may(session, topic, action)

    def may_receive(self, session: Session, topic: str) -> bool | Awaitable[bool]:
        """Whether a session may be sent messages of a topic."""
        return True if self.guard is None else self.guard.may(session, topic, Action.RECEIVE)

    # Connections.

    def admits(self, listener: str) -> bool:
        """Whether one more connection may come in by a listener."""
        limit = self.listener_limits.get(listener)
        if limit is not None and self._by_listener.get(listener, 0) >= limit:
            return False
        return len(self.connections) < self.options.max_connections

    def admit(self, connection: Connection) -> None:
        """A connection came in."""
        self.connections.add(connection)
        self._by_listener[connection.listener] = self._by_listener.get(connection.listener, 0) + 1

    def dismiss(self, connection: Connection) -> None:
        """A connection is over."""
        if connection in self.connections:
            self.connections.remove(connection)
            self._by_listener[connection.listener] -= 1

    # Sessions.

    def connect(self, connection: Connection, connect: Connect) -> Generator[Awaitable[Any] | None, Any, None]:
        """Give an authenticated client its session."""
        client_id = connect.client_id
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

    def _unindex(self, subscription: Subscription) -> None:
        if subscription.claimed_by is None:
            self.routes.remove(subscription)
        for hook in self.hooks.unsubscribed:
            self._call(hook, subscription)

    # Subscriptions.

    def subscribe(
        self, session: Session, filters: list[tuple[str, int]], codes: bytearray
    ) -> Generator[Awaitable[Any] | None, Any, list[Subscription]]:
        """Make subscriptions in the order of a SUBSCRIBE [MQTT-3.8.4-4]; a code for each goes to `codes`."""
        made: list[Subscription] = []
        for text, qos in filters:
            try:
                subscription = self.read_filter(session, text, qos)
                allowed = self.may(session, subscription.inner, Action.SUBSCRIBE)
                if not isinstance(allowed, bool):
                    allowed = yield allowed
                if not allowed:
                    raise Refused("access control does not allow it")  # noqa: TRY301
                self.adopt(subscription)
            except Refused as refused:
                self.counters.refused_subscriptions += 1
                log.info("client %s: subscription %r refused: %s", session.client_id, text, refused)
                codes.append(SUBSCRIBE_FAILED)
            else:
                self.note_subscription(subscription, owed=True)
                codes.append(subscription.qos)
                made.append(subscription)
            yield None
        return made

    def subscribe_alone(
        self, session: Session, filters: list[tuple[str, int]], codes: bytearray
    ) -> Generator[Awaitable[Any] | None, Any, None]:
        """Make subscriptions for a client that did not ask, with their retained messages."""
        made = yield from self.subscribe(session, filters, codes)
        for subscription in made:
            self.feeds.begin(subscription)
        if session.feeds and session.out is not None:
            session.pump()

    def read_filter(self, session: Session, text: str, qos: int) -> Subscription:
        """A subscription as a client said it.

        Raises:
            Refused: it is malformed or one too many.
        """
        if (
            text not in session.subscriptions
            and len(session.subscriptions) >= self.options.max_subscriptions_per_client
        ):
            raise Refused(f"max_subscriptions_per_client ({self.options.max_subscriptions_per_client}) is reached")
        smart = None
        if is_smart(text):
            try:
                smart = parse_filter(text, self.space)
            except GrammarError as error:
                raise Refused(str(error)) from None
        else:
            fault = filter_fault(text)
            if fault is not None:
                raise Refused(fault)
        self.subscriptions_made += 1
        subscription = Subscription(session, text, text, qos, None, self.subscriptions_made)
        if smart is not None:
            subscription.smart, subscription.inner, subscription.share = smart, smart.inner, smart.share
        return subscription

    def adopt(self, subscription: Subscription) -> None:
        """Let a subscription take effect, in place of one with the same text [MQTT-3.8.4-3].

        Raises:
            Refused: a plugin does not want it.
        """
        session = subscription.session
        subscription.claimed_by = None
        for plugin, hook in self.hooks.subscribe:
            if self._call(hook, session, subscription):
                subscription.claimed_by = plugin
                break
        smart = subscription.smart
        if subscription.claimed_by is None and smart is not None and (smart.geo or smart.where):
            raise Refused(f"no plugin of this broker serves {'$geo' if smart.geo else '$where'}")
        old = session.subscriptions.get(subscription.text)
        if old is not None:
            subscription.order = old.order
            self._unindex(old)
            self.feeds.end(old)
        else:
            self.subscription_count += 1
        session.subscriptions[subscription.text] = subscription
        if subscription.claimed_by is None:
            self.routes.add(subscription)
        for hook in self.hooks.subscribed:
            self._call(hook, subscription)

    def note_subscription(self, subscription: Subscription, owed: bool) -> None:
        """Keep a subscription of a persistent session, and whether it is still owed retained messages."""
        session = subscription.session
        if self.store is not None and session.persistent and not session.ended:
            row = (subscription.qos, subscription.order, int(owed))
            self.store.put("subscriptions", (session.client_id, subscription.text), row)

    def unsubscribe(self, session: Session, texts: list[str]) -> Generator[Awaitable[Any] | None, Any, None]:
        """End subscriptions, each named by its exact text [MQTT-3.10.4-1]."""
        for text in texts:
            subscription = session.subscriptions.pop(text, None)
            if subscription is not None:
                self.subscription_count -= 1
                self.feeds.end(subscription)
                self._unindex(subscription)
                if self.store is not None and session.persistent:
                    self.store.delete("subscriptions", (session.client_id, text))
            yield None

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

    # Messages.

    def route_of(self, raw: bytes) -> tuple[Route | None, Clauses | None]:
        """The route of a topic name as it came in a packet, and the message clauses in it.

        There is no route where the clauses cannot be read.
        """
        topic = check_topic_name(raw)
        if "/@" not in topic:
            return self.routes.find(topic), None
        try:
            topic, clauses = parse_topic(topic, self.space)
        except GrammarError as error:
            self.counters.bad_clauses += 1
            log.info("a message is dropped, its clauses cannot be read: %s", error)
            return None, None
        return self.routes.find(topic), clauses

    def refused_publish(self, message: Message, reason: str) -> None:
        """A message goes nowhere."""
        self.counters.refused_publishes += 1
        if log.isEnabledFor(logging.INFO):
            client = message.sender.client_id if message.sender is not None else "the broker"
            log.info("%s: publish to %r refused: %s", client, message.topic, reason)
        self.dropped(None, message, "refused_publishes")

    def publish(self, message: Message, route: Route | None = None) -> None:
        """Deliver a message to whoever should have it; nobody is asked whether its sender may publish it."""
        if self.guard is not None:
            drive(self.loop, self.publish_guarded(message))
            return
        route = self._accept(message, route)
        if route is None:
            return
        qos = message.qos
        if route.selectors if message.clauses is None else route.clause_selectors:
            selection = self._select(message, route)
            targets: Any = selection.receivers.items()
            groups = selection.groups
        else:
            targets, groups = route.targets, route.groups
        if self.feeds.count and not message.retain:
            self.feeds.before_live(message, [session for session, _ in targets])
        self.counters.deliveries += len(targets)
        for session, granted in targets:
            session.deliver(message, granted if granted < qos else qos)  # noqa: FURB136  [MQTT-3.8.4-6] [MQTT-3.3.5-1]
        if self.hooks.delivered:
            self._delivered.extend((session, message, min(granted, qos)) for session, granted in targets)
            self._tell_later()
        if groups:
            self._deliver_to_groups(message, groups)

    def publish_guarded(self, message: Message) -> Generator[Awaitable[Any] | None, Any, None]:
        """The same where every receiver has to be allowed."""
        route = self._accept(message, None)
        if route is None:
            return
        selection = self._select(message, route)
        allowed: list[tuple[Session, int]] = []
        for session, granted in selection.receivers.items():
            if (yield from self._may_have(session, message)):
                allowed.append((session, granted))
        groups: dict[tuple[str, str], list[Subscription]] = {}
        for key, members in selection.groups.items():
            for member in members:
                if (yield from self._may_have(member.session, message)):
                    groups.setdefault(key, []).append(member)
        if self.feeds.count and not message.retain:
            self.feeds.before_live(message, [session for session, _ in allowed])
        self.counters.deliveries += len(allowed)
        for session, granted in allowed:
            session.deliver(message, min(granted, message.qos))
        if self.hooks.delivered:
            self._delivered.extend((session, message, min(granted, message.qos)) for session, granted in allowed)
            self._tell_later()
        self._deliver_to_groups(message, groups)

    def _may_have(self, session: Session, message: Message) -> Generator[Awaitable[Any] | None, Any, bool]:
        may = self.may_receive(session, message.topic)
        if not isinstance(may, bool):
            may = yield may
        if not may:
            self.counters.refused_receives += 1
            self.dropped(session, message, "refused_receives")
        return bool(may)

    def publish_as(self, session: Session, message: Message) -> None:
        """Publish a message on behalf of a client, if it may: its will."""

        def work() -> Generator[Awaitable[Any] | None, Any, None]:
            may = self.may(session, message.topic, Action.PUBLISH)
            if not isinstance(may, bool):
                may = yield may
            if may:
                self.publish(message)
            else:
                self.refused_publish(message, "access control")

        drive(self.loop, work())

    def _accept(self, message: Message, route: Route | None) -> Route | None:
        """Count a message, let plugins see it first and retain it; None if it goes nowhere."""
        self.sequence += 1
        message.sequence = self.sequence
        if route is None:
            route = self.routes.find(message.topic)
        if message.sender is not None and message.topic.startswith("$"):
            self.refused_publish(message, "clients do not publish to topics that start with $")  # [MQTT-4.7.2-1]
            return None
        topic = message.topic
        try:
            for hook in route.publishers:
                if self._call(hook, message) is False:
                    return None
        except Refused as refused:
            self.refused_publish(message, str(refused))
            return None
        if self.hooks.published:
            self._published.append(message)
            self._tell_later()
        if message.retain:
            self.retain(message)
        return route if message.topic == topic else self.routes.find(message.topic)

    def _select(self, message: Message, route: Route) -> Selection:
        selection = Selection()
        selection.receivers = dict(route.targets)
        selection.groups = {key: list(members) for key, members in route.groups.items()}
        for hook in route.selectors if message.clauses is None else route.clause_selectors:
            self._call(hook, message, selection)
        return selection

    def _deliver_to_groups(self, message: Message, groups: dict[tuple[str, str], list[Subscription]]) -> None:
        for key, members in groups.items():
            chosen = self.routes.choose(key, members)
            if chosen is None:
                self.dropped(None, message, "shared_subscription_away")
                continue
            self.counters.deliveries += 1
            qos = min(chosen.qos, message.qos)
            chosen.session.deliver(message, qos, group=key)
            if self.hooks.delivered:
                self._delivered.append((chosen.session, message, qos))
                self._tell_later()

    # Retained messages.

    def retain(self, message: Message) -> None:
        """Keep a message for later subscribers, or forget the one that was kept [MQTT-3.3.1-5] [MQTT-3.3.1-10]."""
        store = self.store
        if not message.payload:
            if self.retained.remove(message.topic) and store is not None:
                store.delete("retained", (message.topic,))
            return
        if message.topic not in self.retained and (
            len(self.retained) >= self.options.max_retained_messages
            or self.retained.bytes + message.size > self.options.max_retained_bytes
        ):
            self.counters.dropped_retained += 1
            self.dropped(None, message, "dropped_retained")
            return
        message.keep_place()
        self.retained.put(message)
        if store is not None and not message.volatile:
            properties = msgspec.json.encode(message.properties) if message.properties else None
            store.put("retained", (message.topic,), (message.payload, message.qos, properties))

    def send_retained(self, subscription: Subscription, topic: str) -> bool:
        """Pay what a plugin owed: send a topic's retained message to a subscription; False if there is none."""
        entry = self.retained.get(topic)
        if entry is None or subscription.session.ended:
            return False
        self.feeds.send(subscription, entry.message)
        return True

    def pump_feeds(self, session: Session) -> None:
        """Go on sending retained messages to a session."""
        if session.attributes is None:
            session.attributes = {}
        if not session.attributes.get("pumping"):
            session.attributes["pumping"] = True
            attributes = session.attributes
            drive(self.loop, self.feeds.pump(session), lambda: attributes.pop("pumping", None))
