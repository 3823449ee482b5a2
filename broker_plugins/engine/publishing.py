"""A message on its way: from whoever published it, past the plugins, to whoever should have it."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any

import msgspec

from broker_plugins.engine.access import Action
from broker_plugins.engine.core import EngineCore
from broker_plugins.engine.hooks import Refused, Selection
from broker_plugins.engine.topics import check_topic_name
from broker_plugins.engine.work import drive
from broker_plugins.grammar import NO_CLAUSES, GrammarError, parse_topic

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Collection, Generator

    from broker_plugins.engine.hooks import Hooks
    from broker_plugins.engine.message import Message
    from broker_plugins.engine.routes import Route
    from broker_plugins.engine.session import Session
    from broker_plugins.engine.subscription import Subscription
    from broker_plugins.grammar import Clauses

log = logging.getLogger(__name__)


class Publishing(EngineCore):
    """The part of the engine that publishes and retains."""

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
        return self.routes.find(topic), None if clauses is NO_CLAUSES else clauses

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
        if self.feeds.count:
            self.feeds.before_live(message, targets)
        self.counters.deliveries += len(targets)
        fed = message.retain and self.feeds.count
        if route.before or route.after or message.weight or self.hooks.delivered or fed:
            self._deliver_watched(message, targets, groups, route)
        else:
            for session, granted in targets:
                session.deliver(message, granted if granted < qos else qos)  # noqa: FURB136  [MQTT-3.8.4-6] [MQTT-3.3.5-1]
        if groups:
            self._deliver_to_groups(message, groups)

    def _deliver_watched(
        self,
        message: Message,
        targets: Collection[tuple[Session, int]],
        groups: dict[tuple[str, str], list[Subscription]],
        route: Route,
    ) -> None:
        """Hand a message over; plugins may send something before it, and hear who has got it."""
        if route.before:
            receivers = dict(targets)
            for members in groups.values():
                receivers.update((member.session, member.qos) for member in members if member.session not in receivers)
            for hook in route.before:
                self._call(hook, message, receivers)
        reached: dict[Session, int] = {}
        for session, granted in targets:
            qos = min(granted, message.qos)  # [MQTT-3.8.4-6] [MQTT-3.3.5-1]
            if session.deliver(message, qos):
                reached[session] = qos
        if message.retain and self.feeds.count:
            self.feeds.after_live(message, targets, reached)
        for hook in route.after:
            self._call(hook, message, reached)
        if message.weight or self.hooks.delivered:
            self._delivered.extend([(session, message, qos) for session, qos in reached.items()])
            self.to_tell()

    def publish_guarded(self, message: Message) -> Generator[Awaitable[Any] | None, Any, None]:
        """The same where every receiver has to be allowed."""
        route = self._accept(message, None)
        if route is not None:
            yield from self._hand_out(message, route)

    def _hand_out(self, message: Message, route: Route) -> Generator[Awaitable[Any] | None, Any, None]:
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
        if self.feeds.count:
            self.feeds.before_live(message, allowed)
        self.counters.deliveries += len(allowed)
        self._deliver_watched(message, allowed, groups, route)
        self._deliver_to_groups(message, groups)

    def resume(self, message: Message, holder: Hooks, done: Callable[[], None]) -> None:
        """Go on with a message that a plugin held back: its `on_publish` returned False.

        The plugins after it see the message now. It counts as published now, after what was published meanwhile;
        `done` is called when all receivers have it.
        """
        self.sequence += 1
        message.sequence = self.sequence
        hooks = [hook for plugin, hook in self.hooks.publish if plugin.concerns(message.topic)]
        after = next((at for at, hook in enumerate(hooks, 1) if getattr(hook, "__self__", None) is holder), len(hooks))
        try:
            if any(self._call(hook, message) is False for hook in hooks[after:]):
                done()
                return
        except Refused as refused:
            self.refused_publish(message, str(refused))
            done()
            return
        if message.weight or self.hooks.published:
            self._published.append(message)
            self.to_tell()
        if message.retain:
            self.retain(message)
        drive(self.loop, self._hand_out(message, self.routes.find(message.topic)), done)

    def gather(self, message: Message) -> Selection:
        """Who would receive a message as far as the plugins say that only add: nothing is cut or sent."""
        route = self.routes.find(message.topic)
        selection = Selection()
        selection.receivers = dict(route.targets)
        selection.groups = {key: list(members) for key, members in route.groups.items()}
        for plugin, hook in self.hooks.select:
            if not plugin.cuts and plugin.concerns(message.topic):
                self._call(hook, message, selection)
        return selection

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
        if self.sequence > self.sampled_after or (message.retain and self.sampling):
            self._take_sample(message)
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
        if message.weight or self.hooks.published:
            self._published.append(message)
            self.to_tell()
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

    def wanted_by(self, session: Session, message: Message) -> int:
        """The QoS at which a session gets a message that is not published here, 0 also where it does not."""
        selection = self._select(message, self.routes.find(message.topic))
        return min(selection.receivers.get(session, 0), message.qos)

    def _deliver_to_groups(self, message: Message, groups: dict[tuple[str, str], list[Subscription]]) -> None:
        for key, members in groups.items():
            chosen = self.routes.choose(key, members)
            if chosen is None:
                self.dropped(None, message, "shared_subscription_away")
                continue
            self.counters.deliveries += 1
            qos = min(chosen.qos, message.qos)
            if chosen.session.deliver(message, qos, group=key) and (message.weight or self.hooks.delivered):
                self._delivered.append((chosen.session, message, qos))
                self.to_tell()

    # Retained messages.

    def retain(self, message: Message) -> None:
        """Keep a message for later subscribers, or forget the one that was kept [MQTT-3.3.1-5] [MQTT-3.3.1-10]."""
        for hook in self.hooks.retain:
            if self._call(hook, message) is False:
                return
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
        """Pay what a plugin owed: send a topic's retained message to a subscription.

        False if there is none, or if there is no room for it: it is then still owed.
        """
        entry = self.retained.get(topic)
        if entry is None or subscription.session.ended:
            return False
        return self.feeds.send(subscription, entry.message)

    def pump_feeds(self, session: Session) -> None:
        """Go on sending retained messages to a session."""
        if session.attributes is None:
            session.attributes = {}
        if not session.attributes.get("pumping"):
            session.attributes["pumping"] = True
            attributes = session.attributes
            drive(self.loop, self.feeds.pump(session), lambda: attributes.pop("pumping", None))
