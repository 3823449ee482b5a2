"""What changes hands: the diff between two versions of a region tree, and the assignment of blocks to nodes by load."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from spatial_index.errors import BadCount, BadTree
from spatial_index.region_blocks import overlap, uncovered_place
from spatial_index.region_tree import RegionTree

if TYPE_CHECKING:
    from collections.abc import Iterable

    from spatial_index.region_blocks import Block
    from spatial_index.spaces import Box


@dataclass(frozen=True, slots=True)
class Transfer:
    """An area that another node serves from now on.

    Where the area lies under a slow region in one of the versions, that part belongs to the slow region's own transfer:
    ask the tree for the `home` of a place when in doubt.
    """

    area: Box
    from_block: str
    to_block: str
    from_owner: str
    to_owner: str


@dataclass(frozen=True, slots=True)
class TreeDiff:
    """How one version becomes another.

    Attributes:
        from_version: the version it applies to.
        to_version: the version it makes.
        next_region: as in the new tree.
        removed: the ids of blocks that are no more.
        put: blocks that are new or have another box, owner or load.
        transfers: what moves to whom.
    """

    from_version: int
    to_version: int
    next_region: int
    removed: tuple[str, ...]
    put: tuple[Block, ...]
    transfers: tuple[Transfer, ...]


def diff_trees(old: RegionTree, new: RegionTree) -> TreeDiff:
    """What must happen between two versions of one tree.

    Raises:
        BadTree: they are of different spaces or have different limits.
    """
    if old.space != new.space or old.limits != new.limits:
        raise BadTree("the trees differ in space or limits: a diff is between two versions of one tree")
    transfers = []
    for block in new:
        for before in old.touching(block.box):
            shared = overlap(before.box, block.box)
            if before.owner == block.owner or shared is None:
                continue
            covers = [*_over(old, before), *_over(new, block)]
            if uncovered_place(new.space, [before.box, block.box], None, covers):
                transfers.append(Transfer(shared, before.id, block.id, before.owner, block.owner))
    return TreeDiff(
        old.version,
        new.version,
        new.next_region,
        tuple(block.id for block in old if block.id not in new),
        tuple(block for block in new if block.id not in old or old[block.id] != block),
        tuple(transfers),
    )


def _over(tree: RegionTree, block: Block) -> list[Box]:
    """The boxes of the slow regions that have precedence over a block."""
    return [] if block.slow else [tree[name].box for name in tree.cross_links(block.id)]


def apply_diff(tree: RegionTree, diff: TreeDiff) -> RegionTree:
    """The new version.

    Raises:
        BadTree: the diff is for another version, or its blocks do not fit.
    """
    if tree.version != diff.from_version:
        raise BadTree(
            f"the diff is for version {diff.from_version}, the tree is version {tree.version}: fetch the tree"
        )
    blocks = {block.id: block for block in tree}
    for name in diff.removed:
        if blocks.pop(name, None) is None:
            raise BadTree(f"the diff removes block {name!r}, which the tree does not have: fetch the tree")
    blocks.update({block.id: block for block in diff.put})
    return RegionTree(
        tree.space, tree.limits, blocks=blocks.values(), version=diff.to_version, next_region=diff.next_region
    )


def assign(
    blocks: Iterable[Block],
    nodes: Iterable[str] | Mapping[str, float],
    loads: Mapping[str, float] | None = None,
    *,
    tolerance: float = 0.1,
) -> dict[str, str]:
    """An owner for every block, by load, with few moves.

    A block stays with its node while that node lives and is not overloaded. Blocks without a living owner go, heaviest
    first, to the node with most room. Then nodes more than `tolerance` above their share give away blocks, as long as
    that makes the fuller of the two nodes less full.

    Args:
        blocks: the blocks, with their present owners.
        nodes: the living nodes, as names, or as names with their strength (a node of strength 2 takes twice the load).
        loads: what blocks weigh; what is not mentioned weighs `Block.load`.
        tolerance: how far above its share a node may be before anything moves.

    Raises:
        BadCount: there is no node, or a strength, a load or the tolerance is not a number that makes sense.
    """
    strength = dict(nodes) if isinstance(nodes, Mapping) else dict.fromkeys(nodes, 1.0)
    if not strength:
        raise BadCount("there are blocks to assign and no nodes: name at least one living node")
    for node, value in strength.items():
        if not 0 < value < math.inf:
            raise BadCount(f"the strength of node {node!r} is {value!r}: it has to be a positive number")
    if not 0 <= tolerance < math.inf:
        raise BadCount(f"tolerance is {tolerance!r}: it has to be 0 or a positive share")
    ordered = sorted(blocks, key=lambda block: block.id)
    weights = {block.id: (loads or {}).get(block.id, block.load) for block in ordered}
    for name, load in weights.items():
        if not 0 <= load < math.inf:
            raise BadCount(f"the load of block {name!r} is {load!r}: it has to be 0 or a positive number")
    # An idle block weighs a little, so that idle blocks are spread by number.
    trifle = (math.fsum(weights.values()) or 1.0) * 1e-6 / max(len(weights), 1)
    weights = {name: load + trifle for name, load in weights.items()}
    return _balance(ordered, weights, strength, tolerance)


def _balance(
    blocks: list[Block], weights: dict[str, float], strength: dict[str, float], tolerance: float
) -> dict[str, str]:
    owners = {block.id: block.owner for block in blocks if block.owner in strength}
    filled = dict.fromkeys(sorted(strength), 0.0)
    for name, node in owners.items():
        filled[node] += weights[name] / strength[node]
    for name in sorted((name for name in weights if name not in owners), key=lambda name: (-weights[name], name)):
        node = min(filled, key=lambda node: (filled[node] + weights[name] / strength[node], node))
        owners[name] = node
        filled[node] += weights[name] / strength[node]
    share = math.fsum(weights.values()) / math.fsum(strength.values())
    held: dict[str, set[str]] = {node: set() for node in filled}
    for name, node in owners.items():
        held[node].add(name)
    while True:
        fullest = max(filled, key=lambda node: (filled[node], node))
        emptiest = min(filled, key=lambda node: (filled[node], node))
        if filled[fullest] <= share * (1 + tolerance):
            return owners

        def fuller_after(name: str, giver: str = fullest, taker: str = emptiest) -> float:
            given = filled[giver] - weights[name] / strength[giver]
            return max(given, filled[taker] + weights[name] / strength[taker])

        best = min(sorted(held[fullest]), key=fuller_after, default=None)
        if best is None or fuller_after(best) >= filled[fullest] * (1 - 1e-9):
            return owners
        filled[fullest] -= weights[best] / strength[fullest]
        filled[emptiest] += weights[best] / strength[emptiest]
        held[fullest].discard(best)
        held[emptiest].add(best)
        owners[best] = emptiest
