"""The space in which places lie: the earth in degrees, or a plane with configured bounds."""

from __future__ import annotations

import math
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Space:
    """Bounds of all coordinates, and whether they are degrees on the earth.

    Attributes:
        west: Least longitude, or least x.
        south: Least latitude, or least y.
        east: Greatest longitude, or greatest x.
        north: Greatest latitude, or greatest y.
        geographic: Degrees on the earth: a box may cross the antimeridian, geohash cells exist, and a radius needs a
            unit. A plane has none of these; it is measured in metres.
    """

    west: float
    south: float
    east: float
    north: float
    geographic: bool = False

    def __post_init__(self) -> None:
        bounds = (self.west, self.south, self.east, self.north)
        if not (all(map(math.isfinite, bounds)) and self.west < self.east and self.south < self.north):
            raise ValueError(f"a space needs finite bounds with west < east and south < north, not {bounds}")


WGS84 = Space(-180.0, -90.0, 180.0, 90.0, geographic=True)


def plane(west: float, south: float, east: float, north: float) -> Space:
    """A flat space in metres, such as a factory floor."""
    return Space(west, south, east, north)
