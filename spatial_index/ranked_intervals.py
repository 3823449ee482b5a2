"""`RankedIntervals`: the k narrowest intervals that contain a value, exactly, while intervals come and go.

Intervals of about the same width (within a factor of two) form a class. A class cuts the line into steps as long as its
narrowest member may be, so each member contains a grid point; it is filed under the first one, its *anchor*. Whoever
contains a value has one of three anchors next to it: three lookups a class, narrowest class first, until k are found.
There is nothing to rebuild or merge, so no call ever takes long.
"""

from __future__ import annotations

import math
from bisect import insort
from itertools import pairwise
from operator import attrgetter
from typing import TYPE_CHECKING, Generic, TypeVar

from spatial_index.errors import DuplicateId, UnknownId
from spatial_index.interval import LARGEST, Interval, finite, positive_count
from spatial_index.ranked_run import Columns, Ranked, RankedRun

if TYPE_CHECKING:
    from collections.abc import Hashable, Iterable, Iterator

Id = TypeVar("Id", bound="Hashable")

LONGEST_CHAIN = 32  # a cell with more intervals than this becomes a run
# One dictionary of a million entries takes tens of milliseconds when it grows; many small ones grow one at a time.
SHARDS = 256
_SHARD_MASK = SHARDS - 1
_GRAIN = attrgetter("step")


class _Cells:
    """Intervals by a whole-numbered key: a chain of slots while there are few, a run when there are many.

    A dictionary value is the first slot of a chain, or, below zero, the place of a run in `runs`: the dictionaries hold
    nothing but numbers, which keeps the garbage collector out of them.
    """

    __slots__ = ("columns", "count", "free", "runs", "shards")

    def __init__(self, columns: Columns) -> None:
        self.columns = columns
        self.shards: list[dict[float, int]] = [{} for _ in range(SHARDS)]
        self.runs: list[RankedRun | None] = []
        self.free: list[int] = []
        self.count = 0

    def run(self, place: int) -> RankedRun:
        """The run that a negative dictionary value stands for."""
        run = self.runs[~place]
        assert run is not None
        return run

    def add(self, key: float, slot: int) -> None:
        """File a slot under a key; it is the newest of all."""
        columns = self.columns
        self.count += 1
        shard = self.shards[hash(key) & _SHARD_MASK]
        head = shard.get(key)
        if head is None:
            columns.nexts[slot] = -1
            shard[key] = slot
            return
        if head < 0:
            self.run(head).add(slot)
            return
        widths, nexts, width = columns.widths, columns.nexts, columns.widths[slot]
        before, after, length = -1, head, 1
        while after >= 0 and widths[after] <= width:
            before, after, length = after, nexts[after], length + 1
        nexts[slot] = after
        if before < 0:
            shard[key] = slot
        else:
            nexts[before] = slot
        while after >= 0:
            after, length = nexts[after], length + 1
        if length > LONGEST_CHAIN:
            run = RankedRun(columns, self._chain(shard[key]))
            place = self.free.pop() if self.free else len(self.runs)
            if place == len(self.runs):
                self.runs.append(run)
            else:
                self.runs[place] = run
            shard[key] = ~place

    def _chain(self, slot: int) -> list[int]:
        chain, nexts = [], self.columns.nexts
        while slot >= 0:
            chain.append(slot)
            slot = nexts[slot]
        return chain

    def remove(self, key: float, slot: int) -> None:
        """Take a slot out that is filed under this key."""
        self.count -= 1
        shard = self.shards[hash(key) & _SHARD_MASK]
        head, nexts = shard[key], self.columns.nexts
        if head < 0:
            run = self.run(head)
            run.remove(slot)
            if run.count <= LONGEST_CHAIN // 2:
                slots = [*run, -1]
                for here, following in pairwise(slots):
                    nexts[here] = following
                shard[key] = slots[0]
                self.runs[~head] = None
                self.free.append(~head)
        elif head == slot:
            if nexts[slot] < 0:
                del shard[key]
            else:
                shard[key] = nexts[slot]
        else:
            before = head
            while nexts[before] != slot:
                before = nexts[before]
            nexts[before] = nexts[slot]

    def collect(self, keys: Iterable[float], value: float, k: int, found: list[Ranked]) -> None:
        """Append those under some keys whose interval contains the value: all, or the k best of a crowded cell."""
        columns, shards = self.columns, self.shards
        lows, highs, nexts = columns.lows, columns.highs, columns.nexts
        for key in keys:
            slot = shards[hash(key) & _SHARD_MASK].get(key)
            if slot is None:
                continue
            if slot < 0:
                self.run(slot).collect(value, k, found)
                continue
            while slot >= 0:
                if lows[slot] <= value <= highs[slot]:
                    found.append((columns.widths[slot], columns.orders[slot], slot))
                slot = nexts[slot]


class _WidthClass(_Cells):
    """The intervals at least `step` and less than `2 * step` wide, and the stretch of the line they lie in."""

    __slots__ = ("high", "low", "step")

    def __init__(self, columns: Columns, step: float) -> None:
        super().__init__(columns)
        self.step = step
        # Never narrowed while the class lives. A value inside it is near enough to a member for its key to be finite.
        self.low = math.inf
        self.high = -math.inf


class RankedIntervals(Generic[Id]):
    """Ids with intervals; `top(value, k)` gives the ids of the k narrowest that contain the value.

    The order is by width, then by the order of adding; unbounded intervals come last. Any number of ids may have the
    same interval. Ids are hashable, and each is held once.
    """

    def __init__(self, intervals: Iterable[tuple[Id, Interval]] = ()) -> None:
        self._columns = Columns()
        self._ids: list[Id | None] = []
        self._free: list[int] = []
        self._slots: list[dict[Id, int]] = [{} for _ in range(SHARDS)]
        self._order = 0
        self._count = 0
        self._points = _Cells(self._columns)
        self._by_exponent: dict[int, _WidthClass] = {}
        self._classes: list[_WidthClass] = []
        # Too wide for a grid: wider than the largest float, bounded below only, bounded above only, not at all.
        self._vast = tuple(RankedRun(self._columns) for _ in range(4))
        for identity, interval in intervals:
            self.add(identity, interval)

    def __len__(self) -> int:
        return self._count

    def __contains__(self, identity: Id) -> bool:
        return identity in self._slots[hash(identity) & _SHARD_MASK]

    def __iter__(self) -> Iterator[Id]:
        for shard in self._slots:
            yield from shard

    def add(self, identity: Id, interval: Interval) -> None:
        """Hold an interval under a new id.

        Raises:
            DuplicateId: the id is held already.
        """
        shard = self._slots[hash(identity) & _SHARD_MASK]
        if identity in shard:
            raise DuplicateId(f"{identity!r} is held already; remove it first, or use another id")
        columns, width, low, high = self._columns, interval.width, interval.first, interval.last
        if self._free:
            slot = self._free.pop()
            columns.lows[slot], columns.highs[slot] = low, high
            columns.widths[slot], columns.orders[slot] = width, self._order
            self._ids[slot] = identity
        else:
            slot = len(self._ids)
            columns.lows.append(low)
            columns.highs.append(high)
            columns.widths.append(width)
            columns.orders.append(self._order)
            columns.nexts.append(-1)
            self._ids.append(identity)
        self._order += 1
        self._count += 1
        shard[identity] = slot
        if width == 0.0:
            self._points.add(low, slot)
        elif width >= LARGEST:
            self._vast_run(slot).add(slot)
        else:
            exponent = math.frexp(width)[1]
            members = self._by_exponent.get(exponent)
            if members is None:
                members = _WidthClass(columns, math.ldexp(1.0, exponent - 1))
                self._by_exponent[exponent] = members
                insort(self._classes, members, key=_GRAIN)
            members.low = min(members.low, low)
            members.high = max(members.high, high)
            members.add(math.ceil(low / members.step), slot)

    def remove(self, identity: Id) -> None:
        """Let go of an id and its interval.

        Raises:
            UnknownId: the id is not held.
        """
        slot = self._slots[hash(identity) & _SHARD_MASK].pop(identity, None)
        if slot is None:
            raise UnknownId(f"{identity!r} is not held, so it cannot be removed")
        columns = self._columns
        width, low = columns.widths[slot], columns.lows[slot]
        if width == 0.0:
            self._points.remove(low, slot)
        elif width >= LARGEST:
            self._vast_run(slot).remove(slot)
        else:
            exponent = math.frexp(width)[1]
            members = self._by_exponent[exponent]
            members.remove(math.ceil(low / members.step), slot)
            if not members.count:
                del self._by_exponent[exponent]
                self._classes.remove(members)
        self._ids[slot] = None
        self._free.append(slot)
        self._count -= 1

    def _vast_run(self, slot: int) -> RankedRun:
        """The run for an interval too wide for a grid."""
        columns = self._columns
        if columns.widths[slot] < math.inf:
            return self._vast[0]
        if columns.highs[slot] == math.inf:
            return self._vast[1 if columns.lows[slot] > -math.inf else 3]
        return self._vast[2]

    def top(self, value: float, k: int) -> list[Id]:
        """The ids of the k narrowest intervals that contain a value, narrowest first, fewer if fewer do.

        Raises:
            BadCoordinate: the value is NaN, infinite or no number.
            BadCount: k is below one.
        """
        return self._best(finite(value, "the value"), positive_count(k))

    def containing(self, value: float) -> list[Id]:
        """The ids of all intervals that contain a value, narrowest first.

        Raises:
            BadCoordinate: the value is NaN, infinite or no number.
        """
        return self._best(finite(value, "the value"), max(1, self._count))

    def _best(self, value: float, k: int) -> list[Id]:
        best: list[Ranked] = []
        if self._points.count:
            self._points.collect((value,), value, k, best)
            best.sort()
        for members in self._classes:
            if len(best) >= k:
                break
            if members.low <= value <= members.high:
                found: list[Ranked] = []
                anchor = math.ceil(value / members.step)
                members.collect((anchor, anchor - 1, anchor - 2), value, k, found)
                found.sort()
                best += found
        if len(best) < k:
            found = []
            for run in self._vast:
                run.collect(value, k, found)
            found.sort()
            best += found
        ids = self._ids
        return [ids[slot] for _, _, slot in best[:k]]  # type: ignore[misc]  # a slot in use has its id

    def __repr__(self) -> str:
        return f"<RankedIntervals of {self._count} in {len(self._classes)} width classes>"
