"""What a Q+R index is compared with: shapes kept in a dictionary, every question asked of every one of them."""

from __future__ import annotations

import math
from itertools import pairwise

from spatial_index import Circle, Point, Polygon, Sphere

RADIUS = 6_371_008.8


def haversine(x0, y0, x1, y1):
    a, b = math.radians(y0), math.radians(y1)
    h = math.sin((b - a) / 2) ** 2 + math.cos(a) * math.cos(b) * math.sin(math.radians(x1 - x0) / 2) ** 2
    return 2 * RADIUS * math.asin(min(1, math.sqrt(h)))


def arcs_meet(w0, e0, w1, e1):
    """Closed arcs of longitude, either of which may cross the antimeridian.

    Only comparisons: turning an east of -1e-17 by 360 degrees would round it onto meridian 0, which it does not touch.
    """
    spans, others = ([(w, e)] if w <= e else [(w, 180), (-180, e)] for w, e in ((w0, e0), (w1, e1)))
    if any(w <= other_e and other_w <= e for w, e in spans for other_w, other_e in others):
        return True
    return all(any(w == -180 or e == 180 for w, e in arcs) for arcs in (spans, others))


def boxes_meet(space, a, b):
    if not (a[1] <= b[3] and b[1] <= a[3]):
        return False
    if not isinstance(space, Sphere):
        return a[0] <= b[2] and b[0] <= a[2]
    if any(pole in (a[1], a[3]) and pole in (b[1], b[3]) for pole in (-90, 90)):
        return True
    return arcs_meet(a[0], a[2], b[0], b[2])


def distance(space, x0, y0, x1, y1):
    return haversine(x0, y0, x1, y1) if isinstance(space, Sphere) else math.hypot(x1 - x0, y1 - y0)


def unwrapped(space, ring):
    if not isinstance(space, Sphere):
        return list(ring)
    found = [ring[0]]
    for x, y in ring[1:]:
        found.append((min((x - 360, x, x + 360), key=lambda turn: abs(turn - found[-1][0])), y))
    return found


def edge_distance(x, y, a, b):
    dx, dy = b[0] - a[0], b[1] - a[1]
    along = max(0, min(1, ((x - a[0]) * dx + (y - a[1]) * dy) / (dx * dx + dy * dy or 1)))
    return math.hypot(x - a[0] - along * dx, y - a[1] - along * dy)


def in_ring(ring, x, y):
    """True, False, or None when too near the border to say."""
    inside = False
    for a, b in pairwise(ring):
        if edge_distance(x, y, a, b) < 1e-6:
            return None
        if (a[1] > y) != (b[1] > y) and x < (b[0] - a[0]) * (y - a[1]) / (b[1] - a[1]) + a[0]:
            inside = not inside
    return inside


def contains(space, shape, x, y):
    """Whether a shape contains a place: True, False, or None when rounding decides."""
    if isinstance(shape, Circle):
        away = distance(space, shape.x, shape.y, x, y)
        return None if abs(away - shape.radius) < 1e-6 * (1 + shape.radius) else away <= shape.radius
    if isinstance(shape, Polygon):
        ring = unwrapped(space, shape.ring)
        turns = (-360, 0, 360) if isinstance(space, Sphere) else (0,)
        answers = [in_ring(ring, x + turn, y) for turn in turns]
        pole = isinstance(space, Sphere) and abs(y) == 90
        return None if None in answers or pole else any(answers)
    box = (shape.x, shape.y, shape.x, shape.y) if isinstance(shape, Point) else shape
    return boxes_meet(space, box, (x, y, x, y))


def meets(space, shape, box):
    """Whether a shape has a place in common with a box: True, False, or None when samples cannot say."""
    if isinstance(shape, Circle | Polygon):
        west, south, east, north = box
        width = (east - west) % 360 if isinstance(space, Sphere) and east < west else east - west
        steps = [step / 12 for step in range(13)]
        xs = [west + width * step for step in steps]
        if isinstance(space, Sphere):
            xs = [x - 360 if x > 180 else x for x in xs]
        ys = [south + (north - south) * step for step in steps]
        samples = [contains(space, shape, x, y) for x in xs for y in ys]
        if True in samples:
            return True
        if isinstance(shape, Polygon):
            ring = unwrapped(space, shape.ring)
            turns = (-360, 0, 360) if isinstance(space, Sphere) else (0,)
            far = all(
                max(y for _, y in ring) < south - 1e-9
                or min(y for _, y in ring) > north + 1e-9
                or max(x for x, _ in ring) < west + turn - 1e-9
                or min(x for x, _ in ring) > west + turn + width + 1e-9
                for turn in turns
            )
            return False if far and abs(south) < 90 and abs(north) < 90 else None
        near = min(distance(space, shape.x, shape.y, x, y) for x in xs for y in ys)
        unit = RADIUS * math.pi / 180 if isinstance(space, Sphere) else 1
        spacing = unit * math.hypot(width / 12, (north - south) / 12)
        return False if near - spacing > shape.radius else None
    other = (shape.x, shape.y, shape.x, shape.y) if isinstance(shape, Point) else shape
    return boxes_meet(space, other, box)


def assert_answers(found, model, verdict):
    """Each id once, all that certainly belong, none that certainly do not."""
    assert len(found) == len(set(found))
    for key, shape in model.items():
        says = verdict(shape)
        if says is not None:
            assert (key in found) == says, (key, shape)
    assert set(found) <= set(model)
