from __future__ import annotations

import math
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from spatial_index import (
    BadAttribute,
    BadCoordinate,
    BadCount,
    BadInterval,
    DuplicateId,
    Interval,
    RankedBoxes,
    UnknownId,
    ranked_boxes,
    shelf_renewal,
)
from tests.spatial_index.ranked_worlds import holds, intervals, values

DOMAINS = {"age": (0.0, 8.0), "pay": (-1.0, 1.0)}
NAMES = ["age", "pay", "skill", "zone"]
points = st.dictionaries(st.sampled_from(NAMES), values)
boxes = st.dictionaries(st.sampled_from(NAMES), intervals(), max_size=4)


def matches(box: dict[str, Interval], point: dict[str, float]) -> bool:
    return all(name in point and holds(interval, point[name]) for name, interval in box.items())


def rank(box: dict[str, Interval]) -> float:
    """The product of the shares of the declared domains that a box covers."""
    product = 1.0
    for name, (low, high) in DOMAINS.items():
        if name in box:
            product *= max(0.0, min(high, box[name].high) - max(low, box[name].low)) / (high - low)
    return product


def brute_force(held: dict[int, dict[str, Interval]], point: dict[str, float]) -> list[int]:
    """Ids in the order of adding, so a stable sort by rank alone ranks them."""
    return sorted((i for i, box in held.items() if matches(box, point)), key=lambda i: rank(held[i]))


SMALL_SIZES = {"SMALLEST_TRAY": 64, "STEP_PLACES": 64, "STEP_LATECOMERS": 3, "SAMPLE": 16}


class RankedBoxesAgainstBruteForce(RuleBasedStateMachine):
    """With a tray of 64 boxes and steps of 64, so that trays are sorted in, and boxes come late, all the time."""

    def __init__(self):
        super().__init__()
        self.sizes = {name: getattr(shelf_renewal, name) for name in SMALL_SIZES}
        for name, size in SMALL_SIZES.items():
            setattr(shelf_renewal, name, size)
        ranked_boxes.SMALLEST_TRAY = 64
        self.index = RankedBoxes(DOMAINS)
        self.held: dict[int, dict[str, Interval]] = {}
        self.next_id = 0

    def teardown(self):
        for name, size in self.sizes.items():
            setattr(shelf_renewal, name, size)
        ranked_boxes.SMALLEST_TRAY = self.sizes["SMALLEST_TRAY"]

    def _add(self, box):
        self.index.add(self.next_id, box)
        self.held[self.next_id] = box
        self.next_id += 1

    def _remove(self, identity):
        self.index.remove(identity)
        del self.held[identity]

    @initialize(seed=st.integers(0, 2**32), count=st.integers(0, 200))
    def begin_with_many(self, seed, count):
        self.add_many(seed, count)

    @rule(box=boxes, copies=st.integers(1, 4))
    def add(self, box, copies):
        for _ in range(copies):
            self._add(box)

    @rule(seed=st.integers(0, 2**32), count=st.integers(1, 100))
    def come_and_go(self, seed, count):
        """Boxes leave while the tray is being sorted in, and newcomers take over their slots."""
        random = Random(seed)
        for _ in range(count):
            self.add_many(random.random(), 1)
            if random.random() < 0.9:
                self._remove(random.choice(list(self.held)))
            if self.index._renewal is not None:
                self.all_around(random.random())
                self.top_around(random.random())

    @rule(seed=st.integers(0, 2**32), count=st.integers(1, 60))
    def add_many(self, seed, count):
        random = Random(seed)
        for _ in range(count):
            lows = {name: random.randint(-2, 8) / 2 for name in NAMES if random.random() < 0.6}
            self._add({name: Interval(low, low + random.randint(0, 6)) for name, low in lows.items()})

    @precondition(lambda self: self.held)
    @rule(data=st.data())
    def remove(self, data):
        self._remove(data.draw(st.sampled_from(sorted(self.held))))

    @precondition(lambda self: self.held)
    @rule(seed=st.integers(0, 2**32), share=st.sampled_from([0.1, 0.5, 1.0]))
    def remove_many(self, seed, share):
        for identity in Random(seed).sample(sorted(self.held), math.ceil(len(self.held) * share)):
            self._remove(identity)

    @rule(point=points, k=st.integers(1, 12))
    def top(self, point, k):
        assert self.index.top(point, k) == brute_force(self.held, point)[:k]

    @rule(seed=st.integers(0, 2**32))
    def all_around(self, seed):
        random = Random(seed)
        for _ in range(5):
            point = {name: random.randint(-4, 16) / 2 for name in NAMES if random.random() < 0.8}
            assert self.index.containing(point) == brute_force(self.held, point)

    @rule(seed=st.integers(0, 2**32))
    def top_around(self, seed):
        random = Random(seed)
        for k in (1, 3, 10):
            point = {name: random.randint(-4, 16) / 2 for name in NAMES if random.random() < 0.8}
            assert self.index.top(point, k) == brute_force(self.held, point)[:k]

    @invariant()
    def holds_the_same_ids(self):
        assert len(self.index) == len(self.held)
        assert set(self.index) == set(self.held)


TestRankedBoxesAgainstBruteForce = RankedBoxesAgainstBruteForce.TestCase
TestRankedBoxesAgainstBruteForce.settings = settings(max_examples=60, stateful_step_count=25, deadline=None)


@settings(max_examples=5, deadline=None)
@given(st.integers(0, 2**32))
def test_thousands_of_boxes_through_renewals_as_they_ship(seed):
    random = Random(seed)
    index, held = RankedBoxes(DOMAINS), {}
    for identity in range(7000):
        box = {}
        for name, (low, high) in {**DOMAINS, "skill": (0.0, 1.0)}.items():
            if random.random() < 0.8:
                ends = sorted(random.uniform(low, high) for _ in range(2))
                box[name] = Interval(*ends)
        index.add(identity, box)
        held[identity] = box
        if random.random() < 0.2:
            gone = random.choice(list(held)) if identity % 100 == 0 else identity
            index.remove(gone)
            del held[gone]
        if identity % 500 == 499:
            point = {"age": random.uniform(0, 8), "pay": random.uniform(-1, 1), "skill": random.random()}
            assert index.top(point, 10) == brute_force(held, point)[:10]
            assert index.containing(point) == brute_force(held, point)


def test_a_new_attribute_may_come_while_the_tray_is_sorted_in(monkeypatch):
    monkeypatch.setattr(shelf_renewal, "STEP_PLACES", 64)
    index = RankedBoxes()
    identity = 0
    while index._renewal is None:
        index.add(identity, {"a": Interval(0, 1)})
        identity += 1
    index.add("new", {"b": Interval(0, 1)})
    while index._renewal is not None:
        index.add(identity, {"a": Interval(0, 1)})
        identity += 1
    assert index.containing({"b": 0.5}) == ["new"]
    assert len(index.containing({"a": 0.5})) == identity
    assert len(index.containing({"a": 0.5, "b": 0.5})) == identity + 1


def test_the_rank_is_the_product_of_normalised_widths():
    index = RankedBoxes({"age": (0, 100), "pay": (0, 1000)})
    assert index.rank_of({}) == 1.0
    assert index.rank_of({"age": Interval(20, 25)}) == 0.05
    assert index.rank_of({"age": Interval(20, 25), "pay": Interval(low=500.0)}) == 0.025
    assert index.rank_of({"skill": Interval(0, 1)}) == 1.0
    assert index.rank_of({"age": Interval(-50, 50)}) == 0.5
    assert index.rank_of({"age": Interval(150, 160)}) == 0.0


def test_ties_go_to_the_older_and_undeclared_attributes_only_filter():
    index = RankedBoxes({"age": (0, 100)})
    index.add("any skill", {"age": Interval(20, 30)})
    index.add("skilled", {"age": Interval(21, 31), "skill": Interval(8, 9)})
    index.add("narrow", {"age": Interval(24, 26)})
    assert index.top({"age": 25, "skill": 8.5}, 3) == ["narrow", "any skill", "skilled"]
    assert index.top({"age": 25}, 3) == ["narrow", "any skill"]
    assert index.top({"skill": 8.5}, 3) == []


def test_an_attribute_asked_for_without_bounds_must_still_be_there():
    index = RankedBoxes(boxes=[("any zone", {"zone": Interval()}), ("no matter", {})])
    assert index.containing({"zone": 1e308}) == ["any zone", "no matter"]
    assert index.containing({}) == ["no matter"]


def test_sixteen_attributes_are_the_most_and_unused_ones_make_room():
    index = RankedBoxes({"declared": (0, 1)})
    for number in range(15):
        index.add(number, {f"a{number}": Interval(0, 1)})
    with pytest.raises(BadAttribute, match="one too many"):
        index.add("over", {"one too many": Interval(0, 1)})
    assert "over" not in index
    index.remove(3)
    index.add("over", {"one too many": Interval(0, 1)})
    assert index.containing({"one too many": 0.5, "a3": 0.5, "a4": 0.5}) == [4, "over"]
    assert "a3" not in index.attributes


def test_an_unused_attribute_of_the_box_itself_makes_no_room():
    index = RankedBoxes(boxes=[("gone", {"zone": Interval(0, 1)})])
    index.remove("gone")
    index.add("both", {"zone": Interval(0, 1), "skill": Interval(2, 3)})
    assert index.containing({"zone": 0.5, "skill": 2.5}) == ["both"]


def test_refusals_name_the_value_and_change_nothing():
    index = RankedBoxes({"age": (0, 100)}, [("a", {"age": Interval(0, 1)})])
    with pytest.raises(DuplicateId, match="'a'"):
        index.add("a", {"new": Interval(2, 3)})
    with pytest.raises(BadInterval, match=r"'age' of 'b' is \(0, 1\)"):
        index.add("b", {"new": Interval(0, 1), "age": (0, 1)})
    with pytest.raises(UnknownId, match="'b'"):
        index.remove("b")
    with pytest.raises(BadCount, match="-1"):
        index.top({"age": 0.5}, -1)
    with pytest.raises(BadCoordinate, match="age is nan"):
        index.top({"age": math.nan}, 1)
    with pytest.raises(BadCoordinate, match="age is inf"):
        index.containing({"age": math.inf})
    assert index.attributes == ["age"]
    assert index.containing({"age": 0.5}) == ["a"]
    assert index.containing({"age": 2.5}) == []


@pytest.mark.parametrize("domain", [(1, 1), (2, 1), (0, math.inf), (math.nan, 1), (-1.7e308, 1.7e308), 3, ("a", "b")])
def test_a_bad_domain_is_named(domain):
    with pytest.raises(BadAttribute, match="domain of 'age'"):
        RankedBoxes({"age": domain})
    with pytest.raises(BadAttribute, match="17 attributes"):
        RankedBoxes({str(number): (0, 1) for number in range(17)})
