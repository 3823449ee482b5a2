"""Draw how ranked matching finds its candidates: `python -m benchmarks.draw_ranked docs/structures`."""

from __future__ import annotations

import math
import sys
from bisect import bisect_right
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING, Any

import numpy as np

from spatial_index import Interval, RankedBoxes, RankedIntervals
from spatial_index.shelf_renewal import Renewal

if TYPE_CHECKING:
    from numpy.typing import NDArray

VALUE = 9.3
POINT = {"age": 0.42, "pay": 0.55, "level": 0.3}


def draw(out: Path) -> None:
    """Write `ranked-matching.png`: the anchors of two width classes, and the bitmaps of one point."""
    from matplotlib.figure import Figure

    canvas = Figure(figsize=(11, 4.6), layout="constrained")
    left, right = canvas.subplots(1, 2, width_ratios=(1, 1.15))
    _draw_anchors(left)
    _draw_bitmaps(right)
    canvas.savefig(out / "ranked-matching.png", dpi=90)


def _draw_anchors(axes: Any) -> None:
    random = Random(7)
    held: list[Interval] = []
    for step, count in ((1.0, 9), (4.0, 7)):
        for _ in range(count):
            width = random.uniform(step, 2 * step)
            low = random.uniform(3, 17 - width)
            held.append(Interval(low, low + width))
    found = RankedIntervals(enumerate(held)).containing(VALUE)
    row = 0.0
    for step in (1.0, 4.0):
        members = [number for number, interval in enumerate(held) if step <= interval.width < 2 * step]
        top = row + len(members) + 0.5
        near = math.ceil(VALUE / step)
        for anchor in range(math.ceil(3 / step), math.floor(17 / step) + 1):
            asked = near - 2 <= anchor <= near
            axes.plot([anchor * step] * 2, [row, top], color="tab:orange" if asked else "0.85", lw=1.5 if asked else 1)
        for number in sorted(members, key=lambda number: held[number].width):
            row += 1
            interval = held[number]
            hit = number in found
            axes.plot([interval.low, interval.high], [row, row], color="tab:blue" if hit else "0.6", lw=3)
            axes.plot(math.ceil(interval.low / step) * step, row, "o", color="black", ms=4)
            if hit:
                axes.text(interval.high + 0.15, row - 0.25, str(found.index(number) + 1), color="tab:blue", fontsize=9)
        row = top + 1
    axes.axvline(VALUE, color="tab:red", lw=1)
    axes.set_yticks([5, 15], ["1 to 2\nwide", "4 to 8\nwide"])
    axes.set_title(
        "RankedIntervals: two width classes, anchors (dots),\nthe three asked for 9.3 (orange), matches by rank"
    )


def _draw_bitmaps(axes: Any) -> None:
    random = Random(3)
    index: RankedBoxes[int] = RankedBoxes(dict.fromkeys(POINT, (0.0, 1.0)))
    for number in range(128):
        widths = {name: random.choice([0.1, 0.2, 0.4, 0.7]) for name in POINT if random.random() < 0.85}
        lows = {name: random.uniform(0, 1 - width) for name, width in widths.items()}
        index.add(number, {name: Interval(low, low + widths[name]) for name, low in lows.items()})
    renewal = Renewal(index._shelf, len(index))  # noqa: SLF001 - the picture shows what is inside
    while not renewal.step():
        pass
    shelf = renewal.new
    rows = [
        _bits(bitmaps[bisect_right(edges, value)][shelf.tray_words :])
        for bitmaps, edges, value in zip(shelf.rows, shelf.edges, POINT.values(), strict=True)
    ]
    both = np.logical_and.reduce(rows)
    hits = [place - shelf.start for place in map(shelf.place_of, shelf.best(list(POINT.values()), 128))]
    picture = np.array([*rows, np.zeros_like(both), both])
    axes.imshow(picture, aspect="auto", cmap="Greys", vmax=1.6, interpolation="nearest")
    axes.plot(hits, [4] * len(hits), "v", color="tab:blue", ms=6)
    axes.set_yticks([0, 1, 2, 4], [*(f"{name} at {value}" for name, value in POINT.items()), "AND"])
    axes.set_xlabel("128 boxes in the order of rank, the most accurate on the left")
    axes.set_title("RankedBoxes: one bitmap an attribute, their AND,\nand the boxes that match exactly (blue)")


def _bits(words: NDArray[np.uint64]) -> NDArray[np.uint8]:
    return np.unpackbits(np.ascontiguousarray(words).view(np.uint8), bitorder="little")


if __name__ == "__main__":
    draw(Path(sys.argv[1]))
