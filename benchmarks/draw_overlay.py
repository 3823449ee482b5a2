"""Draw summaries of subscriptions and the way of a message: `python -m benchmarks.draw_overlay docs/guides`."""

from __future__ import annotations

import sys
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING, Any

from broker_plugins.cluster.content_summary import Matcher, Summary
from broker_plugins.cluster.content_trees import ContentTrees

if TYPE_CHECKING:
    from broker_plugins.cluster.content_summary import Box

COLOURS = ("tab:blue", "tab:orange", "tab:green")
NODES = 120
SUBSCRIPTIONS = 40


def draw(out: Path) -> None:
    """Write `content-routing.png`: what three nodes announce, and one message among two dozen nodes."""
    from matplotlib.figure import Figure

    canvas = Figure(figsize=(11, 4.8), layout="constrained")
    left, right = canvas.subplots(1, 2)
    _draw_summaries(left)
    _draw_way(right)
    canvas.savefig(out / "content-routing.png", dpi=90)


def _boxes(random: Random, count: int) -> list[Box]:
    """Subscriptions of clients that gather around a few places."""
    places = [(random.uniform(5, 90), random.uniform(5, 90)) for _ in range(3)]
    boxes: list[Box] = []
    for _ in range(count):
        x, y = random.choice(places)
        low, bottom = random.gauss(x, 5), random.gauss(y, 5)
        boxes.append(
            (("age", low, low + random.choice([2.0, 6.0])), ("pay", bottom, bottom + random.choice([2.0, 6.0])))
        )
    return boxes


def _summary(boxes: list[Box], most: int) -> Summary:
    summary = Summary(most)
    for box in boxes:
        summary.add(box)
    summary.tighten()
    return summary


def _draw_summaries(axes: Any) -> None:
    random = Random(4)
    for colour in COLOURS:
        boxes = _boxes(random, SUBSCRIPTIONS)
        for (_, low, high), (_, bottom, top) in boxes:
            axes.fill([low, high, high, low], [bottom, bottom, top, top], color=colour, alpha=0.18, lw=0)
        for (_, low, high), (_, bottom, top) in _summary(boxes, 8).covers:
            axes.plot([low, high, high, low, low], [bottom, bottom, top, top, bottom], color=colour, lw=1.5)
    axes.set_title(f"What three nodes announce: 8 boxes for {SUBSCRIPTIONS} subscriptions each")
    axes.set_xlabel("age")
    axes.set_ylabel("pay")


def _draw_way(axes: Any) -> None:
    random = Random(4)
    announced = {f"n{number}": _summary(_boxes(random, SUBSCRIPTIONS), 32).covers for number in range(1, NODES)}
    trees = ContentTrees("n0", 8.0)

    def wanting(content: dict[str, float]) -> set[str]:
        return {node for node, boxes in announced.items() if Matcher(boxes).wants(content)}

    contents = [{"age": random.uniform(0, 100), "pay": random.uniform(0, 100)} for _ in range(400)]
    for content in contents:
        trees.plan({"jobs/#": announced}, 1, content, wanting(content))
    content = max(contents, key=lambda each: len(wanting(each)))
    hops = trees.plan({"jobs/#": announced}, 1, content, wanting(content))
    children: dict[str, list[str]] = {}
    for sender, receiver in hops:
        children.setdefault(sender, []).append(receiver)
    places: dict[str, tuple[float, int]] = {}
    free = 0.0

    def lay(node: str, depth: int) -> float:
        nonlocal free
        below = [lay(child, depth + 1) for child in children.get(node, ())]
        if not below:
            free += 1.0
        x = sum(below) / len(below) if below else free
        places[node] = (x, depth)
        return x

    lay("n0", 0)
    for sender, receiver in hops:
        axes.plot(*zip(places[sender], places[receiver], strict=True), color="0.6", lw=1)
    for node, (x, depth) in places.items():
        colour = "tab:red" if node == "n0" else "tab:blue"
        axes.text(x, depth, node, ha="center", va="center", color="white", bbox={"boxstyle": "round", "fc": colour})
    axes.invert_yaxis()
    axes.set_axis_off()
    axes.set_title(f"One message on n0 that {len(places) - 1} of {NODES - 1} other nodes want")


if __name__ == "__main__":
    draw(Path(sys.argv[1]))
