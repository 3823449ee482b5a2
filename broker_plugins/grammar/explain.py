"""What a filter or a topic means, in plain words."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from broker_plugins.grammar.areas import Area, Box, Cell, Circle, Detect, Fence, Geo, Near
from broker_plugins.grammar.clauses import NO_CLAUSES, Clauses, bare_topic
from broker_plugins.grammar.quantities import format_duration, format_number
from broker_plugins.grammar.space import WGS84

if TYPE_CHECKING:
    from broker_plugins.grammar.filters import SmartFilter
    from broker_plugins.grammar.intervals import Interval, Where
    from broker_plugins.grammar.space import Space


def explain_filter(smart: SmartFilter, space: Space = WGS84) -> str:
    """What a subscriber with this filter receives, as a list: the topics first, then one line for each prefix."""
    lines = [f"Messages on {_topics(smart.inner)}"]
    if smart.geo is not None:
        lines.append(f"  {_place(smart.geo, space)}")
    if smart.where is not None:
        lines.append(f"  {_intervals(smart.where)}")
    if smart.share is not None:
        lines.append(f"  each to one subscriber of the group {smart.share}")
    lines += [f"Note: {note}" for note in _notes(smart)]
    return "\n".join(lines)


def explain_topic(topic: str, clauses: Clauses, space: Space = WGS84) -> str:
    """What becomes of a message that is published with these clauses, as a list."""
    lines = [f"A message on the topic {topic}"]
    if clauses.at is not None:
        lon, lat = format_number(clauses.at.lon), format_number(clauses.at.lat)
        lines.append(
            f"  that happened at longitude {lon}, latitude {lat}"
            if space.geographic
            else f"  that happened at ({lon}, {lat})"
        )
    if clauses.area is not None:
        lines.append(f"  that matters in {_area(clauses.area, space)}")
    if clauses.top is not None:
        best = "the most accurate match" if clauses.top == 1 else f"the {clauses.top} most accurate matches"
        lines.append(f"  for {best} only")
    if clauses.ttl is not None:
        lines.append(f"  worth having for {_duration(clauses.ttl)}")
    if clauses.reply is not None:
        lines.append(f"  with a receipt of who matched, best first, sent to {clauses.reply}")
    if clauses == NO_CLAUSES:
        lines.append("  without clauses")
    return "\n".join(lines)


def _topics(inner: str) -> str:
    if inner in {"#", "+/#"}:  # [MQTT-4.7.2-1]; and + matches an empty first level too
        return "every topic, but those that begin with $"
    if inner == "/#":
        return "every topic that begins with /"
    below = inner.endswith("/#")
    stem = inner[:-2] if below else inner
    plus = "+" in stem.split("/")
    if below:
        words = f"{stem} and every topic below"
    elif plus:
        words = f"topics of the form {stem}"
    else:
        return f"the topic {stem}"
    return f"{words}, + being any one level" if plus else words


def _place(geo: Geo, space: Space) -> str:
    area = _area(geo.area, space)
    match geo.detect:
        case Detect.INSIDE:
            return f"that happen in {area}"
        case Detect.ENTER:
            return f"whenever what the topic reports on enters {area}"
        case Detect.EXIT:
            return f"whenever what the topic reports on leaves {area}"
        case Detect.CROSS:
            return f"whenever what the topic reports on has passed, between two reports, through {area}"


def _area(area: Area, space: Space) -> str:
    match area:
        case Box():
            return _box(area, space)
        case Circle():
            lon, lat = format_number(area.lon), format_number(area.lat)
            center = f"longitude {lon}, latitude {lat}" if space.geographic else f"({lon}, {lat})"
            return f"the circle of {_length(area.radius)} around {center}"
        case Near():
            return f"the circle of {_length(area.radius)} around the subscriber, wherever it is"
        case Cell():
            return f"the geohash cell {area.geohash}: {_box(area.box, space)}"
        case Fence():
            return f"the fence {area.name}, the GeoJSON polygon retained at locus/fence/{area.name}"


def _box(box: Box, space: Space) -> str:
    west, south, east, north = map(format_number, (box.west, box.south, box.east, box.north))
    if not space.geographic:
        return f"the box from ({west}, {south}) to ({east}, {north})"
    over = " (across the antimeridian)" if box.crosses_antimeridian else ""
    return f"the box of longitude {west} to {east}{over} and latitude {south} to {north}"


def _intervals(where: Where) -> str:
    told = [f"{condition.attribute} {_interval(condition.interval)}" for condition in where.conditions]
    return f"whose JSON payload has {' and '.join(told)}"


def _interval(interval: Interval) -> str:
    low, high = format_number(interval.low), format_number(interval.high)
    if interval.low == interval.high:
        return f"equal to {low}"
    if not interval.low_open and not interval.high_open:
        return f"from {low} to {high}"
    ends = []
    if interval.low > -math.inf:
        ends.append(f"above {low}" if interval.low_open else f"at least {low}")
    if interval.high < math.inf:
        ends.append(f"below {high}" if interval.high_open else f"at most {high}")
    return " but ".join(ends) if ends else "of any value"


def _length(metres: float) -> str:
    return f"{format_number(metres / 1000.0)} km" if metres >= 1000.0 else f"{format_number(metres)} m"


def _duration(seconds: float) -> str:
    written = format_duration(seconds)
    return f"{written[:-2]} ms" if written.endswith("ms") else f"{written[:-1]} s"


def _notes(smart: SmartFilter) -> list[str]:
    """What parses, yet is hardly what its author meant."""
    notes = []
    if bare_topic(smart.inner) != smart.inner:
        notes.append("nothing will match: a last level that starts with @ is taken off a message before it is matched")
    levels = smart.inner.split("/")
    notes += [
        f"{word} is an ordinary level here: a prefix must stand before the whole filter"
        for word in ("$geo", "$where", "$share")
        if word in levels
    ]
    return notes
