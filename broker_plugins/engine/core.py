"""What every part of the engine stands on: its state, its clock, the end of a turn, and calls to plugins."""

from __future__ import annotations

import logging
import math
import random
import sys
import time
from typing import TYPE_CHECKING, Any, cast

from broker_plugins.engine.access import Action
from broker_plugins.engine.counters import Counters
from broker_plugins.engine.feed import Feeds
from broker_plugins.engine.hooks import HookTable, Refused
from broker_plugins.engine.retained import RetainedMessages
from broker_plugins.engine.routes import Routes
from broker_plugins.engine.wheel import Wheel
from broker_plugins.grammar import WGS84

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Awaitable, Callable

    from broker_plugins.engine.access import Guard
    from broker_plugins.engine.engine import Engine
    from broker_plugins.engine.link import Link
    from broker_plugins.engine.message import Message
    from broker_plugins.engine.options import EngineOptions
    from broker_plugins.engine.session import Session
    from broker_plugins.engine.store import Store
    from broker_plugins.engine.subscription import Subscription
    from broker_plugins.grammar import Space

log = logging.getLogger(__name__)

SMALL_SHARE = 0.1
"""Share of messages below which one of every so many is sampled."""


class EngineCore:
    """One broker's data path, as far as sessions, subscriptions and messages share it.

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
        self.connections: set[Link] = set()
        self.listener_limits: dict[str, int] = {}
        """The most connections a listener takes, where it has a bound of its own."""
        self._by_listener: dict[str, int] = {}
        self.routes = Routes(options.max_routes)
        self.retained = RetainedMessages()
        self.feeds = Feeds(cast("Engine", self))
        self.wheel = Wheel()
        self.sequence = 0
        """How many messages were published so far."""
        self.sampling = 0.0
        """The share of messages that plugins which sample hear of."""
        self.sampled_after = sys.maxsize
        """The next message of the sample is the first one with a greater sequence."""
        self._stride = self._stretch = 0
        self.subscriptions_made = 0
        """The age of the youngest subscription: how many there were so far, or by `ages` when it was made."""
        self.ages: Callable[[], int] | None = None
        """A clock for the ages of subscriptions, where several brokers compare them."""
        self.subscription_count = 0
        self.queued_bytes = 0
        self.space: Space = WGS84
        """Where places are: the globe, unless a plugin says otherwise when it starts."""
        self.loop_gathers_writes = type(loop).__module__.startswith("uvloop")
        """uvloop gathers the writes of one turn itself: handing them over at once saves a turn of the loop."""
        self.gathering = False
        """While bytes of a client are looked at: what they cause to be written is handed over when that is done."""
        self.unsaid = False
        """Whether something happened that plugins are told, or write down, before what it caused leaves the broker."""
        self.started_at = time.time()
        self._dirty: list[Link] = []
        self._to_pump: list[Session] = []
        self._flush_due = False
        self._published: list[Message] = []
        self._delivered: list[tuple[Session, Message, int]] = []
        self._dropped: list[tuple[Session | None, Message, str]] = []

    def reconsider_plain(self) -> None:
        """Find out anew whether QoS 0 messages may take the short way."""
        hooks = self.hooks
        plain = not (self.guard or hooks.hears_all or self.feeds.count)
        if plain != self.routes.all_plain:
            self.routes.all_plain = plain
            self.routes.forget()

    def forget_routes(self, inner: str | None = None) -> None:
        """A plugin's `concerns` may answer differently from now on, for the topics a filter matches or for all."""
        if inner is None:
            self.routes.forget()
        else:
            self.routes.changed(inner)

    # Samples.

    def sample(self, share: float) -> None:
        """Let plugins that sample hear of this share of all messages from now on, and of all that are retained.

        Every message is as likely as any other to be in the sample: one message in so many would always meet the same
        publisher where several take turns. Of a small share, which is taken to be one in a whole number, it is one of
        every so many, anywhere among them: so the weights of a sample add up to all messages but for a few.
        """
        share = min(max(share, 0.0), 1.0)
        self._stride = math.ceil(1.0 / share - 1e-9) if 0.0 < share < SMALL_SHARE else 0
        self.sampling = 1.0 / self._stride if self._stride else share
        self._stretch = self.sequence - self._stride
        self._draw()

    def _draw(self) -> None:
        """Decide how many messages are passed over until the next one of the sample."""
        share = self.sampling
        if self._stride:
            self._stretch += self._stride
            self.sampled_after = self._stretch + int(random.random() * self._stride)
        elif share <= 0.0:
            self.sampled_after = sys.maxsize
        elif share >= 1.0:
            self.sampled_after = self.sequence
        else:
            self.sampled_after = self.sequence + int(math.log(1.0 - random.random()) / math.log1p(-share))

    def _take_sample(self, message: Message) -> None:
        message.taken_ns = time.time_ns()
        message.weight = 1.0 if message.retain else 1.0 / self.sampling
        if self.sequence > self.sampled_after:
            self._draw()

    # The end of a turn.

    def touched(self, connection: Link | None) -> None:
        """A connection has something to write."""
        if connection is None:
            return
        self._dirty.append(connection)
        if not self._flush_due and not self.gathering:
            self._tell_later()

    def pump_later(self, session: Session) -> None:
        """A window has room again: what waits for it goes out when all acknowledgements of this turn are seen."""
        self._to_pump.append(session)
        if not self._flush_due and not self.gathering:
            self._tell_later()

    def flush(self) -> None:
        """Hand what connections have to write over to their sockets."""
        if self._to_pump:
            sessions, self._to_pump = self._to_pump, []
            for session in sessions:
                session.pump_due = False
                if session.out is not None:
                    session.pump()
        if self.unsaid:
            self.tell()
        dirty = self._dirty
        if dirty:
            self._dirty = []
            for connection in dirty:
                connection.flush()

    def _end_of_turn(self) -> None:
        self._flush_due = False
        self.flush()

    def to_tell(self) -> None:
        """Something happened that `tell` is for."""
        self.unsaid = True
        if not self.gathering:
            self._tell_later()

    def tell(self) -> None:
        """Tell plugins what happened since they were last told; then those that keep account write it down."""
        self.unsaid = False
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
        if published and self.hooks.sampled_published:
            taken = [message for message in published if message.weight]
            for hook in self.hooks.sampled_published:
                self._call(hook, taken)
        if delivered and self.hooks.sampled_delivered:
            handed = [delivery for delivery in delivered if delivery[1].weight]
            for hook in self.hooks.sampled_delivered:
                self._call(hook, handed)
        for hook in self.hooks.leaving:
            self._call(hook)

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

    def retained_sent(self, subscription: Subscription, message: Message) -> None:
        """A retained message went to a subscription."""
        for hook in self.hooks.retained_sent:
            self._call(hook, subscription, message)

    def dropped(self, session: Session | None, message: Message, counter: str) -> None:
        """A message did not reach a receiver."""
        if self.hooks.dropped:
            self._dropped.append((session, message, counter))
            self.to_tell()

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

    def admit(self, connection: Link) -> None:
        """A connection came in."""
        self.connections.add(connection)
        self._by_listener[connection.listener] = self._by_listener.get(connection.listener, 0) + 1

    def dismiss(self, connection: Link) -> None:
        """A connection is over."""
        if connection in self.connections:
            self.connections.remove(connection)
            self._by_listener[connection.listener] -= 1
