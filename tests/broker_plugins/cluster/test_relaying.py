"""Messages that nodes pass on for each other, over a fabric in this process that reorders and notices who is gone."""

from __future__ import annotations

import asyncio
import random
from types import SimpleNamespace
from typing import Any

import pytest

from broker_plugins.cluster.node import Node
from broker_plugins.cluster.options import ClusterCounters, ClusterOptions
from broker_plugins.cluster.relaying import Relaying
from broker_plugins.cluster.wire import Frame, Relay, decode
from broker_plugins.engine import Message


class World:
    """The fabric: what one node sends to another comes in that order, but when it likes."""

    def __init__(self, loop: asyncio.AbstractEventLoop, seed: int, patience_s: float = 60.0) -> None:
        self.loop = loop
        self.rng = random.Random(seed)
        self.patience_s = patience_s
        self.members: dict[str, Member] = {}
        self.gone: set[str] = set()
        self.underway: list[tuple[str, str, bytes, str]] = []

    def run(self) -> None:
        """Let everything that is sent arrive, in a random order of senders and receivers."""
        self.turn()
        while self.underway:
            first = self.rng.choice(self.underway)
            # Of one sender and receiver the oldest.
            sender, receiver, data, reply = next(each for each in self.underway if each[:2] == first[:2])
            self.underway.remove((sender, receiver, data, reply))
            if receiver in self.gone:
                message = SimpleNamespace(subject=reply)
                self.loop.run_until_complete(self.members[sender].part.on_unheard(message))  # type: ignore[arg-type]
            else:
                subjects = self.members[receiver].part.subjects()
                subjects[f"relay.{receiver}"][1](decode(data, Relay))
            self.turn()

    def turn(self) -> None:
        for _ in range(4):
            self.loop.call_soon(self.loop.stop)
            self.loop.run_forever()


class Member:
    """One node: its part, and what its clients got."""

    def __init__(self, world: World, name: str) -> None:
        self.world = world
        self.name = name
        self.got: list[tuple[str, int]] = []
        self.counters = ClusterCounters()
        options = ClusterOptions(node=name, overlay_patience_s=world.patience_s)
        self.node = Node(options, self.counters)
        self.node.engine = SimpleNamespace(loop=world.loop)  # type: ignore[assignment]
        self.node.fabric = self  # type: ignore[assignment]
        self.part = Relaying(self.node)
        self.part.start(self)  # type: ignore[arg-type]
        self.ready = True
        self.routes: Any = None
        world.members[name] = self

    # What the part needs of the fabric and of forwarding.

    def subject(self, *parts: str) -> str:
        return ".".join(parts)

    async def publish(self, subject: str, data: bytes, reply: str) -> None:
        self.world.underway.append((self.name, subject.removeprefix("relay."), data, reply))

    def frame(self, message: Message) -> Frame:
        return Frame(message.topic, message.payload, 0, retain=False, number=int(message.payload))

    async def take_relayed(self, origin: str, frame: Frame) -> None:
        self.got.append((origin, frame.number))


@pytest.fixture
def loop():
    made = asyncio.new_event_loop()
    yield made
    made.close()


def random_plan(rng: random.Random, origin: str, nodes: list[str]) -> list[tuple[str, str]]:
    """Any tree over some nodes."""
    has = [origin]
    hops = []
    for node in rng.sample(nodes, rng.randint(1, len(nodes))):
        hops.append((rng.choice(has), node))
        has.append(node)
    return hops


@pytest.mark.parametrize("seed", range(20))
def test_everybody_a_plan_names_gets_it_once_and_in_order_also_where_a_node_is_gone(loop, seed: int) -> None:
    world = World(loop, seed)
    for name in "abcdef":
        Member(world, name)
    expected: dict[str, list[tuple[str, int]]] = {name: [] for name in "abcdef"}
    for number in range(1, 121):
        if number == 60:
            world.run()
            world.gone = {"e", "f"}  # nobody has been told
        origin = world.rng.choice("abc")
        hops = random_plan(world.rng, origin, [name for name in "abcdef" if name != origin])
        world.members[origin].part.send(Message("t", str(number).encode()), hops)
        for _, receiver in hops:
            if receiver not in world.gone:
                expected[receiver].append((origin, number))
        if world.rng.random() < 0.1:
            world.run()
    world.run()
    for name, member in world.members.items():
        for origin in "abc":
            got = [number for sender, number in member.got if sender == origin]
            assert got == [number for sender, number in expected[name] if sender == origin], f"{name} of {origin}"
        assert not member.counters.repeated
    assert sum(member.counters.relays_gone for member in world.members.values()) > 0
    assert sum(member.counters.relayed for member in world.members.values()) > 0


def test_a_message_that_comes_twice_is_taken_once(loop) -> None:
    world = World(loop, 1)
    a, b = Member(world, "a"), Member(world, "b")
    a.part.send(Message("t", b"7"), [("a", "b")])
    world.turn()
    world.underway *= 2
    world.run()
    assert b.got == [("a", 7)]
    assert b.counters.repeated == 1


def test_what_does_not_come_is_not_waited_for_for_ever(loop) -> None:
    world = World(loop, 1, patience_s=0.01)
    a, b = Member(world, "a"), Member(world, "b")
    for number in (1, 2, 3):
        a.part.send(Message("t", str(number).encode()), [("a", "b")])
        world.turn()
    del world.underway[1]
    world.run()
    for _ in range(2_000):
        if len(b.got) == 2:
            break
        loop.run_until_complete(asyncio.sleep(0.005))
    assert b.got == [("a", 1), ("a", 3)]


def test_a_node_that_was_restarted_is_counted_for_anew(loop) -> None:
    world = World(loop, 1)
    a, b = Member(world, "a"), Member(world, "b")
    a.part.send(Message("t", b"1"), [("a", "b")])
    a.part.send(Message("t", b"2"), [("a", "b")])
    world.run()
    again = Member(world, "b")
    a.part.came("b")
    a.part.send(Message("t", b"3"), [("a", "b")])
    world.run()
    assert (b.got, again.got) == ([("a", 1), ("a", 2)], [("a", 3)])


def test_more_than_may_be_on_its_way_is_dropped_and_counted(loop) -> None:
    world = World(loop, 1)
    a, b = Member(world, "a"), Member(world, "b")
    a.node.options.max_outgoing_bytes = 1_000
    for number in range(1, 11):
        a.part.send(Message("t", str(number).encode()), [("a", "b")])
    world.run()
    assert len(b.got) == 3
    assert a.counters.dropped_outgoing == 7
    a.part.send(Message("t", b"11"), [("a", "b")])
    a.ready = False
    world.run()
    assert a.counters.dropped_away == 1
