"""Retained messages on their way to a new subscription, as fast as its client takes them.

A feed walks the retained topics with a cursor and sends while the client's window and socket have room, so a subscriber
to a million retained topics costs one cursor, not a million queued messages. What was cleared meanwhile is skipped, and
what was replaced too, for its subscriber got that live. A live message never overtakes the older retained one of its
topic: where the cursor has not been yet, the retained one is sent first.
"""

from __future__ import annotations

from types import MappingProxyType
from typing import TYPE_CHECKING, Final

from broker_plugins.engine.retained import Cursor
from broker_plugins.engine.topics import matches

if TYPE_CHECKING:
    from collections.abc import Awaitable, Generator, Mapping
    from typing import Any

    from broker_plugins.engine.engine import Engine
    from broker_plugins.engine.message import Message
    from broker_plugins.engine.retained import Retained
    from broker_plugins.engine.session import Session
    from broker_plugins.engine.subscription import Subscription

BATCH: Final = 64
EMPTY: Final[Mapping[str, bytes]] = MappingProxyType({})
EARLY: Final = 65_536
"""Topics a feed remembers that it sent ahead of a live message; beyond these one may come a second time."""


class Feed:
    """The retained messages one subscription is still owed."""

    __slots__ = ("cursor", "dropped", "early", "over", "ready", "started", "subscription")

    def __init__(self, subscription: Subscription, cursor: Cursor, started: int) -> None:
        self.subscription = subscription
        self.cursor = cursor
        self.started = started
        """The engine's sequence when the subscription was made: what is newer reaches its client live."""
        self.dropped = subscription.session.dropped
        self.ready: list[str] = []
        """Topics the cursor found that wait for room."""
        self.early: set[str] = set()
        """Topics ahead of the cursor whose retained message was sent already, before a live one."""
        self.over = False

    def owes(self, topic: str, entry: Retained) -> bool:
        """Whether a retained message is still to be sent because of this feed."""
        if self.over or entry.message.sequence > self.started or topic in self.early:
            return False
        if self.cursor.passed(topic) and topic not in self.ready:
            return False
        return matches(self.subscription.inner, topic)


class Feeds:
    """All feeds of the broker."""

    __slots__ = ("_engine", "count")

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self.count = 0

    def begin(self, subscription: Subscription, queued: Mapping[str, bytes] = EMPTY) -> None:
        """A subscription was made: its client is owed the retained messages it matches [MQTT-3.3.1-6].

        Args:
            subscription: which.
            queued: retained messages on their way to its session since before a crash, by topic: the feed does not send
                them a second time, after whatever came for their topic in between.
        """
        engine = self._engine
        if subscription.share is not None or not len(engine.retained):
            engine.note_subscription(subscription, owed=False)
            return
        session = subscription.session
        feed = Feed(subscription, Cursor(engine.retained, subscription.inner), engine.sequence)
        for topic, payload in queued.items():
            entry = engine.retained.get(topic)
            if entry is not None and entry.message.payload == payload and len(feed.early) < EARLY:
                feed.early.add(topic)
        if session.feeds is None:
            session.feeds = []
        self.end(subscription)
        session.feeds.append(feed)
        self._counted(1)

    def end(self, subscription: Subscription) -> None:
        """A subscription ended or was made anew: its old feed is over."""
        session = subscription.session
        for feed in session.feeds or ():
            if feed.subscription.text == subscription.text:
                feed.over = True
                session.feeds.remove(feed)  # type: ignore[union-attr]  # it is in there
                self._counted(-1)
                return

    def end_all(self, session: Session) -> None:
        """A session ends."""
        for feed in session.feeds or ():
            feed.over = True
            self._counted(-1)
        session.feeds = None

    def _counted(self, change: int) -> None:
        was, self.count = self.count, self.count + change
        if bool(was) != bool(self.count):
            self._engine.reconsider_plain()

    def pump(self, session: Session) -> Generator[Awaitable[Any] | None, Any, None]:
        """Send retained messages to a session while it takes them."""
        engine = self._engine
        while session.feeds and session.out is not None and not session.queue and not session.queue0:
            feed = session.feeds[0]
            if not feed.ready:
                feed.ready, more = feed.cursor.next(BATCH)
                feed.ready.reverse()
                if not feed.ready and not more:
                    self._finished(feed)
                    continue
            while feed.ready and not feed.over:
                if session.out is None or len(session.inflight) >= engine.options.max_inflight:
                    return
                topic = feed.ready[-1]
                entry = engine.retained.get(topic)
                if entry is not None and self._due(feed, topic, entry):
                    allowed = engine.may_receive(session, topic)
                    if not isinstance(allowed, bool):
                        allowed = yield allowed
                    if not feed.ready or feed.ready[-1] != topic:
                        continue  # sent meanwhile, ahead of a live message
                    if allowed:
                        feed.ready.pop()
                        self.offer(feed.subscription, entry.message)
                        continue
                feed.ready.pop()
            if session.connection is not None:
                session.connection.flush()
            yield None

    def _due(self, feed: Feed, topic: str, entry: Retained) -> bool:
        if topic in feed.early:
            feed.early.discard(topic)
            return False
        if entry.message.sequence <= feed.started:
            return True
        # Newer than the subscription: its client had it live, unless something was dropped on the way.
        return feed.subscription.session.dropped != feed.dropped

    def _finished(self, feed: Feed) -> None:
        session = feed.subscription.session
        assert session.feeds is not None
        session.feeds.remove(feed)
        feed.over = True
        self._counted(-1)
        self._engine.note_subscription(feed.subscription, owed=feed.subscription.held > 0)

    def hold(self, subscription: Subscription) -> None:
        """A plugin owes a subscription one retained message: after a crash it is sent them all again."""
        subscription.held += 1

    def release(self, subscription: Subscription) -> None:
        """What a plugin owed a subscription is paid, or nothing is owed any more."""
        subscription.held -= 1
        fed = any(feed.subscription is subscription for feed in subscription.session.feeds or ())
        if not subscription.held and not fed:
            self._engine.note_subscription(subscription, owed=False)

    def offer(self, subscription: Subscription, message: Message) -> None:
        """Send a retained message to a new subscription, unless a plugin holds it."""
        if not self.kept(subscription, message):
            self.send(subscription, message)

    def kept(self, subscription: Subscription, message: Message, besides: object = None) -> bool:
        """Whether a plugin, `besides` the one that asks, keeps a retained message from a subscription."""
        call = self._engine._call  # noqa: SLF001  a plugin that fails keeps nothing, and harms nobody
        return any(
            getattr(hook, "__self__", hook) is not besides and call(hook, subscription, message)
            for hook in self._engine.hooks.retained
        )

    def send(self, subscription: Subscription, message: Message) -> bool:
        """Send a message with RETAIN set [MQTT-3.3.1-8], at the lower of the two QoS; False if it was dropped."""
        self._engine.counters.deliveries += 1
        qos = min(subscription.qos, message.qos)  # [MQTT-3.8.4-6]
        if not subscription.session.deliver(message, qos, retain=True):
            return False
        self._engine.retained_sent(subscription, message)
        return True

    def before_live(self, message: Message, receivers: list[Session]) -> None:
        """A message that is not retained goes to these sessions: what feeds owe them of its topic goes first.

        They may all receive it: whoever guards the topic was asked about the message itself.
        """
        entry = self._engine.retained.get(message.topic)
        if entry is None:
            return
        topic = message.topic
        for session in receivers:
            owing = [feed for feed in session.feeds or () if feed.owes(topic, entry)]
            if owing:
                self.offer(owing[0].subscription, entry.message)
                for feed in owing:
                    if len(feed.early) < EARLY:
                        feed.early.add(topic)
