"""Cells of blocks: where in a block something is, more finely than blocks are cut.

Each block is ruled into eight by eight cells, named by the block and two digits. Whoever listens in a small area names
the cells it touches, in a large one whole blocks; what happens at a place is in one cell of one block. So two parties
that go by the same version of the blocks find each other by comparing names, and never miss.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from spatial_index.spaces import checked_box

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from spatial_index.region_tree import RegionTree
    from spatial_index.spaces import Box

SIDE = 8
"""A block has as many cells a side."""
FEW = 8
"""Cells of one block that are named one by one; an area that touches more is in the whole block."""


def block_of_name(name: str) -> str:
    """The block that a name names, or a cell of it."""
    return name.partition(":")[0]


def names_at(tree: RegionTree, x: float, y: float) -> set[str]:
    """The names that a place is under: its block and its cell."""
    x, y = tree.one_name(x, y)
    block = tree.home(x, y)
    box = block.box
    return {block.id, f"{block.id}:{_part(x, box.west, box.east)}{_part(y, box.south, box.north)}"}


def names_touched(tree: RegionTree, pieces: Iterable[Box], most: int) -> frozenset[str] | None:
    """Names that cover an area, cells where they are few in a block; None, without looking further, if too many.

    Args:
        tree: the blocks.
        pieces: closed boxes with west <= east that cover the area; they may be lines or points.
        most: how many names are worth it.
    """
    found: set[str] = set()
    for piece in tree.named(pieces):
        for block in tree.touching(piece):
            cells = _cells(block.id, block.box, piece)
            found.update(cells if len(cells) <= FEW else (block.id,))
            if len(found) > most:
                return None
    return frozenset(name for name in found if ":" not in name or block_of_name(name) not in found)


def names_in(tree: RegionTree, box: Sequence[float], most: int) -> set[str] | None:
    """All names that somebody may go by who listens in some part of a box; None if there are too many."""
    found: set[str] = set()
    for piece in tree.named(checked_box(tree.space, box)):
        for block in tree.touching(piece):
            found.add(block.id)
            found.update(_cells(block.id, block.box, piece))
            if len(found) > most:
                return None
    return found


def _cells(block: str, box: Box, piece: Box) -> list[str]:
    columns = range(_part(piece.west, box.west, box.east), _part(piece.east, box.west, box.east) + 1)
    rows = range(_part(piece.south, box.south, box.north), _part(piece.north, box.south, box.north) + 1)
    return [f"{block}:{column}{row}" for column in columns for row in rows]


def _part(value: float, low: float, high: float) -> int:
    """Which of the parts of a side holds a value; never a smaller one for a larger value, so nothing falls between."""
    return min(max(int((value - low) / (high - low) * SIDE), 0), SIDE - 1)
