"""`RankedBoxes`' search as one loop over the bitmaps, for numba to compile where it is installed (the extra `speed`).

NumPy reads every bitmap once for each AND and pays for a dozen calls a query; the loop stops at the k-th match. Without
numba, `box_shelf` does the same with NumPy. The loop is ordinary Python too, which is how the tests run it everywhere.
"""

from __future__ import annotations

from functools import cache
from importlib.util import find_spec
from typing import TYPE_CHECKING, TypeAlias

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Callable

    from numpy.typing import NDArray

Floats: TypeAlias = "NDArray[np.float64]"
Ints: TypeAlias = "NDArray[np.int64]"
Words: TypeAlias = "NDArray[np.uint64]"
Kernel: TypeAlias = "Callable[[Words, Words, Floats, Floats, Floats, Floats, Ints, int, int, Ints], int]"

BLOCK = 32  # words that are ANDed before they are looked at: short enough for registers, long enough for SIMD


def best_places(
    alive: Words,
    bitmaps: Words,
    edges: Floats,
    bounds: Floats,
    point: Floats,
    ranks: Floats,
    orders: Ints,
    tray_words: int,
    filled_words: int,
    found: Ints,
) -> int:
    """Fill `found` with the best places whose box contains a point, best first, and say how many there are.

    Args:
        alive: the bitmap of places that hold a box.
        bitmaps: for each attribute the bitmap of each bucket, and last that of boxes which do not mention it.
        edges: for each attribute the values that separate its buckets, filled up with inf.
        bounds: for each place the lower bounds, then the upper bounds negated.
        point: a value for each attribute, -inf for one that is missing.
        ranks: the rank of the box at each place.
        orders: its order of adding.
        tray_words: where the ranked places begin.
        filled_words: how many words of the tray are in use.
        found: as long as there are places wanted.
    """
    attributes, wanted, count = len(point), len(found), 0
    one = np.uint64(1)
    buckets = np.empty(attributes, np.int64)
    for attribute in range(attributes):
        value = point[attribute]
        if value == -np.inf:
            buckets[attribute] = bitmaps.shape[1] - 1
        else:
            buckets[attribute] = np.searchsorted(edges[attribute], value, side="right")
    matches = np.empty(BLOCK, np.uint64)
    # First the ranked places, which come best first, then the tray, whose matches are sorted in among them.
    for ranked in (True, False):
        start, stop = (tray_words, len(alive)) if ranked else (0, filled_words)
        for block in range(start, stop, BLOCK):
            if ranked and count == wanted:
                break
            length = min(BLOCK, stop - block)
            for i in range(length):
                matches[i] = alive[block + i]
            for attribute in range(attributes):
                row = bitmaps[attribute, buckets[attribute]]
                for i in range(length):
                    matches[i] &= row[block + i]
            for i in range(length):
                word = matches[i]
                place = (block + i) * 64 - 1
                while word:
                    # To the next set bit, by halves.
                    place += 1
                    for half in (32, 16, 8, 4, 2, 1):
                        if word & ((one << np.uint64(half)) - one) == 0:
                            word >>= np.uint64(half)
                            place += half
                    word >>= one
                    if count == wanted:
                        worst = found[count - 1]
                        if ranks[place] > ranks[worst] or (
                            ranks[place] == ranks[worst] and orders[place] > orders[worst]
                        ):
                            continue
                    inside = True
                    for attribute in range(attributes):
                        # A missing value fails the lower bound of a box that mentions the attribute: it is finite.
                        value = point[attribute]
                        if bounds[place, attribute] > value or bounds[place, attributes + attribute] > -value:
                            inside = False
                            break
                    if not inside:
                        continue
                    if ranked:
                        if count < wanted:
                            found[count] = place
                            count += 1
                        continue
                    at = count
                    while at > 0 and (
                        ranks[place] < ranks[found[at - 1]]
                        or (ranks[place] == ranks[found[at - 1]] and orders[place] < orders[found[at - 1]])
                    ):
                        at -= 1
                    count = min(count + 1, wanted)
                    for moved in range(count - 1, at, -1):
                        found[moved] = found[moved - 1]
                    found[at] = place
    return count


@cache
def compiled() -> Kernel | None:
    """The loop as machine code, None where numba is not installed; numba keeps it on disk for the next time."""
    if find_spec("numba") is None:
        return None
    import numba

    words, table, floats, ints = numba.uint64[::1], numba.float64[:, ::1], numba.float64[::1], numba.int64[::1]
    bitmaps = numba.uint64[:, :, ::1]
    signature = numba.int64(words, bitmaps, table, table, floats, floats, ints, numba.int64, numba.int64, ints)
    kernel: Kernel = numba.njit(signature, cache=True)(best_places)
    return kernel
