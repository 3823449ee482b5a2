"""Two hundred nodes in one process that come, go and crash: every message reaches everybody who wants it."""

from __future__ import annotations

import random
from collections import Counter
from typing import TYPE_CHECKING, Any

import pytest

from broker_plugins.cluster.content_summary import Box, Matcher
from broker_plugins.cluster.content_trees import ContentTrees, nested
from broker_plugins.cluster.contents import OtherContents, OwnContents

if TYPE_CHECKING:
    from broker_plugins.cluster.wire import ContentDelta

FILTERS = ("jobs/#", "jobs/+")
NODES = 200
PUBLISHERS = 2
CAP = 8.0


class Member:
    """A node: what its clients want, and what it announced of that."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.own = OwnContents(name, 1, 4, 10)
        self.held: list[tuple[str, Box]] = []

    def wants(self, content: Any) -> bool:
        return any(Matcher([box]).wants(content) for _, box in self.held)


class Publisher:
    """A node that publishes: what it knows of the others, and its trees."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.others = OtherContents()
        self.trees = ContentTrees(name, CAP)

    def plan(self, content: Any) -> list[tuple[str, str]]:
        boxes = {inner: self.others.boxes(inner) for inner in FILTERS}
        names = {name for found in boxes.values() for name in found}
        wanted = set()
        for name in names:
            held = [inner for inner in FILTERS if name in boxes[inner]]
            matchers = self.others.wanted(name, held)
            assert matchers is not None
            if any(matcher.wants(content) for matcher in matchers):
                wanted.add(name)
        return self.trees.plan(boxes, self.others.changes, content, wanted)


class World:
    """All nodes, and what passes between them."""

    def __init__(self, seed: int) -> None:
        self.rng = random.Random(seed)
        self.members: dict[str, Member] = {}
        self.publishers = [Publisher(f"publisher {number}") for number in range(PUBLISHERS)]
        self.unnoticed: set[str] = set()
        """Nodes that are gone, which not everybody knows yet."""
        self.made = 0
        self.straight = 0

    def announce(self, delta: ContentDelta | None) -> None:
        for publisher in self.publishers if delta is not None else ():
            if not publisher.others.apply(delta):
                publisher.others.replace(self.members[delta.node].own.snapshot())

    def join(self) -> None:
        member = Member(f"node-{self.made}")
        self.made += 1
        self.members[member.name] = member
        for _ in range(self.rng.randint(1, 8)):
            self.subscribe(member)
        for publisher in self.publishers:
            publisher.others.replace(member.own.snapshot())

    def subscribe(self, member: Member) -> None:
        sides = []
        for name in ("age", "pay"):
            if self.rng.random() < 0.8:
                low = self.rng.choice([self.rng.uniform(0, 95), self.rng.gauss(50, 5)])
                sides.append((name, low, low + self.rng.choice([0.5, 3.0, 12.0])))
        held = (self.rng.choice(FILTERS), tuple(sides) or (("age", 10.0, 11.0),))
        member.held.append(held)
        member.own.add(*held)
        self.announce(member.own.delta())

    def unsubscribe(self, member: Member) -> None:
        if len(member.held) > 1:
            held = member.held.pop(self.rng.randrange(len(member.held)))
            member.own.remove(*held)

    def beat(self) -> None:
        """Everybody says what became narrower, and notices who is gone."""
        for member in self.members.values():
            member.own.tighten()
            self.announce(member.own.delta() or member.own.nothing_new())
        for name in self.unnoticed:
            for publisher in self.publishers:
                publisher.others.forget(name)
        self.unnoticed.clear()

    def leave(self, name: str, noticed: bool) -> None:
        del self.members[name]
        if noticed:
            for publisher in self.publishers:
                publisher.others.forget(name)
        else:
            self.unnoticed.add(name)

    def publish(self, publisher: Publisher) -> None:
        """Follow a plan hop by hop; a node that is gone is noticed by whoever sends to it."""
        centre = self.rng.choice([(50, 50), (20, 80), (70, 30)])
        content: dict[str, Any] = {"age": self.rng.gauss(centre[0], 12), "pay": self.rng.gauss(centre[1], 12)}
        if self.rng.random() < 0.1:
            del content[self.rng.choice(["age", "pay"])]
        reached: Counter[str] = Counter()
        todo = list(nested(publisher.plan(content), publisher.name).items())
        while todo:
            name, below = todo.pop()
            if name in self.members:
                reached[name] += 1
            else:
                assert name in self.unnoticed
                self.straight += len(below)
            todo += below.items()  # by the node itself, or straight where it is gone
        assert max(reached.values(), default=0) <= 1
        wanting = {name for name, member in self.members.items() if member.wants(content)}
        assert wanting <= set(reached), f"{sorted(wanting - set(reached))} of {len(wanting)} miss it"


@pytest.mark.parametrize("seed", [1, 2])
def test_nobody_misses_anything_while_nodes_come_go_and_crash(seed: int) -> None:
    world = World(seed)
    for _ in range(NODES):
        world.join()
    world.beat()
    parents: set[frozenset[tuple[str, int]]] = set()
    for step in range(60):
        change = world.rng.random()
        some = world.rng.sample(sorted(world.members), 3)
        if change < 0.25:
            world.join()
        elif change < 0.4:
            world.leave(some[0], noticed=True)
        elif change < 0.6:
            for name in some:
                world.leave(name, noticed=False)
        elif change < 0.8:
            for name in some:
                world.subscribe(world.members[name])
                world.unsubscribe(world.members[name])
        else:
            world.beat()
        for publisher in world.publishers:
            for _ in range(4):
                world.publish(publisher)
        if step % 10 == 9:
            while len(world.members) < NODES - 10:
                world.join()
        parents.add(frozenset(world.publishers[0].trees.parents("jobs/#").items()))
    assert world.straight > 0  # somebody who was to pass it on was gone
    assert len(parents) > 10  # and others were elected
    for publisher in world.publishers:
        for inner in FILTERS:
            carried = [*publisher.trees.carried(inner).values()]
            assert max(carried) <= 10 * max(sum(carried) / len(carried), 1.0)
