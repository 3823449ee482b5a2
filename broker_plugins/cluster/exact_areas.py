"""Areas as nodes spell them out to each other, and those of another node, to be asked.

An area that stays where it is needs no blocks: it is announced once, under a name that says its shape in full, and is
right for every version of the map. Who hears of it asks it as the node does that it is on, so a message goes there if
somebody gets it, and not otherwise.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from broker_plugins.geo.zones import Zone, solid
from spatial_index import Circle, Point, Polygon, QRIndex, SpatialIndexError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from broker_plugins.places import Place
    from spatial_index.shapes import Shape
    from spatial_index.spaces import Space

SPELLED: Final = "="
"""How the name of an area that is spelled out begins; no block's name does."""
LONGEST: Final = 4096
"""An area that takes more characters is not spelled out: a polygon of 200 corners, or 100 with all their digits."""
FEW: Final = 16
"""Up to so many areas are asked one by one, more in an index."""
ROUNDING: Final = 1e-9
"""Circles are asked this part wider, and `LEAST` of the longest radius: an index measures them from a centre that has
been there and back between two kinds of coordinates."""
LEAST: Final = 1e-14


class UnreadableAreaError(ValueError):
    """A name that should spell an area out and does not; the message says which."""


def spell(space: Space, shape: Shape) -> str | None:
    """The name that says a shape in full; None for one that is not worth it."""
    if isinstance(shape, Polygon):
        if 2 * sum(map(len, (shape.ring, *shape.holes))) > LONGEST // 2:
            return None
        rings = ((part for corner in ring for part in corner) for ring in (shape.ring, *shape.holes))
        text = "o" + ";".join(map(_numbers, rings))
    elif isinstance(shape, Circle):
        # Beyond a quarter of the way round, distances lose their precision; and who wants that much wants all of it.
        if shape.radius > space.longest_radius() / 4:
            return None
        text = "c" + _numbers((shape.x, shape.y, shape.radius))
    elif isinstance(shape, Point):
        text = "p" + _numbers((shape.x, shape.y))
    else:
        text = "b" + _numbers(shape)
    return SPELLED + text if len(text) < LONGEST else None


def is_spelled(name: str) -> bool:
    """Whether a name says an area in full, and is none of a block or cell."""
    return name.startswith(SPELLED)


def read_shape(name: str) -> Shape:
    """The shape that a name spells out; whether it is one of the space is not looked at.

    Raises:
        UnreadableAreaError: it spells none.
    """
    kind, text = name[len(SPELLED) : len(SPELLED) + 1], name[len(SPELLED) + 1 :]
    if len(name) > LONGEST:
        raise UnreadableAreaError(f"{name[:40]!r}... is longer than the {LONGEST} characters of an area")
    try:
        rings = [[float(part) for part in ring.split(",")] for ring in text.split(";")]
    except ValueError:
        raise UnreadableAreaError(f"{name[:80]!r} is no area: no list of numbers") from None
    numbers = rings[0]
    if kind == "o" and not any(len(ring) % 2 for ring in rings):
        shell, *holes = (list(zip(ring[::2], ring[1::2], strict=True)) for ring in rings)
        return Polygon(shell, holes)
    if len(rings) == 1:
        match kind, numbers:
            case "b", (west, south, east, north):
                return west, south, east, north
            case "c", (x, y, radius):
                return Circle(x, y, radius)
            case "p", (x, y):
                return Point(x, y)
    raise UnreadableAreaError(f"{name[:80]!r} is no area; run one version of Locus on all nodes")


def _numbers(values: Iterable[float]) -> str:
    return ",".join(repr(float(value)).removesuffix(".0") for value in values)


class ExactAreas:
    """The areas in which one filter is listened to on another node.

    They are read when somebody asks for the first time after they came. One that cannot be read counts as everywhere:
    what is sent in vain is lost on nobody.

    Args:
        misread: told why one cannot be read.
    """

    __slots__ = ("_everywhere", "_index", "_misread", "_unread", "_zones")

    def __init__(self, misread: Callable[[str], None]) -> None:
        self._misread = misread
        self._unread: dict[str, None] = {}
        self._zones: dict[str, Zone] = {}
        self._index: QRIndex[str] | None = None
        self._everywhere: set[str] = set()

    def __len__(self) -> int:
        indexed = 0 if self._index is None else len(self._index)
        return len(self._unread) + len(self._zones) + indexed + len(self._everywhere)

    def add(self, name: str) -> None:
        """An area that was not there is."""
        self._unread[name] = None

    def remove(self, name: str) -> None:
        """An area that was there is no more."""
        if name in self._unread:
            del self._unread[name]
        elif self._index is not None and name in self._index:
            self._index.remove(name)
            if not self._index:
                self._index = None
        elif name in self._zones:
            del self._zones[name]
        else:
            self._everywhere.discard(name)

    def hold(self, space: Space, place: Place) -> bool:
        """Whether a point is in one of the areas, or a box has a place in common with one."""
        if self._unread:
            self._read(space)
        if self._everywhere:
            return True
        index = self._index
        if index is None:
            return any(zone.holds(place) for zone in self._zones.values())
        if len(place) == 2:
            return bool(index.at(*place))
        box = solid(place, space)
        return bool(index.at(box.x, box.y) if isinstance(box, Point) else index.intersecting(box))

    def _read(self, space: Space) -> None:
        for name in self._unread:
            try:
                shape = read_shape(name)
                if isinstance(shape, Circle) and shape.radius > 0:
                    wider = shape.radius * (1 + ROUNDING) + space.longest_radius() * LEAST
                    shape = Circle(shape.x, shape.y, wider)
                if self._index is None:
                    self._zones[name] = Zone(space, shape)
                else:
                    self._index.insert(name, shape)
            except (UnreadableAreaError, SpatialIndexError) as error:
                self._everywhere.add(name)
                self._misread(str(error))
        self._unread.clear()
        if len(self._zones) > FEW:
            self._index = QRIndex(space)
            for name, zone in self._zones.items():
                self._index.insert(name, zone.shape)
            self._zones.clear()
