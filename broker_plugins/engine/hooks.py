"""Where plugins take part: the tense of a hook's name tells its power.

`on_publish` may change or stop a message, `on_published` only hears of it. Hooks are plain functions, called in the
order in which the configuration names their plugins. A plugin takes part in what it defines: a hook that no plugin
overrides costs nothing, and `concerns` keeps a plugin out of the way of topics it has nothing to do with.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Collection, Iterable, Mapping, Sequence

    from broker_plugins.engine.codec import Connect, ConnectCode
    from broker_plugins.engine.engine import Engine
    from broker_plugins.engine.message import Message
    from broker_plugins.engine.session import Session
    from broker_plugins.engine.subscription import Subscription


class Refused(Exception):  # noqa: N818  it is a decision, not a fault
    """Raised by `on_subscribe` or `on_publish` to say no; the message says why and goes to the log."""


class Selection:
    """Who receives a message, in which order and at which QoS.

    Filled by the engine from the ordinary subscriptions, then handed to each plugin's `select`. What is in `receivers`
    when the last one is done is delivered, in that order.
    """

    __slots__ = ("added", "groups", "receivers")

    def __init__(self) -> None:
        self.receivers: dict[Session, int] = {}
        """The QoS granted to each receiver; a session is here once, however many of its filters match."""
        self.groups: dict[tuple[str, str], list[Subscription]] = {}
        """Members of shared subscriptions that match: one of each list will be chosen."""
        self.added: list[Sequence[Subscription]] = []
        """Which subscriptions plugins added with `add_all`, for those that rank them."""

    def add(self, subscription: Subscription) -> None:
        """Let a subscription's session receive the message, at the highest QoS that one of its filters has."""
        if subscription.share is not None:
            key = (subscription.share, subscription.text)
            self.groups.setdefault(key, []).append(subscription)
            return
        session = subscription.session
        granted = self.receivers.get(session, -1)
        if subscription.qos > granted:
            self.receivers[session] = subscription.qos

    def add_all(self, subscriptions: Sequence[Subscription]) -> None:
        """`add` for many, remembered in `added`."""
        self.added.append(subscriptions)
        receivers = self.receivers
        for subscription in subscriptions:
            if subscription.share is not None:
                self.add(subscription)
            else:
                session = subscription.session
                if receivers.get(session, -1) < subscription.qos:
                    receivers[session] = subscription.qos

    def remove(self, session: Session) -> None:
        """Keep the message from a session."""
        self.receivers.pop(session, None)

    def keep(self, sessions: Iterable[Session]) -> None:
        """Cut the receivers down to these, in this order."""
        self.receivers = {session: self.receivers[session] for session in sessions if session in self.receivers}


class Hooks:
    """Everything a plugin may define; as they stand here they do nothing."""

    cuts = False
    """Whether `select` orders or cuts what others add: it is then called after the `select` of all who only add."""
    reads_clauses = False
    """Whether `select` is called for every message with clauses, whatever `concerns` says of its topic."""
    samples = False
    """Whether `on_published` and `on_delivered` hear of a sample of all messages only (see `EngineCore.sample`): then
    the others may take the short way, on which nobody is told of anything."""

    def start(self, engine: Engine) -> None:
        """The engine runs; sessions and retained messages are loaded, nobody is connected yet."""

    def stop(self) -> None:
        """The broker is about to shut down; clients are still connected."""

    def concerns(self, topic: str) -> bool:  # noqa: ARG002  plugins look at it
        """Whether `on_publish`, `select`, `on_deliver` and `on_enqueued` are to be called for messages on a topic.

        Asked once a topic and remembered until `Engine.forget_routes` is called.
        """
        return True

    # Deciding.

    def on_connecting(self, connect: Connect) -> Awaitable[None] | None:
        """An authenticated client is about to get its session: what must be done first may be waited for."""

    def on_connect(self, session: Session) -> ConnectCode | None:
        """Refuse an authenticated client by returning the code for its CONNACK."""

    def on_subscribe(self, session: Session, subscription: Subscription) -> bool | None:
        """Rewrite a subscription, refuse it by raising `Refused`, or claim it by returning True.

        Access control has allowed `subscription.inner` already. A claimed subscription is not in the engine's tree: its
        plugin adds it to selections itself, and forgets it in `on_unsubscribed`. Called again when it is restored.
        """

    def on_granting(self, subscriptions: Sequence[Subscription]) -> Awaitable[Any] | None:
        """Subscriptions of one SUBSCRIBE were made: what must be done before its SUBACK may be waited for."""

    def on_publish(self, message: Message) -> bool | None:
        """Change a message, consume it by returning False, or refuse it by raising `Refused`."""

    def on_retain(self, message: Message) -> bool | None:
        """A message is about to be retained, or with an empty payload to remove what is retained under its topic.

        What is put into `message.properties` is kept with it; False leaves what is retained as it is.
        """

    def select(self, message: Message, selection: Selection) -> None:
        """Add, remove, order or cut the receivers of a message."""

    def on_deliver(self, message: Message, receivers: Collection[Session]) -> None:
        """A message is about to be handed to these sessions: what must not be overtaken by it is sent now.

        Called where `concerns` answers True, also for nobody. Of a shared subscription every member is named.
        """

    def on_retained(self, subscription: Subscription, message: Message) -> bool | None:
        """Decide whether a retained message goes to a new subscription now.

        A plugin that returns True holds it: it owes the subscriber the message and pays with `Engine.send_retained`, or
        lets the debt go where something newer was sent.
        """

    # Hearing.

    def on_connected(self, session: Session) -> None:
        """A client is connected; its CONNACK is on the way."""

    def on_disconnected(self, session: Session, reason: str) -> None:
        """A client is gone; `reason` is empty where it said DISCONNECT."""

    def on_subscribed(self, subscription: Subscription) -> None:
        """A subscription was made, replaced or restored."""

    def on_unsubscribed(self, subscription: Subscription) -> None:
        """A subscription ended, by UNSUBSCRIBE, by being replaced, or with its session."""

    def on_session_ended(self, session: Session) -> None:
        """A session is gone for good, with all that was queued for it."""

    def on_retained_sent(self, subscription: Subscription, message: Message) -> None:
        """A retained message was handed to a subscription because it is retained."""

    def on_enqueued(self, message: Message, reached: Mapping[Session, int]) -> None:
        """A message was handed to these sessions at a QoS and not dropped; called where `concerns` answers True."""

    def on_published(self, messages: Sequence[Message]) -> None:
        """Messages were taken, those of one turn of the event loop at once."""

    def on_delivered(self, deliveries: Sequence[tuple[Session, Message, int]]) -> None:
        """Messages were handed to receivers at a QoS, those of one turn at once."""

    def on_dropped(self, drops: Sequence[tuple[Session | None, Message, str]]) -> None:
        """Messages did not reach a receiver (None: nobody), with the counter that says why; one turn at once."""

    def on_leaving(self) -> None:
        """What plugins were told of, and whoever asked with `EngineCore.to_tell`, is about to leave the broker.

        Deliveries and acknowledgements wait while it runs: for plugins that write down what a client may come to know.
        """


class HookTable:
    """For each hook, the functions of the plugins that define it."""

    __slots__ = (
        "clause_selectors",
        "connect",
        "connected",
        "connecting",
        "deliver",
        "delivered",
        "disconnected",
        "dropped",
        "enqueued",
        "granting",
        "hears_all",
        "leaving",
        "plugins",
        "publish",
        "published",
        "retain",
        "retained",
        "retained_sent",
        "sampled_delivered",
        "sampled_published",
        "select",
        "session_ended",
        "subscribe",
        "subscribed",
        "topical",
        "unsubscribed",
    )

    def __init__(self, plugins: Sequence[Hooks] = ()) -> None:
        self.plugins = tuple(plugins)
        self.connecting = self._defined(Hooks.on_connecting)
        self.connect = self._defined(Hooks.on_connect)
        self.subscribe = [(plugin, plugin.on_subscribe) for plugin in self._defining(Hooks.on_subscribe)]
        self.granting = self._defined(Hooks.on_granting)
        self.publish = [(plugin, plugin.on_publish) for plugin in self._defining(Hooks.on_publish)]
        adding_first = sorted(self._defining(Hooks.select), key=lambda plugin: plugin.cuts)
        self.select = [(plugin, plugin.select) for plugin in adding_first]
        self.deliver = [(plugin, plugin.on_deliver) for plugin in self._defining(Hooks.on_deliver)]
        self.enqueued = [(plugin, plugin.on_enqueued) for plugin in self._defining(Hooks.on_enqueued)]
        by_topic = (*self.publish, *self.select, *self.deliver, *self.enqueued)
        self.topical = tuple(plugin for plugin in self.plugins if any(plugin is each for each, _ in by_topic))
        """The plugins that are asked what concerns them."""
        self.clause_selectors = tuple(hook for plugin, hook in self.select if plugin.reads_clauses)
        self.retain = self._defined(Hooks.on_retain)
        self.retained = self._defined(Hooks.on_retained)
        self.connected = self._defined(Hooks.on_connected)
        self.disconnected = self._defined(Hooks.on_disconnected)
        self.subscribed = self._defined(Hooks.on_subscribed)
        self.unsubscribed = self._defined(Hooks.on_unsubscribed)
        self.session_ended = self._defined(Hooks.on_session_ended)
        self.retained_sent = self._defined(Hooks.on_retained_sent)
        published, delivered = self._defining(Hooks.on_published), self._defining(Hooks.on_delivered)
        self.published = [plugin.on_published for plugin in published if not plugin.samples]
        self.delivered = [plugin.on_delivered for plugin in delivered if not plugin.samples]
        self.sampled_published = [plugin.on_published for plugin in published if plugin.samples]
        self.sampled_delivered = [plugin.on_delivered for plugin in delivered if plugin.samples]
        self.dropped = self._defined(Hooks.on_dropped)
        self.leaving = self._defined(Hooks.on_leaving)
        self.hears_all = any(
            not plugin.samples for plugin in (*published, *delivered, *self._defining(Hooks.on_dropped))
        )
        """Whether somebody is to be told of every message."""

    def _defining(self, hook: Callable[..., object]) -> list[Hooks]:
        return [plugin for plugin in self.plugins if getattr(type(plugin), hook.__name__) is not hook]

    def _defined(self, hook: Callable[..., object]) -> list[Callable[..., Any]]:
        return [getattr(plugin, hook.__name__) for plugin in self._defining(hook)]
