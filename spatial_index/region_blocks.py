"""The blocks of a region tree: their names, their half-open borders, and the arithmetic of cutting them.

A quadtree block is named by its way down: `q` is everything, `q2` its north-west quarter, `q21` that one's south-east.
An R block is `r7` for the whole of slow region 7, `r7.0` and `r7.1` for its two halves, and so on. So a block keeps its
name for as long as it exists, and whoever knows a name knows its parent.

A block holds its west and south border and not its east and north one, except where the space ends, so that every place
is in exactly one quadtree block and in at most one R block.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np

from spatial_index.errors import BadCount
from spatial_index.spaces import EARTH_RADIUS_M, Box, Sphere

if TYPE_CHECKING:
    from collections.abc import Iterable

    from spatial_index.spaces import Floats, Space


@dataclass(frozen=True, slots=True)
class Block:
    """A leaf block of the tree.

    Attributes:
        id: its name, stable for as long as the block exists.
        box: what it covers; an R block has precedence over the quadtree blocks under it.
        owner: the node that serves it, empty when nobody does.
        load: what it last weighed, in the unit of `Limits.capacity`.
    """

    id: str
    box: Box
    owner: str = ""
    load: float = 0.0

    @property
    def slow(self) -> bool:
        """Whether this is an R block, a slow region or a part of one."""
        return self.id.startswith("r")


@dataclass(frozen=True, slots=True)
class Limits:
    """When blocks split and merge.

    Attributes:
        capacity: a block that weighs more is split.
        merge_share: siblings that together weigh less than this share of the capacity are merged; below 1, so that
            a load that wavers around one mark does not make the tree waver.
        border: how far beyond its block's border a client may go before it is handed over: metres on the Earth, units
            of the plane on a plane.
        max_depth: how often the space may be quartered, and a slow region halved.
    """

    capacity: float = 1000.0
    merge_share: float = 0.5
    border: float = 0.0
    max_depth: int = 20

    def __post_init__(self) -> None:
        if not 0 < self.capacity < math.inf:
            raise BadCount(f"capacity is {self.capacity!r}: it has to be a positive number")
        if not 0 <= self.merge_share < 1:
            raise BadCount(f"merge_share is {self.merge_share!r}: it has to be from 0 to below 1, or blocks would flap")
        if not 0 <= self.border < math.inf:
            raise BadCount(f"border is {self.border!r}: it has to be 0 or a positive distance")
        if not 0 <= self.max_depth <= 40:
            raise BadCount(f"max_depth is {self.max_depth!r}: it has to be from 0 to 40")


def parent_of(block_id: str) -> str | None:
    """The name of the block that this one is a part of; None for `q` and for a whole region."""
    if block_id.startswith("q"):
        return block_id[:-1] or None
    return block_id[:-1].removesuffix(".") if "." in block_id else None


def children_of(block_id: str) -> list[str]:
    """The names of the four quarters of a quadtree block, or of the two halves of an R block."""
    if block_id.startswith("q"):
        return [block_id + digit for digit in "0123"]
    stem = block_id if "." in block_id else block_id + "."
    return [stem + "0", stem + "1"]


def region_of(block_id: str) -> str:
    """The whole region that an R block is a part of."""
    return block_id.partition(".")[0]


def depth_of(block_id: str) -> int:
    """How many cuts made this block."""
    return len(block_id) - 1 if block_id.startswith("q") else len(block_id.partition(".")[2])


def quarters(box: Box) -> list[Box]:
    """South-west, south-east, north-west and north-east quarter, in the order of `children_of`."""
    x, y = (box.west + box.east) / 2, (box.south + box.north) / 2
    return [
        Box(box.west, box.south, x, y),
        Box(x, box.south, box.east, y),
        Box(box.west, y, x, box.north),
        Box(x, y, box.east, box.north),
    ]


def halves(space: Space, box: Box, xs: Floats, ys: Floats, share: float = 0.5) -> list[Box]:
    """Cut the longer side so that a share of the places is before the cut, or in the middle if there are no places."""
    stretch = math.cos(math.radians((box.south + box.north) / 2)) if isinstance(space, Sphere) else 1.0
    if (box.east - box.west) * stretch >= box.north - box.south:
        cut = float(np.quantile(xs, share)) if len(xs) else box.west
        cut = cut if box.west < cut < box.east else (box.west + box.east) / 2
        return [box._replace(east=cut), box._replace(west=cut)]
    cut = float(np.quantile(ys, share)) if len(ys) else box.south
    cut = cut if box.south < cut < box.north else (box.south + box.north) / 2
    return [box._replace(north=cut), box._replace(south=cut)]


def can_be_cut(block: Block, limits: Limits) -> bool:
    """Whether a block may be split further: not too often, and not finer than numbers are."""
    x, y = (block.box.west + block.box.east) / 2, (block.box.south + block.box.north) / 2
    wide = block.box.west < x < block.box.east and block.box.south < y < block.box.north
    return wide and depth_of(block.id) < limits.max_depth


def split(space: Space, block: Block, limits: Limits, xs: Floats, ys: Floats) -> list[tuple[Block, Floats, Floats]]:
    """The parts of a block with the sampled places in each; the load follows the places, or is shared equally.

    A slow region is cut so that in the end there are no more parts than it takes: one that needs five parts is cut two
    to three, where halves of halves would come to eight.
    """
    if block.slow:
        needed = max(2, math.ceil(block.load / limits.capacity))
        boxes = halves(space, block.box, xs, ys, (needed // 2) / needed)
    else:
        boxes = quarters(block.box)
    parts = []
    for name, box in zip(children_of(block.id), boxes, strict=True):
        inside = holds_many(space, box, xs, ys)
        share = inside.sum() / len(xs) if len(xs) else 1 / len(boxes)
        part = replace(block, id=name, box=box, load=block.load * float(share))
        parts.append((part, xs[inside], ys[inside]))
    return parts


def holds(space: Space, box: Box, x: float, y: float) -> bool:
    """Whether a block's box holds a place: without its east and north border, unless the space ends there."""
    bounds = space.bounds
    return (
        box.west <= x
        and (x < box.east or x == box.east == bounds.east)
        and box.south <= y
        and (y < box.north or y == box.north == bounds.north)
    )


def holds_many(space: Space, box: Box, xs: Floats, ys: Floats) -> np.ndarray[tuple[int], np.dtype[np.bool_]]:
    """`holds` for many places."""
    bounds = space.bounds
    across = (box.west <= xs) & ((xs < box.east) | ((xs == box.east) & (box.east == bounds.east)))
    along = (box.south <= ys) & ((ys < box.north) | ((ys == box.north) & (box.north == bounds.north)))
    return np.asarray(across & along)


def overlap(a: Box, b: Box) -> Box | None:
    """What two boxes share, None when that has no area."""
    shared = Box(max(a.west, b.west), max(a.south, b.south), min(a.east, b.east), min(a.north, b.north))
    return shared if shared.west < shared.east and shared.south < shared.north else None


def area(box: Box) -> float:
    """Width times height, in the units of the coordinates."""
    return (box.east - box.west) * (box.north - box.south)


def uncovered_place(
    space: Space, blocks: Iterable[Box], within: Box | None, covers: Iterable[Box]
) -> tuple[float, float] | None:
    """A place that all the blocks hold and no cover does (and that a closed box contains), None if there is none.

    If there is one at all, there is one whose x is the westernmost possible or the east border of a cover, and whose y
    likewise: from any such place go west, and then south, until a cover or the end stops you. Covers do not hold their
    east border, so the stop itself is uncovered. No areas are compared, so that rounding cannot lose a sliver.
    """
    blocks, covers = list(blocks), list(covers)
    closed = [] if within is None else [within]
    x0 = max(box.west for box in [*blocks, *closed])
    y0 = max(box.south for box in [*blocks, *closed])
    for x in [x0, *sorted({cover.east for cover in covers if cover.east > x0})]:
        for y in [y0, *sorted({cover.north for cover in covers if cover.north > y0})]:
            if (
                all(holds(space, box, x, y) for box in blocks)
                and all(box.west <= x <= box.east and box.south <= y <= box.north for box in closed)
                and not any(holds(space, cover, x, y) for cover in covers)
            ):
                return x, y
    return None


def meets(space: Space, block: Box, piece: Box) -> bool:
    """Whether a block's half-open box and a closed one have a place in common."""
    bounds = space.bounds
    return (
        block.west <= piece.east
        and (piece.west < block.east or piece.west == block.east == bounds.east)
        and block.south <= piece.north
        and (piece.south < block.north or piece.south == block.north == bounds.north)
    )


def widened(space: Space, piece: Box, distance: float) -> list[Box]:
    """Boxes that contain every place no farther than a distance from a piece."""
    bounds = space.bounds
    if not isinstance(space, Sphere):
        return [
            Box(
                max(bounds.west, piece.west - distance),
                max(bounds.south, piece.south - distance),
                min(bounds.east, piece.east + distance),
                min(bounds.north, piece.north + distance),
            )
        ]
    reach = math.degrees(distance / EARTH_RADIUS_M) + 1e-9
    south, north = piece.south - reach, piece.north + reach
    # Meridians are closest where the piece is nearest to a pole, so a distance spans most degrees there.
    cap = space.cover(0.0, piece.south if abs(piece.south) > abs(piece.north) else piece.north, distance)[0]
    west, east = piece.west - cap.east, piece.east + cap.east
    south, north = max(south, -90.0), min(north, 90.0)
    if east - west >= 360.0 or south == -90.0 or north == 90.0:
        return [Box(-180.0, south, 180.0, north)]
    if west < -180.0:
        return [Box(west + 360.0, south, 180.0, north), Box(-180.0, south, east, north)]
    if east >= 180.0:
        return [Box(west, south, 180.0, north), Box(-180.0, south, east - 360.0, north)]
    return [Box(west, south, east, north)]
