"""Draw the cells of a Q+R index: `python -m benchmarks.draw_index docs/structures/qr-index.png`."""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np

from benchmarks.index_worlds import EAST, NORTH, SOUTH, WEST, city
from spatial_index import QRIndex

BOXES = 6000
MOVERS = 1500


def draw(out: Path) -> None:
    """A city world whose first boxes have moved: the R side's cells, the Q side's, and the boxes themselves."""
    import matplotlib as mpl

    mpl.use("Agg")
    from matplotlib import pyplot as plt
    from matplotlib.collections import PatchCollection
    from matplotlib.patches import Rectangle

    world = city(BOXES)
    index: QRIndex[int] = QRIndex()
    index.insert_many(range(BOXES), world.boxes)
    movers = np.arange(MOVERS)
    for _ in range(3):
        index.move_many(movers, world.boxes[movers] + world.steps(MOVERS))
    stats = index.stats()
    figure, axes = plt.subplots(1, 2, figsize=(11, 4.4), sharex=True, sharey=True)
    for axis, side, colour, held in ((axes[0], "R", "#1f77b4", stats.still), (axes[1], "Q", "#d62728", stats.moving)):
        cells = [block for block in index.blocks() if block.side == side]
        fullest = max(block.count for block in cells)
        patches = [
            Rectangle((b.box.west, b.box.south), b.box.east - b.box.west, b.box.north - b.box.south) for b in cells
        ]
        axis.add_collection(
            PatchCollection(
                patches,
                facecolors=[(*mpl.colors.to_rgb(colour), 0.04 + 0.3 * b.count / fullest) for b in cells],
                edgecolors=colour,
                linewidths=0.25,
            )
        )
        name = "stayed put" if side == "R" else "moved"
        axis.set_title(f"{side} side: {held:,} boxes that {name}, {len(cells):,} cells", fontsize=10)
        axis.set_xlim(WEST, EAST)
        axis.set_ylim(SOUTH, NORTH)
        axis.set_xlabel("longitude")
    axes[0].set_ylabel("latitude")
    figure.tight_layout()
    figure.savefig(out, dpi=90)


if __name__ == "__main__":
    draw(Path(sys.argv[1]))
