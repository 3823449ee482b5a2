"""Where boxes live: the whole Earth in degrees, or a plane with bounds.

A space says which coordinates it has, cuts a box that crosses the antimeridian into pieces that do not, and knows which
places are one place under two names: longitudes 180 and -180, and every longitude at a pole.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from spatial_index.errors import BadBox, BadCoordinate, BadCount

if TYPE_CHECKING:
    from collections.abc import Sequence

Floats = NDArray[np.float64]

EARTH_RADIUS_M = 6_371_008.8
"""The mean radius of the Earth (IUGG), which makes great-circle distances right within 0.6 %."""


class Box(NamedTuple):
    """A closed box: its border belongs to it. On the Earth a west beyond the east crosses the antimeridian."""

    west: float
    south: float
    east: float
    north: float


class Space(Protocol):
    """What an index asks of a space."""

    @property
    def bounds(self) -> Box:
        """The box of all coordinates."""

    def pieces(self, box: Box) -> list[Box]:
        """Cut a box whose coordinates are within bounds into boxes with west <= east, or refuse it."""

    def equivalents(self, box: Box) -> list[Box]:
        """A piece together with the other names of the places on its border, as pieces."""

    def cover(self, x: float, y: float, radius: float) -> list[Box]:
        """Pieces that together contain the circle."""

    def longest_radius(self) -> float:
        """The radius beyond which a circle says nothing."""

    def position(self, x: float, y: float) -> tuple[float, float, float]:
        """The place in coordinates whose straight distances order places as true distances do."""

    def positions(self, xs: Floats, ys: Floats) -> tuple[Floats, Floats, Floats]:
        """`position` of many places."""

    def place(self, x: float, y: float, z: float) -> tuple[float, float]:
        """The place that has a `position`."""

    def chord(self, radius: float) -> float:
        """The straight distance, between two `position`s, that a true distance comes to."""

    def distance_to_box(self, x: float, y: float, box: Box) -> float:
        """The true distance from a place to the nearest place of a piece; 0 inside."""


def checked_number(value: object, what: str) -> float:
    """A finite float, or BadCoordinate naming what it was meant to be."""
    try:
        number = float(value)  # type: ignore[arg-type]  # whatever has no float is refused here
    except (TypeError, ValueError, OverflowError):
        raise BadCoordinate(f"{what} is {value!r}; give a finite number") from None
    if not math.isfinite(number):
        raise BadCoordinate(f"{what} is {value!r}; give a finite number")
    return number


def checked_place(space: Space, x: object, y: object) -> tuple[float, float]:
    """A place within the space's bounds, or BadCoordinate."""
    west, south, east, north = space.bounds
    px, py = checked_number(x, "x"), checked_number(y, "y")
    if not west <= px <= east:
        raise BadCoordinate(f"x is {x!r}; this space has {west:g} to {east:g}")
    if not south <= py <= north:
        raise BadCoordinate(f"y is {y!r}; this space has {south:g} to {north:g}")
    return px, py


def checked_box(space: Space, box: Sequence[float]) -> list[Box]:
    """The pieces of a box, or BadBox or BadCoordinate."""
    try:
        west, south, east, north = box
    except (TypeError, ValueError):
        raise BadBox(f"{box!r} is no box; give west, south, east, north") from None
    sides = Box(*checked_place(space, west, south), *checked_place(space, east, north))
    if sides.south > sides.north:
        raise BadBox(f"the south of box {tuple(box)!r} is above its north; swap them")
    if sides.south == sides.north or sides.west == sides.east:
        raise BadBox(f"box {tuple(box)!r} is empty; give it a width and a height, or use a Point")
    return space.pieces(sides)


def checked_places(space: Space, xs: object, ys: object) -> tuple[Floats, Floats]:
    """Many places within the space's bounds, or BadCoordinate naming the first that is not."""
    try:
        px, py = np.asarray(xs, np.float64), np.asarray(ys, np.float64)
    except (TypeError, ValueError):
        raise BadCoordinate("xs and ys must be arrays of finite numbers") from None
    if px.ndim != 1 or px.shape != py.shape:
        raise BadCount(f"xs have shape {px.shape} and ys {py.shape}; give one of each for each place")
    west, south, east, north = space.bounds
    wrong = np.nonzero(~((west <= px) & (px <= east) & (south <= py) & (py <= north)))[0]
    for place in wrong[:1].tolist():
        checked_place(space, float(px[place]), float(py[place]))
    return px, py


def checked_boxes(space: Space, boxes: object, count: int | None) -> Floats:
    """Many boxes as columns west, south, east, north, or the error that the first bad one gives alone."""
    try:
        rows = np.asarray(boxes, np.float64)
    except (TypeError, ValueError):
        raise BadBox("boxes must be an array of finite numbers with four columns") from None
    if rows.ndim != 2 or rows.shape[1] != 4:
        raise BadBox(f"boxes have shape {rows.shape}; give (n, 4): west, south, east, north")
    if count is not None and len(rows) != count:
        raise BadCount(f"there are {count} ids and {len(rows)} boxes; give one box for each id")
    columns: Floats = np.ascontiguousarray(rows.T)
    x0, y0, x1, y1 = columns
    west, south, east, north = space.bounds
    plain = (west <= x0) & (x0 < x1) & (x1 <= east) & (south <= y0) & (y0 < y1) & (y1 <= north)
    for place in np.nonzero(~plain)[0].tolist():
        checked_box(space, tuple(rows[place].tolist()))
    return columns


@dataclass(slots=True, frozen=True)
class Plane:
    """A flat space with bounds, such as a factory floor; distances are in the units of its coordinates."""

    west: float
    south: float
    east: float
    north: float

    def __post_init__(self) -> None:
        for name in ("west", "south", "east", "north"):
            checked_number(getattr(self, name), name)
        if self.west >= self.east or self.south >= self.north:
            raise BadBox(f"a plane needs west < east and south < north, not {(*self.bounds,)!r}")

    @property
    def bounds(self) -> Box:
        """The box of all coordinates."""
        return Box(self.west, self.south, self.east, self.north)

    def pieces(self, box: Box) -> list[Box]:
        """The box itself; a west beyond the east is refused, for a plane has no antimeridian."""
        if box.west > box.east:
            raise BadBox(f"the west of box {tuple(box)!r} is beyond its east; swap them")
        return [box]

    def equivalents(self, box: Box) -> list[Box]:
        """The box itself: every place of a plane has one name."""
        return [box]

    def cover(self, x: float, y: float, radius: float) -> list[Box]:
        """The circle's bounding box, cut at the bounds."""
        return [
            Box(
                max(self.west, x - radius),
                max(self.south, y - radius),
                min(self.east, x + radius),
                min(self.north, y + radius),
            )
        ]

    def longest_radius(self) -> float:
        """A circle around one corner that reaches the other already covers everything."""
        return 2 * math.hypot(self.east - self.west, self.north - self.south)

    def position(self, x: float, y: float) -> tuple[float, float, float]:
        """The place itself, at height 0."""
        return x, y, 0.0

    def positions(self, xs: Floats, ys: Floats) -> tuple[Floats, Floats, Floats]:
        """The places themselves, at height 0."""
        return xs, ys, np.zeros(len(xs))

    def place(self, x: float, y: float, z: float) -> tuple[float, float]:  # noqa: ARG002 - a plane has no height
        """The place itself."""
        return x, y

    def chord(self, radius: float) -> float:
        """The distance itself."""
        return radius

    def distance_to_box(self, x: float, y: float, box: Box) -> float:
        """The straight distance to the nearest place of the box."""
        return math.hypot(max(box.west - x, 0.0, x - box.east), max(box.south - y, 0.0, y - box.north))


@dataclass(slots=True, frozen=True)
class Sphere:
    """The Earth in degrees of longitude and latitude (WGS84), with distances in metres along great circles."""

    @property
    def bounds(self) -> Box:
        """All longitudes and latitudes."""
        return Box(-180.0, -90.0, 180.0, 90.0)

    def pieces(self, box: Box) -> list[Box]:
        """The box, cut at the antimeridian if it crosses it."""
        if box.west <= box.east:
            return [box]
        return [Box(box.west, box.south, 180.0, box.north), Box(-180.0, box.south, box.east, box.north)]

    def equivalents(self, box: Box) -> list[Box]:
        """The piece, with its border meridian at 180 seen from the other side, and the poles it touches."""
        found = [box]
        if box.east == 180.0 and box.west > -180.0:
            found.append(Box(-180.0, box.south, -180.0, box.north))
        if box.west == -180.0 and box.east < 180.0:
            found.append(Box(180.0, box.south, 180.0, box.north))
        found.extend(Box(-180.0, pole, 180.0, pole) for pole in (-90.0, 90.0) if pole in (box.south, box.north))
        return found

    def cover(self, x: float, y: float, radius: float) -> list[Box]:
        """The bounding box of a spherical cap; one that reaches a pole spans every longitude."""
        # The margin outweighs rounding in the trigonometry (1e-9 degrees are a tenth of a millimetre).
        reach = math.degrees(radius / EARTH_RADIUS_M) + 1e-9
        south, north = y - reach, y + reach
        if south <= -90.0 or north >= 90.0:
            return [Box(-180.0, max(south, -90.0), 180.0, min(north, 90.0))]
        sine = math.sin(math.radians(reach)) / math.cos(math.radians(y))
        span = math.degrees(math.asin(min(1.0, sine))) + 1e-9
        if span >= 180.0:
            return [Box(-180.0, south, 180.0, north)]
        west, east = x - span, x + span
        if west < -180.0:
            return [Box(west + 360.0, south, 180.0, north), Box(-180.0, south, east, north)]
        if east > 180.0:
            return [Box(west, south, 180.0, north), Box(-180.0, south, east - 360.0, north)]
        return [Box(west, south, east, north)]

    def longest_radius(self) -> float:
        """Half the circumference: beyond it a circle covers the Earth."""
        return math.pi * EARTH_RADIUS_M

    def position(self, x: float, y: float) -> tuple[float, float, float]:
        """The unit vector to the place; chords between such vectors keep their precision at every distance."""
        lon, lat = math.radians(x), math.radians(y)
        across = math.cos(lat)
        return across * math.cos(lon), across * math.sin(lon), math.sin(lat)

    def positions(self, xs: Floats, ys: Floats) -> tuple[Floats, Floats, Floats]:
        """`position` of many places."""
        lon, lat = np.radians(xs), np.radians(ys)
        across = np.cos(lat)
        return across * np.cos(lon), across * np.sin(lon), np.sin(lat)

    def place(self, x: float, y: float, z: float) -> tuple[float, float]:
        """Longitude and latitude of a unit vector."""
        return math.degrees(math.atan2(y, x)), math.degrees(math.atan2(z, math.hypot(x, y)))

    def chord(self, radius: float) -> float:
        """The chord of an arc of that many metres on the unit sphere."""
        return 2.0 * math.sin(min(radius / EARTH_RADIUS_M, math.pi) / 2.0)

    def distance_to_box(self, x: float, y: float, box: Box) -> float:
        """Great-circle distance to the nearest place of the piece.

        From between its meridians, the nearest place is straight north or south. From elsewhere it lies on the nearer
        of its two border meridians, for along a parallel the distance only grows with the difference in longitude.
        """
        if box.west <= x <= box.east:
            return math.radians(max(box.south - y, 0.0, y - box.north)) * EARTH_RADIUS_M
        return min(self._to_meridian(x, y, lon, box.south, box.north) for lon in (box.west, box.east))

    def _to_meridian(self, x: float, y: float, lon: float, south: float, north: float) -> float:
        lat, turn = math.radians(y), math.radians(lon - x)
        # On the meridian the place straight across is at this latitude; off the segment, one of its ends is nearest.
        foot = math.degrees(math.atan2(math.sin(lat), math.cos(lat) * math.cos(turn)))
        latitudes = [south, north] + ([foot] if south <= foot <= north else [])
        return min(self.distance(x, y, lon, latitude) for latitude in latitudes)

    def distance(self, x: float, y: float, to_x: float, to_y: float) -> float:
        """Great-circle distance between two places (haversine), in metres."""
        a, b = math.radians(y), math.radians(to_y)
        half = math.sin((b - a) / 2) ** 2 + math.cos(a) * math.cos(b) * math.sin(math.radians(to_x - x) / 2) ** 2
        return 2 * EARTH_RADIUS_M * math.asin(min(1.0, math.sqrt(half)))


WGS84 = Sphere()
"""The Earth, in degrees."""
