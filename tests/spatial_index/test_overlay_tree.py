from __future__ import annotations

import math
from itertools import pairwise

import hypothesis.strategies as st
import numpy as np
import pytest
from hypothesis import settings
from hypothesis.stateful import Bundle, RuleBasedStateMachine, consumes, initialize, invariant, rule

from spatial_index import (
    BadAttribute,
    BadCoordinate,
    BadCount,
    BadInterval,
    DuplicateId,
    Election,
    OverlayTree,
    UnknownId,
)
from spatial_index.overlay_boxes import BoundingBox, Leaf

DOMAINS = {"age": (0.0, 100.0), "salary": (0.0, 1000.0)}

# Few distinct values, so that boxes often touch, coincide and shrink to points.
ages = st.integers(-1, 11).map(lambda k: k * 10.0)
salaries = st.sampled_from([-50.0, 0.0, 100.0, 300.0, 300.5, 999.0, 1000.0, 4000.0])


def interval(values):
    ends = st.one_of(st.none(), values)
    return st.tuples(ends, ends).map(lambda pair: pair if None in pair else (min(pair), max(pair)))


boxes = st.fixed_dictionaries({}, optional={"age": interval(ages), "salary": interval(salaries)})
events = st.fixed_dictionaries({"age": ages}, optional={"salary": salaries})


def wants(box, event):
    for name, (low, high) in box.items():
        value = event.get(name)
        if value is not None and not (-math.inf if low is None else low) <= value <= (
            math.inf if high is None else high
        ):
            return False
    return True


class OverlayAgainstScan(RuleBasedStateMachine):
    peers = Bundle("peers")

    @initialize(
        election=st.sampled_from(Election),
        cap=st.sampled_from([None, 2.0, 5.0]),
        fan_out=st.sampled_from([(3, 6), (2, 4)]),
        trees_apart=st.sampled_from([0, 1, 8]),
    )
    def start(self, election, cap, fan_out, trees_apart):
        self.tree = OverlayTree(
            DOMAINS, election=election, cap=cap, fan_out=fan_out, trees_apart=trees_apart, half_life=20
        )
        self.fan_out = fan_out
        self.subscriptions = {}
        self.joined = 0

    @rule(target=peers, box=boxes)
    def join(self, box):
        peer = f"p{self.joined}"
        self.joined += 1
        self.tree.join(peer, box)
        self.subscriptions[peer] = box
        return peer

    @rule(many=st.lists(boxes, min_size=5, max_size=25))
    def join_many(self, many):
        for box in many:
            self.join(box)

    @rule(peer=consumes(peers))
    def leave(self, peer):
        if self.subscriptions.pop(peer, None) is not None:
            self.tree.leave(peer)

    @rule(share=st.integers(2, 4))
    def leave_many(self, share):
        for peer in list(self.subscriptions)[::share]:
            del self.subscriptions[peer]
            self.tree.leave(peer)

    @rule()
    def re_elect(self):
        self.tree.re_elect()

    @rule(event=events, pick=st.integers(0, 1000), times=st.integers(1, 8))
    def publish(self, event, pick, times):
        origin = None
        if self.subscriptions and pick % 3:
            origin = list(self.subscriptions)[pick % len(self.subscriptions)]
        expected = sorted(peer for peer, box in self.subscriptions.items() if wants(box, event))
        for _ in range(times):
            before, budget = self.tree.carried, self.tree.budget
            delivery = self.tree.publish(event, origin)
            assert sorted(delivery.receivers) == expected  # complete, and nobody twice
            after = self.tree.carried
            for peer, carried in before.items():
                assert carried <= budget or after[peer] == carried, "somebody above the cap took on more"
            assert sum(after.values()) == pytest.approx(sum(before.values()) + delivery.cost)
            assert delivery.messages >= len(expected) - (origin in expected)

    @invariant()
    def well_formed(self):
        assert len(self.tree) == len(self.subscriptions)
        seen = []
        duties = set()
        for tree in self.tree._trees.values():
            assert tree.root.above is None
            for box in tree.root.inner_boxes():
                if box is not tree.root:
                    assert self.fan_out[0] <= len(box.members) <= self.fan_out[1]
                assert len(box.members) <= self.fan_out[1]
                if box.members:
                    assert box.parent in self.subscriptions
                    duties.add((box.parent, id(box)))
                    lows = np.array([member.lows for member in box.members])
                    highs = np.array([member.highs for member in box.members])
                    assert box.lows == tuple(lows.min(axis=0))
                    assert box.highs == tuple(highs.max(axis=0))
                for member in box.members:
                    assert member.above is box
                    assert isinstance(member, BoundingBox if box.height > 1 else Leaf)
                    if isinstance(member, Leaf):
                        seen.extend(member.peers)
                        duties.add((member.parent, id(member)))
        assert sorted(seen) == sorted(self.subscriptions)
        recorded = {(peer, id(box)) for peer, held in self.tree._duties.items() for box in held}
        assert recorded == duties


OverlayAgainstScan.TestCase.settings = settings(max_examples=50, stateful_step_count=20, deadline=None)
TestOverlayAgainstScan = OverlayAgainstScan.TestCase


def crowd(election, cap=None, peers=400, seed=4, **options):
    rng = np.random.default_rng(seed)
    tree = OverlayTree({"a": (0, 1000), "b": (0, 1000)}, election=election, cap=cap, **options)
    lows = rng.uniform(300, 600, (peers, 2))
    sides = rng.choice([10, 30, 100], (peers, 2))
    for number, (low, high) in enumerate(zip(lows, lows + sides, strict=True)):
        tree.join(str(number), {"a": (low[0], high[0]), "b": (low[1], high[1])})
    return tree, rng


def spend(tree, rng, rounds=600):
    return sum(
        tree.publish({"a": a, "b": b}, str(origin)).cost
        for (a, b), origin in zip(rng.uniform(300, 700, (rounds, 2)), rng.integers(0, len(tree), rounds), strict=True)
    )


def test_the_cheapest_parent_costs_less_than_a_random_one():
    costs = {election: spend(*crowd(election)) for election in Election}
    assert costs[Election.CHEAPEST] < 0.9 * costs[Election.RANDOM]
    assert costs[Election.LARGEST] < costs[Election.RANDOM]


def test_a_cap_spreads_the_load():
    tree, rng = crowd(Election.CHEAPEST)
    spend(tree, rng)
    carried = list(tree.carried.values())
    uncapped = max(carried) / (sum(carried) / len(carried))
    tree, rng = crowd(Election.CHEAPEST, cap=4)
    spend(tree, rng)
    carried = list(tree.carried.values())
    capped = max(carried) / (sum(carried) / len(carried))
    assert uncapped > 12
    assert capped < 6


def test_parents_follow_where_the_events_are():
    # Both members of a pair cost the same by volume; all the events are in the small one.
    tree = OverlayTree({"a": (0, 100)}, election=Election.CHEAPEST_BY_EVENTS)
    for peer, interval_ in {"wide": (0, 40), "busy": (50, 60), "idle": (90, 99)}.items():
        tree.join(peer, {"a": interval_})
    for _ in range(20):
        tree.publish({"a": 55.0})
    tree.re_elect()
    assert next(box.parent for box in tree.boxes() if box.level == 1) == "busy"
    for _ in range(20_000):
        tree.publish({"a": 95.0})
    tree.re_elect()
    assert next(box.parent for box in tree.boxes() if box.level == 1) == "idle"


def test_boxes_that_leave_attributes_out_do_not_stretch_the_others():
    def cost(trees_apart):
        tree, rng = crowd(Election.CHEAPEST, trees_apart=trees_apart)
        for number, low in enumerate(rng.uniform(300, 700, 12)):
            tree.join(f"stripe{number}", {"ab"[number % 2]: (low, low + 20)})
        return sum(tree.publish({"a": a, "b": b}).cost for a, b in rng.uniform(300, 700, (300, 2)))

    assert cost(8) < 0.97 * cost(0)


def test_identical_boxes_share_a_leaf_up_to_the_fan_out():
    tree = OverlayTree(DOMAINS, fan_out=(3, 6))
    for number in range(14):
        tree.join(f"p{number}", {"age": (20, 25)})
    assert sum(box.level == 0 for box in tree.boxes()) == 3
    assert len(tree.publish({"age": 22.0}, "p13").receivers) == 14


def test_levels_are_nested():
    tree, _ = crowd(Election.CHEAPEST, peers=60)
    levels = [box.level for box in tree.boxes()]
    assert levels[0] == max(levels)
    assert all(later <= earlier for earlier, later in pairwise(levels))


@pytest.mark.parametrize(
    ("box", "error", "named"),
    [
        ({"age": (math.nan, 3)}, BadInterval, "nan"),
        ({"age": (3, math.inf)}, BadInterval, "inf"),
        ({"age": (30, 20)}, BadInterval, "30"),
        ({"height": (1, 2)}, BadAttribute, "height"),
    ],
)
def test_a_bad_box_is_refused_and_nothing_changes(box, error, named):
    tree = OverlayTree(DOMAINS)
    tree.join("a", {"age": (20, 25)})
    with pytest.raises(error, match=named):
        tree.join("b", box)
    assert len(tree) == 1
    assert "b" not in tree
    assert tree.publish({"age": 22.0}).receivers == ("a",)
    assert list(tree.carried) == ["a"]


def test_unknown_and_doubled_peers_are_refused():
    tree = OverlayTree(DOMAINS)
    tree.join("a", {})
    with pytest.raises(DuplicateId, match="'a'"):
        tree.join("a", {"age": (1, 2)})
    with pytest.raises(UnknownId, match="'b'"):
        tree.leave("b")
    with pytest.raises(UnknownId, match="'b'"):
        tree.publish({"age": 1.0}, "b")
    assert tree.publish({"age": 50.0}).receivers == ("a",)


def test_bad_events_are_refused_and_not_counted():
    tree = OverlayTree(DOMAINS, election=Election.CHEAPEST_BY_EVENTS)
    with pytest.raises(BadCoordinate, match="nan"):
        tree.publish({"age": math.nan})
    with pytest.raises(BadAttribute, match="height"):
        tree.publish({"height": 1.0})
    assert not tree._recent.seen


@pytest.mark.parametrize(
    "options",
    [
        {"cap": 1.5},
        {"fan_out": (4, 6)},
        {"fan_out": (1, 6)},
        {"half_life": 0},
        {"forward_cost": -1},
        {"trees_apart": -1},
    ],
)
def test_bad_settings_are_refused(options):
    with pytest.raises(BadCount):
        OverlayTree(DOMAINS, **options)


@pytest.mark.parametrize("domain", [(0.0, math.inf), (1.0, 1.0), (2.0, 1.0), (math.nan, 1.0)])
def test_bad_domains_are_refused(domain):
    with pytest.raises(BadAttribute, match="age"):
        OverlayTree({"age": domain})
    with pytest.raises(BadAttribute):
        OverlayTree({})
