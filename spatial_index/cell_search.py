"""Searching the cells of both sides for many boxes at once: keys, runs and bounds as whole arrays.

A batch compares every candidate of every cell in a few vector operations; only a crowd with enough comparisons to make
is asked by itself. Its answers come in groups, one for each question, so that a long answer is sorted as one thing.
"""

from __future__ import annotations

from itertools import repeat
from typing import TYPE_CHECKING, NamedTuple, cast

import numpy as np

from spatial_index.arena import RUN_BITS
from spatial_index.cell_grid import KEY_SHIFT
from spatial_index.crowd import Crowd

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from typing import Any

    from numpy.typing import NDArray

    from spatial_index.arena import Arena
    from spatial_index.cell_forest import Cell, Level
    from spatial_index.cell_grid import Grid
    from spatial_index.slot_table import Floats, Slots, SlotTable
    from spatial_index.spaces import Box

    Pairs = tuple[Slots, Slots]

NO_RUN = -1

SCAN_COST = 64
"""How many boxes a vector scan looks at in the time that one cell takes to visit."""

BATCH_STEP = 4096
"""Questions of a batch answered at once: what they need then stays in the processor's cache."""

CROWD_COMPARISONS = 1 << 17
"""Comparisons of a crowd with many boxes made at once: intermediate results then stay in the processor's cache."""

WORTH_A_CALL = 2000
"""Comparisons from which a crowd is asked by itself; below, the calls take longer than gathering its bounds does."""


class Groups(NamedTuple):
    """Slots in groups, one group after the other.

    Attributes:
        which: the question that each group answers, or answers in part.
        lengths: how many slots each group has.
        slots: the slots of all groups.
    """

    which: Slots
    lengths: Slots
    slots: Slots

    def keeping(self, keep: NDArray[np.bool_]) -> Groups:
        """The groups with only the slots where `keep` is true."""
        kept = np.concatenate(([0], np.cumsum(keep)))
        ends = np.cumsum(self.lengths)
        return Groups(self.which, kept[ends] - kept[ends - self.lengths], self.slots[keep])

    def in_order(self, count: int) -> Pairs:
        """How many slots each of `count` questions has, and the slots in the order of the questions."""
        order = np.argsort(self.which, kind="stable")
        starts = np.cumsum(self.lengths) - self.lengths
        total = np.bincount(self.which, weights=self.lengths, minlength=count).astype(np.int64)
        return total, self.slots.take(_ranges(starts[order], self.lengths[order]))


def joined(groups: Sequence[Groups]) -> Groups:
    """All groups as one."""
    none = np.empty(0, np.int64)
    which, lengths, slots = (np.concatenate([none, *(group[part] for group in groups)]) for part in range(3))
    return Groups(which, lengths, slots)


def near_slots(levels: Sequence[Level], arena: Arena, table: SlotTable, grid: Grid, box: Box) -> list[int]:
    """The slots whose bounding box touches a piece, each once."""
    west, south, east, north = box
    left, low, right, high = grid.corners(*box)
    limits = np.array(((east,), (north,), (-west,), (-south,)))
    cells = sum(
        ((right >> level) - (left >> level) + 1) * ((high >> level) - (low >> level) + 1) for level, _ in levels
    )
    if cells * SCAN_COST > table.top:
        x0, y0, x1, y1 = table.bounds[:, : table.top]
        return np.nonzero((x0 <= east) & (y0 <= north) & (x1 >= west) & (y1 >= south))[0].tolist()
    candidates: set[int] = set()
    found: set[int] = set()
    for level, get in levels:
        for column in range(left >> level, (right >> level) + 1):
            prefix = column << KEY_SHIFT
            for row in range(low >> level, (high >> level) + 1):
                cell = get(prefix | row)
                if cell is None:
                    continue
                if isinstance(cell, Crowd):
                    found.update(cell.hit(limits).tolist())
                else:
                    candidates.update(arena.slots(cell))
    bx0, by0, bx1, by1 = table.x0, table.y0, table.x1, table.y1
    found.update(s for s in candidates if bx0[s] <= east and by0[s] <= north and bx1[s] >= west and by1[s] >= south)
    return list(found)


def touching_groups(levels: Sequence[Level], arena: Arena, table: SlotTable, corners: Slots, boxes: Floats) -> Groups:
    """For boxes as columns (in units, and in coordinates): the slots whose bounds touch each of them.

    A slot comes once for a place, and may come several times for a box that lies in several cells.
    """
    limits = np.concatenate((boxes[2:], -boxes[:2]))
    found: list[Groups] = []
    pairs: list[Pairs] = []
    runs: list[Pairs] = []
    for level, get in levels:
        which, keys = _cells_of(level, corners)
        names = keys.tolist()
        try:
            numbers = np.fromiter(map(get, names, repeat(NO_RUN)), np.int64, len(names))
        except TypeError:  # there are crowds among the runs
            cells = list(map(get, names, repeat(NO_RUN)))
            numbers = np.array([cell if cell.__class__ is int else NO_RUN for cell in cells], np.int64)
            crowds = _CrowdsAsked(cells, which, keys)
            found.extend(crowds.large(limits))
            pairs.append(crowds.small(table, boxes))
        held = (numbers >= 0).nonzero()[0]
        if len(held):
            runs.append((which.take(held), numbers.take(held)))
    if runs:
        which, numbers = (np.concatenate(parts) for parts in zip(*runs, strict=True))
        entries = np.frombuffer(arena.entries, np.int32)
        pairs.append(_compared(which, numbers >> RUN_BITS, (numbers & 63) + 1, entries, table, boxes))
    if pairs:
        which, slots = (np.concatenate(parts) for parts in zip(*pairs, strict=True))
        found.append(_grouped(boxes.shape[1], which, slots))
    return joined(found)


class _CrowdsAsked:
    """The crowds that boxes of a batch were led to on one level, and which boxes those are."""

    def __init__(self, cells: Sequence[Cell | None], which: Slots, keys: Slots) -> None:
        places = np.array([place for place, cell in enumerate(cells) if cell.__class__ is Crowd])
        order = places[np.argsort(keys[places], kind="stable")]
        self._firsts = np.flatnonzero(np.diff(keys[order], prepend=-1))
        self._asked = np.diff(self._firsts, append=len(order))
        self._askers = which[order]
        self._crowds = [cast("Crowd", cells[place]) for place in order[self._firsts].tolist()]
        self._counts = np.array([crowd.count for crowd in self._crowds])
        self._is_large = self._counts * self._asked >= WORTH_A_CALL

    def large(self, limits: Floats) -> Iterator[Groups]:
        """Ask the crowds that have much to compare, one by one."""
        for place in np.flatnonzero(self._is_large).tolist():
            crowd, first = self._crowds[place], int(self._firsts[place])
            last = first + int(self._asked[place])
            step = max(1, CROWD_COMPARISONS // crowd.count)
            for start in range(first, last, step):
                some = self._askers[start : min(start + step, last)]
                yield Groups(some, *crowd.hit_many(limits[:, some]))

    def small(self, table: SlotTable, boxes: Floats) -> Pairs:
        """Ask the others all at once, as if they were runs."""
        small = ~self._is_large
        counts, asked = self._counts[small], self._asked[small]
        slots = [crowd.slots for crowd, large in zip(self._crowds, self._is_large.tolist(), strict=True) if not large]
        askers = self._askers[_ranges(self._firsts[small], asked)]
        starts = np.repeat(np.cumsum(counts) - counts, asked)
        entries = np.concatenate([np.empty(0, np.int64), *slots])
        return _compared(askers, starts, np.repeat(counts, asked), entries, table, boxes)


def _ranges(starts: Slots, counts: Slots) -> Slots:
    """The positions of ranges, one range after the other."""
    places: Slots = np.repeat(starts - (np.cumsum(counts) - counts), counts)
    places += np.arange(len(places))
    return places


def _grouped(count: int, which: Slots, slots: Slots) -> Groups:
    """Pairs of a box and a slot as groups, one for each of `count` boxes."""
    # Up to 65,536 boxes are sorted by 16-bit numbers, which NumPy does in linear time.
    order = np.argsort(which.astype(np.uint16) if count <= 1 << 16 else which, kind="stable")
    return Groups(np.arange(count), np.bincount(which, minlength=count), slots.take(order))


def _cells_of(level: int, corners: Slots) -> Pairs:
    """Each box once for each cell of a level that it lies in, with the cell's key."""
    left, low, right, high = corners >> level
    tall = high - low + 1
    counts = (right - left + 1) * tall
    count = len(counts)
    if counts.sum() == count:
        return np.arange(count), left << KEY_SHIFT | low
    which = np.repeat(np.arange(count), counts)
    rank = np.arange(len(which)) - np.repeat(np.cumsum(counts) - counts, counts)
    column, row = left[which] + rank // tall[which], low[which] + rank % tall[which]
    return which, column << KEY_SHIFT | row


def _compared(
    which: Slots, starts: Slots, counts: Slots, entries: NDArray[Any], table: SlotTable, boxes: Floats
) -> Pairs:
    """Compare boxes with the slots they were led to, given as ranges of entries; the pairs that touch."""
    slots, which = entries.take(_ranges(starts, counts)), np.repeat(which, counts)
    # Sides one after the other: each leaves fewer to compare with the next.
    for stored, asked, before in ((0, 2, True), (2, 0, False), (1, 3, True), (3, 1, False)):
        ours, theirs = table.bounds[stored].take(slots), boxes[asked].take(which)
        keep = (ours <= theirs if before else ours >= theirs).nonzero()[0]
        slots, which = slots.take(keep), which.take(keep)
    return which, slots.astype(np.int64)
