"""The Q+R index, one id and one question at a time.

Boxes that have stayed put are on the R side, boxes that move on the Q side. Both are quadtrees of hashed cells
(`CellForest`): the R side's cells split until few boxes are asked in vain; the Q side's stay wide, so that a step
rarely leaves its cell. Which side a box is on follows from its moves. See docs/structures/qr-index.md.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Generic, TypeVar

import numpy as np

from spatial_index.arena import Arena
from spatial_index.cell_forest import CellForest
from spatial_index.cell_grid import KEY_SHIFT, Grid, home_of
from spatial_index.cell_search import near_slots
from spatial_index.errors import DuplicateId, UnknownId
from spatial_index.exact_shapes import ExactShapes
from spatial_index.shapes import Circle, Outline, Shape, measured
from spatial_index.slot_table import MOVING, STILL, SlotTable
from spatial_index.spaces import WGS84, Box, Space, checked_box, checked_place

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from spatial_index.cell_forest import Level
    from spatial_index.cell_grid import Corners

Id = TypeVar("Id")

HEAT_OF_A_MOVE = 2
"""What a move adds to the heat of a box on the R side; each sweep takes 1 away."""

HEAT_TO_LEAVE_R = 3
"""A box on the R side goes to the Q side at this heat: two moves with at most one sweep between them."""

QUIET_SWEEPS_TO_LEAVE_Q = 4
"""A box on the Q side that does not move for this many sweeps goes to the R side."""

SWEEP_EVERY = 128
"""Changes between two steps of the sweep."""

SWEEP_STEP = 64
"""Slots a step looks at: a sweep of n boxes takes 2 n changes."""


class QRCore(Generic[Id]):
    """An index of shapes by id; `QRIndex` adds the batch forms.

    Borders belong to shapes. On the Earth, longitudes 180 and -180 are one meridian and each pole is one place. A
    refused call leaves the index as it was.

    Args:
        space: where the shapes are, the Earth (WGS84) unless a `Plane` is given.
    """

    def __init__(self, space: Space = WGS84) -> None:
        self.space = space
        west, south, east, north = space.bounds
        self._west, self._south, self._east, self._north = west, south, east, north
        self._grid = Grid(west, south, east, north)
        self._scale = self._grid.scale
        self._slots: dict[Id, int | tuple[int, ...]] = {}
        self._table = SlotTable()
        self._arena = Arena()
        self._levels: list[Level] = []
        forest = (self._table, self._grid, self._arena, self._levels)
        self._r = CellForest(*forest, looseness=2, tightness=1, run_limit=24)
        self._q = CellForest(*forest, looseness=1, tightness=1, run_limit=48)
        self._exact = ExactShapes(space, self._table)
        self._moves = self._to_q = self._to_r = 0
        self._countdown, self._hand = SWEEP_EVERY, 0

    def __len__(self) -> int:
        return len(self._slots)

    def __contains__(self, key: object) -> bool:
        return key in self._slots

    def __iter__(self) -> Iterator[Id]:
        return iter(self._slots)

    def insert(self, key: Id, shape: Shape, *, moving: bool = False) -> None:
        """Take in a new id.

        Args:
            key: any hashable.
            shape: a box of four numbers (west, south, east, north), a `Point`, a `Circle` or a `Polygon`.
            moving: a hint that it is going to move, which spares it the way from the R side to the Q side.

        Raises:
            DuplicateId: when the id is there already; use `move`.
            SpatialIndexError: when the shape is refused.
        """
        if key in self._slots:
            raise DuplicateId(f"id {key!r} is in the index already; move it, or remove it first")
        boxes, exact = measured(self.space, shape)
        self._enter(key, boxes, exact, MOVING if moving else STILL, QUIET_SWEEPS_TO_LEAVE_Q if moving else 0)
        self._changed()

    def move(self, key: Id, shape: Shape) -> None:
        """Give an id another shape.

        Raises:
            UnknownId: when the id is not there.
            SpatialIndexError: when the shape is refused.
        """
        slot = self._slots.get(key)
        if slot.__class__ is int and (shape.__class__ is tuple or shape.__class__ is Box):
            # The common case, a box that stays a box, decided in one comparison that NaN fails too.
            try:
                x0, y0, x1, y1 = shape
                w, s, f = self._west, self._south, self._scale
                if w <= x0 < x1 <= self._east and s <= y0 < y1 <= self._north and not self._table.kind[slot]:
                    after = int((x0 - w) * f), int((y0 - s) * f), int((x1 - w) * f), int((y1 - s) * f)
                    self._step(slot, x0, y0, x1, y1, after)
                    self._changed()
                    return
            except (TypeError, ValueError):
                pass  # not four numbers that compare: the general case says what is wrong
        self._replace(key, slot, shape)

    def remove(self, key: Id) -> None:
        """Forget an id.

        Raises:
            UnknownId: when the id is not there.
        """
        slots = self._slots.get(key)
        if slots is None:
            raise UnknownId(f"id {key!r} is not in the index")
        self._leave(slots)
        del self._slots[key]
        self._changed()

    def at(self, x: float, y: float) -> list[Id]:
        """The ids whose shape contains a place, in no order.

        Raises:
            BadCoordinate: when the place is not in the space.
        """
        try:
            if not (self._west < x < self._east and self._south < y < self._north):
                return self._at_border(x, y)
            column, row = int((x - self._west) * self._scale), int((y - self._south) * self._scale)
        except TypeError:
            return self._at_border(x, y)
        table = self._table
        x0, y0, x1, y1 = table.sides
        entries = self._arena.entries
        ids = table.ids
        near: list[int] = []
        crowds = None
        for level, get in self._levels:
            cell = get((column >> level) << KEY_SHIFT | row >> level)
            if cell is None:
                continue
            if cell.__class__ is int:
                start = cell >> 6
                for slot in entries[start : start + (cell & 63) + 1]:
                    if x0[slot] <= x <= x1[slot] and y0[slot] <= y <= y1[slot]:
                        near.append(slot)  # noqa: PERF401 - a generator is slower for the few there are
            elif crowds is None:
                crowds = [cell]
            else:
                crowds.append(cell)
        if crowds is None:
            if self._exact.count:
                near = self._exact.holding(near, x, y)
            return [ids[slot] for slot in near]
        limits = np.array((x, y, -x, -y)).reshape(4, 1)
        hits = [crowd.hit(limits) for crowd in crowds]  # type: ignore[union-attr]  # crowds, not integers
        if near:
            hits.append(np.array(near))
        found = hits[0] if len(hits) == 1 else np.concatenate(hits)
        if self._exact.count:
            return [ids[slot] for slot in self._exact.holding(found.tolist(), x, y)]
        matches: list[Id] = ids.take(found).tolist()
        return matches

    def intersecting(self, box: Sequence[float]) -> list[Id]:
        """The ids whose shape has a place in common with a box, in no order.

        Raises:
            BadBox: when the box is inverted or empty.
            BadCoordinate: when it is not in the space.
        """
        return self._touching(
            [other for piece in checked_box(self.space, box) for other in self.space.equivalents(piece)]
        )

    # Entering, moving and leaving.

    def _enter(self, key: Id, boxes: list[Box], exact: Circle | Outline | None, side: int, heat: int) -> None:
        slots = tuple(self._enter_box(key, box, exact, side, heat) for box in boxes)
        self._slots[key] = slots[0] if len(slots) == 1 else slots

    def _enter_box(self, key: Id, box: Box, exact: Circle | Outline | None, side: int, heat: int) -> int:
        table = self._table
        slot = table.allocate()
        table.x0[slot], table.y0[slot], table.x1[slot], table.y1[slot] = box
        table.ids[slot] = key
        table.side[slot], table.heat[slot] = side, heat
        self._exact.set(slot, exact)
        forest = self._q if side == MOVING else self._r
        corners = self._grid.corners(*box)
        forest.add(slot, corners)
        return slot

    def _leave(self, slots: int | tuple[int, ...]) -> None:
        table = self._table
        for slot in slots if isinstance(slots, tuple) else (slots,):
            forest = self._q if table.side[slot] == MOVING else self._r
            forest.remove(slot, self._corners(slot))
            self._exact.forget(slot)
            table.release(slot)

    def _corners(self, slot: int) -> Corners:
        table = self._table
        return self._grid.corners(table.x0[slot], table.y0[slot], table.x1[slot], table.y1[slot])

    def _step(self, slot: int, x0: float, y0: float, x1: float, y1: float, after: Corners) -> None:
        """Move one box, on its side or, when it has moved often enough, to the Q side."""
        table = self._table
        self._moves += 1
        if table.side[slot] == MOVING:
            table.heat[slot] = QUIET_SWEEPS_TO_LEAVE_Q
            forest = self._q
        else:
            forest = self._r
            heat = table.heat[slot] + HEAT_OF_A_MOVE
            if heat >= HEAT_TO_LEAVE_R:
                forest.remove(slot, self._corners(slot))
                table.x0[slot], table.y0[slot], table.x1[slot], table.y1[slot] = x0, y0, x1, y1
                self._to_q += 1
                self._settle(slot, self._q, MOVING, QUIET_SWEEPS_TO_LEAVE_Q, after)
                return
            table.heat[slot] = heat
        if home_of(after, table.fine[slot]) == table.home[slot]:
            table.x0[slot], table.y0[slot], table.x1[slot], table.y1[slot] = x0, y0, x1, y1
            if table.crowded[slot]:
                forest.refresh(slot, after)
            return
        before = self._corners(slot)
        table.x0[slot], table.y0[slot], table.x1[slot], table.y1[slot] = x0, y0, x1, y1
        forest.shift(slot, before, after)

    def _settle(self, slot: int, forest: CellForest, side: int, heat: int, corners: Corners) -> None:
        table = self._table
        table.side[slot], table.heat[slot] = side, heat
        forest.add(slot, corners)

    def _replace(self, key: Id, slots: int | tuple[int, ...] | None, shape: Shape) -> None:
        """Move an id whose shape is, or becomes, something else than one box."""
        if slots is None:
            raise UnknownId(f"id {key!r} is not in the index; insert it first")
        boxes, exact = measured(self.space, shape)
        table = self._table
        if isinstance(slots, int) and len(boxes) == 1:
            self._exact.set(slots, exact)
            self._step(slots, *boxes[0], self._grid.corners(*boxes[0]))
            self._changed()
            return
        first = slots[0] if isinstance(slots, tuple) else slots
        side, heat = table.side[first], table.heat[first]
        if side == MOVING:
            heat = QUIET_SWEEPS_TO_LEAVE_Q
        elif heat + HEAT_OF_A_MOVE >= HEAT_TO_LEAVE_R:
            side, heat = MOVING, QUIET_SWEEPS_TO_LEAVE_Q
            self._to_q += 1
        else:
            heat += HEAT_OF_A_MOVE
        self._moves += 1
        self._leave(slots)
        self._enter(key, boxes, exact, side, heat)
        self._changed()

    def _changed(self) -> None:
        self._countdown -= 1
        if not self._countdown:
            self._countdown = SWEEP_EVERY
            self._sweep()

    def _sweep(self) -> None:
        """Cool the next boxes by one; what has cooled down on the Q side goes to the R side."""
        table = self._table
        if self._hand >= table.top:
            self._hand = 0
        first, last = self._hand, min(self._hand + SWEEP_STEP, table.top)
        self._hand = last
        heats, sides = table.column("heat")[first:last], table.column("side")[first:last]
        heats -= heats > 0
        for slot in (np.nonzero((sides == MOVING) & (heats == 0))[0] + first).tolist():
            corners = self._corners(slot)
            self._q.remove(slot, corners)
            self._to_r += 1
            self._settle(slot, self._r, STILL, 0, corners)

    # Searching.

    def _at_border(self, x: float, y: float) -> list[Id]:
        """`at` for a place on the border of the space, which may have other names, or for no place at all."""
        px, py = checked_place(self.space, x, y)
        return self._touching(self.space.equivalents(Box(px, py, px, py)))

    def _touching(self, boxes: list[Box]) -> list[Id]:
        found: set[int] = set()
        for box in boxes:
            found.update(self._touching_slots(box))
        ids, slots = self._table.ids, list(found)
        if any(isinstance(self._slots[ids[slot]], tuple) for slot in slots):
            return list(dict.fromkeys(ids[slot] for slot in slots))
        return [ids[slot] for slot in slots]

    def _touching_slots(self, box: Box) -> list[int]:
        """The slots whose shape touches a piece."""
        near = near_slots(self._levels, self._arena, self._table, self._grid, box)
        if not self._exact.count:
            return near
        return [slot for slot in near if self._exact.touches(slot, box)]
