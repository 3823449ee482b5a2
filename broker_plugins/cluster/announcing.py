"""Filters: what this node's clients want, told to the others, and what the clients of the others want."""

from __future__ import annotations

import asyncio
import logging
from asyncio import gather
from typing import TYPE_CHECKING, Any

from broker_plugins.cluster.interest import OtherWishes, OwnWishes, Wanting
from broker_plugins.cluster.mail_reader import FAULTS
from broker_plugins.cluster.node import Part
from broker_plugins.cluster.wire import Applied, AskWishes, Delta, WireError, decode, encode
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
        self._applied: dict[str, int] = {}
        """What version of this node's filters each other node knows."""
        self._waiting: list[tuple[int, asyncio.Future[None]]] = []
        self._confirmed: dict[str, tuple[int, int]] = {}
        """What each other node was told that this one knows of its filters."""

    def subjects(self) -> Mapping[str, tuple[type[Any], Callable[[Any], None]]]:
        """Deltas of the others, and how far they know ours."""
        return {"wishes": (Delta, self._on_delta), f"applied.{self.node.name}": (Applied, self._on_applied)}

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
            data = encode(delta, squeeze=len(delta.wishes) >= MANY)
            self.node.counters.announced_bytes += len(data) * len(self.node.members.alive())
            self.node.work(fabric.publish(fabric.subject("wishes"), data))

    async def beat(self) -> None:
        """Keep in the directory what others are to send here while this node is away."""
        if self._remembered != self.own.version:
            version, value = self.own.version, encode(self.own.durable(), squeeze=True)
            change = self.node.fabric.directory_change
            await change(WISHES + self.node.name, lambda known: None if known == value else value)
            self._remembered = version

    # Who knows of them.

    def known_everywhere(self, seconds: float) -> asyncio.Future[None] | None:
        """Done when every other node that is there knows the filters this one has now, or when the time is up.

        None if they know already, or if this node is alone. What the future is given up for is counted.
        """
        if self._announcing:
            self._announce()
        version = self.own.version
        if not self.node.fabric.ready or self._is_known(version):
            return None
        known: asyncio.Future[None] = self.node.engine.loop.create_future()
        self._waiting.append((version, known))
        self.node.engine.loop.call_later(seconds, self._give_up, version, known)
        return known

    def is_known(self) -> bool:
        """Whether every other node that is there knows the filters this one has now."""
        return self._is_known(self.own.version)

    def _is_known(self, version: int) -> bool:
        return all(self._applied.get(node, -1) >= version for node in self.node.members.alive())

    def _on_applied(self, applied: Applied) -> None:
        if applied.incarnation == self.node.incarnation:
            self._applied[applied.node] = max(applied.version, self._applied.get(applied.node, -1))
            self._settle()

    def _settle(self) -> None:
        for each in [each for each in self._waiting if self._is_known(each[0])]:
            self._waiting.remove(each)
            if not each[1].done():
                each[1].set_result(None)

    def _give_up(self, version: int, known: asyncio.Future[None]) -> None:
        if not known.done():
            self.node.counters.subscribed_unknown += 1
            self._waiting.remove((version, known))
            known.set_result(None)

    def left(self, node: str) -> None:  # noqa: ARG002  whoever it was
        """Nobody waits for a node that is gone."""
        self._settle()

    def _confirm(self, node: str, incarnation: int, version: int) -> None:
        if self._confirmed.get(node) == (incarnation, version):
            return
        self._confirmed[node] = (incarnation, version)
        fabric = self.node.fabric
        data = encode(Applied(self.node.name, incarnation, version))
        self.node.counters.announced_bytes += len(data)
        self.node.work(fabric.publish(fabric.subject("applied", node), data))

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
        else:
            self._confirm(hello.node, hello.incarnation, hello.version)

    def _on_delta(self, delta: Delta) -> None:
        if delta.node == self.node.name:
            return
        changed = self.others.apply(delta)
        if changed is None:
            self.node.work(self._resync(delta.node))
        else:
            self._changed(changed)
            self._confirm(delta.node, delta.incarnation, delta.version)

    async def _resync(self, node: str) -> None:
        members = self.node.members
        if not members.ask(node):
            return
        self.node.counters.resyncs += 1
        try:
            answer = decode(await self.node.fabric.ask(node, encode(AskWishes())), Delta)
            self._changed(self.others.replace(answer))
            self._confirm(node, answer.incarnation, answer.version)
        except (*FAULTS, WireError) as error:
            log.debug("node %s does not say its filters: %s", node, error)
        finally:
            members.answered(node)

    def forgotten(self, node: str) -> None:
        """Nobody waits for it any more."""
        self._applied.pop(node, None)
        self._confirmed.pop(node, None)
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
