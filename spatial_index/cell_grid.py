"""The grid under an index: coordinates as integers, cells as integers, and what is asked of them often.

Shifting a coordinate by a level gives the column or row of its cell on that level; a level higher is twice as wide.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from spatial_index.slot_table import Floats, Slots

    Corners = tuple[int, int, int, int]

BITS = 26
"""The world is 2**26 units wide: 0.6 m on the Earth's equator."""

SMALLEST_SIZE = 8
"""Boxes under this many units go with those of this size: fewer dictionaries for a place to be looked up in."""

KEY_SHIFT = 28
"""A cell's key is its column, shifted, with its row below; a row has at most BITS + 1 bits."""

SIZE_SHIFT = 58
"""A home has the box's size above this bit."""

KEY_ROW = (1 << KEY_SHIFT) - 1


class Grid:
    """Turns coordinates into units: 2**BITS across the longer side of the space."""

    __slots__ = ("scale", "south", "west")

    def __init__(self, west: float, south: float, east: float, north: float) -> None:
        self.west, self.south = west, south
        self.scale = (1 << BITS) / max(east - west, north - south)

    def corners(self, west: float, south: float, east: float, north: float) -> Corners:
        """A box's corners in units."""
        w, s, f = self.west, self.south, self.scale
        return int((west - w) * f), int((south - s) * f), int((east - w) * f), int((north - s) * f)

    def corners_many(self, bounds: Floats) -> Slots:
        """The corners of boxes given as columns, in units; the same arithmetic as for one."""
        origin = np.array(((self.west,), (self.south,), (self.west,), (self.south,)))
        corners: Slots = ((bounds - origin) * self.scale).astype(np.int64)
        return corners

    def box(self, level: int, key: int) -> tuple[float, float, float, float]:
        """A cell's sides in coordinates."""
        column, row = key >> KEY_SHIFT, key & KEY_ROW
        return (
            self.west + (column << level) / self.scale,
            self.south + (row << level) / self.scale,
            self.west + ((column + 1) << level) / self.scale,
            self.south + ((row + 1) << level) / self.scale,
        )


def home_of(corners: Corners, fine: int) -> int:
    """A box's size and the cells it covers at the finest level of those that hold it, as one integer.

    Which cells hold a box depends on nothing else, so a box whose home is unchanged is still in the same cells.
    """
    x0, y0, x1, y1 = corners
    column, row = x0 >> fine, y0 >> fine
    size = ((x1 - x0) | (y1 - y0) | SMALLEST_SIZE).bit_length()
    return size << SIZE_SHIFT | column << 31 | row << 4 | ((x1 >> fine) - column) << 2 | ((y1 >> fine) - row)


def homes_of(corners: Slots, fine: Slots) -> Slots:
    """`home_of` for many boxes."""
    x0, y0, x1, y1 = corners >> fine
    homes: Slots = sizes_of(corners) << SIZE_SHIFT | x0 << 31 | y0 << 4 | (x1 - x0) << 2 | (y1 - y0)
    return homes


def sizes_of(corners: Slots) -> Slots:
    """The number of bits of each box's longer side."""
    x0, y0, x1, y1 = corners
    _, exponents = np.frexp(((x1 - x0) | (y1 - y0) | SMALLEST_SIZE).astype(np.float64))
    sizes: Slots = exponents.astype(np.int64)
    return sizes


def children_of(key: int) -> tuple[int, int, int, int]:
    """The four cells below a cell."""
    first = (key >> KEY_SHIFT) << (KEY_SHIFT + 1) | (key & KEY_ROW) << 1
    right = 1 << KEY_SHIFT
    return first, first + 1, first + right, first + right + 1


def order_by_cell(corners: Slots) -> Slots:
    """An order of boxes by size, and for each size by cell."""
    sizes = sizes_of(corners)
    order: Slots = np.lexsort((corners[1] >> sizes, corners[0] >> sizes, sizes))
    return order
