"""Sorting the tray of a `Shelf` into a new shelf, a step at a time, so that no call takes long."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from spatial_index.box_shelf import BUCKETS, Shelf, words_for
from spatial_index.interval import LARGEST

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from spatial_index.box_shelf import Floats, Ints

STEP_PLACES = 1024  # a multiple of 64: a step fills whole words
STEP_LATECOMERS = 32
SAMPLE = 1024
BANDS = 16
SMALLEST_TRAY = 2048
TRAY_SHARE = 16  # a tray holds a sixteenth of what is ranked, if that is more


def steps_for(boxes: int) -> int:
    """How many steps a renewal of so many boxes takes at most, each step making room for one latecomer."""
    steps = 4 + boxes // STEP_PLACES
    return steps + steps // (STEP_LATECOMERS - 1) + 1


class Renewal:
    """A new shelf in the making: first the boxes there were at the start, in the order of rank, then the latecomers.

    The old shelf answers and takes what is added until the new one is complete.
    """

    def __init__(self, old: Shelf, slots: int) -> None:
        self._old = old
        self._late_from = old.filled  # what comes from here on is a latecomer
        ranked = old.start + np.flatnonzero(_alive(old, old.start, old.words * 64))
        tray = np.flatnonzero(_alive(old, 0, old.filled))
        tray = tray[np.lexsort((old.orders[tray], old.ranks[tray]))]
        # On a tie what is ranked already is older, so the newcomer goes to its right.
        right = np.searchsorted(old.ranks[ranked], old.ranks[tray], side="right")
        if len(ranked) and len(tray) and old.orders[tray].min() < old.orders[ranked].max():
            right = _by_age(old, ranked, tray, right)
        self._source: Ints = np.insert(ranked, right, tray).astype(np.int64)
        boxes = len(self._source)
        room = max(SMALLEST_TRAY, boxes // TRAY_SHARE)
        sample = self._source[:: max(1, boxes // SAMPLE)]
        edges = [_edges(old, sample, attribute) for attribute in range(len(old.edges))]
        bands = _distinct(old.ranks[sample[:: max(1, len(sample) // BANDS)]]).tolist()
        self.new = Shelf(room, boxes, slots + old.tray_left, edges, bands)
        self._done = 0

    def step(self) -> bool:
        """Do a bounded part of the work; True when the new shelf is complete."""
        old, new = self._old, self.new
        if self._done < len(self._source):
            end = min(len(self._source), self._done + STEP_PLACES)
            new.copy_from(old, self._source[self._done : end], new.start + self._done)
            self._done = end
            return False
        end = min(old.filled, self._late_from + STEP_LATECOMERS)
        late = np.arange(self._late_from, end)
        for place in late[old.is_alive(late)].tolist():
            new.add(int(old.slots[place]), float(old.ranks[place]), int(old.orders[place]), old.bounds[place].tolist())
        self._late_from = end
        return end == old.filled

    def clear(self, slot: int) -> None:
        """Take a removed slot out of the new shelf too, if it has come over."""
        place = self.new.place_of(slot)
        if place >= 0:
            self.new.clear(place)


def _by_age(shelf: Shelf, ranked: Ints, tray: Ints, right: Ints) -> Ints:
    """Where newcomers go that may be older than what is ranked already: on a tie, before the younger ones."""
    left = np.searchsorted(shelf.ranks[ranked], shelf.ranks[tray], side="left")
    orders = shelf.orders
    found = [
        start + int(np.searchsorted(orders[ranked[start:end]], orders[place]))
        for start, end, place in zip(left.tolist(), right.tolist(), tray.tolist(), strict=True)
    ]
    return np.array(found, dtype=np.int64)


def _alive(shelf: Shelf, start: int, end: int) -> NDArray[np.uint8]:
    """Which places between two are alive, the first on a word's border."""
    return np.unpackbits(shelf.alive[start >> 6 : words_for(end)].view(np.uint8), bitorder="little")[: end - start]


def _edges(shelf: Shelf, sample: Ints, attribute: int) -> list[float]:
    """Values that cut an attribute into buckets in which about as many boxes of a sample begin or end."""
    attributes = len(shelf.edges)
    ends = np.concatenate((shelf.bounds[sample, attribute], -shelf.bounds[sample, attributes + attribute]))
    ends = _distinct(ends[np.abs(ends) < LARGEST])
    if len(ends) >= BUCKETS:
        ends = ends[(np.arange(1, BUCKETS) * len(ends)) // BUCKETS]
    edges: list[float] = ends.tolist()
    return edges


def _distinct(values: Floats) -> Floats:
    """Each value once, in order: `np.unique`, which imports for milliseconds the first time it is called."""
    values = np.sort(values)
    distinct: Floats = values[np.concatenate((np.ones(1, np.bool_), values[1:] != values[:-1]))[: len(values)]]
    return distinct
