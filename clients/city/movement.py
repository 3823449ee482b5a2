"""Movement: how vehicles drive and people walk, step by step, with no clock and no network of their own."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Protocol

from clients.city.plane import Point

if TYPE_CHECKING:
    import random
    from collections.abc import Sequence

    from clients.city.streets import Streets, Stretch

STEP_S: Final = 0.25
"""Longer times are cut into steps of this length, so that brakes are used in time."""
ACCELERATION_MPS2: Final = 1.8
BRAKING_MPS2: Final = 3.0
TURNING_MPS: Final = 4.0
"""How fast one goes round a corner."""
CREEPING_MPS: Final = 1.0
"""How fast one rolls up to a red light."""
TURN_DEGREES: Final = 35.0
"""A change of direction that one has to brake for."""
RED: Final = 0.2
"""Share of the crossings at which the light is red."""
LONGEST_RED_S: Final = 12.0
WALKING_MPS: Final = (0.9, 1.7)
STROLLING_MPS: Final = (0.2, 0.9)
LONGEST_REST_S: Final = 40.0


@dataclass(frozen=True, slots=True)
class Position:
    """Where somebody is and how they move.

    Args:
        point: where.
        speed_mps: how fast.
        heading: which way, in degrees clockwise from north.
    """

    point: Point
    speed_mps: float
    heading: float


class Mover(Protocol):
    """Somebody who moves."""

    def advance(self, elapsed_s: float) -> Position:
        """Let some time pass, and tell where that leads."""


class Driver:
    """A vehicle: follows the streets, obeys their limits, brakes for corners and red lights.

    Args:
        streets: where it drives.
        rng: decides its way; its own.
    """

    def __init__(self, streets: Streets, rng: random.Random) -> None:
        self._streets = streets
        self._rng = rng
        self._haste = rng.uniform(0.75, 1.05)
        self._speed = 0.0
        self._pause_s = 0.0
        self._stretch = rng.choice(streets.stretches)
        self._origin = rng.choice((self._stretch.start, self._stretch.end))
        self._offset = rng.uniform(0.0, self._stretch.length_m)
        self._decide()

    def advance(self, elapsed_s: float) -> Position:
        """Drive on."""
        while elapsed_s > 0.0:
            step = min(elapsed_s, STEP_S)
            self._step(step)
            elapsed_s -= step
        place = self._streets.at(self._stretch, self._origin, self._offset)
        return Position(place, self._speed, self._streets.heading(self._stretch, self._origin))

    def _decide(self) -> None:
        """Where to go at the end of this stretch, and how fast one may be there."""
        crossing = self._stretch.other(self._origin)
        self._next = way_on(self._streets, self._stretch, crossing, self._rng)
        turn = self._streets.heading(self._next, crossing) - self._streets.heading(self._stretch, self._origin)
        turns = abs((turn + 180.0) % 360.0 - 180.0) > TURN_DEGREES
        self._red_s = self._rng.uniform(1.0, LONGEST_RED_S) if self._rng.random() < RED else 0.0
        entering_mps = self._next.limit_mps * self._haste
        self._leaving_mps = 0.0 if self._red_s else min(TURNING_MPS, entering_mps) if turns else entering_mps

    def _step(self, step_s: float) -> None:
        if self._pause_s > 0.0:
            self._pause_s -= step_s
            self._speed = 0.0
            return
        left = max(self._stretch.length_m - self._offset - self._speed * step_s, 0.0)
        # The speed from which one can still brake to what the crossing asks for.
        able = max(math.sqrt(self._leaving_mps**2 + 2.0 * BRAKING_MPS2 * left), CREEPING_MPS)
        wanted = min(self._stretch.limit_mps * self._haste, able)
        change = wanted - self._speed
        self._speed += min(max(change, -2.0 * BRAKING_MPS2 * step_s), ACCELERATION_MPS2 * step_s)
        self._offset += self._speed * step_s
        if self._offset >= self._stretch.length_m:
            self._cross()

    def _cross(self) -> None:
        over = self._offset - self._stretch.length_m
        self._pause_s = self._red_s
        self._origin = self._stretch.other(self._origin)
        self._stretch = self._next
        self._speed = min(self._speed, self._stretch.limit_mps * self._haste)
        self._offset = min(over, self._stretch.length_m)
        self._decide()


class Walker:
    """A pedestrian on the streets, at a steady pace.

    Args:
        streets: where they walk.
        rng: decides their way; their own.
    """

    def __init__(self, streets: Streets, rng: random.Random) -> None:
        self._streets = streets
        self._rng = rng
        self._speed = rng.uniform(*WALKING_MPS)
        self._stretch = rng.choice(streets.stretches)
        self._origin = rng.choice((self._stretch.start, self._stretch.end))
        self._offset = rng.uniform(0.0, self._stretch.length_m)

    def advance(self, elapsed_s: float) -> Position:
        """Walk on."""
        self._offset += self._speed * elapsed_s
        while self._offset >= self._stretch.length_m:
            self._offset -= self._stretch.length_m
            crossing = self._stretch.other(self._origin)
            self._stretch = way_on(self._streets, self._stretch, crossing, self._rng)
            self._origin = crossing
        place = self._streets.at(self._stretch, self._origin, self._offset)
        return Position(place, self._speed, self._streets.heading(self._stretch, self._origin))


class Stroller:
    """Somebody in the crowd on the square: goes to a place in it, rests, and goes to another.

    Args:
        corners: of the square, which is convex.
        rng: decides where to; their own.
    """

    def __init__(self, corners: Sequence[Point], rng: random.Random) -> None:
        self._corners = corners
        self._rng = rng
        self._point = self._somewhere()
        self._goal = self._somewhere()
        self._speed = rng.uniform(*STROLLING_MPS)
        self._rest_s = rng.uniform(0.0, LONGEST_REST_S)
        self._heading = self._point.heading_to(self._goal)

    def advance(self, elapsed_s: float) -> Position:
        """Stroll on, or rest."""
        resting = min(elapsed_s, self._rest_s)
        self._rest_s -= resting
        walking = elapsed_s - resting
        if walking <= 0.0:
            return Position(self._point, 0.0, self._heading)
        left, way = self._point.distance_to(self._goal), self._speed * walking
        if way < left:
            self._point = self._point.towards(self._goal, way / left)
            return Position(self._point, self._speed, self._heading)
        self._point, self._goal = self._goal, self._somewhere()
        self._speed = self._rng.uniform(*STROLLING_MPS)
        self._rest_s = self._rng.uniform(0.0, LONGEST_REST_S)
        self._heading = self._point.heading_to(self._goal)
        return Position(self._point, 0.0, self._heading)

    def _somewhere(self) -> Point:
        shares = [self._rng.expovariate(1.0) for _ in self._corners]
        whole = sum(shares)
        return Point(
            sum(share * corner.x for share, corner in zip(shares, self._corners, strict=True)) / whole,
            sum(share * corner.y for share, corner in zip(shares, self._corners, strict=True)) / whole,
        )


def way_on(streets: Streets, stretch: Stretch, crossing: int, rng: random.Random) -> Stretch:
    """Where to go at a crossing: straight on more often than round a corner, and back only from a dead end."""
    ways = [way for way in streets.exits[crossing] if way is not stretch]
    if not ways:
        return stretch
    came = streets.heading(stretch, stretch.other(crossing))
    weights = [1.2 + math.cos(math.radians(streets.heading(way, crossing) - came)) for way in ways]
    return rng.choices(ways, weights)[0]
