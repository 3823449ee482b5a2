"""The moving users of paper 000: half linger in slow regions, half roam everywhere three times as fast.

The paper leaves out how its users move. Here a user heads for a random place of its area (its slow region, or the whole
plane) in steps of its speed, and picks another when it arrives; speeds differ by ±20 % from user to user.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from spatial_index.spaces import Box, Plane

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Floats = NDArray[np.float64]

SIDE = 1000.0
PLANE = Plane(0.0, 0.0, SIDE, SIDE)


@dataclass(frozen=True, slots=True)
class MobileWorldSettings:
    """The parameters that the reproduction states beside its figures."""

    users: int = 1000
    slow_share: float = 0.5
    regions: int = 8
    region_side: float = 90.0
    slow_speed: float = 2.0
    fast_factor: float = 3.0
    clustered: bool = True


class MobileWorld:
    """Users on a 1000 × 1000 plane, moved a round at a time."""

    def __init__(self, settings: MobileWorldSettings, seed: int) -> None:
        self.settings = settings
        self.random = np.random.default_rng(seed)
        self.regions = self._place_regions()
        slow = round(settings.users * settings.slow_share)
        self.slow = np.arange(settings.users) < slow
        self.speed = np.where(self.slow, settings.slow_speed, settings.slow_speed * settings.fast_factor)
        self.speed = self.speed * self.random.uniform(0.8, 1.2, settings.users)
        areas = np.tile(np.array([0.0, 0.0, SIDE, SIDE]), (settings.users, 1))
        if settings.clustered:
            areas[:slow] = np.array(self.regions)[np.arange(slow) % settings.regions]
        self._areas = areas
        self.places = self._somewhere(np.arange(settings.users))
        self._goals = self._somewhere(np.arange(settings.users))
        if not settings.clustered:
            # Slow users still linger, each around a place of its own, but these places are anywhere.
            half = settings.region_side / 2
            middle = np.clip(self.places[:slow], half, SIDE - half)
            self._areas[:slow] = np.hstack([middle - half, middle + half])
            self._goals = self._somewhere(np.arange(settings.users))

    def step(self) -> None:
        """Move everybody for one round."""
        way = self._goals - self.places
        far = np.hypot(way[:, 0], way[:, 1])
        arrived = far <= self.speed
        self.places = np.where(
            arrived[:, None], self._goals, self.places + way * (self.speed / np.maximum(far, 1e-9))[:, None]
        )
        self._goals[arrived] = self._somewhere(np.flatnonzero(arrived))

    def events(self, count: int, smallest: float, largest: float) -> Floats:
        """Rectangles with sides in a range, anywhere on the plane: one row of west, south, east, north each."""
        sides = self.random.uniform(smallest, largest, (count, 2))
        corner = self.random.uniform(0, SIDE, (count, 2)) - sides / 2
        return np.hstack([np.maximum(corner, 0.0), np.minimum(corner + sides, SIDE)])

    def _somewhere(self, who: NDArray[np.int64]) -> Floats:
        area = self._areas[who]
        return np.asarray(area[:, :2] + self.random.random((len(who), 2)) * (area[:, 2:] - area[:, :2]))

    def _place_regions(self) -> list[Box]:
        side = self.settings.region_side
        found: list[Box] = []
        while len(found) < self.settings.regions:
            west, south = self.random.uniform(0, SIDE - side, 2).tolist()
            box = Box(west, south, west + side, south + side)
            # A street apart, so that two slow regions are two.
            if all(
                abs(box.west - other.west) > side * 1.5 or abs(box.south - other.south) > side * 1.5 for other in found
            ):
                found.append(box)
        return found
