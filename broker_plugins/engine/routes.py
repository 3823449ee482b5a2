"""Who receives the messages of a topic, found once and remembered until a subscription changes it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from broker_plugins.engine.hooks import HookTable, Selection
from broker_plugins.engine.topics import is_exact
from broker_plugins.engine.tree import FilterTree

if TYPE_CHECKING:
    from collections.abc import Callable

    from broker_plugins.engine.session import Session
    from broker_plugins.engine.subscription import Subscription


class Route:
    """The receivers of one topic by their ordinary subscriptions, and the plugins that have a say in its messages."""

    __slots__ = (
        "after",
        "before",
        "clause_selectors",
        "groups",
        "plain",
        "publishers",
        "selectors",
        "sessions",
        "targets",
        "topic",
    )

    def __init__(self, topic: str) -> None:
        self.topic = topic
        self.targets: tuple[tuple[Session, int], ...] = ()
        self.sessions: tuple[Session, ...] = ()
        self.groups: dict[tuple[str, str], list[Subscription]] = {}
        self.publishers: tuple[Callable[..., Any], ...] = ()
        self.selectors: tuple[Callable[..., Any], ...] = ()
        self.clause_selectors: tuple[Callable[..., Any], ...] = ()
        """The same for messages with clauses."""
        self.before: tuple[Callable[..., Any], ...] = ()
        """Whom to ask before a message is handed over."""
        self.after: tuple[Callable[..., Any], ...] = ()
        """Whom to tell who has got it."""
        self.plain = False
        """Whether a QoS 0 message can be passed on to `sessions` as it came, with nobody else to ask or to tell."""


class Routes:
    """Subscriptions by filter, and routes by topic."""

    __slots__ = ("_hooks", "_most", "_turns", "all_plain", "by_topic", "tree")

    def __init__(self, most: int) -> None:
        self._most = most
        self._hooks = HookTable()
        self._turns: dict[tuple[str, str], int] = {}
        self.tree: FilterTree[Subscription] = FilterTree()
        self.by_topic: dict[bytes, Route] = {}
        """Routes by the bytes of a topic name: only well-formed names that a client may publish to are here."""
        self.all_plain = True
        """False while something must see every message: access control, a listener, a packet log, a retained feed."""

    def use(self, hooks: HookTable) -> None:
        """Let these plugins have their say."""
        self._hooks = hooks
        self.forget()

    def forget(self) -> None:
        """Find every route anew."""
        self.by_topic.clear()

    def add(self, subscription: Subscription) -> None:
        """Take a subscription into the tree."""
        self.tree.add(subscription.inner, subscription)
        self.changed(subscription.inner)

    def remove(self, subscription: Subscription) -> None:
        """Take a subscription out of the tree."""
        self.tree.remove(subscription.inner, subscription)
        self.changed(subscription.inner)

    def changed(self, inner: str) -> None:
        """Find the routes that a filter may match anew."""
        if is_exact(inner):
            self.by_topic.pop(inner.encode(), None)
        else:
            self.by_topic.clear()

    def find(self, topic: str) -> Route:
        """The route of a topic, remembered."""
        name = topic.encode()
        route = self.by_topic.get(name)
        if route is None:
            route = self._build(topic)
            if len(self.by_topic) >= self._most:
                self.by_topic.clear()
            self.by_topic[name] = route
        return route

    def _build(self, topic: str) -> Route:
        route = Route(topic)
        selection = Selection()
        for subscription in self.tree.match(topic):
            selection.add(subscription)
        route.targets = tuple(selection.receivers.items())
        route.sessions = tuple(selection.receivers)
        route.groups = selection.groups
        hooks = self._hooks
        concerned = [plugin for plugin in hooks.topical if plugin.concerns(topic)]
        if concerned:
            route.publishers = tuple(hook for plugin, hook in hooks.publish if plugin in concerned)
            route.selectors = tuple(hook for plugin, hook in hooks.select if plugin in concerned)
            route.clause_selectors = tuple(
                hook for plugin, hook in hooks.select if plugin.reads_clauses or plugin in concerned
            )
            route.before = tuple(hook for plugin, hook in hooks.deliver if plugin in concerned)
            route.after = tuple(hook for plugin, hook in hooks.enqueued if plugin in concerned)
        else:
            route.clause_selectors = hooks.clause_selectors
        held = any(session.held is not None for session in route.sessions)
        route.plain = self.all_plain and not (concerned or route.groups or held or topic.startswith("$"))
        return route

    def choose(self, key: tuple[str, str], members: list[Subscription]) -> Subscription | None:
        """The member of a shared subscription whose turn it is: one that takes a message now, or else keeps it."""
        count = len(members)
        turn = self._turns.get(key, -1) + 1
        fallback: Subscription | None = None
        for step in range(count):
            member = members[(turn + step) % count]
            session = member.session
            if session.out is not None:
                self._turns[key] = (turn + step) % count
                return member
            if fallback is None and session.can_take:
                fallback = member
        if fallback is not None:
            self._turns[key] = members.index(fallback)
        return fallback

    def forget_group(self, key: tuple[str, str]) -> None:
        """A shared subscription has no members any more."""
        self._turns.pop(key, None)
