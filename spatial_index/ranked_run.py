"""A long list of ranked slots that skips what cannot contain a value: the crowded cells of `RankedIntervals`."""

from __future__ import annotations

from array import array
from bisect import bisect_left, bisect_right
from typing import TYPE_CHECKING, TypeAlias

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

Ranked: TypeAlias = tuple[float, int, int]  # width, order and slot of a match: these sort by rank

BLOCK = 256


class Columns:
    """What is known of the interval in each slot, in packed columns that the garbage collector need not visit.

    `lows` and `highs` are the first and last float inside, `orders` the order of subscription, and `nexts` links the
    slots that share a sparse cell, the narrowest first.
    """

    __slots__ = ("highs", "lows", "nexts", "orders", "widths")

    def __init__(self) -> None:
        self.lows = array("d")
        self.highs = array("d")
        self.widths = array("d")
        self.orders = array("q")
        self.nexts = array("i")

    def rank(self, slot: int) -> tuple[float, int]:
        """Narrow before wide, then old before new."""
        return (self.widths[slot], self.orders[slot])


class RankedRun:
    """Slots in the order of their rank, in blocks that know the lowest low and the highest high inside.

    A cell's intervals share an anchor that lies in all of them, so a value left of it asks only for a low end and a
    value right of it only for a high end: a block whose bound fails is skipped whole.
    """

    __slots__ = ("_blocks", "_columns", "_highest", "_lowest", "count")

    def __init__(self, columns: Columns, slots: Iterable[int] = ()) -> None:
        self._columns = columns
        self._blocks: list[array[int]] = []
        self._lowest: list[float] = []
        self._highest: list[float] = []
        self.count = 0
        for slot in slots:
            self.add(slot)

    def __iter__(self) -> Iterator[int]:
        for block in self._blocks:
            yield from block

    def _first_rank(self, block: array[int]) -> tuple[float, int]:
        return self._columns.rank(block[0])

    def add(self, slot: int) -> None:
        """Put a slot where its rank belongs."""
        columns = self._columns
        self.count += 1
        if not self._blocks:
            self._blocks.append(array("i", (slot,)))
            self._lowest.append(columns.lows[slot])
            self._highest.append(columns.highs[slot])
            return
        rank = columns.rank(slot)
        at = max(0, bisect_right(self._blocks, rank, key=self._first_rank) - 1)
        block = self._blocks[at]
        block.insert(bisect_left(block, rank, key=columns.rank), slot)
        self._lowest[at] = min(self._lowest[at], columns.lows[slot])
        self._highest[at] = max(self._highest[at], columns.highs[slot])
        if len(block) > BLOCK:
            half = len(block) // 2
            self._blocks[at : at + 1] = [block[:half], block[half:]]
            self._lowest.insert(at, 0.0)
            self._highest.insert(at, 0.0)
            self._bound(at)
            self._bound(at + 1)

    def remove(self, slot: int) -> None:
        """Take a slot out that is in."""
        columns = self._columns
        self.count -= 1
        rank = columns.rank(slot)
        at = bisect_right(self._blocks, rank, key=self._first_rank) - 1
        block = self._blocks[at]
        del block[bisect_left(block, rank, key=columns.rank)]
        if not block:
            del self._blocks[at], self._lowest[at], self._highest[at]
        elif columns.lows[slot] == self._lowest[at] or columns.highs[slot] == self._highest[at]:
            self._bound(at)

    def _bound(self, at: int) -> None:
        """Find a block's bounds afresh."""
        columns, block = self._columns, self._blocks[at]
        self._lowest[at] = min(map(columns.lows.__getitem__, block))
        self._highest[at] = max(map(columns.highs.__getitem__, block))

    def collect(self, value: float, k: int, found: list[Ranked]) -> None:
        """Append the k best whose interval contains the value, or all if there are fewer."""
        columns = self._columns
        lows, highs = columns.lows, columns.highs
        wanted = len(found) + k
        for lowest, highest, block in zip(self._lowest, self._highest, self._blocks, strict=True):
            if lowest <= value <= highest:
                for slot in block:
                    if lows[slot] <= value <= highs[slot]:
                        found.append((columns.widths[slot], columns.orders[slot], slot))
                        if len(found) == wanted:
                            return
