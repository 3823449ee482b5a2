"""Plans of whole ways through an overlay, with several peers on a host, against a scan of all boxes."""

from __future__ import annotations

import hypothesis.strategies as st
import pytest
from hypothesis import settings
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from spatial_index import Election, OverlayTree
from tests.spatial_index.test_overlay_tree import DOMAINS, boxes, events, wants

HOSTS = [f"h{number}" for number in range(8)]


class PlansAgainstScan(RuleBasedStateMachine):
    """Whoever joins, leaves or crashes: a plan reaches every host that wants an event, once, and nobody else."""

    @initialize(
        election=st.sampled_from(Election),
        cap=st.sampled_from([None, 2.0, 8.0]),
        placed=st.booleans(),
    )
    def start(self, election, cap, placed):
        self.tree = OverlayTree(DOMAINS, election=election, cap=cap, place_by_events=placed, half_life=20)
        self.held: dict[str, tuple[str, dict]] = {}
        self.joined = 0

    @rule(many=st.lists(st.tuples(st.sampled_from(HOSTS), boxes), min_size=1, max_size=15))
    def join(self, many):
        for host, box in many:
            peer = f"p{self.joined}"
            self.joined += 1
            self.tree.join(peer, box, host)
            self.held[peer] = (host, box)

    @precondition(lambda self: self.held)
    @rule(pick=st.integers(0, 1000))
    def leave(self, pick):
        peer = list(self.held)[pick % len(self.held)]
        del self.held[peer]
        self.tree.leave(peer)

    @rule(host=st.sampled_from(HOSTS))
    def crash(self, host):
        for peer in [peer for peer, (where, _) in self.held.items() if where == host]:
            del self.held[peer]
            self.tree.leave(peer)

    @rule()
    def rearrange(self):
        self.tree.rearrange()

    @rule(event=events, origin=st.sampled_from([*HOSTS, "outside"]), times=st.integers(1, 6))
    def plan(self, event, origin, times):
        expected = {host for host, box in self.held.values() if wants(box, event)} - {origin}
        for _ in range(times):
            before, budget = self.tree.carried, self.tree.budget
            plan = self.tree.plan(event, origin)
            has = {origin}
            for sender, receiver in plan.hops:
                assert sender in has
                assert receiver not in has
                has.add(receiver)
            assert has - {origin} == expected == set(plan.receivers)
            after = self.tree.carried
            for host, carried in before.items():
                sent = sum(sender == host for sender, _ in plan.hops) if host != origin else 0
                assert after[host] == carried + sent
                assert not sent or not carried or carried < budget

    @rule(event=events, picks=st.sets(st.sampled_from(HOSTS)))
    def plan_for_some(self, event, picks):
        """Who wants it may be known better than by the boxes; boxes still say where they are."""
        expected = {host for host, box in self.held.values() if host in picks and wants(box, event)}
        assert set(self.tree.plan(event, "outside", picks).receivers) == expected

    @precondition(lambda self: self.held)
    @rule(event=events, pick=st.integers(0, 1000))
    def publish(self, event, pick):
        origin = list(self.held)[pick % len(self.held)]
        delivery = self.tree.publish(event, origin)
        assert sorted(delivery.receivers) == sorted(peer for peer, (_, box) in self.held.items() if wants(box, event))

    @invariant()
    def carried_by_those_that_are_there(self):
        if hasattr(self, "tree"):
            assert set(self.tree.carried) == {host for host, _ in self.held.values()}
            assert len(self.tree) == len(self.held)


PlansAgainstScan.TestCase.settings = settings(max_examples=60, stateful_step_count=25, deadline=None)
TestPlans = PlansAgainstScan.TestCase


def test_what_is_on_one_host_is_sent_there_once_and_passed_on_for_nothing() -> None:
    tree = OverlayTree(DOMAINS)
    for number in range(30):
        tree.join(f"p{number}", {"age": (number, number + 40.0)}, host=f"h{number % 3}")
    delivery = tree.publish({"age": 35.0, "salary": 1.0}, "p0")
    assert len(delivery.receivers) == 30
    assert delivery.messages == pytest.approx(delivery.wasted + 2)  # h1 and h2 want it
    plan = tree.plan({"age": 35.0, "salary": 1.0}, "h0")
    assert sorted(plan.receivers) == ["h1", "h2"]


def test_a_plan_as_it_travels() -> None:
    tree = OverlayTree(DOMAINS)
    for number in range(20):
        tree.join(f"p{number}", {"age": (0.0, 50.0 + number)})
    plan = tree.plan({"age": 10.0, "salary": 1.0}, "outside")
    reached: list[str] = []

    def follow(below) -> None:
        for host, further in below:
            reached.append(host)
            follow(further)

    follow(plan.below("outside"))
    assert sorted(reached) == sorted(f"p{number}" for number in range(20))
    assert sum(sender == "outside" for sender, _ in plan.hops) <= 2


def test_events_that_took_another_way_count_for_elections() -> None:
    tree = OverlayTree(DOMAINS, election=Election.CHEAPEST_BY_EVENTS, place_by_events=True)
    for number in range(12):
        tree.join(f"p{number}", {"age": (number * 8.0, number * 8.0 + 8)})
    for _ in range(50):
        tree.record({"age": 3.0, "salary": 500.0})
    tree.re_elect()
    root = max(tree.boxes(), key=lambda box: box.level)
    assert root.parent == "p0"  # the only one that wants what happens
