"""Filters: what this node's clients want, told to the others, and what the clients of the others want."""

from __future__ import annotations

import logging
from asyncio import gather
from typing import TYPE_CHECKING, Any

from broker_plugins.cluster.interest import OtherWishes, OwnWishes, Wanting
from broker_plugins.cluster.mail_reader import FAULTS
from broker_plugins.cluster.node import Part
from broker_plugins.cluster.wire import AskWishes, Delta, WireError, decode, encode
from broker_plugins.geo.plugin import GeoPlugin
from broker_plugins.grammar import Detect

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    import msgspec

    from broker_plugins.cluster.node import Node
    from broker_plugins.cluster.wire import Hello
    from broker_plugins.engine import Subscription

log = logging.getLogger(__name__)

WISHES = "wishes."
MAX_TOPICS = 65_536
MANY = 256
"""Changes in one delta from which it is worth squeezing."""


class Announcing(Part):
    """Tells the other nodes which filters came and went here, and knows theirs.

    Args:
        node: this node.
    """

    def __init__(self, node: Node) -> None:
        super().__init__(node)
        self.own = OwnWishes(node.name, node.incarnation)
        self.others = OtherWishes()
        self.first: Callable[[], bool] = bool
        """Called before filters are announced: what it tells the others then is known to who knows the filters. True
        if it told them something."""
        self._wanting: dict[str, Wanting] = {}
        self._announcing = False
        self._remembered = -1

    def subjects(self) -> Mapping[str, tuple[type[Any], Callable[[Any], None]]]:
        """Deltas of the others."""
        return {"wishes": (Delta, self._on_delta)}

    def questions(self) -> Mapping[type[msgspec.Struct], Callable[[Any], msgspec.Struct]]:
        """All filters, for who missed a delta."""
        return {AskWishes: lambda _: self.own.snapshot()}

    # This node's.

    def subscribed(self, subscription: Subscription) -> None:
        """Announce a filter that is new on this node."""
        if not subscription.inner.startswith("$"):
            durable = subscription.session.persistent
            self.own.add(subscription.inner, _group(subscription), durable, _is_local(subscription))
            self.announce_soon()

    def unsubscribed(self, subscription: Subscription) -> None:
        """Announce a filter that this node does not hold any more."""
        if not subscription.inner.startswith("$"):
            durable = subscription.session.persistent
            self.own.remove(subscription.inner, _group(subscription), durable, _is_local(subscription))
            self.announce_soon()

    def announce_soon(self) -> None:
        """Announce what has changed when this turn of the loop is over."""
        if not self._announcing:
            self._announcing = True
            self.node.engine.loop.call_soon(self._announce)

    def _announce(self) -> None:
        self._announcing = False
        if self.first():
            self.own.touch()
        delta = self.own.delta()
        fabric = self.node.fabric
        if delta is not None and fabric.ready:
            squeeze = len(delta.wishes) >= MANY
            self.node.work(fabric.publish(fabric.subject("wishes"), encode(delta, squeeze)))

    async def beat(self) -> None:
        """Keep in the directory what others are to send here while this node is away."""
        if self._remembered != self.own.version:
            version, value = self.own.version, encode(self.own.durable(), squeeze=True)
            change = self.node.fabric.directory_change
            await change(WISHES + self.node.name, lambda known: None if known == value else value)
            self._remembered = version

    # Those of the others.

    async def joined(self) -> None:
        """Learn what the others want, and what those want that are away."""
        fabric, name = self.node.fabric, self.node.name
        leased = [node for node in await fabric.leased() if node != name]
        await gather(*(self._resync(node) for node in leased))
        known = self.others.nodes()
        for key in await fabric.directory_keys():
            node = key.removeprefix(WISHES)
            if key.startswith(WISHES) and node != name and node not in known:
                value, _ = await fabric.directory_get(key)
                if value:
                    self.node.members.expect(node)
                    self._changed(self.others.replace(decode(value, Delta)))

    def heard(self, hello: Hello) -> None:
        """A node says how many changes its filters have had: ask for what was missed."""
        if not self.others.is_current(hello.node, hello.incarnation, hello.version):
            self.node.work(self._resync(hello.node))

    def _on_delta(self, delta: Delta) -> None:
        if delta.node == self.node.name:
            return
        changed = self.others.apply(delta)
        if changed is None:
            self.node.work(self._resync(delta.node))
        else:
            self._changed(changed)

    async def _resync(self, node: str) -> None:
        members = self.node.members
        if not members.ask(node):
            return
        self.node.counters.resyncs += 1
        try:
            answer = await self.node.fabric.ask(node, encode(AskWishes()))
            self._changed(self.others.replace(decode(answer, Delta)))
        except (*FAULTS, WireError) as error:
            log.debug("node %s does not say its filters: %s", node, error)
        finally:
            members.answered(node)

    def forgotten(self, node: str) -> None:
        """Nobody waits for it any more."""
        self._changed(self.others.forget(node))

    def _changed(self, inners: list[str]) -> None:
        if inners:
            self._wanting.clear()
        for inner in set(inners):
            self.node.engine.forget_routes(inner)

    def wanting(self, topic: str) -> Wanting:
        """Which other nodes want the messages of a topic."""
        wanting = self._wanting.get(topic)
        if wanting is None:
            if len(self._wanting) >= MAX_TOPICS:
                self._wanting.clear()
            wanting = self._wanting[topic] = self.others.wanting(topic)
        return wanting


def _is_local(subscription: Subscription) -> bool:
    """Whether it wants only what happens inside an area; to see an object enter or leave takes all its reports."""
    smart = subscription.smart
    if smart is None or smart.geo is None or subscription.share is not None:
        return False
    return smart.geo.detect is Detect.INSIDE and isinstance(subscription.claimed_by, GeoPlugin)


def _group(subscription: Subscription) -> str:
    return subscription.text if subscription.share is not None else ""
