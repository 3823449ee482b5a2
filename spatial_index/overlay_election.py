"""How an overlay tree estimates events in a box, and whom a bounding box elects as its parent (paper 003).

A parent receives every event of its bounding box and forwards it to the members it concerns. Elected as parent, a
member with box S₁ costs O₁ = (R+F)·ΣE(Sᵢ) − R·ΣE(S₁∩Sᵢ) over the other members: F for each event it forwards, R for
each event it receives without wanting it. E, the events to expect in a box, is its volume or what recent events say.
"""

from __future__ import annotations

from enum import Enum
from typing import TYPE_CHECKING, Protocol

import numpy as np

from spatial_index.errors import BadCount

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    Array = NDArray[np.float64]

NARROWEST_SHARE = 1e-3
"""A side never counts as narrower than this share of its domain: an `=` predicate has no volume, yet it has events."""

JOINT_BINS = 4096
"""Up to this many bins the histogram is joint over all attributes; beyond, attributes count as independent."""


class Election(Enum):
    """Which member a bounding box elects as its parent."""

    RANDOM = "RS"
    LARGEST = "LVS"
    CHEAPEST = "CES"
    CHEAPEST_BY_EVENTS = "CES by recent events"


class Estimate(Protocol):
    """Tells how many events to expect in boxes."""

    def __call__(self, lows: Array, highs: Array) -> Array:
        """Expected events in each box; the last axis is the attribute; 0 for a box whose sides are inverted."""


class Volume:
    """The paper's stand-in: events are spread evenly, so a box gets its share of the volume."""

    def __init__(self, domain_lows: Sequence[float], domain_highs: Sequence[float]) -> None:
        """Take the domain of each attribute."""
        self._lows = np.asarray(domain_lows, dtype=np.float64)
        self._highs = np.asarray(domain_highs, dtype=np.float64)

    def __call__(self, lows: Array, highs: Array) -> Array:
        """Each box's share of the domain's volume."""
        sides = (np.minimum(highs, self._highs) - np.maximum(lows, self._lows)) / (self._highs - self._lows)
        volumes: Array = np.maximum(sides, NARROWEST_SHARE).prod(axis=-1)
        volumes[(lows > highs).any(axis=-1)] = 0.0
        return volumes


class RecentEvents:
    """A histogram of events that forgets: after `half_life` further events an event counts half."""

    def __init__(self, domain_lows: Sequence[float], domain_highs: Sequence[float], half_life: float) -> None:
        """Take the domain of each attribute and the half-life in events."""
        if not half_life > 0:
            raise BadCount(f"half_life is {half_life!r}: it has to be a positive number of events")
        self._lows = np.asarray(domain_lows, dtype=np.float64)
        self._sides = np.asarray(domain_highs, dtype=np.float64) - self._lows
        attributes = len(self._lows)
        self._joint = 4**attributes <= JOINT_BINS
        self._bins = int(round(JOINT_BINS ** (1 / attributes), 6)) if self._joint else 64
        self._bins = min(self._bins, 256)
        self._growth = 2.0 ** (1.0 / half_life)
        # An event's weight grows instead of every bin shrinking; both are rescaled before they overflow.
        self._weight = 1.0
        shape = (self._bins,) * attributes if self._joint else (attributes, self._bins)
        self._counts = np.zeros(shape)
        self._total = 0.0

    def record(self, event: Sequence[float | None]) -> None:
        """Count one event; one that leaves an attribute out is in no bin and is not counted."""
        if any(value is None for value in event):
            return
        place = (np.asarray(event, dtype=np.float64) - self._lows) / self._sides * self._bins
        bins = np.clip(place, 0, self._bins - 1).astype(np.int64)
        self._weight *= self._growth
        self._total += self._weight
        if self._joint:
            self._counts[tuple(bins)] += self._weight
        else:
            self._counts[np.arange(len(bins)), bins] += self._weight
        if self._weight > 1e100:
            self._counts /= self._weight
            self._total /= self._weight
            self._weight = 1.0

    @property
    def seen(self) -> bool:
        """Whether there is anything to estimate from."""
        return self._total > 0

    def __call__(self, lows: Array, highs: Array) -> Array:
        """The share of recent events in each box; a bin partly covered counts in part, a point has its whole bin."""
        shape = lows.shape[:-1]
        starts = ((lows - self._lows) / self._sides * self._bins).reshape(-1, lows.shape[-1], 1)
        ends = ((highs - self._lows) / self._sides * self._bins).reshape(-1, lows.shape[-1], 1)
        edges = np.arange(self._bins, dtype=np.float64)
        # Values beyond the domain are counted in its outermost bins, so a box beyond it is moved there too.
        starts, ends = np.clip(starts, 0.0, self._bins - 1e-9), np.clip(ends, 0.0, self._bins)
        covered = np.clip(np.minimum(ends, edges + 1) - np.maximum(starts, edges), 0.0, 1.0)
        narrow = (ends - starts) < 1.0
        covered = np.where(narrow & (np.floor(starts) == edges), 1.0, covered)
        if self._joint:
            events = np.einsum("i...,mi->m...", self._counts, covered[:, 0])
            for attribute in range(1, lows.shape[-1]):
                events = np.einsum("mi...,mi->m...", events, covered[:, attribute])
            result = events / self._total
        else:
            result = (np.einsum("ai,mai->ma", self._counts, covered) / self._total).prod(axis=1)
        result = result.reshape(shape)
        result[(lows > highs).any(axis=-1)] = 0.0
        return np.asarray(result, dtype=np.float64)


def overheads(
    candidates: tuple[Array, Array],
    members: tuple[Array, Array],
    estimate: Estimate,
    receive_cost: float,
    forward_cost: float,
    *,
    are_members: bool,
) -> Array:
    """What each candidate would cost as parent of the members: the paper's O₁ for each of them.

    Args:
        candidates: lows and highs of what each candidate wants for itself, one row a candidate.
        members: lows and highs of the members' boxes, one row a member.
        estimate: the events to expect in a box.
        receive_cost: R, for an event received without being wanted.
        forward_cost: F, for an event forwarded.
        are_members: whether candidate i speaks for member i already, so that forwarding to that member is free.
    """
    expected = estimate(*members)
    shared = estimate(
        np.maximum(candidates[0][:, None, :], members[0][None, :, :]),
        np.minimum(candidates[1][:, None, :], members[1][None, :, :]),
    )
    costs = (receive_cost + forward_cost) * expected[None, :] - receive_cost * shared
    if are_members:
        np.fill_diagonal(costs, 0.0)
    return np.asarray(costs.sum(axis=1), dtype=np.float64)
