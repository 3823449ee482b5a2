"""Slow regions: no part is too heavy, none is lost, and they do not fall to pieces as the crowd comes and goes."""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from typing import TYPE_CHECKING

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from broker_plugins.cluster.region_packing import SPARE, packed
from spatial_index import Limits, Plane, RegionTree, adapt_tree, with_owners, with_regions
from spatial_index.region_blocks import area, region_of

if TYPE_CHECKING:
    import random

CAPACITY = 10
PLANE = Plane(0.0, 0.0, 100.0, 100.0)
LIMITS = Limits(capacity=CAPACITY, max_depth=12)
REGIONS = [(10.0, 10.0, 40.0, 40.0), (60.0, 50.0, 90.0, 95.0)]
crowds = st.lists(st.tuples(st.integers(0, 2**32 - 1), st.integers(0, 150), st.integers(0, 60)), min_size=1, max_size=8)


def crowd(seed: int, slow: int, fast: int) -> tuple[np.ndarray, np.ndarray]:
    dice = np.random.default_rng(seed)
    west, south, east, north = np.array(REGIONS)[dice.integers(0, 2, slow)].T
    xs = np.concatenate([dice.uniform(west, east), dice.uniform(0, 100, fast)])
    ys = np.concatenate([dice.uniform(south, north), dice.uniform(0, 100, fast)])
    return xs, ys


def weighed(tree: RegionTree, places: tuple[np.ndarray, np.ndarray]) -> dict[str, float]:
    return {name: float(count) for name, count in tree.census(*places).items()}


def counted(tree: RegionTree) -> Counter[str]:
    return Counter(region_of(block.id) for block in tree if block.slow)


def extents(tree: RegionTree) -> dict[str, float]:
    found: defaultdict[str, float] = defaultdict(float)
    for block in tree:
        if block.slow:
            found[region_of(block.id)] += area(block.box)
    return {name: round(size, 6) for name, size in found.items()}


@settings(max_examples=60, deadline=None)
@given(steps=crowds, owners=st.randoms(use_true_random=False))
def test_whatever_the_crowd_does_regions_are_covered_once_and_no_part_is_too_heavy(
    steps: list[tuple[int, int, int]], owners: random.Random
) -> None:
    tree = with_regions(RegionTree(PLANE, LIMITS), REGIONS)
    whole = extents(tree)
    for step in steps:
        tree = with_owners(tree, {block.id: owners.choice("abc") for block in tree})
        places = crowd(*step)
        plain = adapt_tree(tree, weighed(tree, places), places)
        tree = packed(tree, weighed(tree, places), places)
        assert extents(tree) == whole
        assert all(load <= CAPACITY for load in weighed(tree, places).values())
        assert all(block.owner in "abc" for block in tree)
        assert {block.id for block in tree if not block.slow} == {block.id for block in plain if not block.slow}
        assert all(count <= counted(plain)[region] for region, count in counted(tree).items())
        again = packed(tree, weighed(tree, places), places)
        assert [(block.id, block.box) for block in again] == [(block.id, block.box) for block in tree], "it is at rest"


def test_a_region_whose_crowd_wavers_does_not_fall_to_pieces() -> None:
    dice = np.random.default_rng(4)
    tree = plain = with_regions(RegionTree(PLANE, LIMITS), REGIONS[:1])
    for number in range(60):
        places = crowd(int(dice.integers(1 << 30)), 40 + int(dice.integers(60)), 0)
        inside = places[0] <= REGIONS[0][2]
        places = places[0][inside], places[1][inside]
        tree = packed(tree, weighed(tree, places), places)
        plain = adapt_tree(plain, weighed(plain, places), places)
        needed = math.ceil(len(places[0]) / CAPACITY)
        if number > 10:
            assert counted(tree)["r0"] <= needed + 1 + needed // SPARE + 2  # a cut may fall beside a place
    assert counted(tree)["r0"] < counted(plain)["r0"]


def test_a_part_goes_to_who_owned_most_of_it() -> None:
    dice = np.random.default_rng(1)
    places = dice.uniform(10.0, 40.0, 160), dice.uniform(10.0, 40.0, 160)
    tree = with_regions(RegionTree(PLANE, LIMITS), REGIONS[:1])
    tree = adapt_tree(tree, weighed(tree, places), places)
    tree = with_owners(tree, {block.id: "west" if block.box.east <= 25.5 else "east" for block in tree})
    few = places[0][:25], places[1][:25]
    found = packed(tree, weighed(tree, few), few)
    assert counted(found)["r0"] <= 4 < counted(tree)["r0"]
    for block in found:
        if block.slow:
            owned = {"west": 0.0, "east": 0.0}
            for part in tree:
                if part.slow:
                    across = min(part.box.east, block.box.east) - max(part.box.west, block.box.west)
                    along = min(part.box.north, block.box.north) - max(part.box.south, block.box.south)
                    owned[part.owner] += max(across, 0.0) * max(along, 0.0)
            assert owned[block.owner] == max(owned.values())
