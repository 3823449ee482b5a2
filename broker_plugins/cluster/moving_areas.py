"""Circles around clients that move: how much wider they are announced than they are, so that it is seldom done anew.

Room to move saves announcements and costs messages that are sent in vain. Both cost bytes between nodes, and the sum is
least where they cost the same: the one falls with the room as the other grows. So a node gives its clients more room
while it announces more than it gets in vain, and less while it gets more in vain. By the same sum, who goes four times
as far from one report to the next gets twice the room.
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

FIRST: Final = 0.1
LEAST: Final = 0.03
MOST: Final = 1.0
"""Room is a part of the radius: for a client that has not moved yet, the least and the most of it."""
NARROWEST, WIDEST = 0.1, 10.0
"""The least and the most that a node takes times the root of how far a client goes between reports, in radii."""
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

    __slots__ = ("_announced", "_in_vain", "factor")

    def __init__(self) -> None:
        self.factor = 1.0
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
            self.factor = min(max(self.factor * (STEP if more else 1 / STEP), NARROWEST), WIDEST)
            self._announced = self._in_vain = 0

    def margin(self, step: float | None) -> float:
        """The room for a circle, as a part of its radius, by how many radii it goes from one report to the next."""
        return FIRST if step is None else min(max(self.factor * math.sqrt(step), LEAST), MOST)


class _Circle:
    """One that is announced.

    Args:
        told: as it is announced.
        last: as it was when it was put last.
    """

    __slots__ = ("last", "step", "told")

    def __init__(self, told: Circle, last: Circle) -> None:
        self.told = told
        self.last = last
        self.step: float | None = None
        """How many radii it goes from one report to the next, lately."""

    def margin(self, room: Room) -> float:
        """The room it should have now."""
        return room.margin(self.step)

    def is_wide(self, room: Room) -> bool:
        """Whether it has far more room than it should have."""
        return self.told.radius > self.last.radius * (1 + WIDE * self.margin(room))


Key = TypeVar("Key", bound=Hashable)


class MovingAreas(Generic[Key]):
    """The circles around this node's clients, as they are announced."""

    def __init__(self) -> None:
        self.room = Room()
        self._circles: dict[Key, _Circle] = {}

    def __len__(self) -> int:
        return len(self._circles)

    def __contains__(self, key: Key) -> bool:
        return key in self._circles

    def put(self, key: Key, space: Space, circle: Circle) -> Circle | None:
        """A circle is somewhere: the one to announce for it, or None if what is announced will do."""
        known = self._circles.get(key)
        if known is None:
            told = rounded(space, circle, circle.radius * (1 + FIRST))
            self._circles[key] = _Circle(told, circle)
            return told
        if circle is not known.last:
            step = distance(space, known.last, circle) / circle.radius
            known.step = step if known.step is None else (known.step + step) / 2
            known.last = circle
        margin = known.margin(self.room)
        if not known.is_wide(self.room):
            least = min(circle.radius * (1 + LEAD * margin), space.longest_radius())
            if distance(space, circle, known.told) + least <= known.told.radius:
                return None
        known.told = rounded(space, circle, circle.radius * (1 + margin))
        return known.told

    def drop(self, key: Key) -> None:
        """A circle is no more; one that is not known is none."""
        self._circles.pop(key, None)

    def wide(self, most: int) -> list[Key]:
        """Some circles that have far more room than they should have: they are to be put again as they are."""
        wide = (key for key, circle in self._circles.items() if circle.is_wide(self.room))
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
