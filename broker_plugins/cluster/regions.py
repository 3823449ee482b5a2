"""The map: blocks with owners, in the directory, split, merged and moved as the load goes.

The living node with the lowest name proposes the next version; whoever else did so at the same time is found out by
compare and set. Every node says which version it goes by, and one that hears of a newer one fetches it.
"""

from __future__ import annotations

import asyncio
import logging
import time
from typing import TYPE_CHECKING, Any

import msgspec

from broker_plugins.cluster.convergence import FROM
from broker_plugins.cluster.mail_reader import FAULTS
from broker_plugins.cluster.node import Part
from broker_plugins.cluster.region_directory import (
    BadDirectoryError,
    adapted,
    changes,
    first_tree,
    fitted,
    from_bytes,
    part_for,
    replace_version,
    to_bytes,
    with_slow_regions,
)
from broker_plugins.cluster.region_load import Loads, Watcher
from broker_plugins.cluster.region_owners import balanced, rescued
from broker_plugins.cluster.region_wire import AskBlocks, AskSightings, Chart, Charted, ChartedBlock, Load
from broker_plugins.cluster.slow_areas import SlowAreas
from broker_plugins.cluster.wire import WireError, encode
from broker_plugins.engine import Message
from broker_plugins.geo.plugin import GeoPlugin
from broker_plugins.geo.zones import index_space
from spatial_index import Limits, SpatialIndexError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from broker_plugins.cluster.node import Node
    from broker_plugins.places import Place
    from spatial_index import Block, Box, RegionTree
    from spatial_index.spaces import Space

log = logging.getLogger(__name__)

BLOCKS = "blocks"
"""The key in the directory."""
TOPIC = "$SYS/broker/locus/cluster/blocks"
"""Where clients of this node find the map, retained, as JSON."""
SHOWN = 512
"""Blocks in it, the busiest ones."""
LOOK_S = 0.25
"""Time between two looks at who is there."""
LATE_S = 1.0
"""A node that looked around so much later than it meant to has heard nothing meanwhile, and accuses nobody."""


class Regions(Part):
    """Keeps the map, and says whose a place is.

    Args:
        node: this node.
    """

    def __init__(self, node: Node) -> None:
        super().__init__(node)
        self.tree: RegionTree | None = None
        """The blocks as this node knows them."""
        self.geo: GeoPlugin | None = None
        """The plugin that knows where things happen, once the broker has recovered; None if there is none."""
        self.adopted: list[Callable[[RegionTree], None]] = []
        """Called with every new version."""
        self.draining: set[str] = set()
        """Nodes that are to own nothing any more."""
        self.loads = Loads()
        self._newest = 0
        self._watcher = Watcher(node.name)
        self._reported = self._weighed = time.monotonic()
        self._trusting_until = 0.0
        self.seen: Message | None = None
        """The message published here whose place was found last."""
        self._shown = b""
        self._part = 0.0

    # What others ask.

    @property
    def sure(self) -> bool:
        """Whether this node knows the newest version that it has heard of, and would hear of another."""
        return self.tree is not None and self.tree.version >= self._newest and self.node.fabric.ready

    def block_of(self, lon: float, lat: float, current: str | None = None) -> Block | None:
        """The block a place belongs to; whoever is in block `current` stays there until `block_border` beyond it."""
        if self.tree is None:
            return None
        try:
            return self.tree.home(lon, lat, current)
        except SpatialIndexError:
            return None

    def owner_of(self, lon: float, lat: float, current: str | None = None) -> str | None:
        """The node that owns a place; None if the map is not known or has no such place."""
        block = self.block_of(lon, lat, current)
        return None if block is None else block.owner or None

    def address_of(self, node: str) -> str | None:
        """Where clients reach a node, if it is there and has said so."""
        if node == self.node.name:
            return self.node.options.address or None
        members = self.node.members
        return (members.address(node) or None) if members.is_alive(node) else None

    def subjects(self) -> Mapping[str, tuple[type[Any], Callable[[Any], None]]]:
        """Versions and loads."""
        return {"map": (Charted, self._on_charted), "load": (Load, self._on_load)}

    def questions(self) -> Mapping[type[msgspec.Struct], Callable[[Any], msgspec.Struct]]:
        """The blocks, for whoever wants to draw them, and how clients moved, for who looks for slow regions."""
        return {AskBlocks: lambda _: self.chart(), AskSightings: lambda _: self._slow.answer()}

    def chart(self) -> Chart:
        """The blocks with what they weigh now."""
        tree = self.tree
        if tree is None:
            return Chart(0, (0.0, 0.0, 0.0, 0.0), 0.0, [])
        loads = self.loads.by_block(tree)
        blocks = [ChartedBlock(block.id, _sides(block.box), block.owner, round(loads[block.id], 3)) for block in tree]
        return Chart(tree.version, _sides(tree.space.bounds), tree.limits.capacity, blocks)

    def _show(self) -> None:
        """Publish the map to whoever watches this node."""
        chart, counters = self.chart(), self.node.counters
        blocks = sorted(chart.blocks, key=lambda block: (-block.load, block.id))[:SHOWN]
        figures = {
            "version": chart.version,
            "bounds": chart.bounds,
            "capacity": chart.capacity,
            "count": len(chart.blocks),
            "blocks": [{"id": each.id, "box": each.box, "owner": each.owner, "load": each.load} for each in blocks],
            "moves": counters.block_moves,
            "splits": counters.block_splits,
            "merges": counters.block_merges,
            "sent": counters.region_sent,
            "spared": counters.region_spared,
            "unsure": counters.region_unsure,
        }
        payload = msgspec.json.encode(figures)
        if payload != self._shown:
            self._shown = payload
            self.node.engine.publish(Message(TOPIC, payload, retain=True, volatile=True))

    # What this node sees.

    def recovered(self) -> None:
        """Begin to look around, and to see where things happen."""
        engine, options = self.node.engine, self.node.options
        self._space: Space = index_space(engine.space)
        self._limits = Limits(capacity=options.block_capacity, border=options.block_border)
        self._slow = SlowAreas(self.node, self._space)
        self.geo = next((plugin for plugin in engine.hooks.plugins if isinstance(plugin, GeoPlugin)), None)
        if self.geo is not None:
            self.geo.sighted = self._sighted
            self.geo.moved.append(self._slow.moved)
        self.node.work(self._run())

    def _sighted(self, message: Message, place: Place) -> None:
        if message is self.seen or (message.properties is not None and FROM in message.properties):
            return  # counted already, here or where it was published
        self.seen = message
        self._watcher.note(place)

    def _on_charted(self, charted: Charted) -> None:
        if charted.node != self.node.name:
            self._newest = max(self._newest, charted.tree)

    def _on_load(self, load: Load) -> None:
        west, south, east, north = self._space.bounds
        inside = all(west <= x <= east for x in load.xs) and all(south <= y <= north for y in load.ys)
        if inside and len(load.xs) == len(load.ys):
            self.loads.take(load)
        else:  # from a node that is configured for another space
            self.node.counters.unreadable += 1

    def left(self, node: str) -> None:
        """What it saw is not there any more."""
        self.loads.forget(node)

    # The versions.

    async def joined(self) -> None:
        """Learn the map, or begin one; nobody is taken for dead before it had time to say something."""
        self._trusting_until = time.monotonic() + self.node.options.lease_s
        try:
            await self._fetch()
            if self.tree is None:
                nodes = {*await self.node.fabric.leased(), self.node.name}
                await self._propose(lambda tree: tree, nodes)
        except BadDirectoryError as error:
            log.warning("there is no map until the directory is mended: %s", error)
        await self._say()

    async def beat(self) -> None:
        """Say which version this node goes by."""
        await self._say()

    async def _say(self) -> None:
        version = 0 if self.tree is None else self.tree.version
        charted = Charted(self.node.name, version)
        await self.node.fabric.publish(self.node.fabric.subject("map"), encode(charted))

    async def _fetch(self) -> None:
        value, _ = await self.node.fabric.directory_get(BLOCKS)
        if value:
            self._adopt(await asyncio.to_thread(from_bytes, value))

    def _adopt(self, tree: RegionTree) -> None:
        old = self.tree
        self._newest = max(self._newest, tree.version)
        if old is not None and tree.version <= old.version:
            return
        counters = self.node.counters
        if old is not None:
            change = changes(old, tree)
            counters.block_moves += change.moves
            counters.block_splits += change.splits
            counters.block_merges += change.merges
        counters.blocks = len(tree)
        counters.blocks_owned = sum(block.owner == self.node.name for block in tree)
        self.tree = tree
        for adopted in self.adopted:
            adopted(tree)

    async def _propose(self, change: Callable[[RegionTree], RegionTree], nodes: set[str]) -> None:
        """Write the next version, unless somebody else has written one since this node read it."""
        fabric = self.node.fabric
        value, _ = await fabric.directory_get(BLOCKS)
        wanted = await asyncio.to_thread(self._next, value, change, nodes)
        if wanted is not None:
            written = await fabric.directory_change(BLOCKS, lambda current: wanted if current == value else None)
            value = written or value
        if value:
            before = self.tree
            self._adopt(await asyncio.to_thread(from_bytes, value))
            if self.tree is not before:
                await self._say()

    def _next(self, value: bytes | None, change: Callable[[RegionTree], RegionTree], nodes: set[str]) -> bytes | None:
        """What the directory should hold; None if it is right as it is."""
        depth = self.node.options.block_depth
        if value:
            kept = from_bytes(value)
            # A fabric that was set back to an old state must not bring back old numbers.
            tree = kept if kept.version >= self._newest else replace_version(kept, self._newest + 1)
        elif self.tree is not None:  # the fabric has lost it
            kept = tree = replace_version(self.tree, self._newest + 1)
        else:
            kept = tree = first_tree(self._space, self._limits, nodes, depth)
        found = change(rescued(fitted(tree, self._space, self._limits, nodes, depth), nodes))
        return None if value and found is kept else to_bytes(found)

    # Who proposes what.

    async def _run(self) -> None:
        looked = time.monotonic()
        while True:
            await asyncio.sleep(LOOK_S)
            now = time.monotonic()
            if now - looked > LOOK_S + LATE_S:
                self._trusting_until = now + self.node.options.lease_s
            looked = now
            try:
                if self.node.fabric.ready:
                    await self._look(now)
            except (*FAULTS, WireError, BadDirectoryError) as error:
                log.debug("map: %s: %s", type(error).__name__, error)
            except SpatialIndexError as error:  # a node that is configured for another space
                log.warning("the map stays as it is: %s", error)

    async def _look(self, now: float) -> None:
        options, name = self.node.options, self.node.name
        if self.tree is None or self._newest > self.tree.version:
            await self._fetch()
        if now - self._reported >= options.weigh_s / 4:
            load = self._watcher.report(now - self._reported)
            self._reported = now
            await self.node.fabric.publish(self.node.fabric.subject("load"), encode(load))
            self._show()
        if min(self.node.members.alive(), default=name) < name:
            self._weighed = now
            return
        nodes = self._nodes(now)
        if self.tree is None or any(block.owner not in nodes for block in self.tree):
            await self._propose(lambda tree: tree, nodes)
        elif now - self._weighed >= options.weigh_s:
            self._weighed = now
            await self._weigh(nodes)

    def _nodes(self, now: float) -> set[str]:
        """The nodes that may own blocks."""
        nodes = {*self.node.members.alive(), self.node.name}
        if now < self._trusting_until and self.tree is not None:
            nodes |= {block.owner for block in self.tree}
        return (nodes - self.draining) or nodes

    async def _weigh(self, nodes: set[str]) -> None:
        options, slow = self.node.options, await self._slow.boxes()
        loads = self.loads.copy()  # the next version is made in a thread of its own
        part = self._part = part_for(loads.total(), len(nodes), options.block_capacity, self._part)

        def change(tree: RegionTree) -> RegionTree:
            laid = tree if slow is None else with_slow_regions(tree, slow)
            grown = adapted(
                laid,
                loads.by_block(laid),
                loads.sample(),
                part=part,
                depth=options.block_depth,
                most_blocks=options.max_blocks,
            )
            return balanced(grown, nodes, loads.by_block(grown))

        await self._propose(change, nodes)


def _sides(box: Box) -> tuple[float, float, float, float]:
    return box.west, box.south, box.east, box.north
