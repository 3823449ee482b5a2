"""Draws the region and the overlay tree for their pages: `python -m benchmarks.reproduction.structure_pictures`."""

from __future__ import annotations

from pathlib import Path

import matplotlib as mpl
import numpy as np

from benchmarks.reproduction.mobile_world import PLANE, MobileWorld, MobileWorldSettings
from benchmarks.reproduction.overlay_worlds import DOMAINS, paper_boxes
from benchmarks.reproduction.region_discovery import watched_regions
from spatial_index import Limits, OverlayTree, build_tree

mpl.use("Agg")
from matplotlib import pyplot as plt
from matplotlib.patches import Rectangle

PAGES = Path("docs/structures")


def region_tree(path: Path) -> None:
    """A quadtree over those who roam, with slow regions found from movement and split by capacity over it."""
    world = MobileWorld(MobileWorldSettings(), 5)
    regions = watched_regions(world)
    limits = Limits(capacity=20)
    tree = build_tree((world.places[:, 0], world.places[:, 1]), regions, PLANE, limits)
    event = (420.0, 300.0, 560.0, 420.0)
    responsible = {block.id for block in tree.owner_blocks(event)}
    figure, axes = plt.subplots(figsize=(6.0, 6.0), dpi=90)
    for block in sorted(tree, key=lambda block: block.slow):
        west, south, east, north = block.box
        colour = "#c0392b" if block.slow else "#2c3e50"
        fill = (
            ("#f5b7b1" if block.slow else "#fdebd0")
            if block.id in responsible
            else ("#fadbd8" if block.slow else "none")
        )
        axes.add_patch(
            Rectangle((west, south), east - west, north - south, facecolor=fill, edgecolor=colour, linewidth=0.8)
        )
    axes.plot(*world.places[~world.slow].T, ".", color="#2471a3", markersize=2.5)
    axes.plot(*world.places[world.slow].T, ".", color="#922b21", markersize=2.5)
    axes.add_patch(
        Rectangle(event[:2], event[2] - event[0], event[3] - event[1], fill=False, edgecolor="#d68910", linewidth=2)
    )
    axes.set(xlim=(0, 1000), ylim=(0, 1000), aspect="equal", xticks=[], yticks=[])
    slow = sum(block.slow for block in tree)
    axes.set_title(f"{len(tree) - slow} quadtree blocks, {slow} slow ones; an event and its blocks", fontsize=10)
    figure.tight_layout()
    figure.savefig(path, metadata={"Software": None})
    plt.close(figure)


def overlay_tree(path: Path) -> None:
    """The boxes of 60 peers and the bounding boxes around them, one colour a level."""
    boxes = paper_boxes(200, np.random.default_rng(8))
    tree = OverlayTree(DOMAINS)
    for number in range(60):
        low, high = boxes.lows[number].tolist(), boxes.highs[number].tolist()
        tree.join(str(number), {"A": (low[0], high[0]), "B": (low[1], high[1])})
    colours = ["#7f8c8d", "#2471a3", "#1e8449", "#c0392b", "#7d3c98"]
    figure, axes = plt.subplots(figsize=(6.0, 6.0), dpi=90)
    seen = set()
    for box in tree.boxes():
        label = (
            None if box.level in seen else ("a peer's box" if box.level == 0 else f"bounding box, level {box.level}")
        )
        seen.add(box.level)
        axes.add_patch(
            Rectangle(
                (box.lows[0], box.lows[1]),
                box.highs[0] - box.lows[0],
                box.highs[1] - box.lows[1],
                facecolor="#d5dbdb" if box.level == 0 else "none",
                edgecolor=colours[box.level],
                linewidth=0.6 + 0.5 * box.level,
                label=label,
            )
        )
        if box.level == 1:
            axes.text(box.lows[0] + 4, box.highs[1] - 16, box.parent, fontsize=6, color=colours[1])
    axes.set(xlim=(-20, 1020), ylim=(-20, 1020), aspect="equal", xlabel="A", ylabel="B")
    axes.set_title("60 peers; each level-1 box names the peer it elected", fontsize=10)
    axes.legend(fontsize=7, loc="lower right")
    figure.tight_layout()
    figure.savefig(path, metadata={"Software": None})
    plt.close(figure)


def main() -> None:
    """Write both pictures beside their pages."""
    PAGES.mkdir(parents=True, exist_ok=True)
    region_tree(PAGES / "region-tree.png")
    overlay_tree(PAGES / "overlay-tree.png")


if __name__ == "__main__":
    main()
