"""`locus bench index`: the Q+R index against rtree, STRtree, a tuned grid, pyqtree and a NumPy scan, on the same data.

Every round gives each structure its turn with questions and steps drawn alike. Times are processor time of this
process, which another process on the machine does not stretch by taking turns with it.
"""

from __future__ import annotations

import gc
import os
import platform
import time
import tracemalloc
from typing import TYPE_CHECKING

import numpy as np

from benchmarks.index_peers import Locus, PyQtree, RTree, Scan, STRTree, Structure, UniformGrid
from benchmarks.index_worlds import World, city, uniform
from benchmarks.report import Report, Row, median, spread
from spatial_index import QRIndex

if TYPE_CHECKING:
    from collections.abc import Callable

    from numpy.typing import NDArray

    Progress = Callable[[str], None]

MILLION = 1_000_000
SIZES = (10_000, 100_000, MILLION)
QUICK_SIZES = (10_000, 50_000)
PYQTREE_LIMIT = 100_000
"""Beyond it pyqtree takes minutes and gigabytes to fill."""

OPERATIONS = {"locus": 2000, "tuned grid": 1000, "STRtree": 1000, "pyqtree": 200, "rtree": 200, "NumPy scan": 20}
"""Operations of each structure in a round: fewer where one takes long."""


def measure(quick: bool, progress: Progress) -> Report:
    """Run every load."""
    report = Report("index")
    rounds = 3 if quick else 7
    for make in (uniform, city):
        for count in QUICK_SIZES if quick else SIZES:
            _world_rows(report, make(count), rounds, progress)
    sizes = (5_000, 50_000) if quick else (100_000, MILLION)
    for name, small, large in (
        ("uniform, same size", uniform(sizes[0]), uniform(sizes[1])),
        ("city", city(sizes[0]), city(sizes[1], shrink=float(np.sqrt(sizes[1] / sizes[0])))),
    ):
        progress(f"{name}: growth")
        report.rows.append(_growth_row(name, small, large, rounds))
    for world in (uniform(sizes[1]), city(sizes[1])):
        for moving in (False, True):
            progress(f"{world.name}: memory")
            report.rows.append(_memory_row(world, moving))
    report.remarks.append(
        f"{os.cpu_count()} cores ({platform.machine()}), Python {platform.python_version()}, NumPy {np.__version__}; "
        f"medians of {rounds} rounds in which every structure takes its turn; garbage collection "
        "held off for all; processor time. "
        "A ratio compares what one operation takes; a pair is one move and one query."
    )
    return report


def _world_rows(report: Report, world: World, rounds: int, progress: Progress) -> None:
    count = len(world.boxes)
    label = f"{world.name}, n={count:,}"
    progress(f"{label}: filling")
    started = time.process_time()
    locus = Locus(world.boxes)
    filled = time.process_time() - started
    target = 1.0 if count == MILLION else None
    report.rows.append(
        Row(f"{label}: bulk load", "s", filled, "limit", 10.0, target, less_is_better=True, note="the peer is a limit")
    )
    grid, tuned = _tuned_grid(world, progress)
    peers: list[Structure] = [RTree(world.boxes), grid, Scan(world.boxes)]
    if count <= PYQTREE_LIMIT:
        peers.append(PyQtree(world.boxes))
    static = STRTree(world.boxes)
    answer = _check_answers(world, [locus, *peers, static])
    note = f"{answer:.0f} ids an answer; grid of {tuned:.3g} degrees"
    gc.collect()
    gc.freeze()
    gc.disable()
    progress(f"{label}: queries alone")
    times = _rounds(world, [locus, *peers, static], rounds, _asking)
    targets = {"rtree": 3.0} if count == MILLION else {}
    _compare(report, f"{label}: queries alone", times, targets, note)
    report.rows.append(_batch_row(label, world, locus, rounds, 3.0 if count == MILLION else None))
    for share, words in ((0.1, "10 % moving"), (1.0, "all moving")):
        progress(f"{label}: one query per move, {words}")
        movers = np.arange(count)[: max(1, int(count * share))]
        _warm(world, locus, movers)
        stats = locus.index.stats()
        times = _rounds(world, [locus, *peers], rounds, _pairs_of(movers))
        targets = {}
        if count == MILLION and share == 1.0:
            targets = {"rtree": 20.0, "tuned grid": 2.0} if world.name.startswith("city") else {"tuned grid": 0.7}
        held = f"{stats.moving:,} on Q, {stats.still:,} on R"
        _compare(report, f"{label}: one query per move, {words}", times, targets, held)
    gc.enable()
    gc.unfreeze()


def _tuned_grid(world: World, progress: Progress) -> tuple[UniformGrid, float]:
    """The width of cell that is best at one query per move, found by trying them on all of the data."""
    tried = []
    for width in world.cell_widths:
        progress(f"{world.name}, n={len(world.boxes):,}: trying a grid of {width:.3g} degrees")
        grid = UniformGrid(world.boxes, width)
        gc.collect()
        gc.freeze()
        tried.append((min(_pairs_of(np.arange(len(world.boxes)))(world, grid, 400) for _ in range(3)), width))
        gc.unfreeze()
        del grid
    # The trials moved boxes by some metres: start again from where the others are.
    width = min(tried)[1]
    return UniformGrid(world.boxes, width), width


def _check_answers(world: World, structures: list[Structure]) -> float:
    """All structures must agree before any of them is measured; the mean size of an answer."""
    sizes = []
    for x, y in world.places(60).tolist():
        first, *others = (sorted(structure.at(x, y)) for structure in structures)
        if any(other != first for other in others):
            raise AssertionError(f"structures disagree at {x}, {y} in {world.name}")
        sizes.append(len(first))
    return float(np.mean(sizes))


def _asking(world: World, structure: Structure, count: int) -> float:
    places = world.places(count).tolist()
    at = structure.at
    started = time.process_time()
    for x, y in places:
        at(x, y)
    return (time.process_time() - started) / count


def _pairs_of(movers: NDArray[np.int64]) -> Callable[[World, Structure, int], float]:
    def pairs(world: World, structure: Structure, count: int) -> float:
        places = world.places(count).tolist()
        keys = world.choose(movers, count)
        boxes = [tuple(row) for row in (world.boxes[keys] + world.steps(count)).tolist()]
        at, move = structure.at, structure.move
        started = time.process_time()
        for key, box, (x, y) in zip(keys, boxes, places, strict=True):
            move(key, box)
            at(x, y)
        return (time.process_time() - started) / count

    return pairs


def _rounds(
    world: World, structures: list[Structure], rounds: int, load: Callable[[World, Structure, int], float]
) -> dict[str, list[float]]:
    """Seconds an operation, for each structure, round by round; the first round only warms up."""
    times: dict[str, list[float]] = {structure.name: [] for structure in structures}
    for turn in range(rounds + 1):
        for structure in structures:
            took = load(world, structure, OPERATIONS[structure.name])
            if turn:
                times[structure.name].append(took)
    return times


def _compare(report: Report, load: str, times: dict[str, list[float]], targets: dict[str, float], note: str) -> None:
    ours = times["locus"]
    for peer, theirs in times.items():
        if peer != "locus":
            rates = 1 / median(ours), 1 / median(theirs)
            report.rows.append(
                Row(load, "op/s", rates[0], peer, rates[1], targets.get(peer), spread=spread(ours), note=note)
            )


def _warm(world: World, locus: Locus, movers: NDArray[np.int64]) -> None:
    """Let the index see who moves, as it would in use: two rounds of steps."""
    for _ in range(2):
        locus.index.move_many(movers, world.boxes[movers] + world.steps(len(movers)))


def _batch_row(label: str, world: World, locus: Locus, rounds: int, target: float | None) -> Row:
    batch, single = [], []
    for _ in range(rounds + 1):
        single.append(_asking(world, locus, 2000))
        places = world.places(20_000)
        started = time.process_time()
        locus.index.at_many(places[:, 0], places[:, 1])
        batch.append((time.process_time() - started) / len(places))
    rate, alone = 1 / median(batch[1:]), 1 / median(single[1:])
    return Row(
        f"{label}: batch of 20,000 queries", "op/s", rate, "locus, single", alone, target, spread=spread(batch[1:])
    )


def _growth_row(name: str, small: World, large: World, rounds: int) -> Row:
    """What a query costs more when there are ten times the boxes and answers are as large."""
    few, many = Locus(small.boxes), Locus(large.boxes)
    sizes = [np.mean([len(locus.at(x, y)) for x, y in w.places(500)]) for w, locus in ((small, few), (large, many))]
    gc.collect()
    gc.freeze()
    pairs = [(_asking(small, few, 4000), _asking(large, many, 4000)) for _ in range(rounds + 1)][1:]
    gc.unfreeze()
    before, after = (median([pair[side] for pair in pairs]) * 1e6 for side in (0, 1))
    counts = f"n={len(small.boxes):,} to {len(large.boxes):,}"
    target = 1 / 1.5 if len(large.boxes) == MILLION else None
    return Row(
        f"{name}: a query, {counts}",
        "us",
        after,
        f"n={len(small.boxes):,}",
        before,
        target,
        less_is_better=True,
        note=f"{after / before:.2f} times; answers of {sizes[0]:.1f} and {sizes[1]:.1f} ids",
    )


def _memory_row(world: World, moving: bool) -> Row:
    count = len(world.boxes)
    keys = list(range(count))
    gc.collect()
    tracemalloc.start()
    index: QRIndex[int] = QRIndex()
    index.insert_many(keys, world.boxes, moving=moving)
    gc.collect()
    held = tracemalloc.get_traced_memory()[0] / count
    tracemalloc.stop()
    side = "Q" if moving else "R"
    target = 1.0 if count == MILLION else None
    return Row(
        f"{world.name}, n={count:,}: memory a box, all on {side}",
        "bytes",
        held,
        "limit",
        300.0,
        target,
        less_is_better=True,
        note="the peer is a limit; all that the index allocated, without the caller's ids",
    )
