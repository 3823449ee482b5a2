"""Reading payloads that anybody may have published: what is not as it should be is None, never an exception."""

from __future__ import annotations

import math
from typing import Any

import msgspec

MOST_BYTES = 4_000_000
"""A larger payload is not looked into: the street map of a city is far smaller."""


def read_object(payload: bytes) -> dict[str, Any] | None:
    """A JSON object, or None for anything else."""
    if len(payload) > MOST_BYTES:
        return None
    try:
        content = msgspec.json.decode(payload)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return None
    return content if isinstance(content, dict) else None


def number(value: Any) -> float | None:
    """A finite number, or None: JSON has booleans and texts too."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    try:
        found = float(value)
    except OverflowError:
        return None
    return found if math.isfinite(found) else None


def point(value: Any) -> tuple[float, float] | None:
    """A point written `[longitude, latitude]`."""
    if not isinstance(value, list) or len(value) < 2:
        return None
    lon, lat = number(value[0]), number(value[1])
    return None if lon is None or lat is None else (lon, lat)


def line(value: Any, most: int) -> list[tuple[float, float]]:
    """The points of a line, those that are none left out, at most so many."""
    if not isinstance(value, list):
        return []
    return [found for each in value[:most] if (found := point(each)) is not None]


def place_of(content: dict[str, Any]) -> tuple[float, float] | None:
    """Where a payload says it is, by the members that the broker looks at too, or a GeoJSON point."""
    for x, y in (("lon", "lat"), ("lng", "lat"), ("longitude", "latitude")):
        lon, lat = number(content.get(x)), number(content.get(y))
        if lon is not None and lat is not None:
            return lon, lat
    geometry = content.get("geometry", content)
    if isinstance(geometry, dict) and geometry.get("type") == "Point":
        return point(geometry.get("coordinates"))
    return None


def rings_of(content: dict[str, Any], most: int) -> list[list[tuple[float, float]]]:
    """The rings of a GeoJSON Polygon or of a Feature with one; nothing where there is none."""
    geometry = content.get("geometry") if content.get("type") == "Feature" else content
    if not isinstance(geometry, dict) or geometry.get("type") != "Polygon":
        return []
    rings = geometry.get("coordinates")
    read = [line(ring, most) for ring in rings[:100]] if isinstance(rings, list) else []
    return [ring for ring in read if len(ring) >= 3]
