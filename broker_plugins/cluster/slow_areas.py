"""Where people linger: from a proposal in a file, or from how the clients of all nodes moved."""

from __future__ import annotations

import asyncio
import logging
import time
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from broker_plugins.cluster.mail_reader import FAULTS
from broker_plugins.cluster.region_directory import with_slow_regions
from broker_plugins.cluster.region_load import Trails, merged, to_sightings
from broker_plugins.cluster.region_wire import AskSightings, Sightings
from broker_plugins.cluster.wire import WireError, decode, encode
from spatial_index import RegionTree, SpatialIndexError, slow_regions

if TYPE_CHECKING:
    from broker_plugins.cluster.node import Node
    from broker_plugins.engine.session import Session
    from spatial_index.spaces import Space

log = logging.getLogger(__name__)

Boxes = list[tuple[float, float, float, float]]
WEIGHINGS = 12
"""Slow regions are looked for at every so many weighings."""


class _Region(msgspec.Struct):
    box: tuple[float, float, float, float]


class _Proposal(msgspec.Struct):
    """What `spark_jobs.mine_regions` writes, as far as it matters here."""

    format: int
    regions: list[_Region]


class SlowAreas:
    """Finds the slow regions for the map.

    Args:
        node: this node.
        space: where places are.
    """

    def __init__(self, node: Node, space: Space) -> None:
        self._node = node
        self._space = space
        self._trails = Trails(space, node.options.weigh_s)
        self._file = Path(node.options.slow_regions_file) if node.options.slow_regions_file else None
        self._read: tuple[int, int] | None = None
        self._weighings = 0

    def moved(self, session: Session, lon: float, lat: float) -> None:
        """A client said where it is."""
        if self._file is None:
            self._trails.note(session.client_id, time.time(), (lon, lat))

    def answer(self) -> Sightings:
        """How the clients of this node moved."""
        return to_sightings(self._trails.summary(time.time()))

    async def boxes(self) -> Boxes | None:
        """The slow regions, if it is time to look for them and there is news."""
        if self._file is not None:
            return await asyncio.to_thread(self._proposed, self._file)
        self._weighings += 1
        if self._weighings % WEIGHINGS:
            return None
        return await self._observed()

    def _proposed(self, file: Path) -> Boxes | None:
        """What the file says, once after every change of it."""
        try:
            status = file.stat()
            if self._read == (status.st_mtime_ns, status.st_size):
                return None
            self._read = (status.st_mtime_ns, status.st_size)
            boxes = [region.box for region in msgspec.json.decode(file.read_bytes(), type=_Proposal).regions]
            with_slow_regions(RegionTree(self._space), boxes)
        except (OSError, msgspec.MsgspecError, SpatialIndexError, UnicodeDecodeError) as error:
            log.warning("slow_regions_file: %s is not used: %s", file, error)
            return None
        return boxes

    async def _observed(self) -> Boxes:
        nodes = self._node.members.alive()
        answers = [each for each in await asyncio.gather(*map(self._ask, nodes)) if each is not None]
        own = self._trails.summary(time.time())
        try:
            found = await asyncio.to_thread(lambda: slow_regions(merged(own, answers)))
        except ValueError as error:
            log.warning("what other nodes saw cannot be used: %s", error)
            return []
        return [tuple(region.box) for region in found.regions]  # type: ignore[misc]  # a box has four sides

    async def _ask(self, node: str) -> Sightings | None:
        try:
            return decode(await self._node.fabric.ask(node, encode(AskSightings())), Sightings)
        except (*FAULTS, WireError) as error:
            log.debug("node %s does not say how its clients moved: %s", node, error)
            return None
