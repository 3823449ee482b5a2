"""Region trees by brute force: a linear scan for homes, and all places that could make a difference."""

from __future__ import annotations

from itertools import pairwise

from spatial_index.spaces import WGS84


def one_name(tree, x, y):
    if tree.space is WGS84 and (x == 180 or abs(y) == 90):
        return -180.0, y
    return x, y


def brute_home(tree, x, y):
    x, y = one_name(tree, x, y)
    bounds = tree.space.bounds

    def holds(box):
        return (
            box.west <= x
            and (x < box.east or box.east == bounds.east)
            and box.south <= y
            and (y < box.north or box.north == bounds.north)
        )

    holding = [block for block in tree if holds(block.box)]
    slow = [block for block in holding if block.id.startswith("r")]
    assert len(slow) <= 1
    assert len(holding) == len(slow) + 1
    return slow[0] if slow else holding[0]


def with_middles(values):
    ordered = sorted(set(values))
    return ordered + [(a + b) / 2 for a, b in pairwise(ordered)]


def telling_places(boxes, bounds):
    """Every corner of the arrangement of boxes, and a place between any two neighbouring ones."""
    xs = with_middles([side for box in [*boxes, bounds] for side in (box[0], box[2])])
    ys = with_middles([side for box in [*boxes, bounds] for side in (box[1], box[3])])
    return [(x, y) for x in xs for y in ys]


def inside(tree, area, x, y):
    """Whether a place is in a closed area, under any of its names."""
    west, south, east, north = area
    if not south <= y <= north:
        return False
    if tree.space is not WGS84:
        return west <= x <= east
    if abs(y) == 90:
        return True
    names = {x, -180.0, 180.0} if abs(x) == 180 else {x}
    return any((west <= name <= east) if west <= east else (name >= west or name <= east) for name in names)
