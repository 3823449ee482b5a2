"""The packed tables under `RankedBoxes`: boxes by rank, and for every attribute and bucket a bitmap of who may match.

A *place* is a row number. The first places are a *tray*, filled in the order of arrival; all others are in the order of
rank. An attribute's values are cut into buckets, and the bitmap of a bucket has a bit for each place whose box reaches
into it. The candidates for a point are the AND of one bitmap an attribute, best rank first; only they are compared with
their exact bounds.
"""

from __future__ import annotations

import math
from bisect import bisect_left, bisect_right
from typing import TYPE_CHECKING, TypeAlias

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

Floats: TypeAlias = "NDArray[np.float64]"
Ints: TypeAlias = "NDArray[np.int64]"
Words: TypeAlias = "NDArray[np.uint64]"

MOST_ATTRIBUTES = 16

BUCKETS = 128
ABSENT = BUCKETS  # the bitmap of boxes that do not mention the attribute, for points that lack it
FIRST_BATCH = 16  # so many words and one for each result are unpacked first; then four times more
FEW_WORDS = 64  # up to so many words with candidates, those on the tray and those ranked are looked at together
SHORTEST_REACH = 64
ALL_ONES = np.uint64(0xFFFF_FFFF_FFFF_FFFF)
_BIT = [np.uint64(1 << bit) for bit in range(64)]
_NOT_BIT = [ALL_ONES ^ bit for bit in _BIT]
_BUCKET_NUMBERS = np.arange(BUCKETS, dtype=np.uint8)[:, None]


def words_for(places: int) -> int:
    """How many 64-bit words hold a bit for each place."""
    return -(-places // 64)


class Shelf:
    """Boxes in packed tables: a tray for `tray` new ones, then `ranked` places in the order of rank.

    Args:
        tray: how many boxes can be added.
        ranked: how many places are in the order of rank.
        slots: how many slots, the owner's numbers for its boxes, there may be before the tray is used.
        edges: for each attribute the values that separate its buckets.
        bands: ranks that separate what is on the tray into bands.
    """

    def __init__(self, tray: int, ranked: int, slots: int, edges: list[list[float]], bands: list[float]) -> None:
        self.tray_words = words_for(tray)
        self.start = self.tray_words * 64  # the first ranked place
        self.words = self.tray_words + words_for(ranked)
        self.filled = 0  # the next free place of the tray
        places = self.words * 64
        self.edges = edges
        self.alive: Words = np.zeros(self.words, np.uint64)
        # Lower bounds, then upper bounds negated, so that one comparison with (v, -v) tests all of them. A box has
        # -inf for both on an attribute it does not mention, and finite numbers on one it does: a point that lacks the
        # attribute has -inf for both values, which only the former passes. Only the tray is written place by place.
        self.bounds: Floats = np.empty((places, 2 * len(edges)))
        self.bounds[: self.start] = -math.inf
        # For all attributes there may ever be: zeros cost nothing until they are written to.
        self.bitmaps: Words = np.zeros((MOST_ATTRIBUTES, BUCKETS + 1, self.words), np.uint64)
        self.rows: list[list[Words]] = [list(self.bitmaps[attribute]) for attribute in range(len(edges))]
        self.ranks: Floats = np.zeros(places)
        self.orders: Ints = np.zeros(places, np.int64)
        self.slots: Ints = np.zeros(places, np.int64)
        self.where: Ints = np.zeros(slots + self.start, np.int64)  # the place of a slot plus one, 0 if it has none
        # Bitmap b holds the tray's boxes in the bands up to b: the only ones that can beat a rank in band b.
        self.bands = bands
        self.up_to_band: Words = np.zeros((len(bands) + 1, self.tray_words), np.uint64)
        # How many ranked words a query reads before it looks whether it has enough, learnt from those before it.
        self.reach = SHORTEST_REACH

    def add_attribute(self) -> None:
        """Make room for one more attribute, which no box here mentions yet."""
        attributes = len(self.edges)
        bounds = np.full((len(self.bounds), 2 * attributes + 2), -math.inf)
        bounds[:, :attributes] = self.bounds[:, :attributes]
        bounds[:, attributes + 1 : -1] = self.bounds[:, attributes:]
        self.bounds = bounds
        self.edges.append([])
        self.bitmaps[attributes] = ALL_ONES
        self.rows.append(list(self.bitmaps[attributes]))

    @property
    def tray_left(self) -> int:
        """How many more boxes fit."""
        return self.start - self.filled

    def add(self, slot: int, rank: float, order: int, bounds: Sequence[float]) -> None:
        """Put a box on the tray, its bounds as in the table."""
        place = self.filled
        self.filled += 1
        word, bit = place >> 6, _BIT[place & 63]
        attributes = len(self.edges)
        self.bounds[place] = bounds
        for attribute in range(attributes):
            bitmap = self.bitmaps[attribute]
            low, high = bounds[attribute], -bounds[attributes + attribute]
            if low == -math.inf:
                column = bitmap[:, word]
            else:
                edges = self.edges[attribute]
                column = bitmap[bisect_right(edges, low) : bisect_right(edges, high) + 1, word]
                bitmap[ABSENT, word] &= _NOT_BIT[place & 63]
            np.bitwise_or(column, bit, column)
        column = self.up_to_band[bisect_left(self.bands, rank) :, word]
        np.bitwise_or(column, bit, column)
        self.ranks[place], self.orders[place], self.slots[place] = rank, order, slot
        self.where[slot] = place + 1
        self.alive[word] |= bit

    def place_of(self, slot: int) -> int:
        """Where a slot's box is, -1 if it is not here."""
        return int(self.where[slot]) - 1

    def clear(self, place: int) -> None:
        """Take the box at a place out of every answer."""
        self.alive[place >> 6] &= _NOT_BIT[place & 63]

    def is_alive(self, places: Ints) -> NDArray[np.bool_]:
        """Which of some places hold a box."""
        bits: Words = self.alive[places >> 6] >> (places & 63).astype(np.uint64)
        return (bits & np.uint64(1)).astype(np.bool_)

    def copy_from(self, source: Shelf, places: Ints, start: int) -> None:
        """Fill ranked places from `start` on with boxes of another shelf, dead ones as gaps."""
        end = start + len(places)
        words = slice(start >> 6, words_for(end))
        attributes = len(self.edges)
        alive = source.is_alive(places)
        slots = source.slots[places]
        bounds = source.bounds.take(places, axis=0)
        self.bounds[start:end] = bounds
        self.ranks[start:end] = source.ranks[places]
        self.orders[start:end] = source.orders[places]
        self.slots[start:end] = slots
        self.where[slots] = np.arange(start + 1, end + 1)
        self.alive[words] = _as_words(alive)
        for attribute, edges in enumerate(self.edges):
            lows, highs = bounds[:, attribute], -bounds[:, attributes + attribute]
            first = np.searchsorted(edges, lows, side="right").astype(np.uint8)
            last = np.searchsorted(edges, highs, side="right").astype(np.uint8)
            reaches = (first <= _BUCKET_NUMBERS) & (last >= _BUCKET_NUMBERS)
            self.bitmaps[attribute][:BUCKETS, words] = _as_words(reaches)
            self.bitmaps[attribute][ABSENT, words] = _as_words(lows == -math.inf)

    def best(self, point: Sequence[float | None], k: int) -> list[int]:
        """The slots of the k best boxes that contain a point, best first."""
        rows, lows, highs = [], [], []
        for bitmaps, edges, value in zip(self.rows, self.edges, point, strict=True):
            if value is None:
                rows.append(bitmaps[ABSENT])
                lows.append(-math.inf)
                highs.append(-math.inf)
            else:
                rows.append(bitmaps[bisect_right(edges, value)])
                lows.append(value)
                highs.append(-value)
        query = np.array(lows + highs)
        # The tray and as much of the ranked places as is likely to be enough, in one go.
        start, end = self.tray_words, min(self.words, self.tray_words + self.reach)
        matches = self._candidates(rows, 0, end)
        if end == self.words:
            filled: Ints = (matches != 0).nonzero()[0]
            if len(filled) <= FEW_WORDS:
                places = self._inside(_places(matches, filled, 0), query)
                return self._slots_of(places, k, len(places) > 0 and places[0] < self.start)
        tray, matches = matches[:start], matches[start:]
        ranked = self._first(matches, start, query, k)
        if len(ranked) >= k:
            self.reach += ((int(ranked[-1]) >> 6) - start - self.reach // 2) // 8
            self.reach = max(self.reach, SHORTEST_REACH)
        while len(ranked) < k and end < self.words:
            start, end = end, min(self.words, end + 4 * (end - self.tray_words))
            more = self._first(self._candidates(rows, start, end), start, query, k - len(ranked))
            ranked = np.concatenate((ranked, more))
            self.reach = end - self.tray_words
        if len(ranked) >= k:
            tray &= self.up_to_band[bisect_left(self.bands, self.ranks[ranked[-1]])]
        fresh = self._first(tray, 0, query, self.start)
        if len(fresh):
            return self._slots_of(np.concatenate((ranked, fresh)), k, True)
        return self._slots_of(ranked, k, False)

    def _slots_of(self, places: Ints, k: int, shuffled: bool) -> list[int]:
        """The slots at the k best places, which are in the order of rank unless some are on the tray."""
        if shuffled:
            places = places[np.lexsort((self.orders[places], self.ranks[places]))]
        slots: list[int] = self.slots[places[:k]].tolist()
        return slots

    def _inside(self, places: Ints, query: Floats) -> Ints:
        """Those of some places whose box contains the point."""
        # `take` and `reduce` by name: half the time of indexing and `all` for the few rows there are.
        inside: Ints = places[np.logical_and.reduce(self.bounds.take(places, axis=0) <= query, axis=1)]
        return inside

    def _candidates(self, rows: list[Words], start: int, end: int) -> Words:
        """The bitmap of possible matches between two words."""
        if not rows:
            return self.alive[start:end].copy()
        matches: Words = self.alive[start:end] & rows[0][start:end]
        for row in rows[1:]:
            np.bitwise_and(matches, row[start:end], matches)
        return matches

    def _first(self, matches: Words, start: int, query: Floats, k: int) -> Ints:
        """The first k places in a bitmap, which begins at the word `start`, whose box contains the point."""
        filled: Ints = (matches != 0).nonzero()[0]
        found: list[Ints] = []
        count, at, batch = 0, 0, FIRST_BATCH + k
        while at < len(filled) and count < k:
            found.append(self._inside(_places(matches, filled[at : at + batch], start), query))
            count += len(found[-1])
            at, batch = at + batch, batch * 4
        if not found:
            return filled
        places = found[0] if len(found) == 1 else np.concatenate(found)
        return places[:k]


def _places(matches: Words, filled: Ints, start: int) -> Ints:
    """The places of the bits set in some words of a bitmap that begins at the word `start`."""
    bits = np.unpackbits(matches[filled].view(np.uint8), bitorder="little").view(np.bool_).nonzero()[0]
    places: Ints = ((filled[bits >> 6] + start) << 6) + (bits & 63)
    return places


def _as_words(bits: NDArray[np.bool_]) -> Words:
    """Bits along the last axis packed into words, the last word filled up with zeros."""
    missing = -bits.shape[-1] % 64
    if missing:
        bits = np.concatenate((bits, np.zeros((*bits.shape[:-1], missing), np.bool_)), axis=-1)
    return np.packbits(bits, axis=-1, bitorder="little").view(np.uint64)
