"""What the Q+R index is measured against: what one would otherwise reach for, each used as well as it can be."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

import numpy as np
import pyqtree
import rtree
import shapely

from benchmarks.index_worlds import EAST, NORTH, SOUTH, WEST
from spatial_index import QRIndex

if TYPE_CHECKING:
    from collections.abc import Sequence

    from benchmarks.index_worlds import Floats

Sides = tuple[float, float, float, float]


class Structure(Protocol):
    """A structure under measurement."""

    name: str

    def at(self, x: float, y: float) -> Sequence[int]:
        """Who contains a place."""

    def move(self, key: int, box: Sides) -> None:
        """Move a box."""


class Locus:
    """The Q+R index."""

    name = "locus"

    def __init__(self, boxes: Floats) -> None:
        self.index: QRIndex[int] = QRIndex()
        self.index.insert_many(range(len(boxes)), boxes)
        self.at = self.index.at
        self.move = self.index.move


class RTree:
    """libspatialindex by `rtree`, bulk-loaded; a move is a delete and an insert, for it has nothing else."""

    name = "rtree"

    def __init__(self, boxes: Floats) -> None:
        self._boxes = [tuple(row) for row in boxes.tolist()]
        self._tree = rtree.index.Index((key, box, None) for key, box in enumerate(self._boxes))

    def at(self, x: float, y: float) -> Sequence[int]:
        """Who contains a place."""
        return list(self._tree.intersection((x, y, x, y)))

    def move(self, key: int, box: Sides) -> None:
        """Move a box."""
        self._tree.delete(key, self._boxes[key])
        self._tree.insert(key, box)
        self._boxes[key] = box


class UniformGrid:
    """Cells of one width, a dictionary of boxes in each; a box that stays in its cells is written once."""

    name = "tuned grid"

    def __init__(self, boxes: Floats, width: float) -> None:
        self.width = width
        self._cells: dict[int, dict[int, list[float]]] = {}
        self._boxes: list[list[float]] = boxes.tolist()
        self._ranges = [self._range(*box) for box in self._boxes]
        for key in range(len(self._boxes)):
            self._enter(key)

    def _range(self, x0: float, y0: float, x1: float, y1: float) -> tuple[int, int, int, int]:
        width = self.width
        return int(x0 // width), int(y0 // width), int(x1 // width), int(y1 // width)

    def _enter(self, key: int) -> None:
        cells, box = self._cells, self._boxes[key]
        left, low, right, high = self._ranges[key]
        for column in range(left, right + 1):
            for row in range(low, high + 1):
                cell = cells.get(column << 20 | row)
                if cell is None:
                    cells[column << 20 | row] = {key: box}
                else:
                    cell[key] = box

    def at(self, x: float, y: float) -> Sequence[int]:
        """Who contains a place."""
        cell = self._cells.get(int(x // self.width) << 20 | int(y // self.width))
        if cell is None:
            return []
        return [key for key, box in cell.items() if box[0] <= x <= box[2] and box[1] <= y <= box[3]]

    def move(self, key: int, box: Sides) -> None:
        """Move a box."""
        cells, width = self._ranges[key], self.width
        after = int(box[0] // width), int(box[1] // width), int(box[2] // width), int(box[3] // width)
        self._boxes[key][:] = box
        if after == cells:
            return
        left, low, right, high = cells
        for column in range(left, right + 1):
            for row in range(low, high + 1):
                del self._cells[column << 20 | row][key]
        self._ranges[key] = after
        self._enter(key)


class PyQtree:
    """The quadtree of `pyqtree`, with its own defaults."""

    name = "pyqtree"

    def __init__(self, boxes: Floats) -> None:
        self._boxes = [tuple(row) for row in boxes.tolist()]
        self._tree = pyqtree.Index(bbox=(WEST - 5, SOUTH - 5, EAST + 5, NORTH + 5))
        for key, box in enumerate(self._boxes):
            self._tree.insert(key, box)

    def at(self, x: float, y: float) -> Sequence[int]:
        """Who contains a place."""
        found: list[int] = self._tree.intersect((x, y, x, y))
        return found

    def move(self, key: int, box: Sides) -> None:
        """Move a box."""
        self._tree.remove(key, self._boxes[key])
        self._tree.insert(key, box)
        self._boxes[key] = box


class STRTree:
    """shapely's STRtree over the boxes' diagonals, whose bounding boxes are the boxes; it cannot move."""

    name = "STRtree"

    def __init__(self, boxes: Floats) -> None:
        self._tree = shapely.STRtree(shapely.linestrings(boxes.reshape(-1, 2, 2)))

    def at(self, x: float, y: float) -> Sequence[int]:
        """Who contains a place."""
        found: list[int] = self._tree.query(shapely.Point(x, y)).tolist()
        return found

    def move(self, key: int, box: Sides) -> None:
        """Refuse: the tree is static."""
        raise NotImplementedError(f"STRtree cannot move {key} to {box}")


class Scan:
    """Four comparisons over columns of all boxes."""

    name = "NumPy scan"

    def __init__(self, boxes: Floats) -> None:
        self._columns = np.ascontiguousarray(boxes.T)

    def at(self, x: float, y: float) -> Sequence[int]:
        """Who contains a place."""
        west, south, east, north = self._columns
        found: list[int] = np.nonzero((west <= x) & (x <= east) & (south <= y) & (y <= north))[0].tolist()
        return found

    def move(self, key: int, box: Sides) -> None:
        """Move a box."""
        self._columns[:, key] = box
