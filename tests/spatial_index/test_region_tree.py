from __future__ import annotations

import json
import math

import hypothesis.strategies as st
import numpy as np
import pytest
from hypothesis import given, settings

from spatial_index import BadBox, BadCoordinate, BadTree, Block, Limits, RegionTree, UnknownId, build_tree
from spatial_index.spaces import WGS84, Plane
from tests.spatial_index.region_worlds import brute_home, inside, telling_places

FLOOR = Plane(0, 0, 16, 16)


@st.composite
def disjoint_regions(draw, space=FLOOR):
    """Slow regions with corners on a lattice, so that they touch quadtree blocks, the bounds and each other."""
    bounds = space.bounds
    dx, dy = (bounds.east - bounds.west) / 16, (bounds.north - bounds.south) / 16
    rng = np.random.default_rng(draw(st.integers(0, 2**16)))
    chosen = []
    for _ in range(draw(st.sampled_from([8, 3, 0]))):
        (west, south), (wide, high) = rng.integers(0, 16, 2).tolist(), rng.integers(1, 7, 2).tolist()
        box = (west, south, min(west + wide, 16), min(south + high, 16))
        if all(box[2] <= o[0] or o[2] <= box[0] or box[3] <= o[1] or o[3] <= box[1] for o in chosen):
            chosen.append(box)
    return [
        (bounds.west + w * dx, bounds.south + s * dy, bounds.west + e * dx, bounds.south + n * dy)
        for w, s, e, n in chosen
    ]


@st.composite
def trees(draw, space, border=0.0):
    bounds = space.bounds
    seed = draw(st.integers(0, 2**16))
    rng = np.random.default_rng(seed)
    count = draw(st.sampled_from([40, 5, 0]))
    xs = rng.uniform(bounds.west, bounds.east, count)
    ys = rng.uniform(bounds.south, bounds.north, count)
    regions = draw(disjoint_regions(space))
    return build_tree((xs, ys), regions, space, Limits(capacity=4, max_depth=4, border=border))


def areas(space):
    bounds = space.bounds
    dx, dy = (bounds.east - bounds.west) / 32, (bounds.north - bounds.south) / 32

    def area(corner):
        a, b, c, d = corner
        if space is WGS84:
            w, e = (a, c) if a != c else (a, (c + 1) % 33)
        else:
            w, e = (min(a, c), max(a, c)) if a != c else ((a, a + 1) if a < 32 else (31, 32))
        s, n = (min(b, d), max(b, d)) if b != d else ((b, b + 1) if b < 32 else (31, 32))
        return (bounds.west + w * dx, bounds.south + s * dy, bounds.west + e * dx, bounds.south + n * dy)

    seeds = st.integers(0, 2**16).map(np.random.default_rng)
    return seeds.map(lambda rng: area(rng.integers(0, 33, 4).tolist()))


@pytest.mark.parametrize("space", [FLOOR, WGS84], ids=["plane", "sphere"])
@settings(max_examples=60, deadline=None)
@given(data=st.data())
def test_owner_blocks_are_complete_and_exact(space, data):
    tree = data.draw(trees(space))
    area = data.draw(areas(space))
    found = tree.owner_blocks(area)
    places = telling_places([*(block.box for block in tree), area], space.bounds)
    expected = set()
    for x, y in places:
        home = brute_home(tree, x, y)
        assert tree.home(x, y) == home
        if inside(tree, area, x, y):
            expected.add(home.id)
    assert [block.id for block in found] == sorted(expected)
    assert tree.route(area) == found


@pytest.mark.parametrize("space", [FLOOR, WGS84], ids=["plane", "sphere"])
@settings(max_examples=60, deadline=None)
@given(data=st.data())
def test_every_match_is_reported_by_one_common_block(space, data):
    tree = data.draw(trees(space))
    subscription, event = data.draw(areas(space)), data.draw(areas(space))
    reporter = tree.reporting_block(subscription, event)
    meet = any(
        inside(tree, subscription, x, y) and inside(tree, event, x, y)
        for x, y in telling_places([subscription, event], space.bounds)
    )
    assert (reporter is not None) == meet
    if reporter is not None:
        assert reporter in tree.owner_blocks(subscription)
        assert reporter in tree.owner_blocks(event)
        assert tree.reporting_block(event, subscription) == reporter


@pytest.mark.parametrize(("space", "border"), [(FLOOR, 0.7), (WGS84, 400_000.0)], ids=["plane", "sphere"])
@settings(max_examples=60, deadline=None)
@given(data=st.data())
def test_who_stays_with_a_block_is_routed_to(space, border, data):
    tree = data.draw(trees(space, border))
    bounds = space.bounds
    rng = np.random.default_rng(data.draw(st.integers(0, 2**16)))
    step = np.array([bounds.east - bounds.west, bounds.north - bounds.south]) / 40
    place = rng.uniform(bounds[:2], bounds[2:])
    current = tree.home(*place).id
    for _ in range(40):
        place = place + rng.normal(0, step)
        if space is WGS84:
            place[0] = (place[0] + 180) % 360 - 180
        place = np.clip(place, bounds[:2], bounds[2:])
        x, y = map(float, place)
        block = tree.home(x, y, current)
        assert space.distance_to_box(x, y, block.box) <= border
        current = block.id
        west, east = x - float(rng.uniform(0, 2)), x + float(rng.uniform(0, 2))
        if space is WGS84:
            west, east = (west + 180) % 360 - 180, (east + 180) % 360 - 180
        south, north = max(y - 1, bounds.south), min(y + 1, bounds.north)
        area = (max(west, bounds.west), south, min(east, bounds.east), north)
        assert block in tree.route(area)


def test_a_client_on_the_border_is_not_handed_back_and_forth():
    tree = build_tree((np.arange(16.0), np.arange(16.0)), [(2, 2, 6, 6)], FLOOR, Limits(capacity=8, border=1.0))
    assert tree.home(8.5, 4, tree.home(7.5, 4).id).id == tree.home(7.5, 4).id
    assert tree.home(9.5, 4, tree.home(7.5, 4).id).id == tree.home(9.5, 4).id
    outside = tree.home(7, 4).id
    assert tree.home(5.5, 4, outside).id == outside  # half a unit inside the slow region
    assert tree.home(4, 4, outside).slow  # two units inside
    assert tree.home(6.5, 4, tree.home(5, 4).id).slow
    assert not tree.home(7.5, 4, tree.home(5, 4).id).slow
    assert tree.home(4, 4, "q000111").slow  # a block that is no more


@settings(max_examples=60, deadline=None)
@given(data=st.data())
def test_a_census_counts_every_place_once(data):
    space = data.draw(st.sampled_from([FLOOR, WGS84]))
    tree = data.draw(trees(space))
    places = telling_places([block.box for block in tree], space.bounds)
    counts = tree.census([x for x, _ in places], [y for _, y in places])
    assert sum(counts.values()) == len(places)
    assert set(counts) == {block.id for block in tree}
    expected = dict.fromkeys(counts, 0)
    for x, y in places:
        expected[brute_home(tree, x, y).id] += 1
    assert counts == expected


@settings(max_examples=60, deadline=None)
@given(data=st.data())
def test_a_tree_survives_json(data):
    tree = data.draw(trees(data.draw(st.sampled_from([FLOOR, WGS84]))))
    back = RegionTree.from_dict(json.loads(json.dumps(tree.to_dict())))
    assert back == tree
    assert hash(back) == hash(tree)
    assert list(back) == list(tree)


def test_cross_links_are_mutual():
    tree = build_tree((np.linspace(0, 16, 60), np.linspace(0, 16, 60)), [(3, 3, 9, 9)], FLOOR, Limits(capacity=8))
    slow = [block.id for block in tree if block.slow]
    quarters = [block.id for block in tree if not block.slow]
    assert slow
    assert {(q, r) for q in quarters for r in tree.cross_links(q)} == {
        (q, r) for r in slow for q in tree.cross_links(r)
    }
    assert any(len(tree.cross_links(r)) > 1 for r in slow)


def test_the_antimeridian_is_one_place_with_two_names():
    tree = build_tree((np.linspace(-180, 180, 300), np.linspace(-80, 80, 300)), [(178, -20, -178, -10)])
    assert tree.home(180, 10) == tree.home(-180, 10)
    assert {block.id for block in tree if block.slow} == {"r0", "r1"}
    crossing = {block.id for block in tree.owner_blocks((179, -15, -179, -12))}
    assert crossing == {"r0", "r1"}
    assert tree.home(0, 90) == tree.home(77, 90)


@pytest.mark.parametrize(
    ("box", "error"),
    [
        ((0, 0, 1, math.nan), BadCoordinate),
        ((0, 0, math.inf, 1), BadCoordinate),
        ((0, 5, 1, 4), BadBox),
        ((0, 0, 0, 1), BadBox),
        ((5, 0, 4, 1), BadBox),
        ((0, 0, 1, 17), BadCoordinate),
        ((0, 0, 1), BadBox),
    ],
)
def test_bad_areas_are_refused(box, error):
    tree = RegionTree(FLOOR)
    for ask in (tree.owner_blocks, tree.route, lambda area: tree.reporting_block(area, (0, 0, 1, 1))):
        with pytest.raises(error):
            ask(box)


def test_bad_places_and_ids_are_refused():
    tree = RegionTree(WGS84)
    with pytest.raises(BadCoordinate, match="91"):
        tree.home(0, 91)
    with pytest.raises(BadCoordinate, match="nan"):
        tree.census([0.0, math.nan], [0.0, 0.0])
    with pytest.raises(UnknownId, match="q7"):
        tree["q7"]
    with pytest.raises(UnknownId, match="r0"):
        tree.cross_links("r0")


def changed(data, **changes):
    return {**data, **changes}


def test_bad_data_is_refused():
    tree = build_tree((np.arange(16.0), np.arange(16.0)), [(2, 2, 6, 6)], FLOOR, Limits(capacity=8))
    good = tree.to_dict()
    blocks = good["blocks"]
    for bad, error in [
        (changed(good, format=2), BadTree),
        (changed(good, space={"kind": "torus"}), BadTree),
        (changed(good, blocks=blocks[1:]), BadTree),
        (changed(good, blocks=[*blocks, blocks[0]]), BadTree),
        (changed(good, blocks=[*blocks, {**blocks[0], "id": blocks[0]["id"] + "1"}]), BadTree),
        (changed(good, blocks=[{**blocks[0], "box": [0, 0, 1, 1]}, *blocks[1:]]), BadTree),
        (changed(good, next_region=0), BadTree),
        (changed(good, next_region=9, blocks=[*blocks, {**blocks[-1], "id": "r8"}]), BadBox),
        (changed(good, next_region=9, blocks=[*blocks, {**blocks[-1], "id": "r8", "box": [9, 9, 9, 10]}]), BadBox),
        (changed(good, limits={"capacity": 1, "speed": 2}), BadTree),
        ({}, BadTree),
    ]:
        with pytest.raises(error):
            RegionTree.from_dict(bad)
    assert RegionTree.from_dict(good) == tree


def test_a_tree_of_one_block_answers_everything():
    tree = RegionTree(WGS84, blocks=[Block("q", WGS84.bounds, "a")])
    assert tree.owners((-180, -90, 180, 90)) == ("a",)
    assert "1 quadtree" in repr(tree)
