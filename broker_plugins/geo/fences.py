"""Fences: polygons that are published, retained, as GeoJSON under `locus/fence/`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import msgspec

from spatial_index import SpatialIndexError
from spatial_index.shapes import Polygon, measured

if TYPE_CHECKING:
    from spatial_index.spaces import Space

FENCE_TOPICS: Final = "locus/fence/"


class BadFenceError(ValueError):
    """A payload is no fence; the message says what is wrong with it."""


def read_fence(payload: bytes, space: Space, most_points: int) -> Polygon:
    """The polygon in a payload: a GeoJSON Polygon, or a Feature with one.

    Args:
        payload: what was published.
        space: the space it must lie in.
        most_points: how many points its rings may have together.

    Raises:
        BadFenceError: it is something else, or too large.
    """
    if len(payload) > 100 * most_points + 10_000:
        raise BadFenceError(f"{len(payload)} bytes are more than {most_points} points need (max_fence_points)")
    try:
        geometry: Any = msgspec.json.decode(payload)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise BadFenceError(f"not JSON: {error}") from None
    if isinstance(geometry, dict) and geometry.get("type") == "Feature":
        geometry = geometry.get("geometry")
    if not isinstance(geometry, dict) or geometry.get("type") != "Polygon":
        raise BadFenceError("no GeoJSON Polygon, nor a Feature with one")
    rings = geometry.get("coordinates")
    if not isinstance(rings, list) or not rings or not all(isinstance(ring, list) for ring in rings):
        raise BadFenceError("a Polygon has a list of rings under coordinates")
    points = sum(map(len, rings))
    if points > most_points:
        raise BadFenceError(f"{points} points are more than the {most_points} allowed (max_fence_points)")
    try:
        shell, *holes = ([(point[0], point[1]) for point in ring] for ring in rings)
    except (TypeError, LookupError):
        raise BadFenceError("a ring is a list of [longitude, latitude] points") from None
    polygon = Polygon(shell, holes)
    try:
        measured(space, polygon)
    except SpatialIndexError as error:
        raise BadFenceError(str(error)) from None
    return polygon
