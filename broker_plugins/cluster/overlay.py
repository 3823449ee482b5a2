"""Content: messages go to the nodes whose `$where` subscriptions may want them, and to no other.

Each node tells the others which contents its `$where` subscriptions want, as a few boxes for each inner filter. A node
that is known to want only certain contents of a topic is left out of the way of all others. Whenever something is not
known for sure, a message takes the way it would take without this part.

The publisher's node sends a message straight to the nodes that may want it, or, where `content: overlay` is said and
its QoS is 0, to a few of them, which pass it on to the rest.
"""

from __future__ import annotations

import logging
from asyncio import gather
from typing import TYPE_CHECKING, Any

import msgspec

from broker_plugins.cluster.content_summary import box_of
from broker_plugins.cluster.content_trees import ContentTrees
from broker_plugins.cluster.contents import OtherContents, OwnContents
from broker_plugins.cluster.mail_reader import FAULTS
from broker_plugins.cluster.node import Part
from broker_plugins.cluster.wire import AskContents, ContentDelta, WireError, decode, encode
from broker_plugins.engine import Message
from broker_plugins.places import MAX_JSON_BYTES, PayloadCounters, payloads_of

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from broker_plugins.cluster.announcing import Announcing
    from broker_plugins.cluster.content_summary import Box, Matcher
    from broker_plugins.cluster.interest import Wanting
    from broker_plugins.cluster.node import Node
    from broker_plugins.cluster.relaying import Relaying
    from broker_plugins.engine import Subscription

log = logging.getLogger(__name__)

STATUS_TOPIC = "$SYS/broker/locus/content"
MAX_TOPICS = 65_536
FEWEST = 2
"""Nodes that want a message before one is asked to pass it on to another."""


class _Plan:
    """What is known of the nodes that want a topic, until something changes."""

    __slots__ = ("changes", "inners", "relays", "wanted", "wanting")

    def __init__(self, wanting: Wanting, changes: int, wanted: dict[str, list[Matcher]], inners: list[str]) -> None:
        self.wanting = wanting
        self.changes = changes
        self.wanted = wanted
        """For nodes that want only certain contents of the topic: which."""
        self.inners = inners
        """The filters of these nodes that match the topic."""
        self.relays = bool(wanted)
        """Whether its messages are passed on; that stays, since messages that come by different ways are unordered."""


class Overlay(Part):
    """Knows which contents each node wants.

    Args:
        node: this node.
        announcing: which filters each node holds.
        relaying: passes messages on.
    """

    def __init__(self, node: Node, announcing: Announcing, relaying: Relaying) -> None:
        super().__init__(node)
        options = node.options
        self._announcing = announcing
        announcing.first = self._announce
        self.own = OwnContents(node.name, node.incarnation, options.max_content_boxes, options.max_content_filters)
        self.others = OtherContents()
        self.trees = ContentTrees(node.name, options.overlay_cap)
        self._relaying = relaying
        self._plans: dict[str, _Plan] = {}
        self._asked: set[str] = set()
        self._told: dict[str, object] = {}

    def recovered(self) -> None:
        """Find who reads payloads here."""
        self._payloads = payloads_of(self.node.engine, PayloadCounters(), MAX_JSON_BYTES)

    def subjects(self) -> Mapping[str, tuple[type[Any], Callable[[Any], None]]]:
        """Deltas of the others."""
        return {"contents": (ContentDelta, self._on_delta)}

    def questions(self) -> Mapping[type[msgspec.Struct], Callable[[Any], msgspec.Struct]]:
        """All boxes, for who missed a delta."""
        return {AskContents: lambda _: self.own.snapshot()}

    # What this node's clients want.

    def subscribed(self, subscription: Subscription) -> None:
        """Cover one more subscription: that is told before its filter is announced."""
        if _is_ordinary(subscription):
            self.own.add(subscription.inner, _box(subscription))

    def unsubscribed(self, subscription: Subscription) -> None:
        """One need not be covered any more; that is announced with the next beat."""
        if _is_ordinary(subscription):
            self.own.remove(subscription.inner, _box(subscription))

    def _announce(self) -> bool:
        delta = self.own.delta()
        fabric = self.node.fabric
        if delta is None:
            return False
        self.node.counters.content_boxes = self.own.boxes
        if fabric.ready:
            self.node.work(fabric.publish(fabric.subject("contents"), encode(delta)))
        return True

    async def beat(self) -> None:
        """Announce what became narrower, and let the others see whether they have missed something."""
        self.own.tighten()
        delta = self.own.delta() or self.own.nothing_new()
        self.node.counters.content_boxes = self.own.boxes
        fabric = self.node.fabric
        self.node.work(fabric.publish(fabric.subject("contents"), encode(delta)))  # behind those on their way
        self._tell()

    def _tell(self) -> None:
        """Say on a topic what came of it, where that has changed."""
        counters = self.node.counters
        status = {
            "content": self.node.options.content,
            "boxes": counters.content_boxes,
            "narrowed": counters.narrowed,
            "forwarded": counters.forwarded,
            "forwarded_bytes": counters.forwarded_bytes,
            "relayed": counters.relayed,
            "relays_gone": counters.relays_gone,
            "known": self.others.nodes(),
        }
        if status != self._told:
            self._told = status
            self.node.engine.publish(Message(STATUS_TOPIC, msgspec.json.encode(status), retain=True, volatile=True))

    # What those of the others want.

    async def joined(self) -> None:
        """Learn what the others want."""
        leased = [node for node in await self.node.fabric.leased() if node != self.node.name]
        for node in leased:
            self.others.forget(node)
        await gather(*(self._resync(node) for node in leased))

    def came(self, node: str) -> None:
        """What was known of a node may be of its former life."""
        self.others.forget(node)
        self.node.work(self._resync(node))

    def left(self, node: str) -> None:
        """What it wants when it is back is not known, and until then nobody is reached through it."""
        self.others.forget(node)

    def _on_delta(self, delta: ContentDelta) -> None:
        if delta.node != self.node.name and not self.others.apply(delta):
            self.node.work(self._resync(delta.node))

    async def _resync(self, node: str) -> None:
        if node in self._asked:
            return
        self._asked.add(node)
        self.node.counters.content_resyncs += 1
        try:
            answer = await self.node.fabric.ask(node, encode(AskContents()))
            self.others.replace(decode(answer, ContentDelta))
        except (*FAULTS, WireError) as error:
            log.debug("node %s does not say which contents it wants: %s", node, error)
        finally:
            self._asked.discard(node)

    # Messages.

    def _plan(self, topic: str) -> _Plan:
        wanting = self._announcing.wanting(topic)
        plan = self._plans.get(topic)
        if plan is None or plan.wanting is not wanting or plan.changes != self.others.changes:
            wanted: dict[str, list[Matcher]] = {}
            inners: dict[str, None] = {}
            for node, some in self._announcing.others.inners(topic).items():
                matchers = self.others.wanted(node, some)
                if matchers is not None:
                    wanted[node] = matchers
                    inners |= dict.fromkeys(some)
            if len(self._plans) >= MAX_TOPICS:
                self._plans.clear()
            relays = plan is not None and plan.relays
            plan = self._plans[topic] = _Plan(wanting, self.others.changes, wanted, list(inners))
            plan.relays |= relays
        return plan

    def without_use(self, message: Message) -> list[str]:
        """The nodes that are known to have no use for the content of a message, of those that want its topic."""
        if message.retain or self.node.options.content == "plain":
            return []
        wanted = self._plan(message.topic).wanted
        if not wanted:
            return []
        content = self._payloads.read(message)
        if content.__class__ is not dict:
            return []  # another node may look into larger payloads than this one does
        is_alive = self.node.members.is_alive
        return [
            node
            for node, matchers in wanted.items()
            if is_alive(node) and not any(matcher.wants(content) for matcher in matchers)
        ]

    def route(self, message: Message, nodes: dict[str, int]) -> dict[str, int]:
        """Leave out the nodes that have no use for the content, and those to which others pass it on."""
        useless = [node for node in self.without_use(message) if node in nodes]
        if useless:
            self.node.counters.narrowed += len(useless)
            nodes = {node: state for node, state in nodes.items() if node not in useless}
        if self.node.options.content != "overlay" or message.qos or message.retain:
            return nodes
        plan = self._plan(message.topic)
        if not plan.relays or plan.wanting.groups:
            return nodes  # for a shared subscription one node is chosen, and gets it from here
        # Also where it goes straight, so that all messages of a topic that come to a node by this way are in order.
        wanted = {node for node in nodes if node in plan.wanted}
        hops = [(self.node.name, node) for node in nodes if node not in plan.wanted]
        content = self._payloads.read(message)
        if len(wanted) >= FEWEST and content.__class__ is dict:
            boxes = {inner: self.others.boxes(inner) for inner in plan.inners}
            hops += self.trees.plan(boxes, self.others.changes, content, wanted)
        else:
            hops += [(self.node.name, node) for node in wanted]
        self._relaying.send(message, hops)
        return {}


def _is_ordinary(subscription: Subscription) -> bool:
    return subscription.share is None and not subscription.inner.startswith("$")


def _box(subscription: Subscription) -> Box | None:
    """The contents a subscription wants; None where that is no box of numbers."""
    smart = subscription.smart
    if smart is None or smart.where is None or smart.geo is not None:
        return None
    return box_of(smart.where)
