"""Streets: a network of crossings and the stretches between them, made up from a seed.

A grid whose crossings are pushed about a little, with avenues among its streets and some streets missing, but never so
many that one part of the city could not be reached from another. The block in the middle is a square for walking.
"""

from __future__ import annotations

import random
from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING, Final

from clients.city.plane import Point

if TYPE_CHECKING:
    from collections.abc import Iterator

LINES: Final = 14
"""Streets in each direction; even, so that there is a block in the middle."""
BLOCK_M: Final = 300.0
"""Length of a block before its corners are pushed about."""
PUSH: Final = 0.16
"""How far a crossing is pushed at most, as a share of a block."""
MISSING: Final = 0.35
"""Share of the stretches that are missing, of those that may."""
AVENUE_EVERY: Final = 3
AVENUE_MPS: Final = 16.7
"""Speed limit of an avenue: 60 km/h."""
STREET_MPS: Final = 8.3
"""Speed limit of a street: 30 km/h."""
PAVEMENT_M: Final = 25.0
"""Distance of the square from the crossings around it."""


@dataclass(frozen=True, slots=True)
class Stretch:
    """A street between two crossings.

    Args:
        start: number of the crossing at one end.
        end: of the one at the other.
        length_m: its length.
        limit_mps: how fast one may drive.
    """

    start: int
    end: int
    length_m: float
    limit_mps: float

    def other(self, crossing: int) -> int:
        """The crossing at the other end."""
        return self.start if crossing == self.end else self.end


class Streets:
    """The streets of a city.

    Args:
        seed: the same one makes the same streets.
    """

    def __init__(self, seed: int) -> None:
        rng = random.Random(f"{seed}/streets")
        self.crossings = tuple(_crossings(rng))
        self.stretches = tuple(self._stretches(rng))
        exits: list[list[Stretch]] = [[] for _ in self.crossings]
        for stretch in self.stretches:
            exits[stretch.start].append(stretch)
            exits[stretch.end].append(stretch)
        self.exits = tuple(map(tuple, exits))
        """The stretches that meet at each crossing."""
        self.square = self._square()
        """The corners of the square in the middle, in order."""

    def at(self, stretch: Stretch, origin: int, offset_m: float) -> Point:
        """The place so many metres along a stretch from one of its crossings."""
        begin, end = self.crossings[origin], self.crossings[stretch.other(origin)]
        return begin.towards(end, offset_m / stretch.length_m)

    def heading(self, stretch: Stretch, origin: int) -> float:
        """Which way one goes on a stretch that one entered at a crossing."""
        return self.crossings[origin].heading_to(self.crossings[stretch.other(origin)])

    def lines(self) -> list[list[Point]]:
        """The streets as lines to draw: each as long as it goes on."""
        there = {(stretch.start, stretch.end) for stretch in self.stretches}
        drawn: list[list[Point]] = []
        for numbers in _lines():
            line: list[Point] = []
            for before, after in pairwise(numbers):
                if (before, after) in there:
                    line = line or [self.crossings[before]]
                    line.append(self.crossings[after])
                elif line:
                    drawn.append(line)
                    line = []
            if line:
                drawn.append(line)
        return drawn

    def _stretches(self, rng: random.Random) -> Iterator[Stretch]:
        middle = {LINES // 2 - 1, LINES // 2}
        candidates: list[tuple[Stretch, bool]] = []
        for line, numbers in enumerate(_lines()):
            avenue = line % LINES % AVENUE_EVERY == 0 or line % LINES in middle
            for before, after in pairwise(numbers):
                length = self.crossings[before].distance_to(self.crossings[after])
                candidates.append((Stretch(before, after, length, AVENUE_MPS if avenue else STREET_MPS), avenue))
        rng.shuffle(candidates)
        candidates.sort(key=lambda candidate: not candidate[1])  # avenues first, the others in any order
        group = list(range(len(self.crossings)))

        def leader(number: int) -> int:
            while group[number] != number:
                group[number] = number = group[group[number]]
            return number

        for stretch, avenue in candidates:
            one, other = leader(stretch.start), leader(stretch.end)
            group[one] = other
            if avenue or one != other or rng.random() >= MISSING:
                yield stretch

    def _square(self) -> tuple[Point, ...]:
        low, high = LINES // 2 - 1, LINES // 2
        corners = [self.crossings[y * LINES + x] for x, y in ((low, low), (high, low), (high, high), (low, high))]
        middle = Point(sum(corner.x for corner in corners) / 4, sum(corner.y for corner in corners) / 4)
        return tuple(corner.towards(middle, PAVEMENT_M / corner.distance_to(middle)) for corner in corners)


def _crossings(rng: random.Random) -> Iterator[Point]:
    half = (LINES - 1) / 2
    for row in range(LINES):
        for column in range(LINES):
            push_x, push_y = rng.uniform(-PUSH, PUSH), rng.uniform(-PUSH, PUSH)
            yield Point((column - half + push_x) * BLOCK_M, (row - half + push_y) * BLOCK_M)


def _lines() -> Iterator[list[int]]:
    """The crossings along each line of the grid: those from west to east, then those from south to north."""
    for row in range(LINES):
        yield [row * LINES + column for column in range(LINES)]
    for column in range(LINES):
        yield [row * LINES + column for row in range(LINES)]
