"""The city of `locus bench geo`: who listens where, what happens where, and by brute force who wants it.

A square of 25 km around Seoul. Half of everything is spread evenly, half crowds around twenty centres. A client has
fixed areas (circles of 100 to 300 m) all over the city and, for a tenth of its subscriptions, circles around itself.
"""

from __future__ import annotations

import functools
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from broker_plugins.grammar import encode_geohash

if TYPE_CHECKING:
    from collections.abc import Iterator

    from numpy.typing import NDArray

    Floats = NDArray[np.float64]

WEST, SOUTH = 126.85, 37.45
METRES_PER_LAT = 111_195.08
METRES_PER_LON = METRES_PER_LAT * float(np.cos(np.radians(37.56)))
SIDE_M = 25_000.0
EAST, NORTH = WEST + SIDE_M / METRES_PER_LON, SOUTH + SIDE_M / METRES_PER_LAT
EARTH_RADIUS_M = 6_371_008.8
LEAST_M, MOST_M = 100.0, 300.0
CENTRES, CENTRE_SPREAD_M = 20, 800.0
MOVING_SHARE = 0.1
CELL_CHARACTERS = 7


@dataclass(slots=True)
class City:
    """Subscriptions, clients and events.

    Attributes:
        clients: how many connections there are; subscription i belongs to client i modulo this.
        moving: which subscriptions follow their client.
        lon: longitude of each circle.
        lat: its latitude.
        radius: its radius in metres.
        event_lon: longitude of each event.
        event_lat: its latitude.
    """

    clients: int
    moving: NDArray[np.bool_]
    lon: Floats
    lat: Floats
    radius: Floats
    event_lon: Floats
    event_lat: Floats

    @property
    def owner(self) -> NDArray[np.int64]:
        """The client of each subscription."""
        return np.arange(len(self.lon)) % self.clients

    def wanted(self) -> list[NDArray[np.int64]]:
        """For each event the clients that want it, each once."""
        owner = self.owner
        found: list[NDArray[np.int64]] = []
        x, y, z = _vectors(self.lon, self.lat)
        reach = (2 * np.sin(self.radius / EARTH_RADIUS_M / 2)) ** 2
        for ex, ey, ez in zip(*_vectors(self.event_lon, self.event_lat), strict=True):
            inside = (x - ex) ** 2 + (y - ey) ** 2 + (z - ez) ** 2 <= reach
            found.append(np.unique(owner[inside]))
        return found

    def filters(self) -> list[list[str]]:
        """What each client subscribes to at a Locus broker."""
        found: list[list[str]] = [[] for _ in range(self.clients)]
        for number, (lon, lat, radius) in enumerate(zip(self.lon, self.lat, self.radius, strict=True)):
            area = f"near:{radius:.3f}m" if self.moving[number] else f"circle:{lon:.6f},{lat:.6f},{radius:.3f}m"
            found[number % self.clients].append(f"$geo/{area}/city/#")
        return found

    def cells(self, moving: bool) -> list[set[str]]:
        """What each client subscribes to where cells are topics: every cell that one of its circles touches."""
        found: list[set[str]] = [set() for _ in range(self.clients)]
        for number in np.nonzero(self.moving == moving)[0].tolist():
            circle = (float(self.lon[number]), float(self.lat[number]), float(self.radius[number]))
            found[number % self.clients].update(_cover(*circle))
        return [{f"city/{cell}" for cell in cells} for cells in found]

    def event_cells(self) -> list[str]:
        """The cell of each event."""
        return [
            encode_geohash(float(lon), float(lat), CELL_CHARACTERS)
            for lon, lat in zip(self.event_lon, self.event_lat, strict=True)
        ]

    def positions(self) -> list[tuple[float, float]]:
        """Where each client is."""
        place: list[tuple[float, float]] = [(0.0, 0.0)] * self.clients
        for number in np.nonzero(self.moving)[0].tolist():
            place[number % self.clients] = (float(self.lon[number]), float(self.lat[number]))
        return place

    def step(self, random: np.random.Generator, metres: float) -> None:
        """Every client goes that far in some direction, and the circles around it with it."""
        angle = random.uniform(0, 2 * np.pi, self.clients)
        lon = np.clip(self._client(self.lon) + np.cos(angle) * metres / METRES_PER_LON, WEST, EAST)
        lat = np.clip(self._client(self.lat) + np.sin(angle) * metres / METRES_PER_LAT, SOUTH, NORTH)
        self._set_positions(lon, lat)

    def _client(self, values: Floats) -> Floats:
        found = np.zeros(self.clients)
        moving = np.nonzero(self.moving)[0]
        found[moving % self.clients] = values[moving]
        return found

    def _set_positions(self, lon: Floats, lat: Floats) -> None:
        moving = np.nonzero(self.moving)[0]
        # As many digits as a client sends.
        self.lon[moving] = np.round(lon, 6)[moving % self.clients]
        self.lat[moving] = np.round(lat, 6)[moving % self.clients]


def city(subscriptions: int, clients: int, events: int, seed: int = 4) -> City:
    """A city of that size."""
    random = np.random.default_rng(seed)
    centres = random.uniform(0.15, 0.85, (CENTRES, 2)) * SIDE_M
    lon, lat = _places(random, centres, subscriptions)
    event_lon, event_lat = _places(random, centres, events)
    moving = np.arange(subscriptions) // clients < round(MOVING_SHARE * subscriptions / clients)
    radius = np.round(random.uniform(LEAST_M, MOST_M, subscriptions), 3)
    world = City(clients, moving, lon, lat, radius, event_lon, event_lat)
    where = _places(random, centres, clients)
    world._set_positions(*where)  # noqa: SLF001  the circles that move are around their clients from the start
    return world


def _places(random: np.random.Generator, centres: Floats, count: int) -> tuple[Floats, Floats]:
    spread = random.uniform(0, SIDE_M, (count, 2))
    crowded = centres[random.integers(0, len(centres), count)] + random.normal(0, CENTRE_SPREAD_M, (count, 2))
    metres = np.clip(np.where(random.random((count, 1)) < 0.5, spread, crowded), 0, SIDE_M)
    return np.round(WEST + metres[:, 0] / METRES_PER_LON, 6), np.round(SOUTH + metres[:, 1] / METRES_PER_LAT, 6)


def _vectors(lon: Floats, lat: Floats) -> tuple[Floats, Floats, Floats]:
    across = np.cos(np.radians(lat))
    return across * np.cos(np.radians(lon)), across * np.sin(np.radians(lon)), np.sin(np.radians(lat))


def _cover(lon: float, lat: float, radius: float) -> Iterator[str]:
    """The geohash cells that a circle touches."""
    width, height = 360 / 2**18, 180 / 2**17
    to_lat, to_lon = radius / METRES_PER_LAT, radius / (METRES_PER_LON * 0.995)
    first, last = int((lat - to_lat + 90) // height), int((lat + to_lat + 90) // height)
    left, right = int((lon - to_lon + 180) // width), int((lon + to_lon + 180) // width)
    for row in range(first, last + 1):
        for column in range(left, right + 1):
            west, south = column * width - 180, row * height - 90
            # The nearest place of the cell, as seen from the centre; half a percent more than needed, to be safe.
            dx = (min(max(lon, west), west + width) - lon) * METRES_PER_LON
            dy = (min(max(lat, south), south + height) - lat) * METRES_PER_LAT
            if dx * dx + dy * dy <= (radius * 1.005) ** 2:
                yield _cell(column, row)


@functools.cache
def _cell(column: int, row: int) -> str:
    lon, lat = (column + 0.5) * 360 / 2**18 - 180, (row + 0.5) * 180 / 2**17 - 90
    return encode_geohash(lon, lat, CELL_CHARACTERS)
