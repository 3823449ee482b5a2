"""Whose a block is: each node owns a stretch of the map, by load and with few moves.

Blocks are lined up along the curve that the names of the quadtree describe, which visits all of one quarter before the
next; the line is cut into as many stretches of equal load as there are nodes. What is next to each other on the map is
mostly next to each other on the line, so few borders between blocks are borders between nodes, and clients that move
are seldom handed over. When a node goes its neighbours on the line take its stretch; when one comes the stretches of
two others make room for it.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from spatial_index import RegionTree, with_owners

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping, Sequence

    from spatial_index import Block

TOLERANCE = 0.25
"""How far above its share a node may be before a block moves."""
GENTLY = 0.1
"""The share of the blocks that may leave living nodes in one version while they are busy, at least one."""
WORTH_IT = 0.95
"""Blocks move only if that makes things more even in the end, by this factor of the sum of squares."""
IDLE = 1 / 1000
"""What a block weighs at least, as a share of the capacity: where nothing happens, blocks are shared out by number."""
DEEP = 26


def rescued(tree: RegionTree, nodes: Collection[str], loads: Mapping[str, float] | None = None) -> RegionTree:
    """Blocks without a living owner get one, from both ends of their stretch; no other block moves."""
    if not nodes or all(block.owner in nodes for block in tree):
        return tree
    blocks = in_order(tree)
    weights = _weights(tree, loads or {})
    if not any(block.owner in nodes for block in blocks):
        return _owned(tree, _shared_out(blocks, weights, sorted(nodes)))
    owners: dict[str, str] = {}
    run: list[Block] = []
    before = ""
    for block in [*blocks, None]:
        if block is not None and block.owner not in nodes:
            run.append(block)
            continue
        after = "" if block is None else block.owner
        ends = [end for end in (before, after) if end]
        owners.update(_shared_out(run, weights, ends))
        run, before = [], after
    return _owned(tree, owners)


def balanced(tree: RegionTree, nodes: Collection[str], loads: Mapping[str, float]) -> RegionTree:
    """Stretches become longer and shorter where a node has too much: of the busy blocks few move at a time."""
    if not nodes:
        return tree
    tree = rescued(tree, nodes, loads)
    weights = _weights(tree, loads)
    filled = _filled(weights, {block.id: block.owner for block in tree}, nodes)
    share = math.fsum(filled.values()) / len(filled)
    if max(filled.values()) <= share * (1 + TOLERANCE):
        return tree
    blocks = in_order(tree)
    wanted = _shared_out(blocks, weights, _lined_up(blocks, weights, nodes))
    if _unevenness(_filled(weights, wanted, nodes)) > _unevenness(filled) * WORTH_IT:
        return tree
    moving = [block for block in blocks if wanted[block.id] != block.owner]
    busy = [block for block in moving if loads.get(block.id)]
    busy.sort(key=lambda block: filled[wanted[block.id]] - filled[block.owner])  # from the fullest to the emptiest
    going = [block for block in moving if not loads.get(block.id)] + busy[: max(1, int(len(blocks) * GENTLY))]
    return _owned(tree, {block.id: wanted[block.id] for block in going})


def in_order(tree: RegionTree) -> list[Block]:
    """The blocks along the line; a slow region has its place where its middle is."""
    return sorted(tree, key=lambda block: _way_to_middle(tree, block) if block.slow else block.id)


def _way_to_middle(tree: RegionTree, block: Block) -> str:
    """The name of a deep quadtree block in the middle of a slow one."""
    x, y = (block.box.west + block.box.east) / 2, (block.box.south + block.box.north) / 2
    west, south, east, north = tree.space.bounds
    name = "q"
    for _ in range(DEEP):
        middle_x, middle_y = (west + east) / 2, (south + north) / 2
        name += str((x >= middle_x) + 2 * (y >= middle_y))
        west, east = (middle_x, east) if x >= middle_x else (west, middle_x)
        south, north = (middle_y, north) if y >= middle_y else (south, middle_y)
    return name


def _weights(tree: RegionTree, loads: Mapping[str, float]) -> dict[str, float]:
    least = tree.limits.capacity * IDLE
    return {block.id: loads.get(block.id, 0.0) + least for block in tree}


def _filled(weights: Mapping[str, float], owners: Mapping[str, str], nodes: Collection[str]) -> dict[str, float]:
    """What each node carries."""
    filled = dict.fromkeys(sorted(nodes), 0.0)
    for name, owner in owners.items():
        filled[owner] += weights[name]
    return filled


def _unevenness(filled: Mapping[str, float]) -> float:
    return math.fsum(carried * carried for carried in filled.values())


def _shared_out(blocks: Sequence[Block], weights: Mapping[str, float], nodes: Sequence[str]) -> dict[str, str]:
    """Stretches of equal load, one for each node in this order."""
    total = math.fsum(weights[block.id] for block in blocks)
    owners: dict[str, str] = {}
    passed = 0.0
    for block in blocks:
        middle = passed + weights[block.id] / 2
        owners[block.id] = nodes[min(int(middle / total * len(nodes)), len(nodes) - 1)]
        passed += weights[block.id]
    return owners


def _lined_up(blocks: Sequence[Block], weights: Mapping[str, float], nodes: Collection[str]) -> list[str]:
    """The nodes in the order of what they own; those that own nothing are put where least has to move for them."""
    places: dict[str, float] = dict.fromkeys(nodes, 0.0)
    owned: dict[str, float] = dict.fromkeys(nodes, 0.0)
    for number, block in enumerate(blocks):
        places[block.owner] += number * weights[block.id]
        owned[block.owner] += weights[block.id]
    order = sorted((node for node in nodes if owned[node]), key=lambda node: (places[node] / owned[node], node))
    for node in sorted(node for node in nodes if not owned[node]):
        candidates = [[*order[:at], node, *order[at:]] for at in range(len(order) + 1)]
        order = min(candidates, key=lambda candidate: _moved(blocks, weights, candidate))
    return order


def _moved(blocks: Sequence[Block], weights: Mapping[str, float], nodes: Sequence[str]) -> float:
    """How much load changes hands if the line is shared out in this order."""
    wanted = _shared_out(blocks, weights, nodes)
    return math.fsum(weights[block.id] for block in blocks if wanted[block.id] != block.owner)


def _owned(tree: RegionTree, owners: Mapping[str, str]) -> RegionTree:
    """The next version with other owners, or the same if none is another one."""
    found = with_owners(tree, owners)
    if found is tree:
        return tree
    return RegionTree(tree.space, tree.limits, blocks=found, version=tree.version + 1, next_region=tree.next_region)
