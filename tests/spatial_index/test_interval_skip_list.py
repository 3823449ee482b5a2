from __future__ import annotations

import math

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from spatial_index import BadCoordinate, BadCount, DuplicateId, Interval, IntervalSkipList, RankedIntervals, UnknownId
from tests.spatial_index.ranked_worlds import holds, intervals, values


class SkipListAgainstBruteForce(RuleBasedStateMachine):
    """The skip list, `RankedIntervals` and a scan of everything must agree through every change."""

    def __init__(self):
        super().__init__()
        self.skip_list = IntervalSkipList()
        self.ranked = RankedIntervals()
        self.held: dict[int, Interval] = {}
        self.next_id = 0

    @rule(interval=intervals(), copies=st.integers(1, 3))
    def add(self, interval, copies):
        for _ in range(copies):
            self.skip_list.add(self.next_id, interval)
            self.ranked.add(self.next_id, interval)
            self.held[self.next_id] = interval
            self.next_id += 1

    @precondition(lambda self: self.held)
    @rule(data=st.data())
    def remove(self, data):
        identity = data.draw(st.sampled_from(sorted(self.held)))
        self.skip_list.remove(identity)
        self.ranked.remove(identity)
        del self.held[identity]

    @rule(value=values, k=st.integers(1, 8))
    def top(self, value, k):
        matching = [i for i, interval in self.held.items() if holds(interval, value)]
        expected = sorted(matching, key=lambda i: self.held[i].width)[:k]
        assert self.skip_list.top(value, k) == expected
        assert self.skip_list.collect_and_sort(value, k) == expected
        assert self.ranked.top(value, k) == expected

    @precondition(lambda self: self.held)
    @rule(data=st.data(), end=st.sampled_from(["low", "high"]))
    def all_at_an_end(self, data, end):
        value = getattr(self.held[data.draw(st.sampled_from(sorted(self.held)))], end)
        if math.isfinite(value):
            assert self.skip_list.containing(value) == self.ranked.containing(value)

    @invariant()
    def markers_are_sorted_and_of_held_intervals(self):
        for _, markers in self.skip_list.edges():
            assert markers == sorted(markers)
            assert {marker.identity for marker in markers} <= set(self.held)

    @invariant()
    def only_ends_of_held_intervals_have_nodes(self):
        keys, node = [], self.skip_list._header
        while node is not None:
            keys.append(node.key)
            node = node.forward[0]
        ends = {end for interval in self.held.values() for end in (interval.low, interval.high)}
        assert keys == sorted(ends | {-math.inf, math.inf})


TestSkipListAgainstBruteForce = SkipListAgainstBruteForce.TestCase
TestSkipListAgainstBruteForce.settings = settings(max_examples=100, stateful_step_count=30, deadline=None)


@settings(max_examples=100, deadline=None)
@given(st.lists(intervals(), max_size=30), values, st.integers(0, 1000))
def test_no_interval_is_met_twice_on_a_path(held, value, seed):
    skip_list = IntervalSkipList(enumerate(held), seed)
    met = [marker.identity for markers in skip_list.marker_lists(value) for marker in markers]
    assert sorted(met) == [i for i, interval in enumerate(held) if holds(interval, value)]


def test_the_paper_s_counterexample():
    """Reading from the lowest level up would give the wider interval first."""
    skip_list = IntervalSkipList([("four wide", Interval(0, 4)), ("five wide", Interval(2, 7))])
    assert skip_list.top(2.5, 2) == ["four wide", "five wide"]


def test_refusals_name_the_value_and_change_nothing():
    skip_list = IntervalSkipList([("a", Interval(0, 1))])
    with pytest.raises(DuplicateId, match="'a'"):
        skip_list.add("a", Interval(2, 3))
    with pytest.raises(UnknownId, match="'b'"):
        skip_list.remove("b")
    with pytest.raises(BadCount, match="0"):
        skip_list.top(0.5, 0)
    with pytest.raises(BadCoordinate, match="nan"):
        skip_list.containing(math.nan)
    assert list(skip_list) == ["a"]
    assert skip_list.containing(0.5) == ["a"]
