"""Holders of one filter against a brute-force model, while they come and go and indexes are being built."""

from __future__ import annotations

import itertools
from unittest import mock

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from broker_plugins.engine.subscription import Subscription
from broker_plugins.grammar import parse_filter
from broker_plugins.ranked import shelves
from broker_plugins.ranked.accuracy import TopicRule
from broker_plugins.ranked.conditions import box_of
from broker_plugins.ranked.shelves import Holder, Shelf

NAMES = [f"a{number}" for number in range(20)]
RULES = [TopicRule("x", {}), TopicRule("y", {"a0": (0.0, 10.0), "a1": (0.0, 4.0)}), TopicRule("z", {"a2": (0.0, 10.0)})]
values = st.integers(0, 10)


class Shelves(RuleBasedStateMachine):
    """More attributes than an index has columns, and few holders in a list before there is one."""

    @initialize(likely=st.sampled_from(RULES))
    def begin(self, likely: TopicRule) -> None:
        self.patch = mock.patch.object(shelves, "FEW", 4)
        self.patch.start()
        self.shelf = Shelf("t", likely)
        self.held: list[Holder] = []
        self.builds: list = []
        self.orders = itertools.count(100)

    def teardown(self) -> None:
        if hasattr(self, "patch"):
            self.patch.stop()

    @rule(
        attributes=st.lists(st.sampled_from(NAMES), min_size=1, max_size=16, unique=True),
        low=values,
        width=values,
        settle=st.booleans(),
    )
    def add(self, attributes: list[str], low: int, width: int, settle: bool) -> None:
        text = f"$where/{','.join(f'{name}={low}..{low + width}' for name in attributes)}/t"
        subscription = Subscription(None, text, "t", 0, None, next(self.orders))  # type: ignore[arg-type]  # nobody's
        subscription.smart = parse_filter(text)
        holder = Holder(subscription)
        self.held.append(holder)
        self.shelf.add(holder)
        if settle:
            self.shelf.settle()

    @rule(data=st.data())
    def remove(self, data: st.DataObject) -> None:
        if self.held:
            holder = self.held.pop(data.draw(st.integers(0, len(self.held) - 1)))
            self.shelf.remove(holder)

    @rule(each=st.sampled_from(RULES))
    def begin_build(self, each: TopicRule) -> None:
        if self.shelf.lacks(each):
            with mock.patch.object(shelves, "STEP", 1):
                build = self.shelf.build(each)
                next(build, None)
            self.builds.append(build)

    @rule()
    def go_on_building(self) -> None:
        for build in self.builds:
            next(build, None)

    @rule(
        chosen=st.sampled_from(RULES),
        point=st.dictionaries(st.sampled_from(NAMES), values.map(float)),
        most=st.integers(1, 5),
    )
    def ask(self, chosen: TopicRule, point: dict[str, float], most: int) -> None:
        matching = [holder for holder in self.held if holder.conditions.hold_at(point)]
        assert set(self.shelf.matching(point)) == set(matching)
        best = sorted(
            (chosen.accuracy(box_of(holder.subscription.smart.where)), holder.subscription.order) for holder in matching
        )
        assert [(accuracy, order) for accuracy, order, _ in self.shelf.ranked(chosen, point, most)] == best

    @invariant()
    def attributes_are_those_in_use(self) -> None:
        if hasattr(self, "held"):
            used = {test.attribute for holder in self.held for test in holder.conditions.tests}
            assert set(self.shelf.attributes) == used


Shelves.TestCase.settings = settings(max_examples=40, stateful_step_count=40, deadline=None)
TestShelves = Shelves.TestCase
