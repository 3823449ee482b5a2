"""What a Q+R index tells of itself: its blocks for drawing, its counts for watching."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from spatial_index.spaces import Box


@dataclass(slots=True, frozen=True)
class IndexBlock:
    """A cell that holds boxes, for drawing: its side ("Q" or "R"), where it is, and how many boxes are in it."""

    side: str
    box: Box
    count: int


@dataclass(slots=True, frozen=True)
class IndexStats:
    """What an index holds and has done.

    Attributes:
        ids: how many ids there are.
        still: boxes on the R side; a shape across the antimeridian has two.
        moving: boxes on the Q side.
        cells: cells that hold boxes, of both sides.
        crowds: cells packed for vector comparison.
        splits: times a crowded cell was split.
        moves: moves taken in.
        to_q: times a box went to the Q side because it moved.
        to_r: times a box went to the R side because it did not.
        bytes: memory in arrays, without Python's dictionaries.
    """

    ids: int
    still: int
    moving: int
    cells: int
    crowds: int
    splits: int
    moves: int
    to_q: int
    to_r: int
    bytes: int
