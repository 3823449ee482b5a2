"""New versions of a region tree: grown from places, split and merged by load, with other slow regions or owners."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from spatial_index.errors import BadCount, UnknownId
from spatial_index.region_blocks import (
    Block,
    can_be_cut,
    children_of,
    overlap,
    parent_of,
    region_of,
    split,
)
from spatial_index.region_blocks import area as area_of
from spatial_index.region_tree import RegionTree
from spatial_index.spaces import WGS84, Box, checked_box

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from spatial_index.region_blocks import Limits
    from spatial_index.spaces import Floats, Space

SAME_REGION = 0.5
"""A slow region found anew is the old one if what they share is at least this share of what they cover together."""

Places = tuple[object, object]
"""The x and the y of sampled places, as two arrays."""


def build_tree(
    places: Places, regions: Iterable[Sequence[float]] = (), space: Space = WGS84, limits: Limits | None = None
) -> RegionTree:
    """A first tree whose blocks hold at most `Limits.capacity` of the places each."""
    tree = with_regions(RegionTree(space, limits), regions)
    return adapt_tree(tree, {name: float(count) for name, count in tree.census(*places).items()}, places)


def adapt_tree(tree: RegionTree, loads: Mapping[str, float], sample: Places | None = None) -> RegionTree:
    """Split the blocks that weigh more than the capacity and merge siblings that together weigh far less.

    Parts of a block stay with its owner, and a merged block goes to the owner of its heaviest part, so that nothing
    moves until owners are assigned anew.

    Args:
        tree: the version to start from.
        loads: what blocks weigh now; a block not mentioned weighs what it last did.
        sample: places where the load is. With it a heavy block is cut until each part is within the capacity, slow
            regions where the places tell. Without it a block is cut once, in the middle.

    Raises:
        UnknownId: a load is for a block that the tree does not have.
        BadCount: a load is negative or not a finite number.
    """
    for name, load in loads.items():
        if name not in tree:
            raise UnknownId(f"there is a load for block {name!r}, which version {tree.version} does not have")
        if not 0 <= load < math.inf:
            raise BadCount(f"the load of block {name!r} is {load!r}: it has to be 0 or a positive number")
    weighed = [replace(block, load=float(loads.get(block.id, block.load))) for block in tree]
    residents: dict[str, tuple[Floats, Floats]] = {}
    if sample is not None:
        residents = {name: (xs, ys) for name, xs, ys in tree.residents(*sample)}
    blocks: dict[str, Block] = {}
    for block in weighed:
        for part in _cut(tree, block, *residents.get(block.id, (np.empty(0), np.empty(0)))):
            blocks[part.id] = part
    _merge(blocks, tree.limits)
    return _next(tree, blocks.values())


def with_regions(tree: RegionTree, regions: Iterable[Sequence[float]]) -> RegionTree:
    """Other slow regions over the same quadtree.

    A region that is mostly an old one keeps its number, its parts and their owners; a new one starts with the owner of
    the quadtree block it shares most with. A region across the antimeridian becomes one region on each side.

    Raises:
        BadBox: a region is no box, or two of them overlap.
    """
    boxes = [piece for region in regions for piece in checked_box(tree.space, region)]
    parts: dict[str, list[Block]] = {}
    for block in tree:
        if block.slow:
            parts.setdefault(region_of(block.id), []).append(block)
    old = {name: _around(block.box for block in blocks) for name, blocks in parts.items()}
    likeness = sorted(
        ((_likeness(box, old[name]), index, name) for index, box in enumerate(boxes) for name in old), reverse=True
    )
    names: dict[int, str] = {}
    for alike, index, name in likeness:
        if alike >= SAME_REGION and index not in names and name not in names.values():
            names[index] = name
    blocks = [block for block in tree if not block.slow]
    number = tree.next_region
    for index, box in enumerate(boxes):
        if index in names:
            blocks.extend(_stretched(parts[names[index]], old[names[index]], box))
            continue
        under = max((b for b in tree if not b.slow), key=lambda b: area_of(overlap(b.box, box) or Box(0, 0, 0, 0)))
        blocks.append(Block(f"r{number}", box, under.owner))
        number += 1
    return _next(tree, blocks, number)


def with_owners(tree: RegionTree, owners: Mapping[str, str]) -> RegionTree:
    """Other owners for some blocks.

    Raises:
        UnknownId: an owner is for a block that the tree does not have.
    """
    for name in owners:
        if name not in tree:
            raise UnknownId(f"there is an owner for block {name!r}, which version {tree.version} does not have")
    return _next(tree, [replace(block, owner=owners.get(block.id, block.owner)) for block in tree])


def _next(tree: RegionTree, blocks: Iterable[Block], next_region: int | None = None) -> RegionTree:
    """The next version, or the tree itself if nothing changed."""
    ordered = sorted(blocks, key=lambda block: block.id)
    if ordered == list(tree):
        return tree
    number = tree.next_region if next_region is None else next_region
    return RegionTree(tree.space, tree.limits, blocks=ordered, version=tree.version + 1, next_region=number)


def _cut(tree: RegionTree, block: Block, xs: Floats, ys: Floats) -> list[Block]:
    if block.load <= tree.limits.capacity or not can_be_cut(block, tree.limits):
        return [block]
    done: list[Block] = []
    pending = split(tree.space, block, tree.limits, xs, ys)
    while pending:
        part, px, py = pending.pop()
        # Without places there is no telling where in the part its load is: it shows at the next weighing.
        if part.load > tree.limits.capacity and len(px) and can_be_cut(part, tree.limits):
            pending.extend(split(tree.space, part, tree.limits, px, py))
        else:
            done.append(part)
    return done


def _merge(blocks: dict[str, Block], limits: Limits) -> None:
    """Merge light siblings, and then what has become light siblings, up to the root."""
    pending = {parent for name in blocks if (parent := parent_of(name)) is not None}
    while pending:
        parent = max(pending, key=len)
        pending.discard(parent)
        parts = [blocks[name] for name in children_of(parent) if name in blocks]
        if len(parts) < len(children_of(parent)):
            continue
        load = math.fsum(part.load for part in parts)
        if load >= limits.merge_share * limits.capacity:
            continue
        heaviest = max(parts, key=lambda part: part.load)
        for part in parts:
            del blocks[part.id]
        blocks[parent] = Block(parent, _around(part.box for part in parts), heaviest.owner, load)
        above = parent_of(parent)
        if above is not None:
            pending.add(above)


def _around(boxes: Iterable[Box]) -> Box:
    sides = list(zip(*boxes, strict=True))
    return Box(min(sides[0]), min(sides[1]), max(sides[2]), max(sides[3]))


def _likeness(a: Box, b: Box) -> float:
    shared = overlap(a, b)
    if shared is None:
        return 0.0
    common = area_of(shared)
    return common / (area_of(a) + area_of(b) - common)


def _stretched(parts: list[Block], old: Box, new: Box) -> list[Block]:
    """The parts of a region whose outer border has moved; one part again when the border has passed an inner cut."""
    moved = []
    for part in parts:
        box = Box(*(to if side == at else side for side, at, to in zip(part.box, old, new, strict=True)))
        if not (new.west <= box.west < box.east <= new.east and new.south <= box.south < box.north <= new.north):
            heaviest = max(parts, key=lambda block: block.load)
            load = math.fsum(block.load for block in parts)
            return [Block(region_of(part.id), new, heaviest.owner, load)]
        moved.append(replace(part, box=box))
    return moved
