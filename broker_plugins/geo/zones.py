"""Areas as geometry: what the index holds of an area, and the same area asked directly.

A zone answers for one area what the index answers for many; both use the same space, so they agree. It also knows what
the index does not: whether the straight way between two places leads through it.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import shapely

from broker_plugins.grammar import Box, Cell, Circle
from spatial_index.shapes import Circle as CircleShape
from spatial_index.shapes import Outline, Point, Polygon, Shape, measured
from spatial_index.spaces import WGS84, Plane, checked_box
from spatial_index.spaces import Box as Piece

if TYPE_CHECKING:
    from collections.abc import Sequence

    from broker_plugins.grammar import Space as GrammarSpace
    from broker_plugins.places import Place
    from spatial_index.spaces import Space

STEPS = 64
"""Into how many parts a way is cut before the one nearest to a circle is looked at closely."""


def index_space(space: GrammarSpace) -> Space:
    """The space of the grammar as the index knows it."""
    return WGS84 if space.geographic else Plane(space.west, space.south, space.east, space.north)


def fixed_shape(area: Box | Cell | Circle, space: Space) -> Shape:
    """The shape of an area that stays where it is."""
    if isinstance(area, Circle):
        return circle_shape(area.lon, area.lat, area.radius, space)
    box = area.box if isinstance(area, Cell) else area
    return solid((box.west, box.south, box.east, box.north), space)


def circle_shape(x: float, y: float, radius: float, space: Space) -> CircleShape:
    """A circle, no wider than the space."""
    return CircleShape(x, y, min(radius, space.longest_radius()))


def solid(box: tuple[float, float, float, float], space: Space) -> Point | tuple[float, float, float, float]:
    """A box that is wider than nothing: a flat one gets the least width there is, and a point stays a point."""
    west, south, east, north = box
    if west == east and south == north:
        return Point(west, south)
    bounds = space.bounds
    if west == east:
        west, east = _widened(west, bounds.west, bounds.east)
    if south == north:
        south, north = _widened(south, bounds.south, bounds.north)
    return west, south, east, north


def _widened(value: float, low: float, high: float) -> tuple[float, float]:
    return max(low, math.nextafter(value, -math.inf)), min(high, math.nextafter(value, math.inf))


class Zone:
    """One area that can be asked.

    Args:
        space: the space it is in.
        shape: its shape.

    Raises:
        SpatialIndexError: the shape is none of this space.
    """

    __slots__ = ("_bounds", "_exact", "_pieces", "_position", "_reach", "_ring", "shape", "space")

    def __init__(self, space: Space, shape: Shape) -> None:
        self.space = space
        self.shape = shape
        self._bounds = space.bounds
        self._pieces, self._exact = measured(space, shape)
        self._ring: shapely.Polygon | None = None
        if isinstance(self._exact, CircleShape):
            self._position = space.position(self._exact.x, self._exact.y)
            self._reach = space.chord(self._exact.radius) ** 2

    def holds(self, place: Place) -> bool:
        """Whether a point is inside, or a box has a place in common with the area; borders belong to it."""
        if len(place) == 4:
            return self._touches(place)
        x, y = place
        west, south, east, north = self._bounds
        if not (west < x < east and south < y < north):
            return self._meets(self.space.equivalents(Piece(x, y, x, y)))
        for west, south, east, north in self._pieces:
            if west <= x <= east and south <= y <= north:
                break
        else:
            return False
        exact = self._exact
        if exact is None:
            return True
        if isinstance(exact, Outline):
            return exact.contains(x, y)
        return self._distance(x, y) <= self._reach

    def _distance(self, x: float, y: float) -> float:
        """The square of the straight distance from a circle's centre, as the index measures it."""
        (ax, ay, az), (bx, by, bz) = self._position, self.space.position(x, y)
        return (ax - bx) ** 2 + (ay - by) ** 2 + (az - bz) ** 2

    def _touches(self, box: tuple[float, float, float, float]) -> bool:
        whole = solid(box, self.space)
        if isinstance(whole, Point):
            return self.holds((whole.x, whole.y))
        space = self.space
        return self._meets([other for piece in checked_box(space, whole) for other in space.equivalents(piece)])

    def _meets(self, pieces: list[Piece]) -> bool:
        exact = self._exact
        for piece in pieces:
            for own in self._pieces:
                if (
                    own.west <= piece.east
                    and piece.west <= own.east
                    and own.south <= piece.north
                    and piece.south <= own.north
                ):
                    if exact is None:
                        return True
                    if isinstance(exact, Outline):
                        if exact.touches(piece):
                            return True
                    elif self.space.chord(self.space.distance_to_box(exact.x, exact.y, piece)) ** 2 <= self._reach:
                        return True
        return False

    def crossed(self, start: tuple[float, float], end: tuple[float, float]) -> bool:
        """Whether the way between two places leads through the area: straight in x and y, the shorter way round."""
        (x0, y0), (x1, y1) = start, end
        turns: tuple[float, ...] = (0.0,)
        if self.space is WGS84:
            x1 -= 360.0 * round((x1 - x0) / 360.0)
            turns = (0.0, 360.0, -360.0)
        ways = [(x0 + turn, y0, x1 + turn, y1) for turn in turns]
        if not any(_clips(*way, piece) for way in ways for piece in self._pieces):
            return False
        exact = self._exact
        if isinstance(exact, CircleShape):
            return self._circle_crossed(x0, y0, x1, y1)
        if isinstance(exact, Outline):
            assert isinstance(self.shape, Polygon)
            if self._ring is None:
                self._ring = unwrapped(self.shape, self.space)
            return any(bool(self._ring.intersects(shapely.LineString([way[:2], way[2:]]))) for way in ways)
        return True

    def _circle_crossed(self, x0: float, y0: float, x1: float, y1: float) -> bool:
        # The distance to a centre along a way that is straight in degrees has no closed form: the nearest of some
        # places on it, then a search around that one.
        def distance(part: float) -> float:
            x = x0 + (x1 - x0) * part
            return self._distance((x + 180.0) % 360.0 - 180.0 if self.space is WGS84 else x, y0 + (y1 - y0) * part)

        nearest = min(range(STEPS + 1), key=lambda step: distance(step / STEPS))
        low, high = max(0, nearest - 1) / STEPS, min(STEPS, nearest + 1) / STEPS
        for _ in range(48):
            third = (high - low) / 3
            if distance(low + third) <= distance(high - third):
                high -= third
            else:
                low += third
        return min(distance(low), distance((low + high) / 2), distance(high), distance(nearest / STEPS)) <= self._reach


def _clips(x0: float, y0: float, x1: float, y1: float, box: Piece) -> bool:
    """Whether a segment has a place in common with a box (Liang and Barsky)."""
    first, last = 0.0, 1.0
    for start, step, low, high in ((x0, x1 - x0, box.west, box.east), (y0, y1 - y0, box.south, box.north)):
        if step == 0.0:
            if not low <= start <= high:
                return False
            continue
        enter, leave = (low - start) / step, (high - start) / step
        if enter > leave:
            enter, leave = leave, enter
        first, last = max(first, enter), min(last, leave)
    return first <= last


def unwrapped(polygon: Polygon, space: Space) -> shapely.Polygon:
    """The polygon with longitudes that go on beyond 180 instead of jumping back."""
    if space is not WGS84:
        return shapely.Polygon(polygon.ring, polygon.holes)
    shell = _unrolled(polygon.ring, polygon.ring[0][0])
    return shapely.Polygon(shell, [_unrolled(hole, shell[0][0]) for hole in polygon.holes])


def _unrolled(ring: Sequence[tuple[float, float]], near: float) -> list[tuple[float, float]]:
    found: list[tuple[float, float]] = []
    for x, y in ring:
        unrolled = x - 360.0 * round((x - near) / 360.0)
        found.append((unrolled, y))
        near = unrolled
    return found
