"""Summaries cover everything that is put into them, in no more boxes than allowed."""

from __future__ import annotations

import math
import random

import hypothesis.strategies as st
from hypothesis import settings
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from broker_plugins.cluster.content_summary import Matcher, Summary, box_of, covers, joined
from broker_plugins.grammar import parse_filter

NAMES = ("age", "pay", "pos.alt")
ends = st.sampled_from([-math.inf, -5.0, 0.0, 1.0, 1.5, 2.0, 7.0, 100.0, math.inf])
sides = st.tuples(ends, ends).map(lambda pair: (min(pair), max(pair)))
boxes = st.dictionaries(st.sampled_from(NAMES), sides).map(
    lambda named: tuple((name, low, high) for name, (low, high) in sorted(named.items()))
)
values = st.sampled_from([-6, -5, 0, 0.5, 1, 1.5, 3, 7, 50, 1000, True, "7", None])


@st.composite
def payloads(draw):
    flat = draw(st.dictionaries(st.sampled_from(["age", "pay"]), values))
    if draw(st.booleans()):
        flat["pos"] = {"alt": draw(values)}
    return flat


def inside(box, content):
    for name, low, high in box:
        value = content
        for part in name.split("."):
            value = value.get(part) if isinstance(value, dict) else None
        if not isinstance(value, int | float) or isinstance(value, bool) or not low <= value <= high:
            return False
    return True


class SummaryAgainstScan(RuleBasedStateMachine):
    """Whatever came and went: a payload that one of the boxes wants is wanted by the summary."""

    @initialize(most=st.integers(1, 6))
    def start(self, most):
        self.most = most
        self.summary = Summary(most)
        self.held = []
        self.told = ()

    @rule(box=boxes)
    def add(self, box):
        before = self.summary.covers
        grew = self.summary.add(box)
        self.held.append(box)
        assert grew == (self.summary.covers != before) or grew
        assert grew or self.summary.covers == before

    @rule(many=st.lists(boxes, min_size=5, max_size=30))
    def add_many(self, many):
        for box in many:
            self.add(box)

    @precondition(lambda self: self.held)
    @rule(pick=st.integers(0, 10_000))
    def remove(self, pick):
        before = self.summary.covers
        self.summary.remove(self.held.pop(pick % len(self.held)))
        assert self.summary.covers == before  # what narrows may wait

    @rule()
    def tighten(self):
        before = self.summary.covers
        changed = self.summary.tighten()
        assert changed == (self.summary.covers != before)
        for cover in self.summary.covers:  # no wider than what it covers
            below = [box for box in self.held if covers(cover, box)]
            assert below
        if len(set(self.held)) <= 1:
            assert self.summary.covers == tuple(self.held[:1])

    @rule(content=payloads())
    def ask(self, content):
        matcher = Matcher(self.summary.covers)
        if any(inside(box, content) for box in self.held):
            assert matcher.wants(content)
        assert matcher.wants(content) == any(inside(cover, content) for cover in self.summary.covers)

    @invariant()
    def bounded_and_complete(self):
        if not hasattr(self, "summary"):
            return
        assert len(self.summary.covers) <= self.most
        assert len(self.summary) == len(set(self.held))
        for box in self.held:
            assert any(covers(cover, box) for cover in self.summary.covers)


SummaryAgainstScan.TestCase.settings = settings(max_examples=60, stateful_step_count=30, deadline=None)
TestSummary = SummaryAgainstScan.TestCase


def test_boxes_of_conditions_contain_what_the_conditions_do() -> None:
    where = parse_filter("$where/age=20..25,pay>300,pos.alt<=7/jobs/#").where
    assert where is not None
    box = box_of(where)
    assert [name for name, _, _ in box] == ["age", "pay", "pos.alt"]
    assert inside(box, {"age": 20, "pay": 300.0001, "pos": {"alt": 7}})
    assert not inside(box, {"age": 20, "pay": 300, "pos": {"alt": 7}})
    assert joined(box, ()) == ()


def test_arranged_anew_the_boxes_are_far_smaller_than_where_they_fell() -> None:
    """Twenty crowds in a plane are told apart whatever the order in which their boxes came."""
    rng = random.Random(5)
    crowds = [(rng.uniform(0, 1000), rng.uniform(0, 1000)) for _ in range(20)]
    summary = Summary(32)
    for _ in range(600):
        x, y = rng.choice(crowds)
        x, y = x + rng.uniform(-5, 5), y + rng.uniform(-5, 5)
        summary.add((("x", x, x + 4.0), ("y", y, y + 4.0)))

    def area() -> float:
        return sum((high - low) * (top - bottom) for (_, low, high), (_, bottom, top) in summary.covers)

    before = area()
    assert summary.tighten()
    assert area() <= 20 * 14 * 14 * 1.2
    assert area() < before
