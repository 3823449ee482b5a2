"""Slow regions in hardly more parts than they need.

A slow region is cut where its places are, so that each part is full. As the crowd comes and goes, parts are cut again
and few are ever merged: after a while the region lies in pieces. One that has more parts than its load takes is cut
anew as a whole. Each new part goes to the node that owned most of it, so hardly a client is handed over for that.
"""

from __future__ import annotations

import math
from collections import Counter
from typing import TYPE_CHECKING

from spatial_index import Block, Box, RegionTree, adapt_tree, with_owners
from spatial_index.region_blocks import area, overlap, region_of

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping

    from spatial_index.region_changes import Places

SPARE = 8
"""A region may have one part more than its load takes, and one for each so many, before it is cut anew."""


def packed(tree: RegionTree, loads: Mapping[str, float], sample: Places) -> RegionTree:
    """Split what is too heavy, merge what is light (`adapt_tree`), and cut slow regions anew that lie in pieces.

    Args:
        tree: the version in force.
        loads: what its blocks weigh now, in the unit of the capacity.
        sample: places where that load is.
    """
    found = adapt_tree(tree, loads, sample)
    scattered = _scattered(found)
    if not scattered:
        return found
    anew = _cut_anew(tree, loads, sample, scattered)
    before, after = _counted(found), _counted(anew)
    better = {region for region in scattered if after[region] < before[region]}
    if better == scattered:
        return anew
    return _cut_anew(tree, loads, sample, better) if better else found


def _scattered(tree: RegionTree) -> set[str]:
    """The slow regions with more parts than they need."""
    found = set()
    for region, parts in _parts(tree).items():
        needed = max(1, math.ceil(math.fsum(part.load for part in parts) / tree.limits.capacity))
        if len(parts) > needed + 1 + needed // SPARE:
            found.add(region)
    return found


def _cut_anew(tree: RegionTree, loads: Mapping[str, float], sample: Places, regions: Collection[str]) -> RegionTree:
    """`adapt_tree` after some regions were made whole."""
    parts = _parts(tree)
    blocks = {block.id: block for block in tree}
    weights = dict(loads)
    for region in regions:
        load = math.fsum(weights.pop(part.id, part.load) for part in parts[region])
        for part in parts[region]:
            del blocks[part.id]
        heaviest = max(parts[region], key=lambda part: part.load)
        blocks[region] = Block(region, _around(part.box for part in parts[region]), heaviest.owner, load)
    ordered = sorted(blocks.values(), key=lambda block: block.id)
    whole = RegionTree(tree.space, tree.limits, blocks=ordered, version=tree.version, next_region=tree.next_region)
    cut = adapt_tree(whole, weights, sample)
    owners = {
        block.id: _owner_of_most(block.box, parts[region])
        for block in cut
        if block.slow and (region := region_of(block.id)) in regions
    }
    return with_owners(cut, owners)


def _owner_of_most(box: Box, parts: Iterable[Block]) -> str:
    covered: dict[str, float] = {}
    for part in parts:
        shared = overlap(box, part.box)
        covered[part.owner] = covered.get(part.owner, 0.0) + (0.0 if shared is None else area(shared))
    return max(sorted(covered), key=lambda owner: covered[owner])


def _parts(tree: RegionTree) -> dict[str, list[Block]]:
    found: dict[str, list[Block]] = {}
    for block in tree:
        if block.slow:
            found.setdefault(region_of(block.id), []).append(block)
    return found


def _counted(tree: RegionTree) -> Counter[str]:
    return Counter(region_of(block.id) for block in tree if block.slow)


def _around(boxes: Iterable[Box]) -> Box:
    wests, souths, easts, norths = zip(*boxes, strict=True)
    return Box(min(wests), min(souths), max(easts), max(norths))
