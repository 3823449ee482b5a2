"""Circles around clients that move: how much wider they are announced than they are, so that it is seldom done anew.

Room to move saves announcements and costs messages that are sent in vain. Both cost bytes between nodes, and the sum is
least about where they cost the same: the one falls with the room as the other grows. So a node gives its clients more
room while it announces more than it gets in vain, and less while it gets more in vain.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Hashable
from typing import TYPE_CHECKING, Final, Generic, TypeVar

from spatial_index import Box, Circle, Sphere
from spatial_index.spaces import EARTH_RADIUS_M

if TYPE_CHECKING:
    from collections.abc import Callable

    from spatial_index.spaces import Space

FIRST: Final = 0.25
LEAST: Final = 0.03
MOST: Final = 1.0
"""Room is a part of the radius: to begin with, the least and the most of it."""
STEP: Final = 1.25
"""By how much there is more or less room after each look."""
LOOK_BYTES: Final = 2048
"""So many bytes were announced and sent in vain between two looks."""
WIDE: Final = 3.0
"""A circle with so many times the room that there is for it is announced anew, narrower."""
LEAD: Final = 0.25
"""A circle is announced anew before this part of its room is all that is left."""
COARSE: Final = 0.02
"""Centres are rounded to this part of the radius at most, which makes names short."""
ROUNDING: Final = 1e-9
DELTA_BYTES, WISH_BYTES, FRAME_BYTES = 60, 6, 40
"""What a delta and its confirmation, a filter in it and a message take besides their texts."""


def announced_bytes(inner: str, name: str, nodes: int) -> int:
    """About what it costs to tell some nodes that a circle is under another name now."""
    return nodes * (2 * (len(inner) + len(name) + WISH_BYTES) + DELTA_BYTES)


class Room:
    """How much room circles of this node get."""

    __slots__ = ("_announced", "_in_vain", "margin")

    def __init__(self) -> None:
        self.margin = FIRST
        self._announced = self._in_vain = 0

    def announced(self, size: int) -> None:
        """Bytes went to other nodes because a circle moved."""
        self._announced += size
        self._look()

    def in_vain(self, size: int) -> None:
        """Bytes came from another node and nobody here listens there."""
        self._in_vain += size
        self._look()

    def _look(self) -> None:
        if self._announced + self._in_vain >= LOOK_BYTES:
            more = self._announced > self._in_vain
            self.margin = min(max(self.margin * (STEP if more else 1 / STEP), LEAST), MOST)
            self._announced = self._in_vain = 0


Key = TypeVar("Key", bound=Hashable)


class MovingAreas(Generic[Key]):
    """The circles around this node's clients, as they are announced."""

    def __init__(self) -> None:
        self.room = Room()
        self._told: dict[Key, tuple[Circle, float]] = {}
        """The circle that is announced, and the radius of the one that it is announced for."""

    def __len__(self) -> int:
        return len(self._told)

    def __contains__(self, key: Key) -> bool:
        return key in self._told

    def put(self, key: Key, space: Space, circle: Circle) -> Circle | None:
        """A circle is somewhere: the one to announce for it, or None if what is announced will do."""
        known, margin = self._told.get(key), self.room.margin
        if known is not None and known[0].radius <= circle.radius * (1 + WIDE * margin):
            least = min(circle.radius * (1 + LEAD * margin), space.longest_radius())
            if distance(space, circle, known[0]) + least <= known[0].radius:
                return None
        told = rounded(space, circle, circle.radius * (1 + margin))
        self._told[key] = told, circle.radius
        return told

    def drop(self, key: Key) -> None:
        """A circle is no more; one that is not known is none."""
        self._told.pop(key, None)

    def wide(self, most: int) -> list[Key]:
        """Some circles that have far more room than there is for them now: they should be put again."""
        margin = self.room.margin
        wide = (key for key, (told, radius) in self._told.items() if told.radius > radius * (1 + WIDE * margin))
        return list(itertools.islice(wide, most))


def reaches(space: Space, circle: Circle) -> Callable[[Box], bool]:
    """What says whether a circle touches a box, or nearly does."""
    reach = circle.radius * (1 + ROUNDING)
    return lambda box: space.distance_to_box(circle.x, circle.y, box) <= reach


def rounded(space: Space, circle: Circle, radius: float) -> Circle:
    """A circle with a radius of at least `radius` around a centre of few digits near that of another one."""
    unit = math.radians(1.0) * EARTH_RADIUS_M if isinstance(space, Sphere) else 1.0
    digits = math.ceil(-math.log10(COARSE * circle.radius / unit))
    west, south, east, north = space.bounds
    x = min(max(round(circle.x, digits), west), east)
    y = min(max(round(circle.y, digits), south), north)
    centre = Circle(x, y, radius)
    exact = radius + distance(space, circle, centre)
    places = 2 - math.floor(math.log10(exact))
    longer = math.ceil(exact * 10.0**places * (1 + 1e-12)) / 10.0**places
    return Circle(x, y, min(longer, space.longest_radius()))


def distance(space: Space, one: Circle, other: Circle) -> float:
    """How far two centres are from each other."""
    return space.distance_to_box(one.x, one.y, Box(other.x, other.y, other.x, other.y))
