"""What the `$where` subscriptions to one filter come to: a few boxes that cover them all.

A box says between what each number of a payload lies; a number that it does not name may be anything or missing. Boxes
that are put together cover both: of the numbers both name, from the lower low to the higher high. So a summary may take
a message for wanted that nobody wants, never the other way round.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any, Final, TypeAlias

import numpy as np

from broker_plugins.places import number_at
from broker_plugins.ranked.conditions import interval_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from numpy.typing import NDArray

    from broker_plugins.grammar import Where

    Floats = NDArray[np.float64]

Box: TypeAlias = tuple[tuple[str, float, float], ...]
"""For each attribute in the order of their names, the least and the greatest number inside."""
NARROWEST: Final = 1e-3
"""A side counts as no narrower than this share of what is known: an `=` has no width, yet it has messages."""
MOST_ARRANGED: Final = 1024
"""Up to so many different boxes are arranged anew now and then; more are only put where they widen least."""


def box_of(where: Where) -> Box:
    """The box of the conditions a client said."""
    intervals = ((condition.attribute, interval_of(condition.interval)) for condition in where.conditions)
    return tuple((name, interval.first, interval.last) for name, interval in intervals)


def joined(one: Box, other: Box) -> Box:
    """The smallest box that covers two."""
    sides = {name: (low, high) for name, low, high in other}
    return tuple(
        (name, min(low, sides[name][0]), max(high, sides[name][1])) for name, low, high in one if name in sides
    )


def covers(wide: Box, narrow: Box) -> bool:
    """Whether every payload in the second box is in the first one."""
    return joined(wide, narrow) == wide


class Matcher:
    """Boxes, ready to be asked.

    Args:
        boxes: what is wanted.
    """

    __slots__ = ("boxes", "tests")

    def __init__(self, boxes: Iterable[Box]) -> None:
        self.boxes = tuple(boxes)
        self.tests = [[(tuple(name.split(".")), low, high) for name, low, high in box] for box in self.boxes]

    def wants(self, content: Any) -> bool:
        """Whether a payload lies in one of them."""
        return any(self._inside(test, content) for test in self.tests)

    @staticmethod
    def _inside(test: Sequence[tuple[tuple[str, ...], float, float]], content: Any) -> bool:
        for path, low, high in test:
            value = number_at(content, path)
            if value is None or not low <= value <= high:
                return False
        return True


class Scale:
    """How wide a box is, as a share of all ends seen so far."""

    __slots__ = ("_ends",)

    def __init__(self) -> None:
        self._ends: dict[str, tuple[float, float]] = {}

    def see(self, box: Box) -> None:
        """Take note of the ends of a box."""
        for name, *ends in box:
            finite = [end for end in ends if math.isfinite(end)]
            if finite:
                low, high = self._ends.get(name, (math.inf, -math.inf))
                self._ends[name] = (min(low, *finite), max(high, *finite))

    def domain(self, name: str) -> tuple[float, float]:
        """From the lowest to the highest end; a range of its own where there is none."""
        low, high = self._ends.get(name, (0.0, 1.0))
        return (low, high) if low < high and high - low < math.inf else (low, low + 1.0)

    def volume(self, box: Box) -> float:
        """The share of everything that a box takes."""
        volume = 1.0
        for name, low, high in box:
            first, last = self.domain(name)
            volume *= max((min(high, last) - max(low, first)) / (last - first), NARROWEST)
        return volume


class _Cluster:
    """Boxes that are covered together."""

    __slots__ = ("cover", "loose", "members")

    def __init__(self, members: Iterable[Box]) -> None:
        self.members = dict.fromkeys(members)
        self.loose = True
        self.cover: Box = ()
        self.tighten()

    def tighten(self) -> bool:
        """Make the cover fit; True if it becomes narrower."""
        before, self.loose = self.cover, False
        boxes = iter(self.members)
        self.cover = next(boxes, ())
        for box in boxes:
            self.cover = joined(self.cover, box)
        return self.cover != before


class Summary:
    """Boxes, and at most so many that cover them all.

    Args:
        most: how many.
    """

    def __init__(self, most: int) -> None:
        self._most = most
        self._scale = Scale()
        self._counts: dict[Box, int] = {}
        self._clusters: list[_Cluster] = []
        self._cluster_of: dict[Box, _Cluster] = {}
        self._changes = 0

    def __len__(self) -> int:
        return len(self._counts)

    @property
    def covers(self) -> tuple[Box, ...]:
        """The boxes that cover everything."""
        return tuple(dict.fromkeys(cluster.cover for cluster in self._clusters))

    def add(self, box: Box) -> bool:
        """Cover one more box; True if the covers had to change for it."""
        count = self._counts.get(box, 0)
        self._counts[box] = count + 1
        if count:
            return False
        self._scale.see(box)
        self._changes += 1
        for cluster in self._clusters:
            if covers(cluster.cover, box):
                cluster.members[box] = None
                self._cluster_of[box] = cluster
                return False
        if len(self._clusters) < self._most:
            cluster = _Cluster([box])
            self._clusters.append(cluster)
        else:
            cluster = min(self._clusters, key=lambda each: self._growth(each.cover, box))
            cluster.members[box] = None
            cluster.cover = joined(cluster.cover, box)
        self._cluster_of[box] = cluster
        return True

    def _growth(self, cover: Box, box: Box) -> float:
        return self._scale.volume(joined(cover, box)) - self._scale.volume(cover)

    def remove(self, box: Box) -> None:
        """A box need not be covered any more; the covers stay as they are until `tighten`."""
        self._counts[box] -= 1
        if self._counts[box]:
            return
        del self._counts[box]
        self._changes += 1
        cluster = self._cluster_of.pop(box)
        del cluster.members[box]
        cluster.loose = True

    def tighten(self) -> bool:
        """Cover no more than is there; True if the covers changed."""
        before = self.covers
        self._clusters = [cluster for cluster in self._clusters if cluster.members]
        for cluster in self._clusters:
            if cluster.loose:
                cluster.tighten()
        boxes = len(self._counts)
        if self._most < boxes <= MOST_ARRANGED and self._changes * 4 >= boxes:
            self._arrange()
        return self.covers != before

    def _arrange(self) -> None:
        """Part all boxes anew: the widest part in two, again and again."""
        self._changes = 0
        scale = Scale()
        for box in self._counts:
            scale.see(box)
        self._scale = scale
        parts = _Parts(list(self._counts), scale)
        self._clusters = [_Cluster(members) for members in parts.split(self._most)]
        self._cluster_of = {box: cluster for cluster in self._clusters for box in cluster.members}


class _Parts:
    """Boxes parted so that the parts are small: each cut is the best one along one attribute.

    Args:
        boxes: what is to be parted.
        scale: how wide they are.
    """

    def __init__(self, boxes: list[Box], scale: Scale) -> None:
        self._boxes = boxes
        names = sorted({name for box in boxes for name, _, _ in box})
        columns = {name: column for column, name in enumerate(names)}
        domains = np.array([scale.domain(name) for name in names]).reshape(-1, 2)
        lows = np.zeros((len(boxes), len(names)))
        highs = np.ones((len(boxes), len(names)))
        for row, box in enumerate(boxes):
            for name, low, high in box:
                first, last = domains[columns[name]]
                lows[row, columns[name]] = min(max((low - first) / (last - first), 0.0), 1.0)
                highs[row, columns[name]] = min(max((high - first) / (last - first), 0.0), 1.0)
        self._lows, self._highs = lows, highs

    def split(self, most: int) -> list[list[Box]]:
        """At most so many parts."""
        parts = [np.arange(len(self._boxes))]
        sizes = [self._size(parts[0])]
        whole: list[NDArray[np.intp]] = []
        while parts and len(parts) + len(whole) < most:
            widest = sizes.index(max(sizes))
            rows = parts.pop(widest)
            sizes.pop(widest)
            halves = self._cut(rows) if len(rows) > 1 else None
            if halves is None:
                whole.append(rows)
                continue
            parts += halves
            sizes += [self._size(half) for half in halves]
        return [[self._boxes[row] for row in rows] for rows in (*parts, *whole)]

    def _size(self, rows: NDArray[np.intp]) -> float:
        """What a part may take in beyond its boxes, for as many as they are."""
        return float(_volumes(self._lows[rows].min(axis=0), self._highs[rows].max(axis=0))) * len(rows)

    def _cut(self, rows: NDArray[np.intp]) -> list[NDArray[np.intp]] | None:
        best: tuple[float, list[NDArray[np.intp]]] | None = None
        for column in range(self._lows.shape[1]):
            middles = self._lows[rows, column] + self._highs[rows, column]
            ordered = rows[np.argsort(middles, kind="stable")]
            lows, highs = self._lows[ordered], self._highs[ordered]
            left = _volumes(np.minimum.accumulate(lows), np.maximum.accumulate(highs))[:-1]
            right = _volumes(np.minimum.accumulate(lows[::-1]), np.maximum.accumulate(highs[::-1]))[::-1][1:]
            counts = np.arange(1, len(rows))
            costs = left * counts + right * (len(rows) - counts)
            at = int(costs.argmin())
            if best is None or costs[at] < best[0]:
                best = (float(costs[at]), [ordered[: at + 1], ordered[at + 1 :]])
        return None if best is None else best[1]


def _volumes(lows: Floats, highs: Floats) -> Floats:
    volumes: Floats = np.maximum(highs - lows, NARROWEST).prod(axis=-1)
    return volumes
