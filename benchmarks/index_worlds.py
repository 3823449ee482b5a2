"""The worlds of `locus bench index`: boxes, places asked about and steps, in a country of 20 by 15 degrees."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Floats = NDArray[np.float64]

WEST, SOUTH, EAST, NORTH = 0.0, 40.0, 20.0, 55.0
KM = 1 / 111.2
SPOTS = 8
CROWDED_SHARE = 0.8
SPOT_SIGMA = 0.5
STEP = 0.05 * KM


@dataclass(slots=True)
class World:
    """Boxes of one kind, with a generator for what is asked and for how they move.

    Attributes:
        name: what it is called in the table.
        boxes: an array of shape (n, 4).
        cell_widths: widths of grid cells, in degrees, that a tuned grid is chosen from.
    """

    name: str
    boxes: Floats
    cell_widths: list[float]
    _centres: Floats
    _share: float
    _rng: np.random.Generator

    def places(self, count: int) -> Floats:
        """Where events happen: distributed as the boxes are."""
        return scatter(self._rng, count, self._centres, self._share)

    def steps(self, count: int) -> Floats:
        """How far boxes move, as something to add to a box: about 50 m each way."""
        return np.tile(self._rng.normal(0, STEP, (count, 2)), 2)

    def choose(self, among: NDArray[np.int64], count: int) -> list[int]:
        """Who moves, drawn from those who do."""
        chosen: list[int] = self._rng.choice(among, count).tolist()
        return chosen


def scatter(rng: np.random.Generator, count: int, centres: Floats, share: float) -> Floats:
    """Places, a share of them normally distributed around the centres and the rest anywhere."""
    found = np.column_stack((rng.uniform(WEST, EAST, count), rng.uniform(SOUTH, NORTH, count)))
    crowded = rng.random(count) < share
    around = centres[rng.integers(0, SPOTS, count)] + rng.normal(0, SPOT_SIGMA, (count, 2))
    found[crowded] = around[crowded]
    return found


def _world(name: str, count: int, share: float, half: Floats, widths: list[float], seed: int) -> World:
    rng = np.random.default_rng(seed)
    centres = np.column_stack((rng.uniform(WEST + 3, EAST - 3, SPOTS), rng.uniform(SOUTH + 2, NORTH - 2, SPOTS)))
    middles = scatter(rng, count, centres, share)
    return World(name, np.hstack((middles - half, middles + half)), widths, centres, share, rng)


def uniform(count: int, answer: float = 4.0) -> World:
    """Boxes of one size anywhere, `answer` of them over each place."""
    side = float(np.sqrt(answer * (EAST - WEST) * (NORTH - SOUTH) / count))
    half = np.full((count, 1), side / 2)
    return _world("uniform, same size", count, 0.0, half, [side / 2, side, side * 2], seed=11)


def city(count: int, shrink: float = 1.0) -> World:
    """Four of five boxes in eight crowded spots, sides log-uniform from 50 m to 50 km (divided by `shrink`)."""
    sides = 0.05 * KM / shrink * np.exp(np.random.default_rng(7).uniform(0, np.log(1000), (count, 1)))
    widths = [width * KM / shrink for width in (2.5, 5.0, 10.0, 20.0)]
    return _world("city, 50 m - 50 km", count, CROWDED_SHARE, sides / 2, widths, seed=12)
