"""Retained messages on their way to a new subscription, as fast as its client takes them.

A feed walks the retained topics with a cursor and sends while the client's window and socket have room, so a subscriber
to a million retained topics costs one cursor, not a million queued messages. What was cleared meanwhile is skipped, and
what was replaced too, for its subscriber got that live. A live message never overtakes the older retained one of its
topic: where the cursor has not been yet, the retained one is sent first.

Of a persistent session the store knows how far the cursor came, what of the topics ahead of it the client has already,
and what of those behind it a plugin keeps back: after a crash a feed goes on as if its client had only been away, and
sends nothing a second time, which might be behind something newer.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from broker_plugins.engine.retained import Cursor, comes_after
from broker_plugins.engine.topics import matches

if TYPE_CHECKING:
    from collections.abc import Awaitable, Collection, Generator
    from typing import Any

    from broker_plugins.engine.engine import Engine
    from broker_plugins.engine.message import Message
    from broker_plugins.engine.retained import Retained
    from broker_plugins.engine.session import Session
    from broker_plugins.engine.subscription import Subscription

BATCH: Final = 64
EARLY: Final = 65_536
"""Topics a feed remembers that its client has already; beyond these one may come a second time."""
OVERTAKEN: Final = -1
"""Something newer went to the client: whatever was dropped, the retained message is not sent after it."""


class Feed:
    """The retained messages one subscription is still owed."""

    __slots__ = ("cursor", "dealt", "dropped", "early", "noted", "over", "ready", "started", "subscription", "withheld")

    def __init__(self, subscription: Subscription, cursor: Cursor, started: int) -> None:
        self.subscription = subscription
        self.cursor = cursor
        self.started = started
        """The engine's sequence when the subscription was made: what is newer reaches its client live."""
        self.dropped = subscription.session.dropped
        self.ready: list[str] = []
        """Topics the cursor found that wait for room."""
        self.dealt = self.noted = ""
        """The last topic that nothing is to be done for any more, and the one the store knows of."""
        self.early: dict[str, int] = {}
        """Topics ahead of the cursor whose retained message the client has: how much its session had dropped then."""
        self.withheld: set[str] = set()
        """Topics behind the cursor that a plugin kept back before a crash: they are ready again."""
        self.over = False

    def due(self, topic: str, entry: Retained) -> bool:
        """Whether the client lacks the retained message of a topic ahead of the cursor."""
        dropped = self.subscription.session.dropped
        had = self.early.get(topic)
        if had is not None:
            return had not in (OVERTAKEN, dropped)
        # Newer than the subscription: its client had it live, unless something was dropped on the way.
        return entry.message.sequence <= self.started or dropped != self.dropped

    def reaches(self, topic: str) -> bool:
        """Whether the cursor will still come to a topic."""
        return not self.over and (topic in self.ready or not self.cursor.passed(topic)) and self.matches(topic)

    def would_reach(self, topic: str) -> bool:
        """Whether it would come to a topic after a crash: it reads ahead, and new topics may be among what it read."""
        return not self.over and (topic in self.ready or comes_after(topic, self.dealt)) and self.matches(topic)

    def matches(self, topic: str) -> bool:
        """Whether the subscription is for a topic."""
        return matches(self.subscription.inner, topic)


class Feeds:
    """All feeds of the broker."""

    __slots__ = ("_engine", "count")

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self.count = 0

    def begin(self, subscription: Subscription) -> None:
        """A subscription was made: its client is owed the retained messages it matches [MQTT-3.3.1-6]."""
        self.end(subscription)
        if subscription.share is not None or not len(self._engine.retained):
            self._engine.note_subscription(subscription, owed=0)
            return
        self._add(Feed(subscription, Cursor(self._engine.retained, subscription.inner), self._engine.sequence))
        self._engine.note_subscription(subscription, owed=1)

    def go_on(
        self, subscription: Subscription, owed: int | str, had: Collection[str], withheld: Collection[str]
    ) -> None:
        """Send a subscription what it was still owed when the broker died.

        Args:
            subscription: which.
            owed: 0 if its feed was over, 1 if it had not got anywhere, else the last topic that it had dealt with.
            had: topics after that one whose retained message its client has already.
            withheld: topics whose retained message a plugin kept back, before that one or after.
        """
        if subscription.share is not None:
            self._engine.note_subscription(subscription, owed=0)
            return
        feed = Feed(subscription, Cursor(self._engine.retained, subscription.inner), self._engine.sequence)
        if isinstance(owed, str):
            feed.dealt = feed.noted = owed
            feed.cursor.skip_to(owed)
        elif not owed:
            feed.cursor.skip_all()
        feed.early = dict.fromkeys(had, OVERTAKEN)
        for topic in withheld:
            self._lacks(feed, topic)
            if feed.cursor.passed(topic):
                feed.ready.append(topic)
                feed.withheld.add(topic)
            else:
                self._note("withheld", subscription, topic, kept=False)
        self._add(feed)

    def _add(self, feed: Feed) -> None:
        session = feed.subscription.session
        if session.feeds is None:
            session.feeds = []
        session.feeds.append(feed)
        self._counted(1)

    def end(self, subscription: Subscription) -> None:
        """A subscription ended or was made anew: its old feed is over."""
        session = subscription.session
        for feed in session.feeds or ():
            if feed.subscription.text == subscription.text:
                self._over(feed)
                return

    def end_all(self, session: Session) -> None:
        """A session ends."""
        for feed in list(session.feeds or ()):
            self._over(feed)
        session.feeds = None
        for subscription in session.subscriptions.values():
            self.forget(subscription)

    def forget(self, subscription: Subscription) -> None:
        """A subscription ended: what plugins owed it is owed no more."""
        for topic in subscription.held or ():
            self._note("withheld", subscription, topic, kept=False)
        subscription.held = None

    def _over(self, feed: Feed) -> None:
        feed.over = True
        feed.subscription.session.feeds.remove(feed)  # type: ignore[union-attr]  # it is in there
        for topic in list(feed.early):
            self._lacks(feed, topic)
        for topic in list(feed.withheld):
            self._not_withheld(feed, topic)
        self._counted(-1)

    def _has(self, feed: Feed, topic: str, dropped: int) -> None:
        """The client of a feed has the retained message of a topic that the cursor will come to."""
        if topic not in feed.early:
            if len(feed.early) >= EARLY:
                return
            self._note("fed", feed.subscription, topic, kept=True)
        feed.early[topic] = dropped

    def _lacks(self, feed: Feed, topic: str) -> None:
        """The client of a feed has it not, or the cursor came to it."""
        if feed.early.pop(topic, None) is not None:
            self._note("fed", feed.subscription, topic, kept=False)

    def _not_withheld(self, feed: Feed, topic: str) -> None:
        """What was kept back before a crash goes out now, or is not owed any more."""
        feed.withheld.discard(topic)
        self._note("withheld", feed.subscription, topic, kept=False)

    def _note(self, table: str, subscription: Subscription, topic: str, *, kept: bool) -> None:
        session, store = subscription.session, self._engine.store
        if store is None or not session.persistent:
            return
        key = session.client_id, subscription.text, topic
        if kept:
            store.put(table, key, ())
        else:
            store.delete(table, key)

    def _note_progress(self, feed: Feed) -> None:
        """Let the store know how far a feed came, together with the deliveries it led to."""
        if feed.dealt != feed.noted and not feed.over:
            feed.noted = feed.dealt
            self._engine.note_subscription(feed.subscription, owed=feed.dealt)

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
                    self._note_progress(feed)
                    return
                topic = feed.ready[-1]
                entry = engine.retained.get(topic)
                send = entry is not None and feed.due(topic, entry)
                if send:
                    allowed = engine.may_receive(session, topic)
                    if not isinstance(allowed, bool):
                        self._note_progress(feed)
                        allowed = yield allowed
                        entry = engine.retained.get(topic)
                        if feed.over or session.out is None:
                            continue
                    # It may have gone out meanwhile, ahead of a live message, or be cleared.
                    send = allowed and entry is not None and feed.due(topic, entry)
                feed.ready.pop()
                self._lacks(feed, topic)
                if topic in feed.withheld:
                    self._not_withheld(feed, topic)
                else:
                    feed.dealt = topic
                if send and entry is not None:
                    self.offer(feed.subscription, entry.message)
            self._note_progress(feed)
            if session.connection is not None:
                session.connection.flush()
            yield None

    def _finished(self, feed: Feed) -> None:
        self._over(feed)
        self._engine.note_subscription(feed.subscription, owed=0)

    def hold(self, subscription: Subscription, topic: str) -> None:
        """A plugin owes a subscription the retained message of a topic: after a crash it is sent at once."""
        if subscription.held is None:
            subscription.held = set()
        subscription.held.add(topic)
        self._note("withheld", subscription, topic, kept=True)

    def release(self, subscription: Subscription, topic: str) -> None:
        """What a plugin owed a subscription is paid, or not owed any more."""
        if subscription.held is not None and topic in subscription.held:
            subscription.held.discard(topic)
            if not subscription.held:
                subscription.held = None
            self._note("withheld", subscription, topic, kept=False)

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

    def before_live(self, message: Message, targets: Collection[tuple[Session, int]]) -> None:
        """A message goes to these sessions, each at a QoS: what feeds owe them of its topic goes first.

        They may all receive it: whoever guards the topic was asked about the message itself.
        """
        topic = message.topic
        entry = self._engine.retained.get(topic)
        if entry is None or entry.message is message:
            return
        for session, granted in targets:
            if not session.feeds or (
                session.connection is None and session.held is None and not min(granted, message.qos)
            ):
                continue  # it does not reach who is away
            feeds = [feed for feed in session.feeds if feed.would_reach(topic)]
            owing = [feed for feed in feeds if feed.reaches(topic) and feed.due(topic, entry)]
            for feed in feeds:
                if topic in feed.withheld:
                    self._not_withheld(feed, topic)
            if owing:
                self.offer(owing[0].subscription, entry.message)
            for feed in feeds:
                self._has(feed, topic, OVERTAKEN)

    def after_live(
        self, message: Message, targets: Collection[tuple[Session, int]], reached: Collection[Session]
    ) -> None:
        """A message that is retained from now on went to these sessions, and reached some of them."""
        topic = message.topic
        entry = self._engine.retained.get(topic)
        if entry is None or entry.message is not message:
            return
        for session, _ in targets:
            for feed in session.feeds or ():
                if not feed.would_reach(topic):
                    continue
                if session in reached:
                    self._has(feed, topic, session.dropped)
                else:
                    self._lacks(feed, topic)
