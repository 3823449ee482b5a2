"""Versions of the map: every place has a living owner, little moves, and what is written is read again."""

from __future__ import annotations

import itertools
from collections import Counter

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from broker_plugins.cluster.region_directory import (
    BadDirectoryError,
    adapted,
    changes,
    first_tree,
    fitted,
    from_bytes,
    part_for,
    to_bytes,
    with_slow_regions,
)
from broker_plugins.cluster.region_owners import GENTLY, balanced, in_order, rescued
from spatial_index import WGS84, BadBox, Limits, Plane, RegionTree

LIMITS = Limits(capacity=10, merge_share=0.5, max_depth=8)
names = st.sets(st.sampled_from("abcdef"), min_size=1)
spots = st.lists(st.tuples(st.floats(-180, 180), st.floats(-90, 90)), max_size=60)


def sample(places: list[tuple[float, float]]) -> tuple[np.ndarray, np.ndarray]:
    return np.array([x for x, _ in places]), np.array([y for _, y in places])


def loads_of(tree: RegionTree, places: list[tuple[float, float]]) -> dict[str, float]:
    return {name: float(count) for name, count in tree.census(*sample(places)).items()}


def adapt(tree: RegionTree, places: list[tuple[float, float]], most: int = 1000) -> RegionTree:
    return adapted(tree, loads_of(tree, places), sample(places), part=1.0, depth=1, most_blocks=most)


@settings(max_examples=40, deadline=None)
@given(steps=st.lists(st.tuples(names, spots), min_size=1, max_size=5))
def test_whatever_happens_every_block_has_a_living_owner_and_no_load_is_too_much(
    steps: list[tuple[set[str], list[tuple[float, float]]]],
) -> None:
    tree = first_tree(WGS84, LIMITS, steps[0][0], 1)
    assert tree.version == 1
    for nodes, places in steps:
        before = tree
        tree = rescued(tree, nodes)
        moved = [block for block in tree if before[block.id].owner != block.owner]
        assert all(before[block.id].owner not in nodes for block in moved)
        assert all(block.owner in nodes for block in tree)
        tree = adapt(tree, places)
        loads = loads_of(tree, places)
        assert all(load <= LIMITS.capacity or len(name) > LIMITS.max_depth for name, load in loads.items())
        assert len(tree) >= 4
        even = balanced(tree, nodes, loads)
        moved = [block for block in even if tree[block.id].owner != block.owner and loads[block.id]]
        assert len(moved) <= max(1, int(len(tree) * GENTLY))
        assert all(block.owner in nodes for block in even)
        assert from_bytes(to_bytes(even)) == even
        assert even.version >= tree.version >= before.version
        assert (even.version == before.version) == (even == before)
        tree = even


@settings(max_examples=25, deadline=None)
@given(nodes=names, places=spots)
def test_where_nothing_happens_nothing_changes(nodes: set[str], places: list[tuple[float, float]]) -> None:
    tree = first_tree(WGS84, LIMITS, nodes, 1)
    for _ in range(40):  # a busy block a step
        tree = balanced(adapt(tree, places), nodes, loads_of(adapt(tree, places), places))
    settled = balanced(adapt(tree, places), nodes, loads_of(tree, places))
    assert settled is tree
    assert rescued(tree, nodes) is tree


def test_blocks_are_shared_among_all_and_come_back_a_few_at_a_time() -> None:
    places = [(x / 10, y / 10) for x in range(-1700, 1700, 100) for y in range(-800, 800, 100)]
    tree = adapt(first_tree(WGS84, LIMITS, {"a", "b", "c"}, 1), places)
    for _ in range(60):
        tree = balanced(tree, {"a", "b", "c"}, loads_of(tree, places))
    owned = {node: sum(block.owner == node for block in tree) for node in "abc"}
    assert min(owned.values()) > len(tree) / 6
    without = rescued(tree, {"a", "b"})
    assert changes(tree, without).moves == owned["c"]
    back = balanced(without, {"a", "b", "c"}, loads_of(without, places))
    assert 0 < changes(without, back).moves <= len(tree) * GENTLY


def test_a_node_that_comes_gets_something_even_if_blocks_are_few() -> None:
    tree = first_tree(WGS84, LIMITS, {"a", "b"}, 1)
    assert Counter(block.owner for block in tree) == {"a": 2, "b": 2}
    assert {block.owner for block in balanced(tree, {"a", "b", "c"}, {})} == {"a", "b", "c"}


def test_what_happens_in_one_place_of_the_world_is_shared_out_among_all_nodes() -> None:
    places = [(126.9 + x / 100, 37.5 + y / 100) for x in range(20) for y in range(20)]
    tree = first_tree(WGS84, Limits(capacity=500), {"a", "b", "c"}, 1)
    assert len({tree.home(*place).owner for place in places}) == 1
    part = part_for(400.0, 3, 500.0)
    for _ in range(40):
        loads = loads_of(tree, places)
        tree = adapted(tree, loads, sample(places), part=part, depth=1, most_blocks=1000)
        tree = balanced(tree, {"a", "b", "c"}, loads_of(tree, places))
    carried = Counter(tree.home(*place).owner for place in places)
    assert max(carried.values()) < 180
    line = [block.owner for block in in_order(tree)]
    borders = sum(one != other for one, other in itertools.pairwise(line))
    assert borders <= 4, "each node owns a stretch, but for what need not move"
    few = places[::160]
    calm = adapted(tree, loads_of(tree, few), sample(few), part=part_for(3.0, 3, 500.0), depth=1, most_blocks=1000)
    assert len(calm) == 4, "so little is not worth it"


def test_what_is_too_much_does_not_waver_with_the_load() -> None:
    part = part_for(1000.0, 3, 500.0)
    assert 0.1 < part < 0.2
    assert {part_for(total, 3, 500.0, part) for total in range(800, 1400, 50)} == {part}
    assert part_for(3000.0, 3, 500.0, part) == 0.5
    assert part_for(1e6, 3, 500.0, part) == 1.0
    assert part_for(0.0, 3, 512.0, part) == 1 / 64
    assert part_for(0.0, 3, 5.0, part) == 1.0


def test_the_number_of_blocks_is_bounded() -> None:
    places = [(x / 100, y / 100) for x in range(0, 400, 10) for y in range(0, 400, 10)]
    tree = first_tree(WGS84, LIMITS, {"a"}, 1)
    many, few = adapt(tree, places), adapt(tree, places, most=20)
    assert len(many) > 40
    assert 4 < len(few) <= 20


def test_splits_and_merges_are_counted_and_the_first_blocks_stay() -> None:
    first = first_tree(WGS84, LIMITS, {"a"}, 1)
    grown = adapt(first, [(10.0, 10.0)] * 6 + [(100.0, 50.0)] * 6)
    assert changes(first, grown).splits == 1
    assert changes(first, grown).merges == 0
    shrunk = adapt(grown, [])
    assert {block.id for block in shrunk} == {block.id for block in first}
    assert changes(grown, shrunk).merges == 1


def test_slow_regions_are_laid_over_the_map_and_left_alone_while_they_are_much_the_same() -> None:
    first = first_tree(WGS84, LIMITS, {"a"}, 1)
    crowded = with_slow_regions(first, [(10.0, 10.0, 11.0, 11.0)])
    assert [block.id for block in crowded if block.slow] == ["r0"]
    assert with_slow_regions(crowded, [(10.1, 10.1, 11.1, 11.1)]) is crowded
    moved = with_slow_regions(crowded, [(20.0, 10.0, 21.0, 11.0)])
    assert [block.id for block in moved if block.slow] == ["r1"]
    assert not [block.id for block in with_slow_regions(moved, []) if block.slow]
    with pytest.raises(BadBox):
        with_slow_regions(first, [(0.0, 0.0, 2.0, 2.0), (1.0, 1.0, 3.0, 3.0)])


def test_another_space_begins_anew_and_other_limits_do_not() -> None:
    tree = adapt(first_tree(WGS84, LIMITS, {"a"}, 1), [(10.0, 10.0)] * 20)
    floor = Plane(0.0, 0.0, 10.0, 10.0)
    assert fitted(tree, WGS84, LIMITS, {"a"}, 1) is tree
    wider = fitted(tree, WGS84, Limits(capacity=99), {"a"}, 1)
    assert (wider.version, len(wider), wider.limits.capacity) == (tree.version + 1, len(tree), 99)
    anew = fitted(tree, floor, LIMITS, {"a"}, 2)
    assert (anew.version, len(anew), anew.space) == (tree.version + 1, 16, floor)


@pytest.mark.parametrize("data", [b"", b"no", to_bytes(RegionTree())[:-5]])
def test_what_is_no_map_is_refused(data: bytes) -> None:
    with pytest.raises(BadDirectoryError):
        from_bytes(data)
