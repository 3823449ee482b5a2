"""Where somebody listens: a message that happens somewhere goes to the nodes with a `$geo` subscription around there.

What nodes announce of their filters says in which areas, or else blocks of the map, each is listened to. A node is left
out of the way of a message only if all its filters for the topic are such filters, it has said so exactly or in terms
of the very version of the map this node goes by, and nobody there listens in an area that holds, or a block that
touches, the place of the message. In all other cases a message goes where it would go without a map, so nothing is lost
while blocks or listeners move; and it goes straight from the node it was published on, so it comes once, in order, and
is acknowledged as any other.
"""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING

from broker_plugins.cluster.convergence import FROM
from broker_plugins.cluster.exact_areas import spell
from broker_plugins.cluster.moving_areas import FRAME_BYTES, MovingAreas, announced_bytes, reaches
from broker_plugins.cluster.node import Part
from broker_plugins.cluster.own_blocks import OwnBlocks
from broker_plugins.geo.zones import index_space, solid
from spatial_index import Circle, Point
from spatial_index.region_cells import names_at, names_in
from spatial_index.shapes import measured

if TYPE_CHECKING:
    from collections.abc import Iterator

    from broker_plugins.cluster.announcing import Announcing
    from broker_plugins.cluster.node import Node
    from broker_plugins.cluster.regions import Regions
    from broker_plugins.engine import Message
    from broker_plugins.geo.spots import Spot
    from broker_plugins.places import Place
    from spatial_index import RegionTree
    from spatial_index.spaces import Space

log = logging.getLogger(__name__)

WIDE = 1024
"""A message for an area with more blocks and cells than this goes to everybody who wants its topic."""
NARROWED = 100
"""Circles that are announced anew at each beat because there is less room for them now."""


class Listening(Part):
    """Announces where this node's subscribers listen, and leaves out nodes where nobody does.

    Args:
        node: this node.
        announcing: the filters of all nodes.
        regions: the map.
    """

    def __init__(self, node: Node, announcing: Announcing, regions: Regions) -> None:
        super().__init__(node)
        self._announcing = announcing
        self._regions = regions
        self._own = OwnBlocks(announcing.own)
        self._moving: MovingAreas[Spot] = MovingAreas()
        self._wanted: RegionTree | None = None
        """The version of the map that is to be announced in next."""
        self._changing = False
        announcing.others.misread = self._misread
        regions.adopted.append(self._adopted)

    # Here.

    def recovered(self) -> None:
        """Take in where subscriptions listen that were restored, and hear of others."""
        geo = self._regions.geo
        self._space: Space = index_space(self.node.engine.space)
        if geo is not None:
            geo.placed = self._placed
            geo.missed = self._missed
            for spot in geo.spots():
                self._placed(spot)

    def _adopted(self, tree: RegionTree) -> None:
        self._wanted = tree
        if not self._changing:
            self._changing = True
            self.node.work(self._change())

    async def _change(self) -> None:
        """Announce in terms of the newest version of the map, without keeping others from being served."""
        try:
            while (tree := self._wanted) is not None:
                self._wanted = None
                if await self._slowly(self._own.prepare(tree)):
                    self._own.commit()
                    await self._slowly(self._own.tidy())
        finally:
            self._changing = False

    async def _slowly(self, steps: Iterator[None]) -> bool:
        """Go on with something step by step; False if there is a newer map before all is done."""
        for _ in steps:
            self._announcing.announce_soon()
            await asyncio.sleep(0)
            if self._wanted is not None:
                return False
        self._announcing.announce_soon()
        return True

    async def beat(self) -> None:
        """Let circles of clients that stand still have no more room than others."""
        for spot in self._moving.wide(NARROWED):
            self._placed(spot)

    def _placed(self, spot: Spot) -> None:
        shape = spot.shape
        if shape is None:
            self._own.drop(spot)
            self._moving.drop(spot)
            self._announcing.announce_soon()
            return
        space, inner = spot.group.space, spot.group.inner
        if isinstance(shape, Circle) and spot.moves:
            moved = spot in self._moving
            circle = self._moving.put(spot, space, shape)
            if circle is None:
                return
            pieces, spelled = space.cover(circle.x, circle.y, circle.radius), spell(space, circle)
            self._own.put(spot, inner, pieces, spelled, reaches(space, circle))
            if moved:
                others = len(self.node.members.alive())
                self._moving.room.announced(announced_bytes(inner, spelled or "", others))
        else:
            self._own.put(spot, inner, measured(space, shape)[0], spell(space, shape))
        self._announcing.announce_soon()
        message = self._regions.seen
        if spot.moves and message is not None and message.qos and message.sender is spot.session:
            self._tell_before(message)

    def _missed(self, message: Message) -> None:
        """A message that happens where nobody listens here."""
        if message.properties is not None and FROM in message.properties:
            self._moving.room.in_vain(len(message.topic) + len(message.payload) + FRAME_BYTES)

    def _tell_before(self, message: Message) -> None:
        """Let the other nodes know where a client listens now before the report of its position is acknowledged."""
        known = self._announcing.known_everywhere(self.node.options.granting_s)
        if known is not None:
            message.owe()
            known.add_done_callback(lambda _: message.settle())

    # To the others.

    def _misread(self, why: str) -> None:
        self.node.counters.unreadable += 1
        log.warning("a node listens somewhere that cannot be read, which counts as everywhere: %s", why)

    def route(self, message: Message, nodes: dict[str, int]) -> dict[str, int]:
        """Leave out the nodes where nobody listens around the place of a message."""
        if message.retain or self._regions.geo is None:
            return nodes
        local = self._announcing.wanting(message.topic).local
        if not local or local.keys().isdisjoint(nodes):
            return nodes
        place = self._regions.geo.place_of(message)
        if place is None:
            return nodes  # and the others will find none either, if they are configured alike
        if not self.node.fabric.ready:
            self.node.counters.region_unsure += len(local.keys() & nodes.keys())
            return nodes
        tree = self._regions.tree if self._regions.sure and self._announcing.others.by_blocks(local) else None
        version, names = (None, None) if tree is None else (tree.version, _names(tree, place))
        return self._listening(nodes, local, version, names, (self._space, place))

    def _listening(
        self,
        nodes: dict[str, int],
        local: dict[str, list[str]],
        version: int | None,
        names: set[str] | None,
        at: tuple[Space, Place],
    ) -> dict[str, int]:
        counters, others = self.node.counters, self._announcing.others
        kept: dict[str, int] = {}
        for node, state in nodes.items():
            if node in local:
                listens = others.listens(node, version, local[node], names, at)
                if listens is False:
                    counters.region_spared += 1
                    continue
                if listens:
                    counters.region_sent += 1
                else:
                    counters.region_unsure += 1
            kept[node] = state
        return kept


def _names(tree: RegionTree, place: Place) -> set[str] | None:
    """Under which names somebody may listen where a message is; None if they are too many to look for."""
    if len(place) == 2:
        return names_at(tree, *place)
    box = solid(place, tree.space)
    return names_at(tree, box.x, box.y) if isinstance(box, Point) else names_in(tree, box, WIDE)
