"""A quadtree stored as hashed cells: no nodes, no pointers, a dictionary for each width of cell.

A box goes straight to the cells of its own size, found by shifting its corners, and lies in at most four of them. A
cell is a short run of slots in a shared arena. When that is full and its boxes are small against the cell, it splits:
they move to the cells half as wide, in the same dictionaries as everyone else's. Where they are not, it becomes a
`Crowd`. So a place is looked up in one cell for each width in use, whether or not anything was split.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from spatial_index.cell_grid import (
    BITS,
    KEY_ROW,
    KEY_SHIFT,
    SIZE_SHIFT,
    SMALLEST_SIZE,
    children_of,
    home_of,
    homes_of,
    sizes_of,
)
from spatial_index.crowd import Crowd

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from numpy.typing import NDArray

    from spatial_index.arena import Arena
    from spatial_index.cell_grid import Corners, Grid
    from spatial_index.slot_table import Slots, SlotTable

    Cell = int | Crowd
    Level = tuple[int, Callable[..., Cell | None]]
    Leaf = tuple[int, int]


class CellForest:
    """One side of a Q+R index.

    A box's size is the number of bits of its longer side; at home it is in cells `looseness` bits wider than that.

    Args:
        table: bounds by slot, shared by both sides.
        grid: the space in units.
        arena: runs, shared by both sides.
        levels: every occupied width of cell, shared by both sides; a lookup goes through it once.
        looseness: how many doublings a cell is wider than its boxes need; wider cells are left less often.
        tightness: how many doublings a cell may be narrower than a box that a split sends down. At 0 a box lies in
            four cells at most, at 1 in nine.
        run_limit: how many boxes a cell may hold before it splits or, where it cannot, becomes a crowd (at most 64).
    """

    __slots__ = (
        "_arena",
        "_grid",
        "_levels",
        "_run_limit",
        "_table",
        "_tightness",
        "cells",
        "looseness",
        "split",
        "splits",
    )

    def __init__(
        self,
        table: SlotTable,
        grid: Grid,
        arena: Arena,
        levels: list[Level],
        *,
        looseness: int,
        tightness: int,
        run_limit: int,
    ) -> None:
        self._table, self._grid, self._arena, self._levels = table, grid, arena, levels
        self.looseness, self._tightness, self._run_limit = looseness, tightness, run_limit
        self.cells: list[dict[int, Cell]] = [{} for _ in range(BITS + 4)]
        self.split: list[set[int]] = [set() for _ in range(BITS + 4)]
        self.splits = 0

    def add(self, slot: int, corners: Corners) -> None:
        """Put a slot, whose bounds are in the table, into its cells."""
        self._table.crowded[slot] = 0
        leaves = self._leaves(corners)
        self._note_home(slot, corners, leaves)
        for level, key in leaves:
            self._put(level, key, slot)

    def remove(self, slot: int, corners: Corners) -> None:
        """Take a slot out of the cells it was put in with these corners."""
        thin = False
        for level, key in self._leaves(corners):
            thin |= self._take(level, key, slot)
        if thin:
            self._merge_around(corners)

    def refresh(self, slot: int, corners: Corners) -> None:
        """Note that a slot, whose bounds in the table are new, is still in the same cells, some of them crowds."""
        bounds = self._bounds(slot)
        crowded = 0
        for level, key in self._leaves(corners):
            cell = self.cells[level][key]
            if cell.__class__ is Crowd:
                cell.update(slot, *bounds)
                crowded = 1
        self._table.crowded[slot] = crowded

    def shift(self, slot: int, before: Corners, after: Corners) -> None:
        """Note that a slot, whose bounds in the table are new, went from some corners to others."""
        old, new = self._leaves(before), self._leaves(after)
        thin = crowded = False
        self._note_home(slot, after, new)
        for level, key in old:
            if (level, key) not in new:
                thin |= self._take(level, key, slot)
            else:
                cell = self.cells[level][key]
                if isinstance(cell, Crowd):
                    cell.update(slot, *self._bounds(slot))
                    crowded = True
        self._table.crowded[slot] = crowded
        # A put that splits a cell reads bounds from the table, so everything before must be up to date by now.
        for level, key in new:
            if (level, key) not in old:
                self._put(level, key, slot)
        if thin:
            self._merge_around(before)

    def add_many(self, slots: Slots) -> None:
        """Put many slots into their cells: from the largest cells down, each level in one sort."""
        table = self._table
        corners = self._grid.corners_many(table.bounds[:, slots])
        sizes = sizes_of(corners)
        levels = sizes + self.looseness
        table.column("crowded")[slots] = 0
        table.column("fine")[slots] = levels
        sent = (np.empty(0, np.int64), np.empty(0, np.int64))
        for level in range(int(levels.max(initial=0)), 0, -1):
            own = np.nonzero(levels == level)[0]
            keys, held = _spread(level, corners[:, own], own)
            keys, held = np.concatenate((keys, sent[0])), np.concatenate((held, sent[1]))
            if len(keys):
                order = np.argsort(keys, kind="stable")
                keys, held = keys[order], held[order]
                keys, held, sent = self._split_groups(level, keys, held, corners, slots, sizes)
                self._put_groups(level, keys, slots[held])
        table.column("home")[slots] = homes_of(corners, table.column("fine")[slots].astype(np.int64))

    def _split_groups(
        self, level: int, keys: Slots, held: Slots, corners: Slots, slots: Slots, sizes: Slots
    ) -> tuple[Slots, Slots, tuple[Slots, Slots]]:
        """Split the new cells of a level that would be too full; what stays on it, and what goes to the one below."""
        cells, below = self.cells[level], level - 1
        names, inverse, counts = np.unique(keys, return_inverse=True, return_counts=True)
        fits = sizes[held] <= below + self._tightness
        full = (counts > self._run_limit) & (2 * np.bincount(inverse, weights=fits, minlength=len(names)) >= counts)
        if cells or self.split[level]:
            # Cells that are there already are split, if need be, when the new boxes are put into them.
            known = (name in cells or name in self.split[level] for name in names.tolist())
            full &= ~np.fromiter(known, bool, len(names))
        if not full.any():
            return keys, held, (keys[:0], held[:0])
        self.split[level].update(names[full].tolist())
        self.splits += int(full.sum())
        down = full[inverse] & fits
        parents, moved = keys[down], held[down]
        fine = self._table.column("fine")
        fine[slots[moved]] = np.minimum(fine[slots[moved]], below)
        x0, y0, x1, y1 = corners[:, moved] >> below
        found = []
        for child in (0, 1, 2, 3):
            column = (parents >> KEY_SHIFT << 1) + (child >> 1)
            row = ((parents & KEY_ROW) << 1) + (child & 1)
            inside = (x0 <= column) & (column <= x1) & (y0 <= row) & (row <= y1)
            found.append(((column << KEY_SHIFT | row)[inside], moved[inside]))
        sent = np.concatenate([keys for keys, _ in found]), np.concatenate([held for _, held in found])
        return keys[~down], held[~down], sent

    def _open(self, level: int) -> None:
        """Let lookups go through a level that has been empty until now."""
        if not self.cells[level]:
            self._levels.append((level, self.cells[level].get))

    def leaves(self) -> Iterator[tuple[int, int, int]]:
        """Level, key and number of boxes of each cell that holds any."""
        for level, cells in enumerate(self.cells):
            for key, cell in cells.items():
                yield level, key, len(cell) if isinstance(cell, Crowd) else (cell & 63) + 1

    def _bounds(self, slot: int) -> tuple[float, float, float, float]:
        table = self._table
        return table.x0[slot], table.y0[slot], table.x1[slot], table.y1[slot]

    def _note_home(self, slot: int, corners: Corners, leaves: list[Leaf]) -> None:
        fine = min(leaves)[0]
        self._table.fine[slot] = fine
        self._table.home[slot] = home_of(corners, fine)

    def _leaves(self, corners: Corners) -> list[Leaf]:
        """The cells that hold a box with these corners: its own size's, or below those that are split."""
        x0, y0, x1, y1 = corners
        size = ((x1 - x0) | (y1 - y0) | SMALLEST_SIZE).bit_length()
        level = size + self.looseness
        found: list[Leaf] = []
        split = self.split[level]
        fits = size <= level - 1 + self._tightness
        for column in range(x0 >> level, (x1 >> level) + 1):
            for row in range(y0 >> level, (y1 >> level) + 1):
                key = column << KEY_SHIFT | row
                if fits and key in split:
                    self._leaves_below(level, key, size, corners, found)
                else:
                    found.append((level, key))
        return found

    def _leaves_below(self, level: int, key: int, size: int, corners: Corners, found: list[Leaf]) -> None:
        x0, y0, x1, y1 = corners
        below = level - 1
        split = self.split[below]
        fits = size <= below - 1 + self._tightness
        left, low = (key >> KEY_SHIFT) << 1, (key & KEY_ROW) << 1
        for column in range(max(left, x0 >> below), min(left + 1, x1 >> below) + 1):
            for row in range(max(low, y0 >> below), min(low + 1, y1 >> below) + 1):
                child = column << KEY_SHIFT | row
                if fits and child in split:
                    self._leaves_below(below, child, size, corners, found)
                else:
                    found.append((below, child))

    def _put(self, level: int, key: int, slot: int) -> None:
        cells = self.cells[level]
        cell = cells.get(key)
        if cell is None:
            self._open(level)
            cells[key] = self._arena.new(slot)
        elif isinstance(cell, int) and (cell & 63) + 1 < self._run_limit:
            cells[key] = self._arena.append(cell, slot)
        elif isinstance(cell, Crowd):
            cell.append(slot, *self._bounds(slot))
            self._table.crowded[slot] = 1
            if cell.count > cell.split_at:
                self._split(level, key, cell)
        else:
            self._put_group(level, key, np.array((slot,)))

    def _put_group(self, level: int, key: int, slots: Slots) -> None:
        """Put slots that a run cannot take, or that come in bulk, into one cell, or below it where it is split."""
        cells, arena = self.cells[level], self._arena
        cell = cells.get(key)
        if key in self.split[level]:
            slots = self._send_below(level, key, slots)
            if not len(slots):
                return
        if isinstance(cell, Crowd):
            crowd = cell
        else:
            self._open(level)
            crowd = Crowd(self._run_limit)
            if cell is not None:
                slots = np.concatenate((np.array(arena.slots(cell), np.int64), slots))
                arena.free(cell)
            cells[key] = crowd
        crowd.extend(slots, self._table.bounds[:, slots])
        if crowd.count > crowd.split_at:
            self._split(level, key, crowd)
        if cells.get(key) is crowd:
            # Marked only now: what a split sent into runs below moves without looking for packed copies of itself.
            np.asarray(self._table.crowded)[crowd.slots] = 1

    def _put_groups(self, level: int, keys: Slots, slots: Slots) -> None:
        """Put slots, sorted by cell, into the cells of one level."""
        cells = self.cells[level]
        names, firsts, counts = np.unique(keys, return_index=True, return_counts=True)
        short = counts <= self._run_limit
        if cells or self.split[level]:
            known = (name in cells or name in self.split[level] for name in names.tolist())
            short &= ~np.fromiter(known, bool, len(names))
        if short.any():
            self._open(level)
            runs = self._arena.build(counts[short], slots[np.repeat(short, counts)])
            cells.update(zip(names[short].tolist(), runs.tolist(), strict=True))
        for name, first, count in zip(
            names[~short].tolist(), firsts[~short].tolist(), counts[~short].tolist(), strict=True
        ):
            group = slots[first : first + count]
            cell = cells.get(name)
            room = self._run_limit - 1 - (cell & 63) if isinstance(cell, int) else 0
            if isinstance(cell, int) and count <= room and name not in self.split[level]:
                for slot in group.tolist():
                    cell = self._arena.append(cell, slot)
                cells[name] = cell
            else:
                self._put_group(level, name, group)

    def _take(self, level: int, key: int, slot: int) -> bool:
        """Take a slot out of one cell; whether little is left in it, so that a split above may be undone."""
        cells = self.cells[level]
        cell = cells[key]
        if isinstance(cell, int):
            left = self._arena.remove(cell, slot)
            if left is None:
                self._drop(level, key)
                return True
            cells[key] = left
            return left & 63 < self._run_limit // 4
        cell.discard(slot)
        return self._shrink(level, key, cell)

    def _shrink(self, level: int, key: int, crowd: Crowd) -> bool:
        """Turn a crowd that has become small into a run, or into nothing; whether it had."""
        if crowd.count > self._run_limit // 4:
            return False
        if crowd.count:
            self.cells[level][key] = int(self._arena.build(np.array((crowd.count,)), crowd.slots)[0])
        else:
            self._drop(level, key)
        return True

    def _drop(self, level: int, key: int) -> None:
        cells = self.cells[level]
        del cells[key]
        if not cells:
            get = cells.get
            self._levels[:] = [known for known in self._levels if known != (level, get)]

    def _split(self, level: int, key: int, crowd: Crowd) -> None:
        """Send the boxes that fit to the four cells below, if those are at least half of them."""
        slots = crowd.slots
        down = self._fitting(level, slots)
        if np.count_nonzero(down) * 2 < len(slots):
            # Too large for the cells below: look again when it has doubled.
            crowd.split_at = 2 * crowd.count
            return
        self.splits += 1
        moved = slots[down]
        self.split[level].add(key)
        crowd.drop(down)
        crowd.split_at = max(self._run_limit, 2 * crowd.count)
        self._shrink(level, key, crowd)
        self._send_below(level, key, moved)

    def _fitting(self, level: int, slots: Slots) -> NDArray[np.bool_]:
        """Which boxes may go below a split cell of that level."""
        corners = self._grid.corners_many(self._table.bounds[:, slots])
        fitting: NDArray[np.bool_] = sizes_of(corners) <= level - 1 + self._tightness
        return fitting

    def _send_below(self, level: int, key: int, slots: Slots) -> Slots:
        """Put the slots that fit into the four cells below a split one; those that stay."""
        table = self._table
        down = self._fitting(level, slots)
        moved, below = slots[down], level - 1
        corners = self._grid.corners_many(table.bounds[:, moved])
        fine = np.minimum(table.column("fine")[moved], below)
        table.column("fine")[moved] = fine
        table.column("home")[moved] = homes_of(corners, fine.astype(np.int64))
        x0, y0, x1, y1 = corners >> below
        for child in children_of(key):
            column, row = child >> KEY_SHIFT, child & KEY_ROW
            group = moved[(x0 <= column) & (column <= x1) & (y0 <= row) & (row <= y1)]
            if len(group):
                self._put_groups(below, np.full(len(group), child), group)
        return slots[~down]

    def _merge_around(self, corners: Corners) -> None:
        """Undo splits around a place that a box has left, where little is below them any more."""
        x0, y0, x1, y1 = corners
        level = ((x1 - x0) | (y1 - y0) | SMALLEST_SIZE).bit_length() + self.looseness
        for column in range(x0 >> level, (x1 >> level) + 1):
            for row in range(y0 >> level, (y1 >> level) + 1):
                if column << KEY_SHIFT | row in self.split[level]:
                    self._merge(level, column << KEY_SHIFT | row, corners)

    def _merge(self, level: int, key: int, corners: Corners) -> None:
        x0, y0, x1, y1 = corners
        lower, below, split = level - 1, self.cells[level - 1], self.split[level - 1]
        children = children_of(key)
        for child in children:
            column, row = child >> KEY_SHIFT, child & KEY_ROW
            touched = x0 >> lower <= column <= x1 >> lower and y0 >> lower <= row <= y1 >> lower
            if touched and child in split:
                self._merge(lower, child, corners)
        if not split.isdisjoint(children):
            return
        # What is small enough to be at home below was never sent there from here, and stays.
        at_home, home = lower - self.looseness, self._table.home
        sent: set[int] = set()
        for child in children:
            cell = below.get(child)
            if isinstance(cell, Crowd):
                return
            if cell is not None:
                sent.update(slot for slot in self._arena.slots(cell) if home[slot] >> SIZE_SHIFT > at_home)
            if len(sent) > self._run_limit // 4:
                return
        for slot in sent:
            for child in children:
                cell = below.get(child)
                if isinstance(cell, int) and slot in self._arena.slots(cell):
                    self._take(lower, child, slot)
        self.split[level].discard(key)
        for slot in sent:
            self._put(level, key, slot)


def _spread(level: int, corners: Slots, slots: Slots) -> tuple[Slots, Slots]:
    """Each slot once for each of the up to four cells of a level that it lies in."""
    x0, y0, x1, y1 = corners >> level
    keys, held = [x0 << KEY_SHIFT | y0], [slots]
    for right, high in ((1, 0), (0, 1), (1, 1)):
        there = (x1 - x0 >= right) & (y1 - y0 >= high)
        keys.append((x0[there] + right) << KEY_SHIFT | (y0[there] + high))
        held.append(slots[there])
    return np.concatenate(keys), np.concatenate(held)
