"""Paper 001's algorithms as they are printed, and with all but the order of reading mended."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from spatial_index.interval_skip_list import IntervalSkipList, Marker

if TYPE_CHECKING:
    from spatial_index.interval_skip_list import Node


def printed_add_markers(markers: list[Marker], new: Marker) -> None:
    """`addMarkers` as printed: both branches of its loop break, so only the first marker is ever looked at.

    Accuracy is read as the length of the interval; read the other way, every list would be worst first.
    """
    if not markers:
        markers.append(new)
    elif markers[0].width < new.width:
        markers.insert(1, new)
    else:
        markers.insert(0, new)


class SortedSkipList(IntervalSkipList[int]):
    """The structure with its markers sorted as they should be, read in the paper's two ways."""

    def printed_find_markers(self, value: float, count: int) -> list[Marker | None]:
        """`findMarkers` as printed; None stands for what is read past the end of a list."""
        stack: list[list[Marker] | None] = []
        node, level = self._header, self._levels - 1
        while level >= 0 and (node is self._header or node.key != value):
            node = _advance(node, level, value)
            if node is self._header:
                stack.append(None)
            elif node.key != value:
                stack.append(node.on_edge[level])
            else:  # never: the walk above stops before a node with this key
                stack.append(node.markers)
            level -= 1
        found: list[Marker | None] = []
        position = 0  # printed once, before the loop over the stack, and never set back
        for markers in reversed(stack):
            if markers is None:
                continue
            while position <= len(markers) and count:
                found.append(markers[position] if position < len(markers) else None)
                position += 1
                count -= 1
        return found

    def lowest_level_first(self, value: float, k: int) -> list[Marker]:
        """The paper's idea with every slip mended: whole lists, from the lowest level of the path up."""
        return [marker for markers in reversed(self.marker_lists(value)) for marker in markers][:k]


class PrintedSkipList(SortedSkipList):
    """The same with the printed `addMarkers` putting markers on edges and nodes."""

    def _mark(self, marker: Marker) -> None:
        interval = marker.interval
        for node, level in self._staircase(interval):
            printed_add_markers(node.on_edge[level], marker)
            if node.key in interval:
                printed_add_markers(node.markers, marker)
        if interval.high in interval and interval.high < math.inf:
            printed_add_markers(self._find(interval.high).markers, marker)

    def _unmark(self, marker: Marker) -> None:
        interval = marker.interval
        for node, level in self._staircase(interval):
            node.on_edge[level].remove(marker)
            if node.key in interval:
                node.markers.remove(marker)
        if interval.high in interval and interval.high < math.inf:
            self._find(interval.high).markers.remove(marker)


def _advance(node: Node, level: int, value: float) -> Node:
    """The last node of a level before a value, from a node on."""
    following = node.forward[level]
    while following is not None and following.key < value:
        node = following
        following = node.forward[level]
    return node
