"""Retained messages of two nodes that were apart: whatever each of them did, both have the newest in the end."""

from __future__ import annotations

import asyncio
import itertools
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from broker_plugins.cluster.convergence import Convergence, is_shared, message_of
from broker_plugins.cluster.hybrid_clock import HybridClock
from broker_plugins.cluster.options import ClusterCounters
from broker_plugins.cluster.wire import AskBuckets, AskRetained, Frame, decode, encode
from broker_plugins.engine import Message
from broker_plugins.engine.engine import Engine
from broker_plugins.engine.hooks import Hooks
from broker_plugins.engine.options import EngineOptions


class Stamping(Hooks):
    """As much of the cluster plugin as retains."""

    def __init__(self) -> None:
        self.convergence: Convergence | None = None

    def on_retain(self, message: Message) -> bool | None:
        assert self.convergence is not None
        return self.convergence.keep(message) if is_shared(message) else None


class Node:
    """A node with retained messages, and a way to ask another one."""

    def __init__(self, name: str, loop: asyncio.AbstractEventLoop, ticks: Any, max_removals: int = 1000) -> None:
        stamping = Stamping()
        self.engine = Engine(loop, EngineOptions(durability="off"))
        self.engine.start([stamping])
        self.counters = ClusterCounters()
        self.convergence = stamping.convergence = Convergence(
            self.engine, name, HybridClock(lambda: next(ticks)), max_removals, self.counters, lambda _: False
        )
        self.peer: Node | None = None

    async def ask(self, _node: str, question: bytes) -> bytes:
        asked = decode(question, AskBuckets | AskRetained)  # type: ignore[arg-type]
        assert self.peer is not None
        theirs = self.peer.convergence
        return encode(theirs.buckets() if isinstance(asked, AskBuckets) else theirs.answer(asked))

    def retain(self, topic: str, payload: bytes) -> None:
        self.engine.publish(Message(topic, payload, 1, retain=True))

    @property
    def kept(self) -> dict[str, bytes]:
        return {message.topic: message.payload for message in self.engine.retained}


def repaired(left: Node, right: Node) -> None:
    left.peer, right.peer = right, left
    for one, other in ((left, "right"), (right, "left")):
        one.engine.loop.run_until_complete(one.convergence.repair(one, other))  # type: ignore[arg-type]


@settings(max_examples=80, deadline=None)
@given(st.lists(st.tuples(st.booleans(), st.sampled_from("abcdef"), st.sampled_from([b"", b"1", b"2"])), max_size=25))
def test_the_newest_wins_everywhere(steps: list[tuple[bool, str, bytes]]) -> None:
    loop = asyncio.new_event_loop()
    ticks = itertools.count(1)
    nodes = [Node("left", loop, ticks), Node("right", loop, ticks)]
    newest: dict[str, bytes] = {}
    for right, topic, payload in steps:
        nodes[right].retain(topic, payload)
        newest[topic] = payload
    repaired(*nodes)
    wanted = {topic: payload for topic, payload in newest.items() if payload}
    assert nodes[0].kept == nodes[1].kept == wanted
    assert nodes[0].convergence.ledger.digest == nodes[1].convergence.ledger.digest
    before = [node.counters.retained_repairs for node in nodes]
    repaired(*nodes)
    assert [node.counters.retained_repairs for node in nodes] == before, "nothing is repaired twice"
    loop.close()


def test_what_does_not_fit_one_answer_comes_in_several() -> None:
    loop = asyncio.new_event_loop()
    ticks = itertools.count(1)
    left, right = Node("left", loop, ticks), Node("right", loop, ticks)
    for number in range(40):
        left.retain(f"large/{number}", b"x" * 400_000)
    repaired(left, right)
    assert right.kept == left.kept
    assert right.counters.retained_repairs == 40
    loop.close()


def test_what_a_node_says_of_itself_stays_with_it() -> None:
    assert not is_shared(Message("$SYS/x", b"1", retain=True))
    assert not is_shared(Message("x", b"1", retain=True, volatile=True))
    assert is_shared(Message("x", b"1", retain=True))


def test_a_frame_brings_its_origin_and_its_number() -> None:
    message = message_of(Frame("t", b"x", 1, retain=False, number=5), "there")
    assert message.properties == {"node": "there", "number": 5}
