"""Searching the cells of both sides for many boxes at once: keys, runs and bounds as whole arrays.

A batch looks each cell up once, however many of its boxes or places fall into it, and compares every candidate of every
cell in a few vector operations; only crowds are asked one by one.
"""

from __future__ import annotations

from itertools import repeat
from typing import TYPE_CHECKING, cast

import numpy as np

from spatial_index.arena import RUN_BITS
from spatial_index.cell_grid import KEY_SHIFT
from spatial_index.crowd import Crowd

if TYPE_CHECKING:
    from collections.abc import Sequence

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

CROWD_COMPARISONS = 1 << 20
"""Comparisons of a crowd with many boxes made at once: a few megabytes of intermediate results."""


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


def touching_pairs(levels: Sequence[Level], arena: Arena, table: SlotTable, corners: Slots, boxes: Floats) -> Pairs:
    """For boxes as columns (in units, and in coordinates): which box, and a slot whose bounds touch it, pair by pair.

    A pair comes once for a place, and may come several times for a box that lies in several cells.
    """
    limits = np.concatenate((boxes[2:], -boxes[:2]))
    found: list[Pairs] = [(np.empty(0, np.int64), np.empty(0, np.int64))]
    runs: list[Pairs] = []
    for level, get in levels:
        which, keys = _cells_of(level, corners)
        names, inverse = np.unique(keys, return_inverse=True)
        cells = list(map(get, names.tolist(), repeat(NO_RUN)))
        try:
            numbers, crowded = np.array(cells, np.int64), []
        except TypeError:  # there are crowds among the runs
            crowded = [place for place, cell in enumerate(cells) if cell.__class__ is Crowd]
            numbers = np.array([cell if cell.__class__ is int else NO_RUN for cell in cells], np.int64)
        wanted = numbers[inverse]
        held = wanted >= 0
        if held.any():
            runs.append((which[held], wanted[held]))
        if crowded:
            found.extend(_crowd_pairs(cells, crowded, which, inverse, limits))
    if runs:
        found.append(_run_pairs(runs, arena, table, boxes))
    return np.concatenate([pair[0] for pair in found]), np.concatenate([pair[1] for pair in found])


def grouped(count: int, which: Slots, slots: Slots) -> Pairs:
    """Pairs in the order of the boxes: how many slots each of `count` boxes has, and the slots."""
    # Up to 65,536 boxes are sorted by 16-bit numbers, which NumPy does in linear time.
    order = np.argsort(which.astype(np.uint16) if count <= 1 << 16 else which, kind="stable")
    return np.bincount(which, minlength=count), slots[order]


def regrouped(order: Slots, lengths: Slots, slots: Slots) -> Pairs:
    """Groups of slots that were made for boxes taken in some order, in the order of the boxes themselves."""
    back = np.empty(len(order), np.int64)
    back[order] = np.arange(len(order))
    firsts = (np.cumsum(lengths) - lengths)[back]
    lengths = lengths[back]
    places = np.repeat(firsts - (np.cumsum(lengths) - lengths), lengths)
    places += np.arange(len(places))
    return lengths, slots[places]


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


def _run_pairs(runs: list[Pairs], arena: Arena, table: SlotTable, boxes: Floats) -> Pairs:
    """Compare every box with every slot of the runs it was led to."""
    which = np.concatenate([pair[0] for pair in runs])
    numbers = np.concatenate([pair[1] for pair in runs])
    counts = (numbers & 63) + 1
    places = np.repeat((numbers >> RUN_BITS) - (np.cumsum(counts) - counts), counts)
    places += np.arange(len(places))
    slots = np.frombuffer(arena.entries, np.int32)[places]
    which = np.repeat(which, counts)
    # Sides one after the other: each leaves fewer to compare with the next.
    for stored, asked, before in ((0, 2, True), (2, 0, False), (1, 3, True), (3, 1, False)):
        ours, theirs = table.bounds[stored][slots], boxes[asked][which]
        keep = ours <= theirs if before else ours >= theirs
        slots, which = slots[keep], which[keep]
    return which, slots.astype(np.int64)


def _crowd_pairs(
    cells: list[Cell | None], crowded: list[int], which: Slots, inverse: Slots, limits: Floats
) -> list[Pairs]:
    order = np.argsort(inverse, kind="stable")
    firsts = np.searchsorted(inverse[order], crowded)
    lasts = np.searchsorted(inverse[order], crowded, side="right")
    found = []
    for place, first, last in zip(crowded, firsts.tolist(), lasts.tolist(), strict=True):
        crowd = cast("Crowd", cells[place])
        asked = which[order[first:last]]
        step = max(1, CROWD_COMPARISONS // len(crowd))
        for start in range(0, len(asked), step):
            some = asked[start : start + step]
            pair, slots = crowd.hit_many(limits[:, some])
            found.append((some[pair], slots))
    return found
