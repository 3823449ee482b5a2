"""Where this client is: distances, and whether it has moved far enough to say so."""

from __future__ import annotations

import math

from broker_plugins.grammar import Position, Space
from clients.errors import PositionError

EARTH_RADIUS_M = 6_371_008.8
"""The mean radius of the Earth, the one the broker measures with."""

POSITION_TOPIC = "locus/me/position"
"""Where a client tells the broker its position; consumed by the broker, never delivered."""


def distance_m(space: Space, start: Position, end: Position) -> float:
    """The way from one position to another in metres: along a great circle (haversine), or straight in a plane."""
    if not space.geographic:
        return math.hypot(end.lon - start.lon, end.lat - start.lat)
    south, north = math.radians(start.lat), math.radians(end.lat)
    turn = math.radians(end.lon - start.lon)
    half = math.sin((north - south) / 2) ** 2 + math.cos(south) * math.cos(north) * math.sin(turn / 2) ** 2
    return 2 * EARTH_RADIUS_M * math.asin(min(1.0, math.sqrt(half)))


def checked_position(space: Space, lon: float, lat: float) -> Position:
    """A position within the space.

    Raises:
        PositionError: If it is not.
    """
    names = ("longitude", "latitude") if space.geographic else ("x", "y")
    bounds = ((space.west, space.east), (space.south, space.north))
    for name, value, (least, most) in zip(names, (lon, lat), bounds, strict=True):
        if not least <= value <= most:  # NaN is not, either
            raise PositionError(f"{name} {value!r} is not in {least:g}..{most:g}: give longitude first, then latitude")
    return Position(lon + 0.0, lat + 0.0)


def has_moved(space: Space, last: Position | None, now: Position, least_distance_m: float) -> bool:
    """Whether a position is news: the first one is, and one at least so far from the last one told.

    Raises:
        PositionError: If the distance is negative or no number.
    """
    if not least_distance_m >= 0:
        raise PositionError(f"least_distance_m is {least_distance_m!r}: give 0 to send always, or metres")
    return last is None or distance_m(space, last, now) >= least_distance_m
