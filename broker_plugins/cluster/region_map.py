"""The map in a terminal: blocks with the letters of their owners, and the busiest of them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from broker_plugins.cluster.mail_reader import FAULTS
from broker_plugins.cluster.region_wire import AskBlocks, Chart, ChartedBlock
from broker_plugins.cluster.visiting import visit
from broker_plugins.cluster.wire import WireError, decode, encode

if TYPE_CHECKING:
    from collections.abc import Sequence

    from broker_plugins.cluster.options import ClusterOptions

WIDTH, HEIGHT = 72, 20
BUSIEST = 8
BAR = 20
ANSWER_S = 2.0
LETTERS = "abcdefghijklmnopqrstuvwxyz"
Sides = tuple[float, float, float, float]


async def read_chart(options: ClusterOptions, nodes: Sequence[str]) -> Chart | None:
    """The map as the first of some nodes that answers knows it, for somebody who is no node.

    Raises:
        EngineError: there is no fabric, or it does not let us in.
    """
    client = await visit(options)
    try:
        for node in nodes:
            try:
                answer = await client.request(
                    f"locus.{options.cluster}.ask.{node}", encode(AskBlocks()), timeout=ANSWER_S
                )
                return decode(bytes(answer.data), Chart)
            except (*FAULTS, WireError):
                continue  # the next one may
        return None
    finally:
        await client.close()


def draw(chart: Chart, nodes: Sequence[str], width: int = WIDTH, height: int = HEIGHT) -> str:
    """The busy part of the map, each block filled with its owner's letter: a capital one where it is half full."""
    if not chart.blocks:
        return "there is no map yet"
    letters = {node: LETTERS[number % len(LETTERS)] for number, node in enumerate(nodes)}
    frame = _busy_part(chart)
    blocks = sorted(chart.blocks, key=lambda block: block.id.startswith("r"), reverse=True)  # R blocks lie on top
    cells = [[_at(blocks, frame, column, row, width, height) for column in range(width)] for row in range(height)]
    lines = []
    for row, line in enumerate(cells):
        above, below = cells[max(row - 1, 0)], cells[min(row + 1, height - 1)]
        text = ""
        for column, block in enumerate(line):
            # A block has a border where there is room for a letter, too.
            beside = line[max(column - 1, 0)] is not block and line[min(column + 1, width - 1)] is block
            over = above[column] is not block and below[column] is block
            text += "┼" if beside and over else "│" if beside else "─" if over else _letter(chart, letters, block)
        lines.append(text)
    west, south, east, north = frame
    sides = f"west {west:g} south {south:g} east {east:g} north {north:g}"
    owned = {node: sum(block.owner == node for block in chart.blocks) for node in nodes}
    return "\n".join(
        [
            f"map version {chart.version}, {len(chart.blocks)} blocks; {sides}",
            *lines,
            "  ".join(f"{letters[node]} {node}: {owned[node]}" for node in nodes),
            *_busiest(chart),
        ]
    )


def _letter(chart: Chart, letters: dict[str, str], block: ChartedBlock) -> str:
    letter = letters.get(block.owner, "?")
    return letter.upper() if block.load * 2 >= chart.capacity else letter


def _busy_part(chart: Chart) -> Sides:
    """The smallest quarter of a quarter of the map that has all busy blocks in it."""
    busy = [block.box for block in chart.blocks if block.load > 0]
    west, south, east, north = chart.bounds
    while busy:
        x, y = (west + east) / 2, (south + north) / 2
        quarters = [(west, south, x, y), (x, south, east, y), (west, y, x, north), (x, y, east, north)]
        around = [quarter for quarter in quarters if all(_contains(quarter, box) for box in busy)]
        if not around:
            break
        west, south, east, north = around[0]
        if around[0] in busy:
            break
    return west, south, east, north


def _contains(outer: Sides, inner: Sides) -> bool:
    return outer[0] <= inner[0] and outer[1] <= inner[1] and inner[2] <= outer[2] and inner[3] <= outer[3]


def _at(blocks: list[ChartedBlock], frame: Sides, column: int, row: int, width: int, height: int) -> ChartedBlock:
    """The block in the middle of a cell; north is up."""
    west, south, east, north = frame
    x = west + (east - west) * (column + 0.5) / width
    y = north - (north - south) * (row + 0.5) / height
    return next(
        (block for block in blocks if block.box[0] <= x < block.box[2] and block.box[1] <= y < block.box[3]), blocks[-1]
    )


def _busiest(chart: Chart) -> list[str]:
    busy = sorted((block for block in chart.blocks if block.load > 0), key=lambda block: (-block.load, block.id))
    if not busy:
        return []
    rows = [("BLOCK", "OWNER", "LOAD/S", "")]
    rows += [
        (block.id, block.owner, f"{block.load:.1f}", "█" * min(BAR, round(BAR * block.load / chart.capacity)) or "·")
        for block in busy[:BUSIEST]
    ]
    widths = [max(len(row[column]) for row in rows) for column in range(3)]
    lines = ["  ".join([*(row[at].ljust(widths[at]) for at in range(3)), row[3]]).rstrip() for row in rows]
    return ["", *lines]
