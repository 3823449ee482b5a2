"""A session that moves: whatever comes to both nodes and in whatever order, its client gets it once and in order."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from broker_plugins.cluster.arrival import Arrival, Arrivals
from broker_plugins.cluster.convergence import FROM, NUMBER
from broker_plugins.cluster.leaving import ANSWER_BYTES, chunk
from broker_plugins.cluster.moving import Moving
from broker_plugins.cluster.options import ClusterCounters
from broker_plugins.cluster.progress import Progress
from broker_plugins.cluster.wire import MovedSession, Owed
from broker_plugins.engine import Message
from broker_plugins.engine.engine import Engine
from broker_plugins.engine.options import EngineOptions
from tests.broker_plugins.engine.test_holding import Socket

WAYS = [(origin, qos) for origin in ("old", "new", "third") for qos in (0, 1)]
"""The ways messages come: from three nodes, by mail and without."""


def moving_on(loop: asyncio.AbstractEventLoop) -> Moving:
    engine = Engine(loop, EngineOptions(durability="off"))
    engine.start([])
    node: Any = SimpleNamespace(
        engine=engine, fabric=None, name="new", number=lambda sequence: sequence, counters=ClusterCounters()
    )
    moving = Moving(node, announcing=None)  # type: ignore[arg-type]
    moving.start(forwarding=None)  # type: ignore[arg-type]
    return moving


def number_of(qos: int, place: int) -> int:
    """The number of the message at a place of a way: a node's messages have one each, by whichever way they go."""
    return 2 * place + qos


def message_from(origin: str, qos: int, place: int) -> Message:
    message = Message(f"t/{origin}/{qos}", str(place).encode(), qos)
    if origin == "new":
        message.sequence = number_of(qos, place)
    else:
        message.properties = {FROM: origin, NUMBER: number_of(qos, place)}
    return message


@st.composite
def journeys(draw: st.DrawFn) -> list[tuple[int, int, int, int]]:
    """For each way: how many were sent, from which on to both nodes, how far the old one got, and the new one."""
    found = []
    for _ in WAYS:
        sent = draw(st.integers(0, 8))
        both = draw(st.integers(1, sent + 1))
        # The marks have come: the old node has had all from before the new one was sent anything, and that all it had.
        old = draw(st.integers(both - 1, sent))
        found.append((sent, both, old, draw(st.integers(old, sent))))
    return found


@settings(max_examples=150, deadline=None)
@given(journeys(), st.randoms(use_true_random=False))
def test_everything_once_and_in_order(journey: list[tuple[int, int, int, int]], random) -> None:
    loop = asyncio.new_event_loop()
    moving = moving_on(loop)
    session = moving.begin_held("c")
    progress = Progress()
    got: dict[tuple[str, int], list[int]] = {way: [] for way in WAYS}
    unhad: list[tuple[str, int]] = []
    for way, (_, both, old, _) in zip(WAYS, journey, strict=True):
        for number in range(1, old + 1):
            if way == ("third", 0) and number == old >= both:
                unhad.append(
                    (way[0], number_of(way[1], number))
                )  # a part of the cluster holds the last one back on the old node
            else:
                got[way].append(number)
            progress.reached(way[0], way[1] > 0, number_of(way[1], number))
    # What came to the new node while it held, the ways mixed as they like.
    coming = {way: list(range(both, new + 1)) for way, (_, both, _, new) in zip(WAYS, journey, strict=True)}
    while any(coming.values()):
        way = random.choice([way for way, numbers in coming.items() if numbers])
        session.deliver(message_from(*way, coming[way].pop(0)), way[1])
    moving._fill(session, MovedSession(found=True, fenced=True, positions=progress.positions(), unhad=unhad))
    for entry in session.held:
        got[entry.message.topic.split("/")[1], entry.message.qos].append(int(entry.message.payload))
    for way, (_, _, _, new) in zip(WAYS, journey, strict=True):
        assert got[way] == list(range(1, new + 1)), way
    loop.close()


def test_what_waited_on_the_old_node_comes_before_what_came_here() -> None:
    loop = asyncio.new_event_loop()
    moving = moving_on(loop)
    session = moving.begin_held("c")
    session.deliver(message_from("third", 0, 9), 0)
    session.deliver(message_from("third", 1, 9), 1)
    moved = MovedSession(
        found=True,
        owed=[Owed("t/third/1", b"7", 1, 1, False, 4, 2), Owed("t/third/1", b"8", 1, 1, False, 0, 0)],
        waiting=[Owed("t/third/0", b"8", 0, 0, False, 0, 0)],
        inbound=[12],
        positions=[("third", False, number_of(0, 8)), ("third", True, number_of(1, 8))],
        fenced=True,
    )
    moving._fill(session, moved)
    socket = Socket()
    session.attach(socket)
    session.resend()
    assert [packet[-1:] for packet in socket.out if packet[-1:] in b"789"] == [b"7", b"8", b"9", b"8", b"9"]
    assert session.inbound == {12}
    assert session.inflight[4].message.payload == b"7"
    loop.close()


def test_a_message_of_a_group_or_a_retained_one_is_never_taken_for_had() -> None:
    loop = asyncio.new_event_loop()
    moving = moving_on(loop)
    session = moving.begin_held("c")
    session.deliver(message_from("third", 1, 3), 1, group=("g", "$share/g/t/#"))
    session.deliver(message_from("third", 1, 3), 1, retain=True)
    session.deliver(message_from("third", 1, 3), 1)
    moving._fill(session, MovedSession(found=True, positions=[("third", True, number_of(1, 5))]))
    assert [(entry.group is not None, entry.retain) for entry in session.held] == [(True, False), (False, True)]
    assert moving._node.counters.retransmissions == 1
    loop.close()


async def test_who_asks_waits_until_a_session_has_come() -> None:
    arrivals = Arrivals()
    await arrivals.begin("c", 30.0)
    others = [asyncio.ensure_future(arrivals.begin("c", 30.0)) for _ in range(2)]
    waiting = asyncio.ensure_future(arrivals.settled("c", 30.0))
    await asyncio.sleep(0)
    assert not waiting.done()
    arrivals.over("c")
    await waiting
    await asyncio.wait(others, return_when=asyncio.FIRST_COMPLETED)
    await asyncio.sleep(0)
    assert sum(other.done() for other in others) == 1, "one fetches it at a time"
    arrivals.over("c")
    await asyncio.wait(others)
    arrivals.over("c")
    await arrivals.settled("c", 0.0)


def test_what_came_since_a_session_did_is_not_owed_by_its_old_node() -> None:
    arrivals = Arrivals()
    arrival = arrivals.note("c", Arrival("new", 10))
    arrivals.saw("third", 4)
    owed = [("third", 4), ("third", 5), ("new", 10), ("new", 11), ("", 0)]
    had = [arrival.had(Owed("t", b"", 1, 1, False, 0, 0, origin, number)) for origin, number in owed]
    assert had == [True, False, False, True, False]
    arrivals.forget("c")
    assert arrivals.get("c") is None


@given(st.lists(st.integers(0, ANSWER_BYTES), max_size=12))
def test_what_is_owed_travels_in_answers_of_a_bounded_size(sizes: list[int]) -> None:
    owed = [Owed("t", b"x" * size, 1, 1, False, 0, 0) for size in sizes]
    start, answers = 0, []
    while start < len(owed):
        answers.append(chunk(owed[start:]))
        assert answers[-1]
        start += len(answers[-1])
    assert [each for answer in answers for each in answer] == owed
    for answer in answers:
        assert len(answer) == 1 or sum(len(each.payload) for each in answer) <= ANSWER_BYTES
