"""The Q+R index: ids with boxes, circles or polygons, some of which move, found by place or by area.

One id at a time is in `qr_core`; here are the batch forms on NumPy arrays, and what an index tells of itself.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from spatial_index.cell_grid import homes_of, order_by_cell
from spatial_index.cell_search import BATCH_STEP, SCAN_COST, Groups, joined, touching_groups
from spatial_index.crowd import Crowd
from spatial_index.errors import DuplicateId, UnknownId
from spatial_index.index_stats import IndexBlock, IndexStats
from spatial_index.matches import Matches
from spatial_index.qr_core import QUIET_SWEEPS_TO_LEAVE_Q, SWEEP_EVERY, Id, QRCore
from spatial_index.slot_table import BOX, MOVING, STILL
from spatial_index.spaces import Box, checked_boxes, checked_places

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from typing import Any

    from numpy.typing import NDArray

    from spatial_index.slot_table import Floats, Slots

    Keys = Sequence[Id] | NDArray[Any]

BATCH_LEVEL = 14
"""Places of a batch are sorted by cells of 2**14 units, about 10 km on the Earth."""


class QRIndex(QRCore[Id]):
    """An index of shapes by id: boxes, circles or polygons, some of which move.

    Borders belong to shapes. On the Earth, longitudes 180 and -180 are one meridian and each pole is one place. A
    refused call leaves the index as it was.

    Args:
        space: where the shapes are, the Earth (WGS84) unless a `Plane` is given.
    """

    def insert_many(self, keys: Keys[Id], boxes: Floats, *, moving: bool = False) -> None:
        """Take in new ids with boxes, in one go: far faster than one by one, whatever is in the index already.

        Args:
            keys: ids, none of them in the index, each once.
            boxes: an array of shape (n, 4): west, south, east, north.
            moving: a hint that they are going to move.

        Raises:
            SpatialIndexError: when an id or a box is refused; nothing is taken in then.
        """
        keys, sides = _listed(keys), checked_boxes(self.space, boxes, len(keys))
        self._check_new(keys)
        self._reserve(keys, sides, MOVING if moving else STILL, QUIET_SWEEPS_TO_LEAVE_Q if moving else 0)

    def move_many(self, keys: Keys[Id], boxes: Floats) -> None:
        """Give ids other boxes; those that stay within their cells are moved in one vector operation.

        Raises:
            SpatialIndexError: when an id or a box is refused; nothing is moved then.
        """
        keys, sides = _listed(keys), checked_boxes(self.space, boxes, len(keys))
        held = self._check_known(keys)
        table = self._table
        single = np.fromiter((slots.__class__ is int for slots in held), bool, len(held)) & (sides[0] <= sides[2])
        slots = np.fromiter((s if s.__class__ is int else 0 for s in held), np.int64, len(held))
        easy = single & (table.column("side")[slots] == MOVING) & (table.column("kind")[slots] == BOX)
        easy &= table.column("crowded")[slots] == 0
        easy &= table.column("home")[slots] == homes_of(
            self._grid.corners_many(sides), table.column("fine")[slots].astype(np.int64)
        )
        chosen = slots[easy]
        table.bounds[:, chosen] = sides[:, easy]
        table.column("heat")[chosen] = QUIET_SWEEPS_TO_LEAVE_Q
        self._moves += len(chosen)
        for place in np.nonzero(~easy)[0].tolist():
            self.move(keys[place], tuple(sides[:, place].tolist()))
        self._advance(len(chosen))

    def remove_many(self, keys: Keys[Id]) -> None:
        """Forget ids.

        Raises:
            SpatialIndexError: when an id is not there or named twice; nothing is removed then.
        """
        keys = _listed(keys)
        self._check_known(keys)
        for key in keys:
            self.remove(key)

    def at_many(self, xs: Floats, ys: Floats) -> Matches[Id]:
        """`at` for many places at once.

        Raises:
            SpatialIndexError: when a place is not in the space, or there are not as many ys as xs.
        """
        xs, ys = checked_places(self.space, xs, ys)
        west, south, east, north = self.space.bounds
        inner = (west < xs) & (xs < east) & (south < ys) & (ys < north)
        corners = self._grid.corners_many(np.stack((xs, ys, xs, ys)))
        # Neighbours one after the other: they share cells, and what was just read is still in the cache.
        order = np.lexsort((corners[1] >> BATCH_LEVEL, corners[0] >> BATCH_LEVEL))
        parts = []
        for start in range(0, len(order), BATCH_STEP):
            some = order[start : start + BATCH_STEP]
            parts.append(self._at_some(xs, ys, corners, some[inner[some]]))
        border = {int(place): self._at_border(float(xs[place]), float(ys[place])) for place in np.nonzero(~inner)[0]}
        return Matches.of(*joined(parts).in_order(len(xs)), self._table.ids, border)

    def _at_some(self, xs: Floats, ys: Floats, corners: Slots, places: Slots) -> Groups:
        """The slots that hold each of some places, none of which is on the border."""
        x, y = xs[places], ys[places]
        boxes = np.stack((x, y, x, y))
        found = touching_groups(self._levels, self._arena, self._table, corners[:, places], boxes)
        if self._exact.count:
            which = np.repeat(found.which, found.lengths)
            found = found.keeping(self._exact.holding_pairs(which, found.slots, x, y))
        return found._replace(which=places[found.which])

    def intersecting_many(self, boxes: Floats) -> Matches[Id]:
        """`intersecting` for many boxes at once.

        Raises:
            SpatialIndexError: when a box is refused.
        """
        sides = checked_boxes(self.space, boxes, None)
        west, south, east, north = self.space.bounds
        x0, y0, x1, y1 = sides
        corners = self._grid.corners_many(sides)
        plain = (west < x0) & (x0 <= x1) & (x1 < east) & (south < y0) & (y1 < north)
        visits = np.zeros(len(x0), np.int64)
        for level, _ in self._levels:
            left, low, right, high = corners >> level
            visits += (right - left + 1) * (high - low + 1)
        plain &= visits * SCAN_COST <= self._table.top
        places = np.nonzero(plain)[0]
        found = touching_groups(self._levels, self._arena, self._table, corners[:, plain], sides[:, plain])
        # A box that shares several cells with another was found in each of them.
        top = max(1, self._table.top)
        pairs = np.unique(np.repeat(found.which, found.lengths) * top + found.slots)
        which, slots = places[pairs // top], pairs % top
        if self._exact.count:
            keep = self._exact.touching_pairs(which, slots, sides)
            which, slots = which[keep], slots[keep]
        rest = {int(place): self.intersecting(sides[:, place].tolist()) for place in np.nonzero(~plain)[0]}
        return Matches.of(np.bincount(which, minlength=len(x0)), slots, self._table.ids, rest)

    def blocks(self) -> Iterator[IndexBlock]:
        """The cells that hold boxes, for drawing. Cells of one side may overlap: large boxes are in large cells."""
        for side, forest in (("R", self._r), ("Q", self._q)):
            for level, key, count in forest.leaves():
                yield IndexBlock(side, Box(*self._grid.box(level, key)), count)

    def stats(self) -> IndexStats:
        """Count everything; takes time in the number of cells."""
        sides = self._table.column("side")
        crowds = [
            cell
            for forest in (self._r, self._q)
            for cells in forest.cells
            for cell in cells.values()
            if isinstance(cell, Crowd)
        ]
        return IndexStats(
            ids=len(self._slots),
            still=int((sides == STILL).sum()),
            moving=int((sides == MOVING).sum()),
            cells=sum(1 for forest in (self._r, self._q) for _ in forest.leaves()),
            crowds=len(crowds),
            splits=self._r.splits + self._q.splits,
            moves=self._moves,
            to_q=self._to_q,
            to_r=self._to_r,
            bytes=self._table.nbytes() + 4 * len(self._arena.entries) + sum(crowd.nbytes() for crowd in crowds),
        )

    def _check_new(self, keys: Sequence[Id]) -> None:
        if len(set(keys)) < len(keys):
            raise DuplicateId(f"id {_doubled(keys)!r} is named twice in the batch; name each id once")
        known = self._slots
        for key in keys if known else ():
            if key in known:
                raise DuplicateId(f"id {key!r} is in the index already; move it, or remove it first")

    def _check_known(self, keys: Sequence[Id]) -> list[int | tuple[int, ...]]:
        if len(set(keys)) < len(keys):
            raise DuplicateId(f"id {_doubled(keys)!r} is named twice in the batch; name each id once")
        held = []
        for key in keys:
            slots = self._slots.get(key)
            if slots is None:
                raise UnknownId(f"id {key!r} is not in the index; insert it first")
            held.append(slots)
        return held

    def _reserve(self, keys: Sequence[Id], sides: Floats, side: int, heat: int) -> None:
        """Enter boxes that were checked, those across the antimeridian one by one."""
        whole = sides[0] <= sides[2]
        table = self._table
        # Boxes that are looked at together get slots side by side, so that memory is read in order.
        order = np.nonzero(whole)[0]
        order = order[order_by_cell(self._grid.corners_many(sides[:, order]))]
        slots = table.allocate_many(len(order))
        bounds = sides[:, order]
        table.bounds[:, slots] = bounds
        chosen = [keys[place] for place in order.tolist()]
        # One object after the other: an id that is a tuple must not be taken for a row of numbers.
        table.ids[slots] = np.fromiter(chosen, object, len(chosen))
        table.column("side")[slots] = side
        table.column("heat")[slots] = heat
        forest = self._q if side == MOVING else self._r
        forest.add_many(slots)
        self._slots.update(zip(chosen, slots.tolist(), strict=True))
        for place in np.nonzero(~whole)[0].tolist():
            box = Box(*sides[:, place].tolist())
            self._enter(keys[place], self.space.pieces(box), None, side, heat)

    def _advance(self, changes: int) -> None:
        """Let the sweep follow a batch of changes."""
        for _ in range(changes // SWEEP_EVERY):
            self._sweep()


def _listed(keys: Keys[Id]) -> Sequence[Id]:
    """Ids as Python has them: an array's numbers are not the objects one gets back from it."""
    if isinstance(keys, np.ndarray):
        listed: list[Id] = keys.tolist()
        return listed
    return keys


def _doubled(keys: Sequence[Id]) -> Id:
    """The first id that comes twice."""
    seen: set[Id] = set()
    return next(key for key in keys if key in seen or seen.add(key))  # type: ignore[func-returns-value]  # set.add is None
