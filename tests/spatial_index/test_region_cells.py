"""Names of blocks and cells: whoever listens where something happens shares a name with it."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from spatial_index import WGS84, Limits, Plane, RegionTree, adapt_tree, with_regions
from spatial_index.region_cells import LEVELS, block_of_name, names_at, names_in, names_touched
from spatial_index.spaces import Box, Space, checked_box

FLOOR = Plane(0.0, 0.0, 8.0, 8.0)
steps = st.integers(0, 64)
shares = st.one_of(steps.map(lambda step: step / 64), st.floats(0, 1))


@st.composite
def trees(draw: st.DrawFn, space: Space) -> RegionTree:
    tree = RegionTree(space, Limits(capacity=1, max_depth=5))
    for _ in range(draw(st.integers(0, 4))):
        names = [block.id for block in tree]
        heavy = draw(st.sets(st.sampled_from(names), max_size=3))
        tree = adapt_tree(tree, {name: 2.0 if name in heavy else 0.9 for name in names})
    if draw(st.booleans()):
        west, south, east, north = space.bounds
        x, y = draw(st.integers(0, 50)) / 64, draw(st.integers(0, 50)) / 64
        side = draw(st.integers(1, 12)) / 64
        wide, high = east - west, north - south
        region = (west + wide * x, south + high * y, west + wide * (x + side), south + high * (y + side))
        tree = with_regions(tree, [region])
    return tree


def place(space: Space, across: float, along: float) -> tuple[float, float]:
    west, south, east, north = space.bounds
    return min(west + (east - west) * across, east), min(south + (north - south) * along, north)


@pytest.mark.parametrize("space", [WGS84, FLOOR])
@settings(max_examples=120, deadline=None)
@given(data=st.data())
def test_a_place_in_an_area_shares_a_name_with_it(space: Space, data: st.DataObject) -> None:
    tree = data.draw(trees(space))
    xs = sorted((data.draw(shares), data.draw(shares)))
    ys = sorted((data.draw(shares), data.draw(shares)))
    (west, south), (east, north) = place(space, xs[0], ys[0]), place(space, xs[1], ys[1])
    listening = names_touched(tree, [Box(west, south, east, north)], 10_000)
    assert listening is not None
    inside = [(west, south), (east, north), ((west + east) / 2, (south + north) / 2)]
    for x, y in inside:
        names = names_at(tree, x, y)
        assert tree.home(x, y).id in names
        assert not names.isdisjoint(listening)
    across, along = data.draw(shares), data.draw(shares)
    x, y = place(space, across, along)
    home = tree.home(x, y)
    apart = names_at(tree, x, y).isdisjoint(listening)
    if home.id not in {block_of_name(name) for name in listening}:
        assert apart
    if west < east and south < north:
        everything = names_in(tree, (west, south, east, north), 2000)
        if everything is None:
            return  # too large an area to look for
        assert listening <= everything
        if west <= x <= east and south <= y <= north:
            own = names_touched(tree, [Box(x, y, x, y)], 10)
            assert own is not None
            assert not own.isdisjoint(everything)


def test_cells_tell_apart_what_is_in_one_block() -> None:
    tree = RegionTree(FLOOR)
    listening = names_touched(tree, [Box(1.05, 1.05, 1.2, 1.2)], 10)
    assert listening == {"q:5.4.4"}
    assert names_at(tree, 1.1, 1.1) == {"q", "q:1.0.0", "q:2.0.0", "q:3.1.1", "q:4.2.2", "q:5.4.4"}
    assert names_at(tree, 1.1, 1.3).isdisjoint(listening)
    assert names_touched(tree, [Box(0.1, 0.1, 3.9, 3.9)], 20) == {
        f"q:3.{column}.{row}" for column in range(4) for row in range(4)
    }
    assert names_touched(tree, [Box(0.1, 0.1, 7.9, 7.9)], 20) == {"q"}
    assert names_touched(tree, [FLOOR.bounds], 0) is None
    assert len(names_in(tree, (1.05, 1.05, 1.2, 1.2), 10) or ()) == 1 + LEVELS
    assert names_in(tree, FLOOR.bounds, 500) is None


def test_the_antimeridian_and_the_poles_are_found_from_both_sides() -> None:
    tree = adapt_tree(RegionTree(WGS84, Limits(capacity=1)), {"q": 2.0})
    across = names_touched(tree, checked_box(WGS84, (170.0, 0.0, -170.0, 10.0)), 50)
    assert across is not None
    for x in (179.0, 180.0, -180.0, -179.0):
        assert not names_at(tree, x, 5.0).isdisjoint(across)
    pole = names_touched(tree, [Box(20.0, 80.0, 30.0, 90.0)], 50)
    assert pole is not None
    assert not names_at(tree, -120.0, 90.0).isdisjoint(pole)
    assert names_at(tree, -120.0, 89.0).isdisjoint(pole)


@pytest.mark.parametrize("space", [WGS84, FLOOR])
@settings(max_examples=150, deadline=None)
@given(data=st.data())
def test_cells_that_a_circle_touches_are_found_and_those_in_its_corners_left_out(
    space: Space, data: st.DataObject
) -> None:
    tree = data.draw(trees(space))
    x, y = place(space, data.draw(shares), data.draw(shares))
    radius = space.longest_radius() * data.draw(st.floats(1e-4, 0.3))

    def touches(box: Box) -> bool:
        return space.distance_to_box(x, y, box) <= radius * (1 + 1e-9)

    pieces = space.cover(x, y, radius)
    listening = names_touched(tree, pieces, 10_000, touches)
    assert listening is not None
    for _ in range(8):
        other = place(space, data.draw(shares), data.draw(shares))
        if space.distance_to_box(x, y, Box(*other, *other)) <= radius:
            assert not names_at(tree, *other).isdisjoint(listening)
    for piece in pieces:  # on the circle's own border
        for other in ((x, piece.south), (x, piece.north)):
            if space.distance_to_box(x, y, Box(*other, *other)) <= radius:
                assert not names_at(tree, *other).isdisjoint(listening)


def test_a_cell_in_the_corner_of_a_square_is_not_in_the_circle() -> None:
    tree = RegionTree(FLOOR)
    square = [Box(3.125, 3.125, 4.125, 4.125)]
    whole = names_touched(tree, square, 100)
    circle = names_touched(tree, square, 100, lambda box: FLOOR.distance_to_box(3.625, 3.625, box) <= 0.5)
    assert whole is not None
    assert circle is not None
    assert circle.isdisjoint(names_at(tree, 3.13, 3.13))
    assert not whole.isdisjoint(names_at(tree, 3.13, 3.13))
    assert not circle.isdisjoint(names_at(tree, 3.125, 3.625))
