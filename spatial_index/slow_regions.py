"""`slow_regions`: where many users linger, found from how they move (for the R side of paper 000's tree).

Each user's speed is the median over the last reports. Otsu's threshold on the logarithm of speed divides slow users
from fast ones, if there are two kinds at all. Grid cells are hot where slow users crowd and are most of those present;
connected hot cells become a box, overlapping boxes one, and a box stays if enough slow users live there and stay.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from spatial_index.errors import BadCount
from spatial_index.spaces import EARTH_RADIUS_M, Box, Sphere

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from spatial_index.observations import Observations
    from spatial_index.spaces import Floats, Space

    Flags = NDArray[np.bool_]
    Numbers = NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class SlowRegionSettings:
    """What counts as slow, as crowded and as a region.

    Attributes:
        cell: the side of a grid cell, in metres on the Earth or units of the plane. If not said: 500 m on the Earth; on
            a plane the side that gives a cell `users_per_cell` users on average.
        users_per_cell: see `cell`; smaller cells draw sharper borders, larger ones are fooled less by chance.
        mode_ratio: the two kinds of users must differ in speed by this factor.
        explained: and the division must explain this share of the variance of the logarithm of speed.
        crowding: a hot cell has this many times the mean number of reports a cell, from slow users alone.
        slow_share: and this share of its reports is from slow users.
        population: a region is home to at least so many slow users, who spend most of their time in it
        residency: and on average this share of it.
        fewest_steps: users with fewer steps are left out.
    """

    cell: float | None = None
    users_per_cell: float = 2.0
    mode_ratio: float = 1.8
    explained: float = 0.6
    crowding: float = 3.0
    slow_share: float = 0.6
    population: float = 5.0
    residency: float = 0.9
    fewest_steps: int = 10

    def __post_init__(self) -> None:
        for name in ("users_per_cell", "mode_ratio", "crowding"):
            if not 0 < getattr(self, name) < math.inf:
                raise BadCount(f"{name} is {getattr(self, name)!r}: it has to be a positive number")
        for name in ("explained", "slow_share", "residency"):
            if not 0 <= getattr(self, name) <= 1:
                raise BadCount(f"{name} is {getattr(self, name)!r}: it has to be a share, from 0 to 1")
        if self.cell is not None and not 0 < self.cell < math.inf:
            raise BadCount(f"cell is {self.cell!r}: it has to be a positive length, or None")
        if self.fewest_steps < 1:
            raise BadCount(f"fewest_steps is {self.fewest_steps!r}: it takes a step to tell a speed")


class SlowRegion(NamedTuple):
    """A box where slow users live: how many, and which share of their time they spend in it."""

    box: Box
    population: float
    residency: float


@dataclass(frozen=True, slots=True)
class SlowRegions:
    """What was found.

    Attributes:
        regions: the slow regions, none overlapping another.
        threshold: the speed that divides slow users from fast ones, None if there are not two kinds.
        slow_users: how many of the users judged are slow.
        users: how many users were judged.
    """

    regions: tuple[SlowRegion, ...]
    threshold: float | None
    slow_users: int
    users: int


def slow_regions(observations: Observations, settings: SlowRegionSettings | None = None) -> SlowRegions:
    """Find the boxes where slow users crowd; none where slow users are spread like the others."""
    settings = settings or SlowRegionSettings()
    seen = _Seen(observations, settings.fewest_steps)
    threshold = otsu_threshold(seen.speeds, settings.mode_ratio, settings.explained)
    if threshold is None:
        return SlowRegions((), None, 0, len(seen.speeds))
    slow = seen.speeds <= threshold
    grid = _Grid(observations.space, seen, settings)
    boxes = _merged([grid.box_of(cells, slow) for cells in grid.hot_components(slow)], grid.turn)
    scale = observations.users_seen / max(observations.users_kept, 1)
    regions = []
    for box in boxes:
        population, residency = seen.life_in(grid.inside(box), slow)
        if population * scale >= settings.population and residency >= settings.residency:
            regions.append(SlowRegion(grid.in_space(box), population * scale, residency))
    return SlowRegions(tuple(sorted(regions)), threshold, int(slow.sum()), len(slow))


def otsu_threshold(speeds: Floats, mode_ratio: float, explained: float) -> float | None:
    """The speed that best divides the speeds in two on a logarithmic scale, None if they are of one kind.

    Standing still has no logarithm: it counts as a twentieth of the median of those who move.
    """
    moving = speeds[speeds > 0]
    if len(moving) < 2:
        return None
    ordered = np.sort(np.log(np.maximum(speeds, np.median(moving) / 20)))
    count = np.arange(1, len(ordered))
    sums = np.cumsum(ordered)
    low, high = sums[:-1] / count, (sums[-1] - sums[:-1]) / (len(ordered) - count)
    between = count * (len(ordered) - count) * (high - low) ** 2 / len(ordered) ** 2
    between[ordered[1:] == ordered[:-1]] = -1.0  # equal speeds are not divided
    best = int(between.argmax())
    variance = float(ordered.var())
    if between[best] <= 0 or between[best] < explained * variance:
        return None
    if high[best] - low[best] < math.log(mode_ratio):
        return None
    return float(np.exp((ordered[best] + ordered[best + 1]) / 2))


class _Seen:
    """The reports of the users who moved often enough to be judged, with each one's speed."""

    def __init__(self, observations: Observations, fewest_steps: int) -> None:
        _, user, counts = np.unique(observations.users, return_inverse=True, return_counts=True)
        judged = counts > fewest_steps
        keep = judged[user]
        self.user: Numbers = (np.cumsum(judged) - 1)[user[keep]]
        self.xs, self.ys = observations.xs[keep], observations.ys[keep]
        times = observations.times[keep]
        self.reports = counts[judged]
        self.speeds = self._median_speeds(observations.space, times)

    def _median_speeds(self, space: Space, times: Floats) -> Floats:
        if not len(self.user):
            return np.empty(0)
        px, py, pz = space.positions(self.xs, self.ys)
        steps = np.sqrt(np.diff(px) ** 2 + np.diff(py) ** 2 + np.diff(pz) ** 2)
        if isinstance(space, Sphere):
            steps = 2 * EARTH_RADIUS_M * np.arcsin(np.minimum(steps / 2, 1.0))
        same = self.user[1:] == self.user[:-1]
        speeds, user = (steps / np.where(same, np.diff(times), 1.0))[same], self.user[1:][same]
        speeds = speeds[np.lexsort((speeds, user))]
        counts = np.bincount(user)
        starts = np.cumsum(counts) - counts
        return np.asarray((speeds[starts + (counts - 1) // 2] + speeds[starts + counts // 2]) / 2)

    def life_in(self, inside: Flags, slow: Flags) -> tuple[int, float]:
        """How many slow users spend most of their time inside, and which share of it."""
        share = np.bincount(self.user, weights=inside, minlength=len(slow)) / self.reports
        residents = slow & (share > 0.5)
        return int(residents.sum()), float(share[residents].mean()) if residents.any() else 0.0


class _Grid:
    """Cells of equal area over the reports; on the Earth in a cylindrical equal-area projection, closed around it."""

    def __init__(self, space: Space, seen: _Seen, settings: SlowRegionSettings) -> None:
        self._space, self._seen, self._settings = space, seen, settings
        self.turn = math.inf
        if isinstance(space, Sphere):
            # True to scale at the middle latitude of the reports; nearer the poles shapes would lose all meaning.
            middle = math.radians(max(-80.0, min(80.0, float(np.median(seen.ys)))))
            self._east = EARTH_RADIUS_M * math.cos(middle)
            self._north = EARTH_RADIUS_M / math.cos(middle)
            self._us, self._vs = np.radians(seen.xs) * self._east, np.sin(np.radians(seen.ys)) * self._north
            self.turn = 2 * math.pi * self._east
            self._high = settings.cell or 500.0
            self._columns = max(1, round(self.turn / self._high))
            self._wide = self.turn / self._columns
            left, bottom = -self.turn / 2, 0.0
        else:
            self._us, self._vs = seen.xs, seen.ys
            left, bottom = float(seen.xs.min()), float(seen.ys.min())
            extent = max(np.ptp(seen.xs) * np.ptp(seen.ys), 1e-300)
            self._wide = self._high = settings.cell or math.sqrt(extent * settings.users_per_cell / len(seen.speeds))
            self._columns = int(np.ptp(seen.xs) / self._wide) + 2
        column = np.floor((self._us - left) / self._wide).astype(np.int64) % self._columns
        row = np.floor((self._vs - bottom) / self._high).astype(np.int64)
        self._first_row = int(row.min())
        self._cell: Numbers = (row - self._first_row) * self._columns + column

    def hot_components(self, slow: Flags) -> list[Numbers]:
        """The hot cells, grouped by which touch side by side."""
        cells, where, counts = np.unique(self._cell, return_inverse=True, return_counts=True)
        from_slow = np.bincount(where, weights=slow[self._seen.user])
        mean = len(self._cell) / len(cells)
        hot = (from_slow >= self._settings.crowding * mean) & (from_slow >= self._settings.slow_share * counts)
        pending = set(cells[hot].tolist())
        components = []
        while pending:
            component, frontier = [], [pending.pop()]
            while frontier:
                cell = frontier.pop()
                component.append(cell)
                row, column = divmod(cell, self._columns)
                for near in (
                    cell - self._columns,
                    cell + self._columns,
                    row * self._columns + (column - 1) % self._columns,
                    row * self._columns + (column + 1) % self._columns,
                ):
                    if near in pending:
                        pending.remove(near)
                        frontier.append(near)
            components.append(np.array(sorted(component)))
        return sorted(components, key=lambda component: int(component[0]))

    def box_of(self, cells: Numbers, slow: Flags) -> Box:
        """All but the outermost slow reports in the cells, and half a cell more; on the grid, unwrapped."""
        inside = np.isin(self._cell, cells) & slow[self._seen.user]
        us, vs = self._us[inside], self._vs[inside]
        if math.isfinite(self.turn):
            us = us[0] + (us - us[0] + self.turn / 2) % self.turn - self.turn / 2
        west, east = np.quantile(us, [0.005, 0.995])
        south, north = np.quantile(vs, [0.005, 0.995])
        return Box(
            float(west - self._wide / 2),
            float(south - self._high / 2),
            float(east + self._wide / 2),
            float(north + self._high / 2),
        )

    def inside(self, box: Box) -> Flags:
        """Which reports are in a box on the grid."""
        us = self._us
        if math.isfinite(self.turn):
            us = box.west + (us - box.west) % self.turn
        return np.asarray((us >= box.west) & (us <= box.east) & (self._vs >= box.south) & (self._vs <= box.north))

    def in_space(self, box: Box) -> Box:
        """A box on the grid in the coordinates of the space, cut at its bounds or wrapped around it."""
        bounds = self._space.bounds
        if not math.isfinite(self.turn):
            return Box(
                max(box.west, bounds.west),
                max(box.south, bounds.south),
                min(box.east, bounds.east),
                min(box.north, bounds.north),
            )
        west, east = (math.degrees(u / self._east) for u in (box.west, box.east))
        south, north = (math.degrees(math.asin(max(-1.0, min(1.0, v / self._north)))) for v in (box.south, box.north))
        if east - west >= 360.0:
            return Box(-180.0, south, 180.0, north)
        west, east = (west + 180.0) % 360.0 - 180.0, (east + 180.0) % 360.0 - 180.0
        return Box(west, south, 180.0 if east == -180.0 else east, north)


def _merged(boxes: list[Box], turn: float) -> list[Box]:
    """Overlapping boxes as one, until none overlap; on the Earth a box a turn away is the same box."""
    shifts = (0.0, turn, -turn) if math.isfinite(turn) else (0.0,)
    done: list[Box] = []
    pending = list(boxes)
    while pending:
        box = pending.pop()
        for other, shift in ((other, shift) for other in done for shift in shifts):
            west, east = box.west + shift, box.east + shift
            if west <= other.east and other.west <= east and box.south <= other.north and other.south <= box.north:
                done.remove(other)
                pending.append(
                    Box(
                        min(west, other.west),
                        min(box.south, other.south),
                        max(east, other.east),
                        max(box.north, other.north),
                    )
                )
                break
        else:
            done.append(box)
    return done
