"""Cells of blocks: where in a block something is, more finely than blocks are cut.

Each block is ruled into two by two cells, four by four and so on to 32 by 32, named by the block, the ruling, column
and row. Whoever listens in an area names the cells it touches, of the finest ruling of which they are few, or whole
blocks; what happens at a place is in one cell of each ruling of one block. So two parties that go by the same version
of the blocks find each other by comparing names, and never miss.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from spatial_index.spaces import Box, checked_box

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from spatial_index.region_tree import RegionTree

LEVELS = 5
"""The finest ruling has two to this power cells a side."""
FEW = 24
"""Cells of one block that are named one by one."""
ROUNDING = 1e-9
"""Cells are taken to be this part wider where it is asked what touches them."""


def block_of_name(name: str) -> str:
    """The block that a name names, or a cell of it."""
    return name.partition(":")[0]


def names_at(tree: RegionTree, x: float, y: float) -> set[str]:
    """The names that a place is under: its block and its cell in each ruling."""
    x, y = tree.one_name(x, y)
    block = tree.home(x, y)
    box = block.box
    return _names(block.id, _part(x, box.west, box.east), _part(y, box.south, box.north))


def names_touched(
    tree: RegionTree, pieces: Iterable[Box], most: int, touches: Callable[[Box], bool] | None = None
) -> frozenset[str] | None:
    """Names that cover an area, in each block as finely as a few cells can; None, without looking further, if too many.

    Args:
        tree: the blocks.
        pieces: closed boxes with west <= east that cover the area; they may be lines or points.
        most: how many names are worth it.
        touches: whether the area, which may be less than all of the pieces, touches a box.
    """
    found: set[str] = set()
    for piece in tree.named(pieces):
        for block in tree.touching(piece):
            found.update(_cells(block.id, block.box, piece, touches))
            if len(found) > most:
                return None
    return frozenset(name for name in found if ":" not in name or block_of_name(name) not in found)


def names_in(tree: RegionTree, box: Sequence[float], most: int) -> set[str] | None:
    """All names that somebody may go by who listens in some part of a box; None if there are too many."""
    found: set[str] = set()
    for piece in tree.named(checked_box(tree.space, box)):
        for block in tree.touching(piece):
            columns, rows = _ranges(block.box, piece)
            if len(found) + len(columns) * len(rows) > most:
                return None
            for column in columns:
                for row in rows:
                    found |= _names(block.id, column, row)
            if len(found) > most:
                return None
    return found


def _names(block: str, column: int, row: int) -> set[str]:
    """A block and its cells, of all rulings, that hold a cell of the finest one."""
    found = {f"{block}:{LEVELS - up}.{column >> up}.{row >> up}" for up in range(LEVELS)}
    found.add(block)
    return found


def _cells(block: str, box: Box, piece: Box, touches: Callable[[Box], bool] | None) -> list[str]:
    """The cells of a block that an area touches, of the finest ruling of which they are few, or the block."""
    columns, rows = _ranges(box, piece)
    west, east, south, north = columns[0], columns[-1], rows[0], rows[-1]
    few = FEW if touches is None else 2 * FEW
    for up in range(LEVELS):
        across, along = range(west >> up, (east >> up) + 1), range(south >> up, (north >> up) + 1)
        if len(across) * len(along) <= few and len(across) * len(along) < 4 ** (LEVELS - up):
            cells = [(column, row) for column in across for row in along]
            if touches is not None:
                cells = [cell for cell in cells if touches(_cell_box(box, LEVELS - up, *cell))]
            if len(cells) <= FEW:
                return [f"{block}:{LEVELS - up}.{column}.{row}" for column, row in cells]
    return [block]


def _cell_box(box: Box, level: int, column: int, row: int) -> Box:
    """The box of a cell, and a little around it: what is on its border in truth is not off it by rounding."""
    wide, high, parts = box.east - box.west, box.north - box.south, 1 << level
    return Box(
        box.west + wide * (column / parts - ROUNDING),
        box.south + high * (row / parts - ROUNDING),
        box.west + wide * ((column + 1) / parts + ROUNDING),
        box.south + high * ((row + 1) / parts + ROUNDING),
    )


def _ranges(box: Box, piece: Box) -> tuple[range, range]:
    """The columns and rows of the finest ruling of a block that a piece touches."""
    columns = range(_part(piece.west, box.west, box.east), _part(piece.east, box.west, box.east) + 1)
    rows = range(_part(piece.south, box.south, box.north), _part(piece.north, box.south, box.north) + 1)
    return columns, rows


def _part(value: float, low: float, high: float) -> int:
    """Which part of a side holds a value; never a smaller one for a larger value, so nothing falls between."""
    return min(max(int((value - low) / (high - low) * (1 << LEVELS)), 0), (1 << LEVELS) - 1)
