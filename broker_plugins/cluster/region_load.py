"""How much happens where: what one node saw, what all of them reported, and how clients moved. All of it is bounded."""

from __future__ import annotations

import random
from collections import deque
from typing import TYPE_CHECKING

import numpy as np

from broker_plugins.cluster.region_wire import Load, Sightings
from spatial_index import Observations

if TYPE_CHECKING:
    from collections.abc import Iterable

    from broker_plugins.places import Place
    from spatial_index import RegionTree
    from spatial_index.spaces import Floats, Space

SAMPLE = 1024
"""Places in one report."""
REPORTS = 16
"""Reports of one node that are added up: so many that what comes in bursts is not taken for more than it is."""
TRAIL = 60
"""Positions of one client that tell how it moves."""
MOST_USERS = 200
"""Clients whose movement one node watches; an answer about all of them fits one message of the fabric."""


class Watcher:
    """What happens on this node: how often, and a fair sample of where.

    Args:
        node: its name.
    """

    def __init__(self, node: str) -> None:
        self._node = node
        self._count = 0
        self._places: list[tuple[float, float]] = []
        self._random = random.Random(node)

    def note(self, place: Place) -> None:
        """Something happened at a place; an area counts at its middle."""
        x, y = place if len(place) == 2 else _middle(*place)
        self._count += 1
        if len(self._places) < SAMPLE:
            self._places.append((x, y))
            return
        at = int(self._random.random() * self._count)
        if at < SAMPLE:
            self._places[at] = (x, y)

    def report(self, seconds: float) -> Load:
        """What happened since this was asked last."""
        places, self._places = self._places, []
        count, self._count = self._count, 0
        return Load(self._node, seconds, count, [x for x, _ in places], [y for _, y in places])


def _middle(west: float, south: float, east: float, north: float) -> tuple[float, float]:
    x = (west + east) / 2 if west <= east else west  # across the antimeridian: where it begins
    return x, (south + north) / 2


class _Report:
    """A report, and how its places are spread over the blocks of a tree, counted once."""

    __slots__ = ("counts", "load", "tree")

    def __init__(self, load: Load) -> None:
        self.load = load
        self.tree: RegionTree | None = None
        self.counts: dict[str, int] = {}

    def spread(self, tree: RegionTree) -> dict[str, int]:
        if self.tree is not tree:
            self.tree, self.counts = tree, {name: len(xs) for name, xs, _ in tree.residents(self.load.xs, self.load.ys)}
        return self.counts


class Loads:
    """What all nodes reported lately."""

    def __init__(self) -> None:
        self._reports: dict[str, deque[_Report]] = {}

    def copy(self) -> Loads:
        """The same, which other reports do not change."""
        copied = Loads()
        for reports in self._reports.values():
            for report in reports:
                copied.take(report.load)
        return copied

    def take(self, load: Load) -> None:
        """A node reported."""
        self._reports.setdefault(load.node, deque(maxlen=REPORTS)).append(_Report(load))

    def forget(self, node: str) -> None:
        """A node is gone."""
        self._reports.pop(node, None)

    def sample(self) -> tuple[Floats, Floats]:
        """Places where something happened."""
        loads = [report.load for reports in self._reports.values() for report in reports]
        xs = np.array([x for load in loads for x in load.xs], np.float64)
        ys = np.array([y for load in loads for y in load.ys], np.float64)
        return xs, ys

    def total(self) -> float:
        """What happens in all blocks together a second."""
        found = 0.0
        for reports in self._reports.values():
            seconds = sum(report.load.seconds for report in reports)
            found += sum(report.load.count for report in reports) / seconds if seconds > 0 else 0.0
        return found

    def by_block(self, tree: RegionTree) -> dict[str, float]:
        """What happens in each block a second.

        Raises:
            SpatialIndexError: a node reported places of another space.
        """
        found = dict.fromkeys((block.id for block in tree), 0.0)
        for reports in self._reports.values():
            seconds = sum(report.load.seconds for report in reports)
            for report in reports:
                load = report.load
                if load.xs and seconds > 0:
                    each = load.count / len(load.xs) / seconds
                    for name, count in report.spread(tree).items():
                        found[name] += count * each
        return found


class Trails:
    """How the clients of this node moved.

    Args:
        space: where they are.
        pause_s: how long after a position the next one of the same client counts.
    """

    def __init__(self, space: Space, pause_s: float) -> None:
        self._space = space
        self._pause_s = pause_s
        self._trails: dict[str, deque[tuple[float, float, float]]] = {}

    def note(self, client_id: str, now_s: float, place: tuple[float, float]) -> None:
        """A client is somewhere."""
        trail = self._trails.pop(client_id, None)
        if trail is None:
            trail = deque(maxlen=TRAIL)
            while len(self._trails) >= 2 * MOST_USERS:
                del self._trails[next(iter(self._trails))]  # the one that was not heard of for longest
        self._trails[client_id] = trail
        if not trail or now_s - trail[-1][0] >= self._pause_s:
            trail.append((now_s, *place))

    def summary(self, now_s: float) -> Observations:
        """What is kept of it, to be merged with that of the other nodes; who is silent for long is left out."""
        since = now_s - TRAIL * self._pause_s
        rows = [(user, *seen) for user, trail in self._trails.items() if trail[-1][0] >= since for seen in trail]
        users = np.array([row[0] for row in rows], dtype=str)
        columns = np.array([row[1:] for row in rows], np.float64).reshape(-1, 3)
        return Observations.of(
            users, columns[:, 0], columns[:, 1], columns[:, 2], space=self._space, trail=TRAIL, most_users=MOST_USERS
        )


def to_sightings(seen: Observations) -> Sightings:
    """Observations as they travel."""
    return Sightings(seen.users.tobytes(), seen.times.tobytes(), seen.xs.tobytes(), seen.ys.tobytes())


def merged(own: Observations, others: Iterable[Sightings]) -> Observations:
    """The observations of several nodes as one.

    Raises:
        ValueError: the columns of one do not fit together.
    """
    parts = []
    for other in others:
        times, xs, ys = (np.frombuffer(column, np.float64) for column in (other.times, other.xs, other.ys))
        users = np.frombuffer(other.users, np.uint64)
        if not len(users) == len(times) == len(xs) == len(ys):
            raise ValueError(f"there are {len(users)} users, {len(times)} times and {len(xs)} places: not one of each")
        parts.append(Observations(own.space, users, times, xs, ys, own.trail, own.most_users))
    return own.merge(*parts)
