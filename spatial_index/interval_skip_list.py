"""`IntervalSkipList`: paper 001's structure, mended: the reference that `RankedIntervals` is compared with.

A skip list over the ends of intervals. An interval marks every edge it contains that no higher edge it contains covers,
and the nodes between these edges. Each edge and node keeps its markers in the order of rank. A value's path down the
list meets every interval that contains it exactly once, so its best k are a heap merge of the O(log n) marker lists on
the path. (The paper reads the lists from the lowest level up instead, which is not the order of rank.)
"""

from __future__ import annotations

import math
from bisect import bisect_left, insort
from heapq import merge
from itertools import islice
from random import Random
from typing import TYPE_CHECKING, Generic, NamedTuple, TypeVar

from spatial_index.errors import DuplicateId, UnknownId
from spatial_index.interval import Interval, finite, positive_count

if TYPE_CHECKING:
    from collections.abc import Hashable, Iterable, Iterator

Id = TypeVar("Id", bound="Hashable")

MOST_LEVELS = 24


class Marker(NamedTuple):
    """An interval as it stands on an edge; markers sort by rank, since no two have the same order."""

    width: float
    order: int
    identity: Hashable
    interval: Interval


class Node:
    """An end of intervals: for each of its levels the next node and the markers on the edge to it."""

    __slots__ = ("forward", "key", "markers", "on_edge", "owners")

    def __init__(self, key: float, levels: int) -> None:
        self.key = key
        self.forward: list[Node | None] = [None] * levels
        self.on_edge: list[list[Marker]] = [[] for _ in range(levels)]
        self.markers: list[Marker] = []  # of intervals that contain the key and mark an edge to or from this node
        self.owners = 0  # how many ends of intervals lie here


class IntervalSkipList(Generic[Id]):
    """Ids with intervals; `top(value, k)` gives the ids of the k narrowest that contain the value.

    The same answers as `RankedIntervals`, but adding and removing cost more the more intervals overlap.

    Args:
        intervals: ids and intervals to begin with.
        seed: for the heights of nodes, so that a run can be repeated.
    """

    def __init__(self, intervals: Iterable[tuple[Id, Interval]] = (), seed: int = 1) -> None:
        self._random = Random(seed)
        self._header = Node(-math.inf, MOST_LEVELS)
        self._header.owners = 1  # never removed: unbounded intervals begin here
        self._end = Node(math.inf, MOST_LEVELS)
        self._end.owners = 1
        self._header.forward = [self._end] * MOST_LEVELS
        self._levels = 1
        self._held: dict[Id, Marker] = {}
        self._order = 0
        for identity, interval in intervals:
            self.add(identity, interval)

    def __len__(self) -> int:
        return len(self._held)

    def __contains__(self, identity: Id) -> bool:
        return identity in self._held

    def __iter__(self) -> Iterator[Id]:
        return iter(self._held)

    def add(self, identity: Id, interval: Interval) -> None:
        """Hold an interval under a new id.

        Raises:
            DuplicateId: the id is held already.
        """
        if identity in self._held:
            raise DuplicateId(f"{identity!r} is held already; remove it first, or use another id")
        marker = Marker(interval.width, self._order, identity, interval)
        self._order += 1
        self._held[identity] = marker
        for key in (interval.low, interval.high):
            self._node_at(key).owners += 1
        self._mark(marker)

    def remove(self, identity: Id) -> None:
        """Let go of an id and its interval.

        Raises:
            UnknownId: the id is not held.
        """
        marker = self._held.pop(identity, None)
        if marker is None:
            raise UnknownId(f"{identity!r} is not held, so it cannot be removed")
        self._unmark(marker)
        for key in (marker.interval.low, marker.interval.high):
            node = self._find(key)
            node.owners -= 1
            if not node.owners:
                self._unlink(node)

    def top(self, value: float, k: int) -> list[Id]:
        """The ids of the k narrowest intervals that contain a value, narrowest first, fewer if fewer do.

        Raises:
            BadCoordinate: the value is NaN, infinite or no number.
            BadCount: k is below one.
        """
        positive_count(k)
        lists = self.marker_lists(finite(value, "the value"))
        return [marker.identity for marker in islice(merge(*lists), k)]  # type: ignore[misc]  # held ids are of type Id

    def containing(self, value: float) -> list[Id]:
        """The ids of all intervals that contain a value, narrowest first.

        Raises:
            BadCoordinate: the value is NaN, infinite or no number.
        """
        return self.top(value, max(1, len(self._held)))

    def collect_and_sort(self, value: float, k: int) -> list[Id]:
        """The answer of `top` the simple way, as the paper describes it first: collect every match, sort, cut."""
        positive_count(k)
        found = [marker for markers in self.marker_lists(finite(value, "the value")) for marker in markers]
        found.sort()
        return [marker.identity for marker in found[:k]]  # type: ignore[misc]  # held ids are of type Id

    def marker_lists(self, value: float) -> list[list[Marker]]:
        """The marker lists on a value's path, the highest level first; no interval is in two of them."""
        lists: list[list[Marker]] = []
        node = self._header
        for level in reversed(range(self._levels)):
            following = node.forward[level]
            while following is not None and following.key <= value:
                node = following
                following = node.forward[level]
            if node.key == value:
                lists.append(node.markers)
                break
            lists.append(node.on_edge[level])
        return [markers for markers in lists if markers]

    def edges(self) -> Iterator[tuple[int, list[Marker]]]:
        """The level and the markers of every edge."""
        node: Node | None = self._header
        while node is not None:
            for level, markers in enumerate(node.on_edge):
                if node.forward[level] is not None:
                    yield level, markers
            node = node.forward[0]

    def _path_to(self, key: float) -> list[Node]:
        """For each level the last node before a key."""
        path = [self._header] * MOST_LEVELS
        node = self._header
        for level in reversed(range(self._levels)):
            following = node.forward[level]
            while following is not None and following.key < key:
                node = following
                following = node.forward[level]
            path[level] = node
        return path

    def _node_at(self, key: float) -> Node:
        """The node with a key, made if there is none; the intervals around it are marked anew."""
        if key == self._header.key:
            return self._header
        path = self._path_to(key)
        node = path[0].forward[0]
        if node is not None and node.key == key:
            return node
        levels = 1
        while levels < MOST_LEVELS and self._random.random() < 0.5:
            levels += 1
        # An interval that contains the new node changes only if it marks an edge that the node cuts: if it marks a
        # higher one, that edge still covers the node.
        cut = [marker for level in range(levels) for marker in path[level].on_edge[level]]
        for marker in cut:
            self._unmark(marker)
        self._levels = max(self._levels, levels)  # only now: the markers were put with the levels there were
        node = Node(key, levels)
        for level in range(levels):
            node.forward[level] = path[level].forward[level]
            path[level].forward[level] = node
        for marker in cut:
            self._mark(marker)
        return node

    def _find(self, key: float) -> Node:
        """The node with a key that has one."""
        node = self._header if key == -math.inf else self._path_to(key)[0].forward[0]
        assert node is not None
        return node

    def _unlink(self, node: Node) -> None:
        """Take out a node at which nothing ends any more; the intervals that ran through it are marked anew."""
        path = self._path_to(node.key)
        through = {marker for markers in node.on_edge for marker in markers}
        through.update(marker for level in range(len(node.forward)) for marker in path[level].on_edge[level])
        for marker in through:
            self._unmark(marker)
        for level, following in enumerate(node.forward):
            path[level].forward[level] = following
        for marker in through:
            self._mark(marker)

    def _staircase(self, interval: Interval) -> Iterator[tuple[Node, int]]:
        """The edges an interval marks, from its lower to its upper end: up while a higher edge fits, then down."""
        node, level = self._find(interval.low), 0
        while node.key < interval.high:
            # Climb as far as the edge still ends inside, then step down until it does.
            while level + 1 < min(len(node.forward), self._levels) and _ends_inside(node, level + 1, interval):
                level += 1
            while not _ends_inside(node, level, interval):
                level -= 1
            yield node, level
            following = node.forward[level]
            assert following is not None
            node = following

    def _mark(self, marker: Marker) -> None:
        """Put an interval's markers on its edges and the nodes between them."""
        interval = marker.interval
        for node, level in self._staircase(interval):
            insort(node.on_edge[level], marker)
            if node.key in interval:
                insort(node.markers, marker)
        if interval.high in interval and interval.high < math.inf:
            insort(self._find(interval.high).markers, marker)

    def _unmark(self, marker: Marker) -> None:
        """Take an interval's markers away; the list is as it was when they were put."""
        interval = marker.interval
        for node, level in self._staircase(interval):
            _discard(node.on_edge[level], marker)
            if node.key in interval:
                _discard(node.markers, marker)
        if interval.high in interval and interval.high < math.inf:
            _discard(self._find(interval.high).markers, marker)


def _ends_inside(node: Node, level: int, interval: Interval) -> bool:
    """Whether the edge from a node inside an interval ends no later than the interval."""
    following = node.forward[level]
    return following is not None and following.key <= interval.high


def _discard(markers: list[Marker], marker: Marker) -> None:
    """Take a marker out of a sorted list that has it."""
    del markers[bisect_left(markers, marker)]
