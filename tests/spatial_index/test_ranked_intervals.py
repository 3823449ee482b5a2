from __future__ import annotations

import math
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from spatial_index import BadCoordinate, BadCount, DuplicateId, Interval, RankedIntervals, UnknownId, ranked_intervals
from tests.spatial_index.ranked_worlds import holds, intervals, values


def brute_force(held: dict[int, Interval], value: float) -> list[int]:
    """Ids in the order of adding, so a stable sort by width alone ranks them."""
    return sorted((i for i, interval in held.items() if holds(interval, value)), key=lambda i: held[i].width)


class RankedIntervalsAgainstBruteForce(RuleBasedStateMachine):
    def __init__(self):
        super().__init__()
        # Cells turn into runs and back within a few steps.
        self.longest_chain = ranked_intervals.LONGEST_CHAIN
        ranked_intervals.LONGEST_CHAIN = 4
        self.index = RankedIntervals()
        self.held: dict[int, Interval] = {}
        self.next_id = 0

    def teardown(self):
        ranked_intervals.LONGEST_CHAIN = self.longest_chain

    @rule(interval=intervals(), copies=st.integers(1, 6))
    def add(self, interval, copies):
        for _ in range(copies):
            self.index.add(self.next_id, interval)
            self.held[self.next_id] = interval
            self.next_id += 1

    @precondition(lambda self: self.held)
    @rule(data=st.data())
    def remove(self, data):
        identity = data.draw(st.sampled_from(sorted(self.held)))
        self.index.remove(identity)
        del self.held[identity]

    @precondition(lambda self: self.held)
    @rule(data=st.data())
    def remove_all_alike(self, data):
        like = self.held[data.draw(st.sampled_from(sorted(self.held)))]
        for identity in [i for i, interval in self.held.items() if interval == like]:
            self.index.remove(identity)
            del self.held[identity]

    @rule(value=values, k=st.integers(1, 12))
    def top(self, value, k):
        assert self.index.top(value, k) == brute_force(self.held, value)[:k]

    @precondition(lambda self: self.held)
    @rule(data=st.data(), end=st.sampled_from(["low", "high"]), step=st.sampled_from([-math.inf, None, math.inf]))
    def top_at_an_end(self, data, end, step):
        """Exactly at an end and at the floats next to it, where open and closed differ."""
        value = getattr(self.held[data.draw(st.sampled_from(sorted(self.held)))], end)
        value = value if step is None else math.nextafter(value, step)
        if math.isfinite(value):
            assert self.index.containing(value) == brute_force(self.held, value)

    @invariant()
    def holds_the_same_ids(self):
        assert len(self.index) == len(self.held)
        assert set(self.index) == set(self.held)


TestRankedIntervalsAgainstBruteForce = RankedIntervalsAgainstBruteForce.TestCase
TestRankedIntervalsAgainstBruteForce.settings = settings(max_examples=150, stateful_step_count=40, deadline=None)


@settings(max_examples=30, deadline=None)
@given(st.integers(0, 2**32))
def test_crowded_cells_split_and_shrink(seed):
    random = Random(seed)
    held = {}
    index = RankedIntervals()
    for identity in range(1500):
        low = random.choice([0.0, 0.3, random.random()])
        width = random.choice([0.0, 0.6, math.inf, 0.5 + random.random() / 2])
        held[identity] = Interval(-math.inf if random.random() < 0.1 else low, low + width)
        index.add(identity, held[identity])
    while held:
        for value in (0.0, 0.3, random.uniform(0, 2)):
            assert index.top(value, 10) == brute_force(held, value)[:10]
        for identity in random.sample(sorted(held), min(len(held), 400)):
            index.remove(identity)
            del held[identity]
    assert index.containing(0.3) == []


def test_narrower_is_better_and_ties_go_to_the_older():
    index = RankedIntervals([("wide", Interval(20, 60)), ("narrow", Interval(20, 25)), ("as narrow", Interval(21, 26))])
    assert index.top(25, 1) == ["narrow"]
    assert index.top(25, 5) == ["narrow", "as narrow", "wide"]
    index.remove("narrow")
    index.add("narrow", Interval(20, 25))
    assert index.top(25, 5) == ["as narrow", "narrow", "wide"]


def test_unbounded_intervals_come_last():
    far = Interval(-1.7e308, 1.7e308)
    index = RankedIntervals([("all", Interval()), ("from", Interval(0.0)), ("far", far), ("to", Interval(high=9.0))])
    assert index.top(5, 4) == ["far", "all", "from", "to"]


def test_refusals_name_the_value_and_change_nothing():
    index = RankedIntervals([("a", Interval(0, 1))])
    with pytest.raises(DuplicateId, match="'a'"):
        index.add("a", Interval(2, 3))
    with pytest.raises(UnknownId, match="'b'"):
        index.remove("b")
    with pytest.raises(BadCount, match="0"):
        index.top(0.5, 0)
    with pytest.raises(BadCoordinate, match="nan"):
        index.top(math.nan, 1)
    with pytest.raises(BadCoordinate, match="inf"):
        index.containing(math.inf)
    assert list(index) == ["a"]
    assert index.containing(0.5) == ["a"]
    assert index.containing(2.5) == []
