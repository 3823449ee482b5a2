"""The blocks of the map as the nodes agree on them: a first tree, the next versions, and their bytes in the directory.

Every function here answers a new version or the tree it was given, and nothing waits: which node proposes a change, and
how it gets into the directory, is not decided here.
"""

from __future__ import annotations

import json
import math
import zlib
from dataclasses import dataclass
from typing import TYPE_CHECKING

from broker_plugins.cluster.region_owners import rescued
from broker_plugins.cluster.region_packing import packed
from spatial_index import BadTree, Block, RegionTree, SpatialIndexError, with_regions
from spatial_index.region_blocks import area, children_of, depth_of, overlap, parent_of, quarters, region_of

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping, Sequence

    from spatial_index import Box, Limits
    from spatial_index.region_changes import Places
    from spatial_index.spaces import Space

SHARES = 4
"""Blocks into which what one node carries is divided at least, so that there is something to share out."""
WORTH_SHARING = 10.0
"""But no block is split for that in which less than this happens a second."""
SAME = 0.5
"""Slow regions that share so much of what they cover together are the same: their borders are left alone."""


class BadDirectoryError(ValueError):
    """The directory holds something that is no tree of blocks."""


@dataclass(slots=True)
class Changes:
    """What happened between two versions."""

    moves: int = 0
    """Blocks that have another owner."""
    splits: int = 0
    merges: int = 0


def first_tree(space: Space, limits: Limits, nodes: Collection[str], depth: int) -> RegionTree:
    """The blocks before anything is known of the load: the space quartered a few times, divided among the nodes."""
    boxes = [("q", space.bounds)]
    for _ in range(depth):
        boxes = [child for name, box in boxes for child in zip(children_of(name), quarters(box), strict=True)]
    tree = RegionTree(space, limits, blocks=[Block(name, box) for name, box in boxes])
    return replace_version(rescued(tree, nodes), 1)


def replace_version(tree: RegionTree, version: int) -> RegionTree:
    """The same blocks under another version."""
    return RegionTree(tree.space, tree.limits, blocks=tree, version=version, next_region=tree.next_region)


def fitted(tree: RegionTree, space: Space, limits: Limits, nodes: Collection[str], depth: int) -> RegionTree:
    """A tree for the space and the limits that are configured now: the blocks stay if the space is the same."""
    if tree.space != space:
        return replace_version(first_tree(space, limits, nodes, depth), tree.version + 1)
    if tree.limits == limits:
        return tree
    return RegionTree(space, limits, blocks=tree, version=tree.version + 1, next_region=tree.next_region)


def adapted(
    tree: RegionTree, loads: Mapping[str, float], sample: Places, *, part: float, depth: int, most_blocks: int
) -> RegionTree:
    """Split what is too heavy and merge what is light, down to the first blocks.

    Args:
        tree: the version in force.
        loads: what blocks weigh now, in the unit of the capacity.
        sample: places where that load is.
        part: the part of the capacity that is too much (see `part_for`).
        depth: blocks are not merged beyond the first ones.
        most_blocks: if splitting came to more, the heaviest blocks stay heavier than the capacity.
    """
    factor = part
    while True:
        weights = {block.id: loads.get(block.id, 0.0) / factor for block in tree}
        _hold(weights, depth, tree.limits)
        found = packed(tree, weights, sample)
        if len(found) <= max(most_blocks, len(tree)) or factor > 1e9:
            break
        factor *= 2.0
    if {(block.id, block.box) for block in found} == {(block.id, block.box) for block in tree}:
        return tree  # only loads differ: nobody needs to hear of that
    return replace_version(found, tree.version + 1)


def part_for(total: float, nodes: int, capacity: float, before: float = 0.0) -> float:
    """From which part of the capacity on blocks are split, so that a load can be shared out among the nodes.

    Args:
        total: the load of all blocks.
        nodes: how many nodes there are.
        capacity: what one block takes.
        before: the part so far; it stays as long as it is not off by a factor of two, so that the map does not waver.
    """
    part = min(max(total / (nodes * SHARES), WORTH_SHARING) / capacity, 1.0)
    return before if before / 2 < part < before * 2 else min(2.0 ** round(math.log2(part)), 1.0)


def _hold(weights: dict[str, float], depth: int, limits: Limits) -> None:
    """Let each of the first blocks weigh so much that four of them are not merged, though its parts may be."""
    floor = 1.001 * limits.merge_share * limits.capacity / 4
    parts: dict[str, list[str]] = {}
    for name in weights:
        if name.startswith("q") and depth_of(name) >= depth:
            parts.setdefault(name[: 1 + depth], []).append(name)
    for names in parts.values():
        missing = floor - math.fsum(weights[name] for name in names)
        if missing > 0:
            weights[names[0]] += missing


def with_slow_regions(tree: RegionTree, boxes: Iterable[Sequence[float]]) -> RegionTree:
    """Other slow regions, if they differ enough from those in force.

    Raises:
        SpatialIndexError: a region is no box of the space, or two overlap.
    """
    found = with_regions(tree, boxes)
    if found is tree:
        return tree
    before, after = _regions(tree), _regions(found)
    if len(before) == len(after) and all(
        name in before and _likeness(box, before[name]) >= SAME for name, box in after.items()
    ):
        return tree
    return replace_version(found, tree.version + 1)


def _regions(tree: RegionTree) -> dict[str, Box]:
    """The slow regions with what they cover."""
    found: dict[str, Box] = {}
    for block in tree:
        if block.slow:
            name, box = region_of(block.id), block.box
            old = found.get(name, box)
            found[name] = box._replace(
                west=min(old.west, box.west),
                south=min(old.south, box.south),
                east=max(old.east, box.east),
                north=max(old.north, box.north),
            )
    return found


def _likeness(a: Box, b: Box) -> float:
    shared = overlap(a, b)
    common = 0.0 if shared is None else area(shared)
    return common / (area(a) + area(b) - common)


def changes(old: RegionTree, new: RegionTree) -> Changes:
    """Count what happened between two versions."""
    before, after = {block.id for block in old}, {block.id for block in new}
    return Changes(
        moves=sum(old[name].owner != new[name].owner for name in before & after),
        splits=len((before - after) & _above(after)),
        merges=len((after - before) & _above(before)),
    )


def _above(names: Iterable[str]) -> set[str]:
    """All blocks that some blocks are parts of."""
    found: set[str] = set()
    for name in names:
        above = parent_of(name)
        while above is not None and above not in found:
            found.add(above)
            above = parent_of(above)
    return found


def to_bytes(tree: RegionTree) -> bytes:
    """The tree as it lies in the directory: JSON, squeezed."""
    return zlib.compress(json.dumps(tree.to_dict(), separators=(",", ":")).encode(), 6)


def from_bytes(data: bytes) -> RegionTree:
    """The tree that the directory holds.

    Raises:
        BadDirectoryError: it holds something else.
    """
    try:
        return RegionTree.from_dict(json.loads(zlib.decompress(data)))
    except (zlib.error, ValueError, BadTree, SpatialIndexError) as error:
        raise BadDirectoryError(f"the directory's blocks cannot be read: {error}") from error
