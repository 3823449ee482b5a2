"""What decides exactly whether a place is in a shape, once its bounding box is hit."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from spatial_index.shapes import Circle, Outline
from spatial_index.slot_table import BOX, CIRCLE, POLYGON
from spatial_index.spaces import Box

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from spatial_index.slot_table import Floats, Slots, SlotTable
    from spatial_index.spaces import Space

VECTOR_FROM = 16
"""From this many candidates on, circles are compared as vectors."""


class ExactShapes:
    """The circles and polygons among the boxes of a table.

    Attributes:
        count: how many slots are not what their bounding box says; while there are none, nobody needs to ask.
    """

    __slots__ = ("_outlines", "_space", "_table", "count")

    def __init__(self, space: Space, table: SlotTable) -> None:
        self._space, self._table = space, table
        self._outlines: dict[int, Outline] = {}
        self.count = 0

    def set(self, slot: int, exact: Circle | Outline | None) -> None:
        """Note what decides for a slot: a circle, an outline, or its bounding box alone."""
        table = self._table
        self.forget(slot)
        if isinstance(exact, Circle):
            table.set_circle(slot, *self._space.position(exact.x, exact.y), self._space.chord(exact.radius))
            self.count += 1
        elif exact is not None:
            self._outlines[slot] = exact
            table.kind[slot] = POLYGON
            self.count += 1

    def forget(self, slot: int) -> None:
        """Let the bounding box decide for a slot."""
        if self._table.kind[slot] != BOX:
            self._table.kind[slot] = BOX
            self._outlines.pop(slot, None)
            self.count -= 1

    def holding(self, near: list[int], x: float, y: float) -> list[int]:
        """Of slots whose bounding box contains a place, those whose shape does."""
        table = self._table
        kind, circles = table.kind, table.circles
        px, py, pz = self._space.position(x, y)
        if len(near) > VECTOR_FROM:
            slots = np.array(near)
            kinds = np.asarray(kind)[slots]
            cx, cy, cz, reach = circles[:, np.where(kinds == CIRCLE, slots, 0)] if circles.size else np.zeros((4, 1))
            inside = (cx - px) ** 2 + (cy - py) ** 2 + (cz - pz) ** 2 <= reach
            near = slots[(kinds != CIRCLE) | inside].tolist()
            return [s for s in near if kind[s] != POLYGON or self._outlines[s].contains(x, y)]
        found = []
        for slot in near:
            if kind[slot] == BOX:
                found.append(slot)
            elif kind[slot] == CIRCLE:
                cx, cy, cz, reach = circles[:, slot].tolist()
                if (cx - px) ** 2 + (cy - py) ** 2 + (cz - pz) ** 2 <= reach:
                    found.append(slot)
            elif self._outlines[slot].contains(x, y):
                found.append(slot)
        return found

    def holding_pairs(self, which: Slots, slots: Slots, xs: Floats, ys: Floats) -> NDArray[np.bool_]:
        """Of places and slots whose bounding box contains them, pair by pair, where the shape does."""
        kinds = self._table.column("kind")[slots]
        keep = np.ones(len(slots), bool)
        round_ones = np.nonzero(kinds == CIRCLE)[0]
        if len(round_ones):
            px, py, pz = self._space.positions(xs, ys)
            cx, cy, cz, reach = self._table.circles[:, slots[round_ones]]
            at = which[round_ones]
            keep[round_ones] = (cx - px[at]) ** 2 + (cy - py[at]) ** 2 + (cz - pz[at]) ** 2 <= reach
        for pair in np.nonzero(kinds == POLYGON)[0].tolist():
            outline, at = self._outlines[int(slots[pair])], which[pair]
            keep[pair] = outline.contains(float(xs[at]), float(ys[at]))
        return keep

    def touching_pairs(self, which: Slots, slots: Slots, sides: Floats) -> NDArray[np.bool_]:
        """Of pieces and slots whose bounding box touches them, pair by pair, where the shape does."""
        kinds = self._table.column("kind")[slots]
        keep: NDArray[np.bool_] = kinds == BOX
        for pair in np.nonzero(~keep)[0].tolist():
            keep[pair] = self.touches(int(slots[pair]), Box(*sides[:, which[pair]].tolist()))
        return keep

    def touches(self, slot: int, box: Box) -> bool:
        """Whether the shape of a slot, whose bounding box touches a piece, does so itself."""
        kind = self._table.kind[slot]
        if kind == BOX:
            return True
        if kind == POLYGON:
            return self._outlines[slot].touches(box)
        centre_x, centre_y, centre_z, reach = self._table.circles[:, slot].tolist()
        x, y = self._space.place(centre_x, centre_y, centre_z)
        return bool(self._space.chord(self._space.distance_to_box(x, y, box)) ** 2 <= reach)
