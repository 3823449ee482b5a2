"""Short runs of slots, thousands of which would cost too much as lists of their own."""

from __future__ import annotations

from array import array
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from spatial_index.slot_table import Slots

RUN_BITS = 6
"""A run has at most 2**6 slots, so that its length fits below its start in one integer."""


class Arena:
    """Short runs of slots in one array; a run's capacity is the power of two at or above its length.

    A run is known by one integer, its start and its length less one. What a run outgrows or leaves is kept in lists by
    capacity and used again, so nothing is ever compacted.
    """

    __slots__ = ("_free", "entries")

    def __init__(self) -> None:
        self.entries = array("i")
        self._free: list[list[int]] = [[] for _ in range(RUN_BITS + 1)]

    def _take(self, size_bits: int) -> int:
        free = self._free[size_bits]
        if free:
            return free.pop()
        start = len(self.entries)
        self.entries.frombytes(bytes(4 << size_bits))
        return start

    def new(self, slot: int) -> int:
        """A run of one slot."""
        start = self._take(0)
        self.entries[start] = slot
        return start << RUN_BITS

    def slots(self, run: int) -> array[int]:
        """The slots of a run."""
        start = run >> RUN_BITS
        return self.entries[start : start + (run & 63) + 1]

    def append(self, run: int, slot: int) -> int:
        """The run with one slot more."""
        start, count = run >> RUN_BITS, (run & 63) + 1
        if count & (count - 1) == 0:
            bits = count.bit_length() - 1
            moved = self._take(bits + 1)
            self.entries[moved : moved + count] = self.entries[start : start + count]
            self._free[bits].append(start)
            start = moved
        self.entries[start + count] = slot
        return start << RUN_BITS | count

    def remove(self, run: int, slot: int) -> int | None:
        """The run without a slot, None when that was its last."""
        start, last = run >> RUN_BITS, run & 63
        if not last:
            self._free[0].append(start)
            return None
        entries = self.entries
        entries[entries.index(slot, start, start + last + 1)] = entries[start + last]
        if last & (last - 1) == 0:
            # The length is a power of two again: the upper half is free.
            self._free[last.bit_length() - 1].append(start + last)
        return start << RUN_BITS | last - 1

    def free(self, run: int) -> None:
        """Give back a run."""
        self._free[(run & 63).bit_length()].append(run >> RUN_BITS)

    def build(self, counts: Slots, slots: Slots) -> Slots:
        """Runs of those lengths with the slots in order, all at once."""
        capacities = 1 << np.ceil(np.log2(counts)).astype(np.int64)
        starts = np.cumsum(capacities) - capacities
        block = np.zeros(int(capacities.sum()), np.int32)
        firsts = np.cumsum(counts) - counts
        block[np.repeat(starts - firsts, counts) + np.arange(len(slots))] = slots
        starts += len(self.entries)
        self.entries.frombytes(block.tobytes())
        runs: Slots = starts << RUN_BITS | (counts - 1)
        return runs
