"""What smart subscriptions read of a message: the numbers in its JSON payload, and where it happens.

A payload is parsed at most once, and only where a subscription could need it. One that is not JSON, too large or nested
too deeply is nobody's fault: it has no numbers and no place, and is counted.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeAlias

import msgspec

from broker_plugins.engine.topics import filter_fault, matches

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from broker_plugins.engine.engine import Engine
    from broker_plugins.engine.message import Message
    from broker_plugins.grammar import Space

Place: TypeAlias = "tuple[float, float] | tuple[float, float, float, float]"
"""A point (x, y), or a box (west, south, east, north)."""

MAX_JSON_BYTES = 65_536
"""Largest payload that is looked into, unless a plugin is configured otherwise."""

_decode = msgspec.json.Decoder().decode


class BadRuleError(ValueError):
    """A rule of the configuration cannot be used; the message says which and why."""


def check_filter(text: str, option: str) -> None:
    """Refuse a topic filter of the configuration that is none.

    Raises:
        BadRuleError: it is malformed; the message names the option.
    """
    fault = filter_fault(text)
    if fault is not None:
        raise BadRuleError(f"{option}: {text!r} is no topic filter: {fault}")


@dataclass(slots=True)
class PayloadCounters:
    """What was read of payloads, and what could not be: counted once, by whichever plugin started first."""

    payloads_parsed: int = 0
    """Payloads parsed."""
    payloads_too_large: int = 0
    """Payloads not looked into because they are larger than `max_json_bytes`."""
    payloads_not_json: int = 0
    """Payloads looked into that are not JSON."""
    payloads_too_deep: int = 0
    """Payloads nested more deeply than the parser goes."""


class Payloads:
    """Reads JSON payloads, the same message once only, however many plugins ask.

    Args:
        counters: where it is counted.
        most_bytes: the largest payload that is looked into.
    """

    __slots__ = ("_last", "_value", "counters", "most_bytes")

    def __init__(self, counters: PayloadCounters, most_bytes: int = MAX_JSON_BYTES) -> None:
        self.most_bytes = most_bytes
        self.counters = counters
        # Plugins see a message one right after the other, so the last one is all that need be remembered.
        self._last: Message | None = None
        self._value: Any = None

    def read(self, message: Message) -> Any:
        """What the payload of a message says, None if it is no JSON that can be read."""
        if message is self._last:
            return self._value
        self._last, self._value = message, None
        payload = message.payload
        if len(payload) > self.most_bytes:
            self.counters.payloads_too_large += 1
            return None
        try:
            value = self._value = _decode(payload)
        except (msgspec.DecodeError, UnicodeDecodeError, ValueError):
            self.counters.payloads_not_json += 1
            return None
        except RecursionError:
            self.counters.payloads_too_deep += 1
            return None
        self.counters.payloads_parsed += 1
        return value


def payloads_of(engine: Engine, counters: PayloadCounters, most_bytes: int) -> Payloads:
    """The reader that all plugins of an engine share; it looks into what the most generous of them allows."""
    for plugin in engine.hooks.plugins:
        payloads = getattr(plugin, "payloads", None)
        if isinstance(payloads, Payloads):
            payloads.most_bytes = max(payloads.most_bytes, most_bytes)
            return payloads
    return Payloads(counters, most_bytes)


def number_at(value: Any, path: Sequence[str]) -> float | None:
    """The number that member names lead to, outermost first; None if there is none."""
    for name in path:
        if value.__class__ is not dict:
            return None
        value = value.get(name)
    return as_number(value)


def as_number(value: Any) -> float | None:
    """A JSON number as a float; None for everything else, and for one beyond what a float holds."""
    if value.__class__ is float:
        return value
    if value.__class__ is int:
        try:
            return float(value)
        except OverflowError:
            return None
    return None


@dataclass(slots=True, frozen=True)
class PlaceRule:
    """Where the payloads of some topics say where they are.

    Attributes:
        text: the filter of those topics.
        lon: the way to the longitude (or x), as names and indices.
        lat: the way to the latitude (or y).
        geojson: the way to a GeoJSON geometry, instead of the two.
    """

    text: str
    lon: tuple[str, ...] = ()
    lat: tuple[str, ...] = ()
    geojson: tuple[str, ...] | None = None

    @classmethod
    def of(cls, text: str, options: Mapping[str, str]) -> PlaceRule:
        """A rule as the configuration has it: `lon` and `lat`, or `geojson`, each a JSON pointer (RFC 6901).

        Raises:
            BadRuleError: it is something else.
        """
        check_filter(text, "places")
        if set(options) == {"geojson"}:
            return cls(text, geojson=_pointer(text, options["geojson"]))
        if set(options) == {"lon", "lat"}:
            return cls(text, _pointer(text, options["lon"]), _pointer(text, options["lat"]))
        raise BadRuleError(f"places: {text!r} has {sorted(options)}; give either lon and lat, or geojson")

    def place(self, content: Any) -> Place | None:
        """The place in a payload."""
        if self.geojson is not None:
            return geometry_place(_resolve(content, self.geojson))
        return _pair(_resolve(content, self.lon), _resolve(content, self.lat))


def _pointer(text: str, pointer: str) -> tuple[str, ...]:
    if pointer and not pointer.startswith("/"):
        raise BadRuleError(f"places: {text!r}: {pointer!r} is no JSON pointer; it is empty or starts with /")
    return tuple(name.replace("~1", "/").replace("~0", "~") for name in pointer.split("/")[1:])


def _resolve(value: Any, path: tuple[str, ...]) -> Any:
    for name in path:
        if value.__class__ is dict:
            value = value.get(name)
        elif value.__class__ is list and name.isdecimal() and int(name) < len(value):
            value = value[int(name)]
        else:
            return None
    return value


def _pair(x: Any, y: Any) -> tuple[float, float] | None:
    lon, lat = as_number(x), as_number(y)
    return None if lon is None or lat is None else (lon, lat)


def geometry_place(geometry: Any) -> Place | None:
    """The place of a GeoJSON geometry or feature: a point, or the box around anything else."""
    if geometry.__class__ is not dict:
        return None
    if geometry.get("type") == "Feature":
        geometry = geometry.get("geometry")
        if geometry.__class__ is not dict:
            return None
    coordinates = geometry.get("coordinates")
    if coordinates.__class__ is not list or not isinstance(geometry.get("type"), str):
        return None
    if geometry["type"] == "Point":
        return _pair(*coordinates[:2]) if len(coordinates) >= 2 else None
    return _box_around(coordinates)


def _box_around(coordinates: list[Any]) -> Place | None:
    west = south = math.inf
    east = north = -math.inf
    waiting = [coordinates]
    while waiting:
        part = waiting.pop()
        if part and all(each.__class__ is list for each in part):
            waiting.extend(part)
            continue
        point = _pair(*part[:2]) if len(part) >= 2 else None
        if point is None:
            return None
        west, east = min(west, point[0]), max(east, point[0])
        south, north = min(south, point[1]), max(north, point[1])
    return (west, south, east, north) if west <= east else None


MEMBERS = (("lon", "lat"), ("lng", "lat"), ("longitude", "latitude"))
PLANE_MEMBERS = (("x", "y"), *MEMBERS)


class PlaceFinder:
    """Says where messages are: by a clause, else by the rule for their topic, else by well-known members.

    Args:
        space: where places are; what lies outside is no place.
        rules: which payloads have their place elsewhere; the first rule whose filter matches decides alone.
    """

    __slots__ = ("_members", "_rules", "outside", "space")

    def __init__(self, space: Space, rules: Sequence[PlaceRule] = ()) -> None:
        self.space = space
        self._rules = tuple(rules)
        self._members = MEMBERS if space.geographic else PLANE_MEMBERS
        self.outside = 0
        """How many places were outside the space, or no finite numbers."""

    def rule_for(self, topic: str) -> PlaceRule | None:
        """The rule that says where messages of a topic are."""
        return next((rule for rule in self._rules if matches(rule.text, topic)), None)

    def said(self, message: Message) -> Place | None:
        """The place that a message's clauses name, or named when it was retained."""
        clauses = message.clauses
        if clauses is not None:
            at, area = clauses.at, clauses.area
            if at is not None:
                return at.lon, at.lat
            if area is not None:
                return area.west, area.south, area.east, area.north
        properties = message.properties
        if properties is not None:
            place = properties.get("at") or properties.get("area")
            if place is not None:
                return tuple(place)
        return None

    def in_content(self, content: Any, rule: PlaceRule | None) -> Place | None:
        """The place that a payload tells."""
        place: Place | None
        if rule is not None:
            place = rule.place(content)
        elif content.__class__ is dict:
            for x, y in self._members:
                if x in content and y in content:
                    place = _pair(content[x], content[y])
                    break
            else:
                place = geometry_place(content)
        else:
            return None
        if place is None:
            return None
        space = self.space
        x0, y0, x1, y1 = place if len(place) == 4 else (*place, *place)
        if space.west <= x0 <= space.east and space.west <= x1 <= space.east and space.south <= y0 <= y1 <= space.north:
            return place
        self.outside += 1
        return None
