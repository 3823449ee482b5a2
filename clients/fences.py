"""Fences: GeoJSON polygons, checked before they are published, measured when they are listed."""

from __future__ import annotations

import math
from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import msgspec
from shapely.geometry import Polygon
from shapely.validation import explain_validity

from broker_plugins.grammar import WGS84, Fence, Geo, GrammarError, SmartFilter, Space, build_filter
from clients.errors import FenceError
from clients.position import EARTH_RADIUS_M

if TYPE_CHECKING:
    from collections.abc import Sequence

FENCE_PREFIX = "locus/fence/"
"""Below it fences are retained, one a topic."""


@dataclass(frozen=True, slots=True)
class FenceShape:
    """A fence that has been checked.

    Attributes:
        geometry: Its GeoJSON geometry, a Polygon.
        vertices: How many corners it has, holes included.
        area_m2: Its area in square metres, holes left out.
    """

    geometry: dict[str, Any]
    vertices: int
    area_m2: float


def fence_topic(name: str) -> str:
    """Where the fence of a name is retained.

    Raises:
        FenceError: If a `$geo/fence:` could not say the name.
    """
    try:
        build_filter(SmartFilter("x", Geo(Fence(name))))
    except GrammarError as error:
        raise FenceError(f"{name!r} cannot be the name of a fence: {error.reason}") from error
    except ValueError as error:  # it would mean something else, such as an option
        raise FenceError(f"{name!r} cannot be the name of a fence: letters, digits, '_', '-' and '.' can") from error
    return FENCE_PREFIX + name


def read_fence(text: bytes, space: Space = WGS84) -> FenceShape:
    """Check a fence: a GeoJSON Polygon, a Feature of one, or a FeatureCollection of one such Feature.

    As the broker does it, an edge that spans more than 180 degrees of longitude is taken the shorter way.

    Raises:
        FenceError: If it is none; it says what is wrong and where.
    """
    try:
        document = msgspec.json.decode(text)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise FenceError(f"the fence is not JSON: {error}") from error
    coordinates = _coordinates(document)
    if not isinstance(coordinates, list) or not coordinates:
        raise FenceError("the Polygon has no coordinates: RFC 7946 has a list of rings there, the outline first")
    rings = [_ring(ring, index, space) for index, ring in enumerate(coordinates)]
    vertices = sum(len(ring) - 1 for ring in rings)
    if space.geographic:
        outline = _unrolled(rings[0], rings[0][0][0], "the outline")
        rings = [outline, *(_unrolled(ring, outline[0][0], "a hole") for ring in rings[1:])]
    drawn = Polygon(rings[0], rings[1:])
    if not drawn.is_valid:
        raise FenceError(f"the Polygon is not valid: {explain_validity(drawn)}; its edges must not cross")
    outer, *holes = (_ring_area_m2(ring, space) for ring in rings)
    if not outer > 0:
        raise FenceError("the Polygon has no area: give corners that are not on one line")
    return FenceShape({"type": "Polygon", "coordinates": coordinates}, vertices, outer - sum(holes))


def _coordinates(document: Any) -> Any:
    match document:
        case {"type": "Feature", "geometry": dict(geometry)}:
            return _coordinates(geometry)
        case {"type": "FeatureCollection", "features": [feature]}:
            return _coordinates(feature)
        case {"type": "FeatureCollection", "features": list(features)}:
            raise FenceError(f"the file has {len(features)} features, a fence is one: put each under a name of its own")
        case {"type": "Polygon"}:
            return document.get("coordinates")
        case {"type": "MultiPolygon"}:
            raise FenceError("a MultiPolygon is several fences: put each Polygon under a name of its own")
        case {"type": kind}:
            raise FenceError(f"a {kind!r} is no fence: give a GeoJSON Polygon, or a Feature with one")
        case _:
            raise FenceError("the fence is no GeoJSON: an object with a member `type` is")


def _unrolled(ring: Sequence[tuple[float, float]], near: float, what: str) -> list[tuple[float, float]]:
    """The ring with longitudes that go on beyond 180 instead of jumping back, beginning near a longitude."""
    unrolled = []
    for lon, lat in ring:
        near = lon - 360.0 * round((lon - near) / 360.0)
        unrolled.append((near, lat))
    if unrolled[0][0] != unrolled[-1][0]:
        raise FenceError(f"{what} goes around a pole: cut it there with corners at latitude 90 or -90")
    return unrolled


def _ring(ring: Any, index: int, space: Space) -> list[tuple[float, float]]:
    what = "the outline" if index == 0 else f"hole {index}"
    if not isinstance(ring, list) or len(ring) < 4:
        raise FenceError(f"{what} has fewer than 4 positions: a ring has three corners, and ends where it begins")
    positions = []
    for position in ring:
        match position:
            case [int() | float() as lon, int() | float() as lat, *_] if bool not in (type(lon), type(lat)):
                positions.append((float(lon), float(lat)))
            case _:
                raise FenceError(f"{position!r} in {what} is no position: [longitude, latitude] is")
        lon, lat = positions[-1]
        if not (space.west <= lon <= space.east and space.south <= lat <= space.north):
            bounds = f"{space.west:g}..{space.east:g} and {space.south:g}..{space.north:g}"
            raise FenceError(f"position {position} of {what} is outside {bounds}: longitude comes first")
    if positions[0] != positions[-1]:
        raise FenceError(f"{what} ends at {ring[-1]} and not where it begins, at {ring[0]}: repeat the first position")
    return positions


def _ring_area_m2(ring: Sequence[tuple[float, float]], space: Space) -> float:
    """The area a ring encloses: straight in a plane, on a sphere (with straight lines in degrees) on the Earth."""
    edges = pairwise(ring)
    if not space.geographic:
        return abs(sum(x * to_y - to_x * y for (x, y), (to_x, to_y) in edges)) / 2
    # The strip between an edge and the equator, exactly: a line straight in degrees has the mean of sin(latitude) over
    # its latitudes as its height in the equal-area projection.
    strips = sum(math.radians(to_lon - lon) * _mean_sine(lat, to_lat) for (lon, lat), (to_lon, to_lat) in edges)
    return abs(strips) * EARTH_RADIUS_M**2


def _mean_sine(lat: float, to_lat: float) -> float:
    """The mean of the sine between two latitudes."""
    south, north = math.radians(lat), math.radians(to_lat)
    half = (north - south) / 2
    ratio = math.sin(half) / half if abs(half) > 1e-9 else 1.0
    return math.sin((south + north) / 2) * ratio
