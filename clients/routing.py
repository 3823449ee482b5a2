"""For which of a client's subscriptions a message is, as far as it shows.

A broker delivers a message once to a client, under its plain topic, however many of the client's filters it matches
[MQTT-3.3.5-1]. Which ones these were is found anew from what the client can see: the topic decides exactly, intervals
decide exactly, and an area decides if the payload says where the message is. Where it cannot be decided, a
subscription gets the message; and a message that no subscription seems to be for goes to all whose topics match.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol, TypeVar

from broker_plugins.grammar import Box, Cell, Circle, Detect, Position, SmartFilter
from clients.messages import number_at
from clients.position import distance_m

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from broker_plugins.grammar import Geo, Space, Where
    from clients.messages import Message

# A place near a border is given the benefit of the doubt: about a centimetre.
_DEGREES_OF_DOUBT = 1e-7
_METRES_OF_DOUBT = 0.01


class Filtered(Protocol):
    """Whatever has a smart filter."""

    @property
    def smart(self) -> SmartFilter:
        """The filter."""


F = TypeVar("F", bound=Filtered)


def topic_matches(topic_filter: str, topic: str) -> bool:
    """Whether an ordinary filter matches a topic, as MQTT 3.1.1 section 4.7 has it."""
    if topic_filter == topic:
        return True
    if topic.startswith("$") and topic_filter[0] in "+#":
        return False  # [MQTT-4.7.2-1]
    wanted, levels = topic_filter.split("/"), topic.split("/")
    if wanted[-1] == "#":
        wanted.pop()
        levels = levels[: len(wanted)]  # "a/#" matches "a" too: section 4.7.1.2
    return len(wanted) == len(levels) and all(want in ("+", level) for want, level in zip(wanted, levels, strict=True))


def choose(
    candidates: Sequence[F], message: Message, space: Space, place_of: Callable[[Message], Position | None] | None
) -> Sequence[F]:
    """Those of some subscriptions, whose ordinary filters all match, that a message is for.

    Args:
        candidates: The subscriptions.
        message: What was delivered.
        space: The space of positions.
        place_of: Says where a message is, if it can; None judges no message by its place.
    """
    if len(candidates) < 2:
        return candidates  # the broker has judged already
    chosen = [one for one in candidates if _may_want(one.smart, message, space, place_of)]
    return chosen or candidates


def _may_want(
    smart: SmartFilter, message: Message, space: Space, place_of: Callable[[Message], Position | None] | None
) -> bool:
    if smart.where is not None and not _holds(smart.where, message):
        return False
    if smart.geo is None or place_of is None:
        return True
    place = place_of(message)
    return place is None or _may_be_in(smart.geo, place, space)


def _holds(where: Where, message: Message) -> bool:
    try:
        document = message.json()
    except ValueError:
        return False
    values: Iterable[tuple[float | None, Callable[[float], bool]]] = (
        (number_at(document, condition.path), condition.interval.contains) for condition in where.conditions
    )
    return all(value is not None and contains(value) for value, contains in values)


def _may_be_in(geo: Geo, place: Position, space: Space) -> bool:
    """False if a place is certainly not in the area; the broker alone knows about movement, fences and where I am."""
    if geo.detect is not Detect.INSIDE:
        return True
    match geo.area:
        case Box():
            return _may_be_in_box(geo.area, place, space)
        case Cell():
            return _may_be_in_box(geo.area.box, place, space)
        case Circle(lon, lat, radius):
            return distance_m(space, Position(lon, lat), place) <= radius * (1 + 1e-9) + _METRES_OF_DOUBT
        case _:
            return True


def _may_be_in_box(box: Box, place: Position, space: Space) -> bool:
    doubt = _DEGREES_OF_DOUBT if space.geographic else _METRES_OF_DOUBT
    if not box.south - doubt <= place.lat <= box.north + doubt:
        return False
    if not space.geographic:
        return box.west - doubt <= place.lon <= box.east + doubt
    if abs(place.lat) >= 90.0 - doubt:
        return True  # a pole has every longitude
    width = box.east - box.west + (360.0 if box.crosses_antimeridian else 0.0)
    eastwards = (place.lon - box.west) % 360.0
    return eastwards <= width + doubt or eastwards >= 360.0 - doubt
