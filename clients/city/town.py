"""The town: streets, everybody on them, and what happens there, all from one seed."""

from __future__ import annotations

import random
from typing import Any, Final

from clients.city.movement import Driver, Mover, Stroller, Walker
from clients.city.plane import Plane, Point
from clients.city.services import Happenings, Sensors, fences_of, workers_of
from clients.city.streets import Streets

CENTER: Final = (126.97, 37.56)
"""Longitude and latitude of a middle that has no such streets."""
IN_THE_SQUARE: Final = 0.5
"""Share of the pedestrians who are in the crowd on the square."""


class Town:
    """A town and those who are in it.

    Args:
        seed: the same one makes the same town, in which everybody goes the same ways.
        vehicles: how many there are.
        people: how many pedestrians there are; about half of them are in the crowd on the square.
        subscribers: how many roam and listen; a third rides, a third walks, a third is in the crowd.
        workers: how many look for a job.

    Raises:
        ValueError: a number is below 0.
    """

    def __init__(
        self, seed: int = 1, *, vehicles: int = 300, people: int = 200, subscribers: int = 36, workers: int = 16
    ) -> None:
        counts = {"vehicles": vehicles, "people": people, "subscribers": subscribers, "workers": workers}
        for name, count in counts.items():
            if count < 0:
                raise ValueError(f"{name}: {count} is below 0")
        self.seed = seed
        self.plane = Plane(*CENTER)
        self.streets = Streets(seed)
        self.fences = fences_of(self.streets, seed)
        self.workers = workers_of(workers, seed)
        self.happenings = Happenings(self.streets, seed)
        self.sensors = Sensors(self.streets, seed)
        self.vehicles: dict[str, Mover] = {
            f"v{number}": Driver(self.streets, self._rng(f"v{number}")) for number in range(vehicles)
        }
        crowd = round(people * IN_THE_SQUARE)
        self.people: dict[str, Mover] = {
            f"p{number}": self._pedestrian(f"p{number}", number < crowd) for number in range(people)
        }
        self.subscribers: dict[str, Mover] = {f"r{number}": self._roamer(number) for number in range(subscribers)}

    def map(self) -> dict[str, Any]:
        """What is needed to draw it: the payload of `city/map`."""
        xs = [crossing.x for crossing in self.streets.crossings]
        ys = [crossing.y for crossing in self.streets.crossings]
        west, south = self.plane.globe(Point(min(xs), min(ys)))
        east, north = self.plane.globe(Point(max(xs), max(ys)))
        ring = [*self.streets.square, self.streets.square[0]]
        return {
            "center": list(CENTER),
            "bounds": [west, south, east, north],
            "streets": [[self.plane.globe(point) for point in line] for line in self.streets.lines()],
            "square": [self.plane.globe(point) for point in ring],
            "seed": self.seed,
        }

    def _rng(self, name: str) -> random.Random:
        return random.Random(f"{self.seed}/{name}")

    def _pedestrian(self, name: str, in_the_square: bool) -> Mover:
        rng = self._rng(name)
        return Stroller(self.streets.square, rng) if in_the_square else Walker(self.streets, rng)

    def _roamer(self, number: int) -> Mover:
        rng = self._rng(f"r{number}")
        if number % 3 == 0:
            return Stroller(self.streets.square, rng)
        return Driver(self.streets, rng) if number % 3 == 1 else Walker(self.streets, rng)
