"""`locus bench ranked`: the k narrowest matches against collecting every match and sorting.

Intervals lie on whole numbers, so that peers with half-open or integer intervals answer the same. Every contender
answers the same queries in turn, round by round, and its first answers are compared with Locus's.
"""

from __future__ import annotations

import gc
import math
import os
import platform
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeAlias

import numpy as np

from benchmarks.report import Report, Row, median, spread
from spatial_index import Interval, IntervalSkipList, RankedBoxes, RankedIntervals

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from numpy.typing import NDArray

Ints: TypeAlias = "NDArray[np.int64]"
Ask: TypeAlias = "Callable[[int], list[int]]"  # the answer to the query with a number

K = 10
SPAN = 1_000_000_000
ATTRIBUTES = ("age", "pay", "distance", "speed", "level")
SEED = 1


@dataclass(slots=True, frozen=True)
class Contender:
    """Something that answers queries: its name, how, and how many queries a round it is given."""

    name: str
    ask: Ask
    queries: int


def measure(quick: bool, progress: Callable[[str], None]) -> Report:
    report = Report("ranked")
    report.remarks.append(
        f"Top {K}, microseconds of CPU time a query (all contenders run in one thread; what else the machine does is "
        f"left out), medians of rounds in which all take turns; seed {SEED}; Python {platform.python_version()}, NumPy "
        f"{np.__version__}, {os.cpu_count()} cores. The longest call is given with the garbage collector's work left "
        "out and, in a row of its own, left in."
    )
    for world in INTERVAL_WORLDS:
        for n in (10_000, 100_000) if quick else (10_000, 100_000, 1_000_000):
            if quick and n > 10_000 and world != "mixed":
                continue
            progress(f"{n:,} intervals, {world}")
            report.rows += _intervals(world, n, quick)
    progress("adding and removing intervals")
    report.rows += _changing_intervals(100_000 if quick else 1_000_000)
    for world in BOX_WORLDS:
        for n in (100_000,) if quick else (100_000, 1_000_000):
            if world not in ({"mixed"} if n > 100_000 else {"mixed", "partial"} if quick else BOX_WORLDS):
                continue
            progress(f"{n:,} boxes of five attributes, {world}")
            report.rows += _boxes(world, n, quick)
    return report


# Intervals: name -> widths and lower ends.


def _widths(world: str, n: int, rng: np.random.Generator) -> tuple[Ints, Ints]:
    if world == "mixed":  # from exact to anything: each magnitude of width is as likely
        widths = 10 ** rng.uniform(2, 9, n)
    elif world == "wide":
        widths = rng.uniform(0, SPAN, n)
    else:  # narrow: about ten match a value whatever n is
        widths = rng.uniform(0, 20 * SPAN / n, n)
    whole = widths.astype(np.int64)
    return whole, (rng.random(n) * (SPAN - whole)).astype(np.int64)


INTERVAL_WORLDS = {
    "mixed": "widths log-uniform over seven decades",
    "wide": "widths uniform, half of all intervals match",
    "narrow": "widths uniform, about ten intervals match",
}


def _intervals(world: str, n: int, quick: bool) -> list[Row]:
    from intervaltree import IntervalTree
    from ncls import NCLS

    rng = np.random.default_rng(SEED)
    widths, lows = _widths(world, n, rng)
    highs = lows + widths
    values = [int(value) for value in rng.integers(0, SPAN, 2000)]
    index: RankedIntervals[int] = RankedIntervals()
    for identity, (low, high) in enumerate(zip(lows.tolist(), highs.tolist(), strict=True)):
        index.add(identity, Interval(low, high))
    numbers = np.arange(n)
    nested = NCLS(lows, highs + 1, numbers)
    # Beyond these, building intervaltree or the skip list takes minutes: a skip list's adds grow with the overlap.
    tree_limit = 1_000_000 if world == "mixed" and not quick else 100_000
    list_limit = 0 if quick or world == "wide" else 10_000

    def numpy_scan(query: int) -> list[int]:
        found = np.flatnonzero((lows <= values[query]) & (highs >= values[query]))
        return _cut(found, widths)

    def ncls(query: int) -> list[int]:
        at = np.array([values[query]])
        found = np.sort(nested.all_overlaps_both(at, at + 1, np.zeros(1, np.int64))[1])
        return _cut(found, widths)

    contenders = [
        Contender("NumPy mask and sort", numpy_scan, 20 if n < 1_000_000 else 5),
        Contender("NCLS (static), collect and sort", ncls, 20 if n < 1_000_000 else 5),
    ]
    if n <= tree_limit:
        tree = IntervalTree.from_tuples(zip(lows.tolist(), (highs + 1).tolist(), range(n), strict=True))

        def tree_collect(query: int) -> list[int]:
            found = sorted((match.end - match.begin, match.data) for match in tree.at(values[query]))
            return [identity for _, identity in found[:K]]

        contenders.append(Contender("intervaltree, collect and sort", tree_collect, 20 if n < 1_000_000 else 3))
    if n <= list_limit:
        skip_list = IntervalSkipList(
            (i, Interval(low, high)) for i, (low, high) in enumerate(zip(lows.tolist(), highs.tolist(), strict=True))
        )
        contenders += [
            Contender("IS-list, collect and sort", lambda query: skip_list.collect_and_sort(values[query], K), 50),
            Contender("IS-list, heap merge", lambda query: skip_list.top(values[query], K), 50),
        ]
    ours = Contender("locus", lambda query: index.top(values[query], K), 400)
    matches = median([len(index.containing(value)) for value in values[:9]])
    note = f"{INTERVAL_WORLDS[world]}; {matches:,.0f} match"
    return _rows(f"{n:,} intervals, {world}", ours, contenders, quick, 50 if n == 1_000_000 else None, note)


def _cut(found: Ints, ranks: NDArray[np.int64] | NDArray[np.float64]) -> list[int]:
    """The K best of the found ones, the older first where ranks are equal."""
    best: list[int] = found[np.argsort(ranks[found], kind="stable")[:K]].tolist()
    return best


def _rows(
    load: str, ours: Contender, peers: Sequence[Contender], quick: bool, target: float | None, note: str
) -> list[Row]:
    """All contenders in turn, after checking that they agree."""
    for peer in peers:
        for query in range(3):
            if peer.ask(query) != ours.ask(query):
                raise AssertionError(f"{load}: {peer.name} and Locus answer query {query} differently")
    times: dict[str, list[float]] = {contender.name: [] for contender in (ours, *peers)}
    for turn in range(3 if quick else 5):
        for contender in (ours, *peers):
            first = turn * 97
            gc.collect()
            start = time.thread_time()
            for query in range(first, first + contender.queries):
                contender.ask(query)
            times[contender.name].append((time.thread_time() - start) / contender.queries * 1e6)
    mine = times[ours.name]
    return [
        Row(load, "us", median(mine), peer.name, median(times[peer.name]), target, True, spread(mine), note)
        for peer in peers
    ]


def _changing_intervals(n: int) -> list[Row]:
    """Adds from none to n, then as many changes at n, with the longest single call."""
    from intervaltree import IntervalTree

    rng = np.random.default_rng(SEED)
    widths, lows = _widths("mixed", n, rng)
    held = [Interval(low, low + width) for low, width in zip(lows.tolist(), widths.tolist(), strict=True)]
    gc.collect()
    gc.freeze()
    index: RankedIntervals[int] = RankedIntervals()
    start = time.thread_time()
    for identity, interval in enumerate(held):
        index.add(identity, interval)
    adds = n / (time.thread_time() - start)
    few = min(n, 20_000)
    tree = IntervalTree()
    start = time.thread_time()
    for identity, interval in enumerate(held[:few]):
        tree.addi(interval.low, interval.high + 1, identity)
    tree_adds = few / (time.thread_time() - start)
    order = rng.permutation(n).tolist()[:100_000]
    start = time.thread_time()
    for identity in order:
        index.remove(identity)
        index.add(identity, held[identity])
    changes = len(order) / (time.thread_time() - start)
    rows = [
        Row(f"adding {n:,} intervals, mixed", "adds/s", adds, "asked for", 100_000.0, 1),
        Row(f"adding {n:,} intervals, mixed", "adds/s", adds, "intervaltree", tree_adds, note=f"its first {few:,}"),
        Row(f"remove and add at {n:,} intervals", "changes/s", changes),
    ]
    for collecting in (False, True):
        _collect_garbage(collecting)
        longest = _longest_call(n, held)
        _collect_garbage(True)
        note = "with garbage collection" if collecting else "without garbage collection"
        limit = None if collecting else 1
        load = f"longest call, 0 to {n:,} intervals and 100,000 changes"
        rows.append(Row(load, "ms", longest, "the limit", 5.0, limit, True, note=note))
    gc.unfreeze()
    return rows


def _collect_garbage(wanted: bool) -> None:
    (gc.enable if wanted else gc.disable)()


def _longest_call(n: int, held: list[Interval]) -> float:
    """The longest add, remove or query in milliseconds of CPU time, to which other processes add nothing."""
    clock, longest = time.thread_time, 0.0
    index: RankedIntervals[int] = RankedIntervals()
    for identity, interval in enumerate(held):
        start = clock()
        index.add(identity, interval)
        longest = max(longest, clock() - start)
    for identity in np.random.default_rng(SEED).permutation(n).tolist()[:100_000]:
        interval = held[identity]
        start = clock()
        index.remove(identity)
        removed = clock()
        index.add(identity, interval)
        added = clock()
        index.top(interval.low, K)
        longest = max(longest, removed - start, added - removed, clock() - added)
    return longest * 1e3


# Boxes: name -> widths of five attributes, as shares of their domains; above 1 the attribute is left out.


def _box_widths(world: str, n: int, rng: np.random.Generator) -> NDArray[np.float64]:
    shape = (n, len(ATTRIBUTES))
    if world == "mixed":
        return 10 ** rng.uniform(-3, 0, shape)
    if world == "uniform":
        return rng.random(shape)
    if world == "narrow":
        return rng.uniform(0.05, 0.3, shape)
    widths = 10 ** rng.uniform(-2, 0, shape)  # partial
    widths[rng.random(shape) < 0.5] = math.inf
    return widths


BOX_WORLDS = {
    "mixed": "widths log-uniform, 0.1 % to all of a domain",
    "uniform": "widths uniform",
    "narrow": "widths uniform, 5 to 30 % of a domain",
    "partial": "half of the attributes left out, the others 1 % to all of a domain",
}


def _boxes(world: str, n: int, quick: bool) -> list[Row]:
    rng = np.random.default_rng(SEED)
    widths = _box_widths(world, n, rng)
    lows = rng.random(widths.shape) * (1 - np.minimum(widths, 1))
    highs = lows + np.minimum(widths, 1)
    left_out = widths > 1
    lows[left_out], highs[left_out] = -math.inf, math.inf
    boxes = [
        {name: Interval(low, high) for name, low, high in zip(ATTRIBUTES, *ends, strict=True) if low > -math.inf}
        for ends in zip(lows.tolist(), highs.tolist(), strict=True)
    ]
    gc.collect()
    gc.freeze()
    index: RankedBoxes[int] = RankedBoxes(dict.fromkeys(ATTRIBUTES, (0.0, 1.0)))
    longest, start = 0.0, time.thread_time()
    for identity, box in enumerate(boxes):
        began = time.thread_time()
        index.add(identity, box)
        longest = max(longest, time.thread_time() - began)
    adds = n / (time.thread_time() - start)
    gc.unfreeze()
    ranks = np.array([index.rank_of(box) for box in boxes])
    points = rng.random((2000, len(ATTRIBUTES)))
    asked = [dict(zip(ATTRIBUTES, point, strict=True)) for point in points.tolist()]
    columns = [(lows[:, a].copy(), highs[:, a].copy()) for a in range(len(ATTRIBUTES))]

    def by_rows(query: int) -> list[int]:
        point = points[query]
        return _cut(np.flatnonzero(((lows <= point) & (highs >= point)).all(axis=1)), ranks)

    def by_columns(query: int) -> list[int]:
        mask = np.ones(n, np.bool_)
        for (low, high), value in zip(columns, points[query], strict=True):
            mask &= low <= value
            mask &= high >= value
        return _cut(np.flatnonzero(mask), ranks)

    peers = [
        Contender("NumPy mask and sort, (n, 5) arrays", by_rows, 20),
        Contender("NumPy mask and sort, column by column", by_columns, 20),
    ]
    ours = Contender("locus", lambda query: index.top(asked[query], K), 400)
    matches = median([len(index.containing(point)) for point in asked[:9]])
    note = f"{BOX_WORLDS[world]}; {matches:,.0f} match"
    load = f"{n:,} boxes, {world}"
    rows = _rows(load, ours, peers, quick, 20 if n == 100_000 else None, note)
    if n == 100_000:
        rows.append(Row(load, "queries/s", 1e6 / rows[0].locus, "asked for", 10_000.0, 1))
    rows.append(Row(f"adding {load}", "adds/s", adds, note=f"longest call {longest * 1e3:.1f} ms"))
    return rows
