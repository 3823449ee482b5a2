"""The shapes an index holds besides boxes: points, circles and polygons, checked when they are taken in."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import shapely

from spatial_index.errors import BadPolygon, BadShape
from spatial_index.spaces import Box, Space, Sphere, checked_box, checked_number, checked_place

if TYPE_CHECKING:
    from collections.abc import Sequence


@dataclass(slots=True, frozen=True)
class Point:
    """A single place."""

    x: float
    y: float


@dataclass(slots=True, frozen=True)
class Circle:
    """All places no farther than `radius` from a centre: metres on the Earth, units of the plane on a plane."""

    x: float
    y: float
    radius: float


@dataclass(slots=True, frozen=True)
class Polygon:
    """A closed ring of corners, with holes, as in GeoJSON: the last corner repeats the first.

    Edges are straight in x and y. On the Earth an edge that spans more than 180 degrees of longitude is taken the
    shorter way, across the antimeridian.
    """

    ring: Sequence[tuple[float, float]]
    holes: Sequence[Sequence[tuple[float, float]]] = ()


Shape = Point | Circle | Polygon | tuple[float, float, float, float]
"""What an id may have; four numbers are a box (west, south, east, north)."""


class Outline:
    """A checked polygon that answers whether it touches a place or a box."""

    __slots__ = ("_polygon", "_shifts")

    def __init__(self, space: Space, polygon: Polygon) -> None:
        shell, *holes = (
            _unwrapped(_corners(space, ring), isinstance(space, Sphere)) for ring in (polygon.ring, *polygon.holes)
        )
        holes = [_beside(hole, shell) for hole in holes] if isinstance(space, Sphere) else holes
        self._polygon = shapely.Polygon(shell, holes)
        if not self._polygon.is_valid:
            reason = shapely.is_valid_reason(self._polygon)
            raise BadPolygon(f"polygon {_short(polygon.ring)} is not simple ({reason}); edges must not cross")
        if self._polygon.area <= 0:
            raise BadPolygon(f"polygon {_short(polygon.ring)} has no area; give corners that are not on one line")
        # An unwrapped ring may reach beyond +-180; places are then also looked for a turn away.
        self._shifts = (0.0, 360.0, -360.0) if isinstance(space, Sphere) else (0.0,)
        shapely.prepare(self._polygon)

    def contains(self, x: float, y: float) -> bool:
        """Whether the place is inside or on the border."""
        return any(bool(shapely.intersects_xy(self._polygon, x + shift, y)) for shift in self._shifts)

    def touches(self, box: Box) -> bool:
        """Whether any place of the box, which may be a line or a point, is inside or on the border."""
        west, south, east, north = box
        for shift in self._shifts:
            area = shapely.box(west + shift, south, east + shift, north)
            if west == east or south == north:
                area = shapely.LineString([(west + shift, south), (east + shift, north)])
            if west == east and south == north:
                area = shapely.Point(west + shift, south)
            if self._polygon.intersects(area):
                return True
        return False

    def pieces(self) -> list[Box]:
        """Boxes within the space's bounds that together contain the polygon."""
        west, south, east, north = self._polygon.bounds
        if len(self._shifts) == 1:
            return [Box(west, south, east, north)]
        if east - west >= 360.0:
            return [Box(-180.0, south, 180.0, north)]
        found = [
            Box(max(west + shift, -180.0), south, min(east + shift, 180.0), north)
            for shift in self._shifts
            if west + shift <= 180.0 and east + shift >= -180.0
        ]
        # A side that only touches the meridian from outside is the same meridian under its other name.
        solid = [box for box in found if box.west < box.east]
        return solid or found[:1]


def measured(space: Space, shape: object) -> tuple[list[Box], Circle | Outline | None]:
    """Check a shape: its bounding pieces, and what decides exactly (None where the pieces do).

    Raises:
        BadCoordinate: for a number that is NaN, infinite or out of bounds.
        BadBox: for an inverted or empty box.
        BadShape: for a radius that is not positive, or something that is no shape.
        BadPolygon: for a ring that is unclosed, crosses itself or has no area.
    """
    if isinstance(shape, Circle):
        x, y = checked_place(space, shape.x, shape.y)
        radius = checked_number(shape.radius, "radius")
        if not 0 < radius <= space.longest_radius():
            raise BadShape(f"radius is {shape.radius!r}; give more than 0 and at most {space.longest_radius():g}")
        return space.cover(x, y, radius), Circle(x, y, radius)
    if isinstance(shape, Point):
        x, y = checked_place(space, shape.x, shape.y)
        return [Box(x, y, x, y)], None
    if isinstance(shape, Polygon):
        outline = Outline(space, shape)
        return outline.pieces(), outline
    if isinstance(shape, str | bytes) or not hasattr(shape, "__len__"):
        raise BadShape(f"{shape!r} is no shape; give a box of four numbers, a Point, a Circle or a Polygon")
    return checked_box(space, shape), None  # type: ignore[arg-type]  # checked_box refuses what is no box


def _corners(space: Space, ring: Sequence[tuple[float, float]]) -> list[tuple[float, float]]:
    try:
        corners = [(x, y) for x, y in ring]
    except (TypeError, ValueError):
        raise BadPolygon(f"{_short(ring)} is no ring; give a list of (x, y) corners") from None
    if len(corners) < 4:
        raise BadPolygon(f"ring {_short(ring)} has {len(corners)} corners; a closed ring has at least 4")
    corners = [checked_place(space, x, y) for x, y in corners]
    if corners[0] != corners[-1]:
        raise BadPolygon(f"ring {_short(ring)} is not closed; repeat its first corner {corners[0]} at the end")
    return corners


def _unwrapped(corners: list[tuple[float, float]], sphere: bool) -> list[tuple[float, float]]:
    if not sphere:
        return corners
    unwrapped = [corners[0]]
    for x, y in corners[1:]:
        before = unwrapped[-1][0]
        step = (x - before) % 360.0
        if abs(x - before) <= 180.0:
            step = x - before
        elif step > 180.0:
            step -= 360.0
        unwrapped.append((before + step, y))
    if abs(unwrapped[-1][0] - unwrapped[0][0]) > 180.0:
        raise BadPolygon(f"ring {_short(corners)} goes around a pole; cut it there with corners at latitude 90 or -90")
    return [*unwrapped[:-1], unwrapped[0]]


def _beside(hole: list[tuple[float, float]], shell: list[tuple[float, float]]) -> list[tuple[float, float]]:
    """The hole, turned to the side of the antimeridian where its shell was unwrapped to."""
    west, east = min(x for x, _ in shell), max(x for x, _ in shell)
    middle = sum(x for x, _ in hole) / len(hole)
    shift = next((turn for turn in (0.0, 360.0, -360.0) if west <= middle + turn <= east), 0.0)
    return [(x + shift, y) for x, y in hole]


def _short(ring: object) -> str:
    text = repr(ring)
    return text if len(text) <= 120 else f"{text[:117]}..."
