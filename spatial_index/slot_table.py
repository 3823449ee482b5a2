"""The table of a Q+R index: a row of numbers for each box, in arrays that scalars and vectors both read.

Single operations read one number at a time, which NumPy does slowly (100 ns) and a memoryview of the same memory does
fast (35 ns); batches and crowds read whole columns, for which NumPy is the other way round. So each column is both.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any, cast

import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:
    from typing_extensions import Buffer

DEAD, STILL, MOVING = 0, 1, 2
"""The sides: no box in this slot; a box on the R side; a box on the Q side."""

BOX, CIRCLE, POLYGON = 0, 1, 2
"""What decides exactly, once the bounding box is hit: nothing more, a distance, an outline."""

Floats = NDArray[np.float64]
Slots = NDArray[np.int64]


class SlotTable:
    """Columns by slot: bounds, home and its finest level, side, heat, kind, whether a crowd holds it, and the id."""

    __slots__ = (
        "_free",
        "_top",
        "bounds",
        "circles",
        "crowded",
        "fine",
        "heat",
        "home",
        "ids",
        "kind",
        "side",
        "sides",
        "x0",
        "x1",
        "y0",
        "y1",
    )

    def __init__(self) -> None:
        self._free: list[int] = []
        self._top = 0
        self._hold(
            np.full((4, 64), math.inf),
            np.zeros(64, np.int64),
            np.zeros((5, 64), np.uint8),
            np.empty(64, object),
        )
        self.circles: Floats = np.empty((4, 0))

    def _hold(self, bounds: Floats, home: Slots, marks: NDArray[np.uint8], ids: NDArray[Any]) -> None:
        self.bounds = bounds
        self.x0, self.y0, self.x1, self.y1 = (cast("memoryview[float]", memoryview(row)) for row in bounds)
        self.sides = (self.x0, self.y0, self.x1, self.y1)
        self.home = cast("memoryview[int]", memoryview(cast("Buffer", home)))
        self.side, self.kind, self.heat, self.crowded, self.fine = (
            cast("memoryview[int]", memoryview(row)) for row in marks
        )
        self.ids = ids

    @property
    def top(self) -> int:
        """One more than the highest slot ever used."""
        return self._top

    def column(self, name: str) -> NDArray[Any]:
        """A column as an array over every slot up to `top`."""
        return np.asarray(getattr(self, name))[: self._top]

    def allocate(self) -> int:
        """A free slot."""
        if self._free:
            return self._free.pop()
        if self._top == len(self.home):
            self._grow(self._top + 1)
        self._top += 1
        return self._top - 1

    def allocate_many(self, count: int) -> Slots:
        """That many free slots, in order."""
        if self._free:
            return np.array([self.allocate() for _ in range(count)], np.int64)
        if self._top + count > len(self.home):
            self._grow(self._top + count)
        self._top += count
        return np.arange(self._top - count, self._top)

    def release(self, slot: int) -> None:
        """Forget a slot; infinite bounds keep it out of every scan."""
        self.x0[slot] = math.inf
        self.side[slot] = DEAD
        self.kind[slot] = BOX
        self.heat[slot] = 0
        self.ids[slot] = None
        self._free.append(slot)

    def set_circle(self, slot: int, x: float, y: float, z: float, chord: float) -> None:
        """Keep a circle as a centre and the square of the straight distance it reaches."""
        if self.circles.shape[1] < len(self.home):
            wider = np.zeros((4, len(self.home)))
            wider[:, : self.circles.shape[1]] = self.circles
            self.circles = wider
        self.circles[:, slot] = x, y, z, chord * chord
        self.kind[slot] = CIRCLE

    def nbytes(self) -> int:
        """Bytes in the columns."""
        return int(self.bounds.nbytes + self.circles.nbytes + len(self.home) * (8 + 5 + 8))

    def _grow(self, needed: int) -> None:
        """Copying a quarter more than is there, each time, costs a few copies of a row in all."""
        size = max(needed, len(self.home) * 5 // 4, 64)
        bounds = np.full((4, size), math.inf)
        home = np.zeros(size, np.int64)
        marks = np.zeros((5, size), np.uint8)
        ids = np.empty(size, object)
        used = self._top
        bounds[:, :used] = self.bounds[:, :used]
        home[:used] = np.asarray(self.home)[:used]
        for row, name in enumerate(("side", "kind", "heat", "crowded", "fine")):
            marks[row, :used] = np.asarray(getattr(self, name))[:used]
        ids[:used] = self.ids[:used]
        self._hold(bounds, home, marks, ids)
