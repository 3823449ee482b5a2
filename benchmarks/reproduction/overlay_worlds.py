"""Subscriptions and events as paper 003 draws them, and a few that it leaves out."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from spatial_index import OverlayTree

    Floats = NDArray[np.float64]

DOMAINS = {"A": (0.0, 1000.0), "B": (0.0, 1000.0)}
PEERS = 3000


@dataclass(frozen=True, slots=True)
class Boxes:
    """Subscriptions: one row of lows and one of highs each; NaN where an attribute is left out."""

    lows: Floats
    highs: Floats

    def join(self, tree: OverlayTree, hosts: int | None = None) -> None:
        """Let every peer join, named by its row; on so many hosts, if that is said, in turn."""
        for number, (low, high) in enumerate(zip(self.lows.tolist(), self.highs.tolist(), strict=True)):
            sides = zip(DOMAINS, low, high, strict=True)
            box = {name: (a, b) for name, a, b in sides if a == a}  # noqa: PLR0124 - NaN is left out
            tree.join(str(number), box, None if hosts is None else f"host {number % hosts}")

    def matching(self, event: Floats) -> list[str]:
        """Who should receive an event, by scanning all boxes."""
        inside = ((self.lows <= event) & (event <= self.highs)) | np.isnan(self.lows)
        return [str(number) for number in np.flatnonzero(inside.all(axis=1)).tolist()]


def paper_boxes(
    spread: float, rng: np.random.Generator, wild: str = "", wild_share: float = 0.02, peers: int = PEERS
) -> Boxes:
    """Normal around the middle; sides normal around 100 (10 %), 50 (20 %), 30 (30 %) or 10 (40 %), at most 120.

    With `wild` a share of them leaves one attribute out ("one") or both ("all").
    """
    middles = np.clip(rng.normal(500, spread, (peers, 2)), 0, 1000)
    sizes = rng.choice([100.0, 50.0, 30.0, 10.0], peers, p=[0.1, 0.2, 0.3, 0.4])
    sides = np.clip(rng.normal(sizes[:, None], 10, (peers, 2)), 0, 120)
    lows, highs = np.clip(middles - sides / 2, 0, 1000), np.clip(middles + sides / 2, 0, 1000)
    if wild:
        chosen = rng.random(peers) < wild_share
        left_out = np.zeros((peers, 2), dtype=bool)
        left_out[chosen] = True if wild == "all" else np.eye(2, dtype=bool)[rng.integers(0, 2, int(chosen.sum()))]
        lows[left_out] = highs[left_out] = np.nan
    return Boxes(lows, highs)


def paper_events(spread: float, count: int, rng: np.random.Generator) -> Floats:
    """Normal around the middle, clipped to the domain."""
    return np.clip(rng.normal(500, spread, (count, 2)), 0, 1000)


def category_boxes(rng: np.random.Generator, peers: int = PEERS) -> Boxes:
    """A is one of 50 categories (an `=` predicate), B an interval: what a `$where` subscription often looks like."""
    category = rng.integers(0, 50, peers) * 20.0 + 10
    low = rng.uniform(0, 950, peers)
    high = np.minimum(low + rng.choice([20.0, 100.0, 400.0], peers), 1000)
    return Boxes(np.column_stack([category, low]), np.column_stack([category, high]))


def category_events(count: int, rng: np.random.Generator) -> Floats:
    """Categories by Zipf's law, so that a few of them have most of the events; B near 200 or near 800."""
    weights = 1 / np.arange(1, 51)
    order = np.random.default_rng(99).permutation(50)
    category = order[rng.choice(50, count, p=weights / weights.sum())] * 20.0 + 10
    value = np.clip(np.where(rng.random(count) < 0.5, rng.normal(200, 40, count), rng.normal(800, 40, count)), 0, 1000)
    return np.column_stack([category, value])


def hot_spot_events(count: int, rng: np.random.Generator) -> Floats:
    """Events in three hot spots away from the middle."""
    spots = np.array([[250.0, 700.0], [650.0, 350.0], [800.0, 800.0]])
    return np.clip(spots[rng.integers(0, 3, count)] + rng.normal(0, 40, (count, 2)), 0, 1000)
