from __future__ import annotations

import random
from heapq import heappop, heappush

from hypothesis import given, settings
from hypothesis import strategies as st

from benchmarks.reproduction.causal_oracle import HistoryOracle
from broker_plugins.causal import CausalNode, CausalState, Roster

LIFE = 60_000
SLOTS = 14


class Churn:
    """Nodes come and go; each learns of it at a time of its own. A restarted node is a new one in a new slot."""

    def __init__(self, seed):
        self.draw = random.Random(seed)
        self.oracle = HistoryOracle(SLOTS, grace_us=10**9)
        self.nodes = {}
        self.events = []
        self.order = 0
        self.next_slot = 0
        self.delivered = self.violations = 0
        for _ in range(4):
            self.join(1_000_000)

    def put(self, when, act, *what):
        self.order += 1
        heappush(self.events, (when, self.order, act, what))

    def join(self, now):
        if self.next_slot == SLOTS:
            return
        slot, name = self.next_slot, f"n{self.next_slot}"
        self.next_slot += 1
        roster = Roster()
        for other in [*self.nodes.values()]:
            roster.join(other.name, other.slot)
            self.put(now + self.draw.randint(0, 20_000), self.hear_of_joining, other.slot, name, slot)
        roster.join(name, slot)
        self.nodes[slot] = CausalNode(name, roster, lifetime_us=LIFE, skew_us=0)

    def hear_of_joining(self, now, who, name, slot):
        if who in self.nodes:
            self.nodes[who].roster.join(name, slot)

    def leave(self, now):
        gone = self.nodes.pop(self.draw.choice(list(self.nodes)))
        for other in self.nodes:
            self.put(now + self.draw.randint(20_001, 50_000), self.hear_of_leaving, other, gone.name)

    def hear_of_leaving(self, now, who, name):
        if who in self.nodes and name in self.nodes[who].roster:
            self.nodes[who].member_left(name, now)

    def send(self, now, who=None):
        node = self.nodes.get(self.draw.choice(list(self.nodes)) if who is None else who)
        others = [name for name in node.roster if name != node.name]
        if not others:
            return
        chosen = self.draw.sample(others, self.draw.randint(1, len(others)))
        self.note(now, node.slot, node.poll(now))
        outgoing = node.send(now, chosen)
        slots = {name: node.roster.slot(name) for name in chosen}
        number = self.oracle.send(node.slot, outgoing.stamp, outgoing.stamp + LIFE, list(slots.values()))
        for name, control in outgoing.control.items():
            if self.draw.random() > 0.1:
                delay = int(4_000 * self.draw.paretovariate(1.1))
                self.put(now + 1 + delay, self.arrive, slots[name], number, control)

    def arrive(self, now, who, number, control):
        if who in self.nodes:
            self.note(now, who, self.nodes[who].receive(now, control, number))

    def wake(self, now, who):
        if who in self.nodes:
            self.note(now, who, self.nodes[who].poll(now))

    def note(self, now, who, outcome):
        for delivery in outcome.deliveries:
            self.violations += self.oracle.violates(who, delivery.payload)
            self.oracle.follow(who, delivery.payload)
            self.delivered += 1
            if self.draw.random() < 0.3:
                self.put(now, self.answer, who)
        wakeup = self.nodes[who].next_wakeup()
        if wakeup is not None:
            self.put(max(wakeup, now), self.wake, who)

    def answer(self, now, who):
        if who in self.nodes:
            self.send(now, who)

    def run(self, sends):
        for at in range(sends):
            when = 1_000_000 + at * 4_000
            self.put(when, self.send)
            if at % 25 == 24:
                self.put(when, self.leave)
                self.put(when + 5_000, self.join)
        while self.events:
            now, _, act, what = heappop(self.events)
            act(now, *what)
        return self


@settings(max_examples=15, deadline=None)
@given(st.integers(0, 10**6))
def test_order_holds_while_nodes_come_and_go(seed):
    world = Churn(seed).run(200)
    assert world.delivered > 100
    assert world.violations == 0


def test_the_churn_notices_a_core_that_forgets(monkeypatch):
    monkeypatch.setattr(CausalState, "expire", lambda self, now: self.entries.clear())
    assert sum(Churn(seed).run(200).violations for seed in range(5)) > 0
