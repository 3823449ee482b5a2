"""Areas: where a `$geo` subscription listens, and how it is written."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import TYPE_CHECKING, TypeAlias

from broker_plugins.grammar.errors import GrammarError, quoted
from broker_plugins.grammar.geohash import MOST_CHARACTERS, decode_geohash, first_bad_character
from broker_plugins.grammar.quantities import NUMBER_PAIR, format_length, format_number, read_length, read_numbers
from broker_plugins.grammar.spans import spans
from broker_plugins.grammar.topics import FENCE_NAME

if TYPE_CHECKING:
    from broker_plugins.grammar.limits import Limits
    from broker_plugins.grammar.space import Space


@dataclass(frozen=True, slots=True)
class Position:
    """A point: longitude and latitude in degrees, or x and y in a plane."""

    lon: float
    lat: float


@dataclass(frozen=True, slots=True)
class Box:
    """A box with its edges; `west > east` means that it crosses the antimeridian."""

    west: float
    south: float
    east: float
    north: float

    @property
    def crosses_antimeridian(self) -> bool:
        """Whether it goes from `west` eastwards over 180 degrees to `east`."""
        return self.west > self.east


@dataclass(frozen=True, slots=True)
class Circle:
    """All within `radius` metres of a fixed position."""

    lon: float
    lat: float
    radius: float


@dataclass(frozen=True, slots=True)
class Near:
    """All within `radius` metres of wherever the subscriber is at the moment."""

    radius: float


@dataclass(frozen=True, slots=True)
class Cell:
    """A geohash cell."""

    geohash: str

    @property
    def box(self) -> Box:
        """The cell as a box, edges included."""
        return Box(*decode_geohash(self.geohash))


@dataclass(frozen=True, slots=True)
class Fence:
    """A polygon published, retained, as GeoJSON at `locus/fence/<name>`."""

    name: str


Area: TypeAlias = Box | Circle | Near | Cell | Fence


class Detect(Enum):
    """Which messages about an object are wanted, judged by where it was before and where it is now."""

    INSIDE = "inside"
    """It is in the area."""
    ENTER = "enter"
    """It is in the area and was not before."""
    EXIT = "exit"
    """It is out of the area and was in it before."""
    CROSS = "cross"
    """It was outside and is outside, and the straight way between leads through the area."""


_DETECTIONS = {detect.value: detect for detect in Detect}


@dataclass(frozen=True, slots=True)
class Geo:
    """What `$geo/` says: an area, and what to detect."""

    area: Area
    detect: Detect = Detect.INSIDE


def read_position(text: str, start: int, end: int, space: Space) -> Position:
    """The `LON,LAT` that fills `text[start:end]`."""
    pair = NUMBER_PAIR.fullmatch(text, start, end)
    if pair is not None:
        # Every positioned message comes here; what follows below only finds out what is wrong.
        lon, lat = float(pair[1]), float(pair[2])
        if space.west <= lon <= space.east and space.south <= lat <= space.north:
            return Position(lon + 0.0, lat + 0.0)  # -0 becomes 0, as everywhere
    lon, lat = read_numbers(text, start, end, ("LON", "LAT") if space.geographic else ("X", "Y"))
    _check_coordinates(text, start, (lon,), (lat,), space)
    return Position(lon, lat)


def read_box(text: str, start: int, end: int, space: Space) -> Box:
    """The `W,S,E,N` that fills `text[start:end]`."""
    west, south, east, north = read_numbers(text, start, end, ("W", "S", "E", "N"))
    _check_coordinates(text, start, (west, east), (south, north), space)
    if south > north:
        raise GrammarError(
            text,
            _field(text, start, 1),
            f"S ({format_number(south)}) is north of N ({format_number(north)}): the order is W,S,E,N",
        )
    if west > east and not space.geographic:
        raise GrammarError(
            text,
            start,
            f"W ({format_number(west)}) is greater than E ({format_number(east)}): a plane has no antimeridian",
        )
    return Box(west, south, east, north)


def read_geo(text: str, start: int, end: int, space: Space, limits: Limits) -> Geo:
    """The `<area>[;detect=…]` that fills `text[start:end]`."""
    (_, area_end), *options = spans(text, start, end, ";")
    detect: Detect | None = None
    for option, option_end in options:
        name, equals, value = text[option:option_end].partition("=")
        if name != "detect":
            raise GrammarError(text, option, f"{quoted(name)} is not an option of an area: only detect=… is")
        if detect is not None:
            raise GrammarError(text, option, "detect is said twice: keep one")
        detect = _DETECTIONS.get(value)
        if detect is None:
            position = option + len(name) + len(equals)
            raise GrammarError(text, position, f"detect must be one of {', '.join(_DETECTIONS)}, not {quoted(value)}")
    return Geo(_read_area(text, start, area_end, space, limits), detect or Detect.INSIDE)


def write_geo(geo: Geo) -> str:
    """The one way in which a `Geo` is written."""
    area = geo.area
    match area:
        case Box():
            written = f"bbox:{write_box(area)}"
        case Circle():
            written = f"circle:{format_number(area.lon)},{format_number(area.lat)},{format_length(area.radius)}"
        case Near():
            written = f"near:{format_length(area.radius)}"
        case Cell():
            written = f"cell:{area.geohash}"
        case Fence():
            written = f"fence:{area.name}"
    return written if geo.detect is Detect.INSIDE else f"{written};detect={geo.detect.value}"


def write_box(box: Box) -> str:
    """The corners as `W,S,E,N`."""
    return ",".join(map(format_number, (box.west, box.south, box.east, box.north)))


def _read_area(text: str, start: int, end: int, space: Space, limits: Limits) -> Area:
    colon = text.find(":", start, end)
    kind = text[start : end if colon < 0 else colon]
    if kind not in _AREA_FORMS:
        forms = ", ".join(_AREA_FORMS.values())
        raise GrammarError(text, start, f"{quoted(kind)} is not a kind of area: one of {forms} belongs here")
    if colon < 0:
        raise GrammarError(text, end, f"'{kind}' alone is no area: write {_AREA_FORMS[kind]}")
    begin = colon + 1
    match kind:
        case "bbox":
            return read_box(text, begin, end, space)
        case "circle":
            return _read_circle(text, begin, end, space, limits)
        case "near":
            return Near(_read_radius(text, begin, end, space, limits))
        case "cell":
            return _read_cell(text, start, begin, end, space)
        case _:
            return _read_fence(text, begin, end, limits)


_AREA_FORMS = {
    "bbox": "bbox:W,S,E,N",
    "circle": "circle:LON,LAT,RADIUS",
    "near": "near:RADIUS",
    "cell": "cell:GEOHASH",
    "fence": "fence:NAME",
}


def _read_circle(text: str, start: int, end: int, space: Space, limits: Limits) -> Circle:
    radius_comma = text.find(",", text.find(",", start, end) + 1, end) if "," in text[start:end] else -1
    if radius_comma < 0:
        # Says which of the two coordinates is wrong, if one is.
        read_position(text, start, end, space)
        raise GrammarError(text, end, "RADIUS is missing: LON,LAT,RADIUS belongs here, for example 126.97,37.56,500m")
    center = read_position(text, start, radius_comma, space)
    return Circle(center.lon, center.lat, _read_radius(text, radius_comma + 1, end, space, limits))


def _read_radius(text: str, start: int, end: int, space: Space, limits: Limits) -> float:
    radius = read_length(text, start, end, "RADIUS", unit_needed=space.geographic)
    if radius > limits.radius_metres:
        raise GrammarError(
            text, start, f"RADIUS is longer than the {format_length(limits.radius_metres)} allowed: take a smaller one"
        )
    return radius


def _read_cell(text: str, kind_start: int, start: int, end: int, space: Space) -> Cell:
    if not space.geographic:
        raise GrammarError(text, kind_start, "a plane has no geohash cells: use bbox:W,S,E,N")
    cell = text[start:end]
    if not cell:
        raise GrammarError(text, start, "GEOHASH is missing: for example cell:wydm9")
    bad = first_bad_character(cell)
    if bad >= 0:
        raise GrammarError(
            text, start + bad, f"'{cell[bad]}' is not of a geohash: digits, and lower-case letters but a, i, l, o"
        )
    if len(cell) > MOST_CHARACTERS:
        raise GrammarError(text, start + MOST_CHARACTERS, f"a geohash has at most {MOST_CHARACTERS} characters")
    return Cell(cell)


def _read_fence(text: str, start: int, end: int, limits: Limits) -> Fence:
    if start == end:
        raise GrammarError(text, start, "NAME is missing: for example fence:harbour")
    found = FENCE_NAME.match(text, start, end)
    stop = start if found is None else found.end()
    if stop != end:
        raise GrammarError(
            text, stop, f"'{text[stop]}' cannot be in the name of a fence: letters, digits, '_', '-' and '.' can"
        )
    if end - start > limits.name_characters:
        raise GrammarError(
            text, start + limits.name_characters, f"the name has more than {limits.name_characters} characters"
        )
    return Fence(text[start:end])


def _check_coordinates(text: str, start: int, lons: tuple[float, ...], lats: tuple[float, ...], space: Space) -> None:
    """Refuse coordinates outside the space; they stand in the text as lon, lat, lon, lat."""
    for index, (lon, lat) in enumerate(zip(lons, lats, strict=True)):
        if not space.west <= lon <= space.east:
            bounds = f"{format_number(space.west)}..{format_number(space.east)}"
            what = "longitude" if space.geographic else "x"
            raise GrammarError(text, _field(text, start, 2 * index), f"{what} {format_number(lon)} is not in {bounds}")
        if not space.south <= lat <= space.north:
            bounds = f"{format_number(space.south)}..{format_number(space.north)}"
            what = "latitude" if space.geographic else "y"
            raise GrammarError(
                text, _field(text, start, 2 * index + 1), f"{what} {format_number(lat)} is not in {bounds}"
            )


def _field(text: str, start: int, index: int) -> int:
    """Where the field with this index of a comma-separated list begins."""
    for _ in range(index):
        start = text.index(",", start) + 1
    return start
