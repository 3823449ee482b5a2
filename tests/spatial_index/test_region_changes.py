from __future__ import annotations

import math

import hypothesis.strategies as st
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from spatial_index import (
    BadBox,
    BadCount,
    BadTree,
    Block,
    Limits,
    RegionTree,
    UnknownId,
    adapt_tree,
    apply_diff,
    assign,
    build_tree,
    diff_trees,
    with_owners,
    with_regions,
)
from spatial_index.spaces import WGS84, Plane
from tests.spatial_index.region_worlds import brute_home, telling_places
from tests.spatial_index.test_region_tree import disjoint_regions

FLOOR = Plane(0, 0, 16, 16)
LIMITS = Limits(capacity=10, merge_share=0.5, max_depth=3)


class ChangingTree(RuleBasedStateMachine):
    @initialize(sphere=st.booleans())
    def start(self, sphere):
        self.space = WGS84 if sphere else FLOOR
        self.tree = RegionTree(self.space, LIMITS)
        self.before = self.tree

    def change(self, new):
        self.before, self.tree = self.tree, new
        assert new.version == self.before.version + (new is not self.before)

    @rule(seed=st.integers(0, 2**16), scale=st.sampled_from([3, 10, 30]), sampled=st.booleans())
    def adapt(self, seed, scale, sampled):
        rng = np.random.default_rng(seed)
        loads = {block.id: float(rng.exponential(scale)) for block in self.tree}
        sample = None
        if sampled:
            bounds = self.space.bounds
            sample = (rng.uniform(bounds.west, bounds.east, 60), rng.uniform(bounds.south, bounds.north, 60))
        self.change(adapt_tree(self.tree, loads, sample))
        after = sum(block.load for block in self.tree)
        assert after == pytest.approx(sum(loads.values()))
        # A second weighing with the same result changes nothing, unless a part is still too heavy.
        again = adapt_tree(self.tree, {})
        assert again is self.tree or any(block.load > LIMITS.capacity for block in self.tree)

    @rule(data=st.data())
    def other_regions(self, data):
        regions = data.draw(disjoint_regions(self.space))
        self.change(with_regions(self.tree, regions))
        covered = sum((b.box.east - b.box.west) * (b.box.north - b.box.south) for b in self.tree if b.slow)
        assert covered == pytest.approx(sum((e - w) * (n - s) for w, s, e, n in regions))

    @rule(nodes=st.lists(st.sampled_from("abcde"), min_size=1, unique=True))
    def owners(self, nodes):
        self.change(with_owners(self.tree, assign(self.tree, nodes)))
        assert {block.owner for block in self.tree} <= set(nodes)

    @precondition(lambda self: self.tree is not self.before)
    @invariant()
    def the_diff_applies_and_names_every_transfer(self):
        diff = diff_trees(self.before, self.tree)
        assert apply_diff(self.before, diff) == self.tree
        boxes = [block.box for block in (*self.before, *self.tree)]
        seen = set()
        named = {(t.from_block, t.to_block): t for t in diff.transfers}
        assert len(named) == len(diff.transfers)
        for x, y in telling_places(boxes, self.space.bounds):
            old, new = brute_home(self.before, x, y), brute_home(self.tree, x, y)
            if old.owner != new.owner:
                transfer = named[old.id, new.id]
                seen.add((old.id, new.id))
                assert (transfer.from_owner, transfer.to_owner) == (old.owner, new.owner)
                if self.space is FLOOR:
                    west, south, east, north = transfer.area
                    assert west <= x <= east
                    assert south <= y <= north
        assert seen == set(named), "a transfer of nothing"


ChangingTree.TestCase.settings = settings(max_examples=40, stateful_step_count=10, deadline=None)
TestChangingTree = ChangingTree.TestCase


@settings(max_examples=50, deadline=None)
@given(st.lists(st.floats(0.51, 1.0), min_size=1, max_size=30))
def test_a_wavering_load_does_not_make_the_tree_waver(shares):
    """Between the two marks nothing happens, wherever the load came from."""
    split = adapt_tree(RegionTree(FLOOR, LIMITS), {"q": 11.0})
    assert len(split) == 4
    whole = RegionTree(FLOOR, LIMITS)
    for share in shares:
        load = share * LIMITS.capacity
        split = adapt_tree(split, {block.id: load / 4 for block in split})
        whole = adapt_tree(whole, {"q": load})
        assert len(split) == 4
        assert len(whole) == 1
    assert len(adapt_tree(split, {block.id: 1.2 for block in split})) == 1


def test_a_sample_cuts_until_every_part_is_within_the_capacity():
    rng = np.random.default_rng(5)
    xs, ys = rng.normal(5, 0.5, 500).clip(0, 16), rng.normal(5, 0.5, 500).clip(0, 16)
    tree = build_tree((xs, ys), [(4, 4, 6, 6)], FLOOR, Limits(capacity=20))
    counts = tree.census(xs, ys)
    assert max(counts.values()) <= 20
    assert {name: block.load for name, block in ((b.id, b) for b in tree)} == pytest.approx(counts)
    slow = [block for block in tree if block.slow]
    # Halving by places fills the parts evenly: about as few as there can be.
    inside = sum(counts[block.id] for block in slow)
    assert len(slow) <= 2 * math.ceil(inside / 20)


def test_splitting_and_merging_move_nothing():
    tree = with_owners(adapt_tree(RegionTree(FLOOR, LIMITS), {"q": 11.0}), {"q0": "a", "q1": "b", "q2": "c", "q3": "a"})
    split = adapt_tree(tree, {"q0": 12.0, "q1": 1.0, "q2": 1.0, "q3": 1.0})
    assert len(split) == 7
    assert diff_trees(tree, split).transfers == ()
    merged = adapt_tree(tree, {"q0": 0.5, "q1": 2.0, "q2": 1.0, "q3": 1.0})
    assert [(block.id, block.owner) for block in merged] == [("q", "b")]
    moved = diff_trees(tree, merged).transfers
    assert sorted(transfer.from_block for transfer in moved) == ["q0", "q2", "q3"]


def test_a_region_found_again_keeps_its_number_parts_and_owners():
    rng = np.random.default_rng(1)
    places = (rng.uniform(2, 8, 60), rng.uniform(2, 8, 60))
    tree = build_tree(places, [(2, 2, 8, 8), (10, 10, 12, 12)], FLOOR, Limits(capacity=20))
    tree = with_owners(tree, {block.id: f"node-{block.id}" for block in tree})
    parts = {block.id: block.owner for block in tree if block.slow}
    assert len(parts) == 4  # sixty users by twenty, and the empty region
    shifted = with_regions(tree, [(2.2, 1.9, 8.3, 8.1), (12, 2, 14, 4)])
    kept = {block.id: block.owner for block in shifted if block.slow}
    assert {name: owner for name, owner in kept.items() if name.startswith("r0")} == {
        name: owner for name, owner in parts.items() if name.startswith("r0")
    }
    assert set(kept) - set(parts) == {"r2"}  # numbers are not used twice
    assert kept["r2"] == "node-" + shifted.cross_links("r2")[0]
    assert with_regions(shifted, [(2.2, 1.9, 8.3, 8.1), (12, 2, 14, 4)]) is shifted
    halved = with_regions(shifted, [(2.2, 1.9, 8.3, 5.0)])
    assert all(block.box.north <= 5.0 for block in halved if block.slow)


def test_overlapping_regions_and_bad_loads_are_refused():
    tree = RegionTree(FLOOR, LIMITS)
    with pytest.raises(BadBox, match="overlap"):
        with_regions(tree, [(1, 1, 4, 4), (3, 3, 5, 5)])
    with pytest.raises(UnknownId, match="q9"):
        adapt_tree(tree, {"q9": 1.0})
    for load in (-1.0, math.nan, math.inf):
        with pytest.raises(BadCount, match="q"):
            adapt_tree(tree, {"q": load})
    with pytest.raises(UnknownId, match="q9"):
        with_owners(tree, {"q9": "a"})
    assert list(tree) == [Block("q", FLOOR.bounds)]


@pytest.mark.parametrize(
    "bad", [{"capacity": 0}, {"merge_share": 1}, {"border": -1}, {"max_depth": 99}, {"capacity": math.nan}]
)
def test_bad_limits_are_refused(bad):
    with pytest.raises(BadCount, match=next(iter(bad))):
        Limits(**bad)


def test_a_diff_for_another_version_is_refused():
    one = RegionTree(FLOOR, LIMITS)
    two = with_owners(one, {"q": "a"})
    three = with_owners(two, {"q": "b"})
    with pytest.raises(BadTree, match="version 2"):
        apply_diff(one, diff_trees(two, three))
    with pytest.raises(BadTree, match="space"):
        diff_trees(one, RegionTree(WGS84, LIMITS))
