"""A flat piece of the globe: metres east and north of a point, small enough for its curvature not to matter."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Final, NamedTuple

METRES_PER_DEGREE: Final = 111_195.0
"""Of latitude, and of longitude at the equator, on a sphere of 6,371 km."""


class Point(NamedTuple):
    """A place in the plane: metres east and north of its origin."""

    x: float
    y: float

    def distance_to(self, other: Point) -> float:
        """How far it is, as the crow flies."""
        return math.hypot(other.x - self.x, other.y - self.y)

    def towards(self, other: Point, share: float) -> Point:
        """The place a share of the way from here to there."""
        return Point(self.x + (other.x - self.x) * share, self.y + (other.y - self.y) * share)

    def heading_to(self, other: Point) -> float:
        """Degrees clockwise from north, 0 up to 360."""
        return math.degrees(math.atan2(other.x - self.x, other.y - self.y)) % 360.0


@dataclass(frozen=True, slots=True)
class Plane:
    """The plane that touches the globe at a point.

    Args:
        lon: of the point that is its origin.
        lat: of the same.
    """

    lon: float
    lat: float

    def globe(self, point: Point) -> tuple[float, float]:
        """Longitude and latitude of a place, to a tenth of a metre."""
        along = METRES_PER_DEGREE * math.cos(math.radians(self.lat))
        return round(self.lon + point.x / along, 6), round(self.lat + point.y / METRES_PER_DEGREE, 6)

    def point(self, lon: float, lat: float) -> Point:
        """The place with this longitude and latitude."""
        along = METRES_PER_DEGREE * math.cos(math.radians(self.lat))
        return Point((lon - self.lon) * along, (lat - self.lat) * METRES_PER_DEGREE)
