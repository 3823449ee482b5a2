"""The part that orders, without a network: several nodes in one process, with a clock and a directory of the test."""

from __future__ import annotations

import asyncio
from heapq import heappop, heappush
from itertools import count
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

from hypothesis import given, settings
from hypothesis import strategies as st

from broker_plugins.cluster.causal_groups import CausalGroups
from broker_plugins.cluster.causal_wire import AskPast, AskTime, Seated
from broker_plugins.cluster.node import Node
from broker_plugins.cluster.options import ClusterCounters, ClusterOptions
from broker_plugins.cluster.wire import Frame, decode, encode
from broker_plugins.engine import Message
from broker_plugins.grammar import Clauses

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Coroutine, Generator

LIFE_US = 250_000
CAUSAL = {"av/#": "250ms"}


class World:
    """The time, a directory, and whatever is to happen later."""

    def __init__(self) -> None:
        self.now_us = 1_700_000_000_000_000
        self.directory: dict[str, bytes] = {}
        self.parts: dict[str, Member] = {}
        self._later: list[tuple[int, int, Callable[[], None]]] = []
        self._order = count()

    def at(self, when_us: int, act: Callable[[], None]) -> SimpleNamespace:
        handle = SimpleNamespace(cancelled=False)
        handle.cancel = lambda: setattr(handle, "cancelled", True)
        heappush(self._later, (when_us, next(self._order), lambda: None if handle.cancelled else act()))
        return handle

    def run(self) -> None:
        while self._later:
            when, _, act = heappop(self._later)
            self.now_us = max(self.now_us, when)
            act()


class Member:
    """One node: its part, and what its clients got."""

    def __init__(
        self, world: World, name: str, causal: dict[str, str] = CAUSAL, offset_ms: float = 0.0, **bounds: int
    ) -> None:
        self.world = world
        self.name = name
        self.got: list[bytes] = []
        self.kept: list[bytes] = []
        self.counters = ClusterCounters()
        options = ClusterOptions(node=name, causal=causal, **bounds)  # type: ignore[arg-type]  # bounds are numbers
        self.node = Node(options, self.counters)
        self.node.steady_us = lambda: world.now_us + round(offset_ms * 1000)  # type: ignore[method-assign]
        self.node.engine = SimpleNamespace(  # type: ignore[assignment]
            guard=None,
            publish=lambda message: self.got.append(message.payload),
            retain=lambda message: self.kept.append(message.payload),
            sessions={},
            loop=SimpleNamespace(call_later=lambda s, act: world.at(world.now_us + round(s * 1e6), act)),
        )
        self.node.fabric = self  # type: ignore[assignment]
        self.part = CausalGroups(self.node)
        world.parts[name] = self
        asyncio.run(self.part.joined())

    # What the part needs of the fabric.

    async def directory_change(self, key: str, change: Callable[[bytes | None], bytes | None]) -> bytes | None:
        wanted = change(self.world.directory.get(key))
        if wanted is not None:
            self.world.directory[key] = wanted
        return self.world.directory.get(key)

    def subject(self, name: str) -> str:
        return name

    async def publish(self, subject: str, data: bytes) -> None:
        for member in self.world.parts.values():
            member.part.subjects()[subject][1](decode(data, Seated))

    async def leased(self) -> list[str]:
        return list(self.world.parts)

    async def ask(self, node: str, question: bytes, seconds: float = 1.0) -> bytes:
        asked: AskTime | AskPast = decode(question, AskTime | AskPast)  # type: ignore[arg-type]  # a union
        return encode(self.world.parts[node].part.questions()[type(asked)](asked))

    # Messages.

    def send(self, payload: bytes, to: list[str], ttl: float | None = None, retain: bool = False) -> dict[str, Frame]:
        message = Message("av/x", payload, retain=retain)
        message.clauses = None if ttl is None else Clauses(ttl=ttl)
        group = self.part.group_of(message.topic)
        assert group is not None
        controls = self.part.stamp(group, message, to)
        self.got.append(payload)
        return {name: Frame("av/x", payload, 0, retain, causal=controls.get(name, b"")) for name in to}

    def take(self, frame: Frame, origin: str) -> None:
        message = Message(frame.topic, frame.payload, retain=frame.retain)
        if self.part.take(message, frame, origin):
            self.got.append(frame.payload)


def test_an_answer_waits_for_its_question_and_no_longer_than_that_can_come() -> None:
    world = World()
    a, b, c = (Member(world, name) for name in "abc")
    question = a.send(b"q", ["b", "c"])
    b.take(question["b"], "a")
    answer = b.send(b"a", ["a", "c"])
    c.take(answer["c"], "b")
    assert c.got == []
    c.take(question["c"], "a")
    assert c.got == [b"q", b"a"]
    assert c.counters.causal_delivered == 2
    world.now_us += 5000
    lost = a.send(b"lost", ["b", "c"])
    b.take(lost["b"], "a")
    world.now_us += 1000
    begun = world.now_us
    c.take(b.send(b"second", ["a", "c"])["c"], "b")
    world.run()
    assert c.got == [b"q", b"a", b"second"]
    assert world.now_us - begun == LIFE_US - 1000 + 1
    assert c.counters.causal_longest_wait_us == LIFE_US - 999
    c.take(lost["c"], "a")
    assert c.counters.causal_late == 1
    assert c.got == [b"q", b"a", b"second"]


def test_what_waits_is_bounded_in_bytes_and_the_bound_holds_up_nobody_else() -> None:
    world = World()
    a, b = Member(world, "a"), Member(world, "b")
    c = Member(world, "c", max_causal_waiting_bytes=250)
    question = a.send(b"q", ["b", "c"])
    b.take(question["b"], "a")
    answers = [b.send(b"%d" % number * 100, ["c"]) for number in range(3)]
    for answer in answers:
        c.take(answer["c"], "b")
    assert c.counters.causal_overflows == 1
    c.take(question["c"], "a")
    assert c.got == [b"q", b"0" * 100, b"1" * 100]
    c.take(b.send(b"x" * 1000, ["c"])["c"], "b")
    assert c.counters.causal_overflows == 2, "it would have to wait for the third answer, which is lost here"
    c.take(a.send(b"y" * 1000, ["c"])["c"], "a")
    assert c.got[3:] == [b"y" * 1000]


def test_a_clause_shortens_a_life_and_what_is_retained_is_kept_though_late() -> None:
    world = World()
    a, b = Member(world, "a"), Member(world, "b")
    short = a.send(b"short", ["b"], ttl=0.05, retain=True)
    whole = a.send(b"whole", ["b"], ttl=100.0)
    world.now_us += 60_000
    b.take(short["b"], "a")
    b.take(whole["b"], "a")
    assert (b.got, b.kept, b.counters.causal_late) == ([b"whole"], [b"short"], 1)


def test_a_restarted_node_sits_elsewhere_and_takes_nothing_of_its_life_before() -> None:
    world = World()
    a, b = Member(world, "a"), Member(world, "b")
    old = a.send(b"old", ["b"])
    before = b.part.status()["slot"]
    again = Member(world, "b")
    again.node.incarnation = b.node.incarnation + 1
    asyncio.run(again.part.joined())
    assert again.part.status()["slot"] != before
    again.take(old["b"], "a")
    assert again.counters.causal_strangers == 1
    again.take(a.send(b"new", ["b"])["b"], "a")
    assert again.got == [b"new"]


def test_other_groups_and_hopeless_clocks_are_served_unordered() -> None:
    world = World()
    a = Member(world, "a")
    other, skewed, near = Member(world, "o", {"av/#": "1s"}), Member(world, "s", offset_ms=200), Member(world, "n")
    frames = a.send(b"x", ["o", "s", "n"])
    assert [name for name, frame in frames.items() if frame.causal] == ["s", "n"]  # of s it has not heard yet
    asyncio.run(a.part._measure(["s"]))
    assert (a.counters.causal_refusals, skewed.counters.causal_refusals) == (1, 1)
    frames = a.send(b"y", ["o", "s", "n"])
    assert [name for name, frame in frames.items() if frame.causal] == ["n"]
    assert a.counters.causal_unordered == 1 + 2
    near.take(frames["n"], "a")
    for member in (other, skewed):
        member.take(frames[member.name], "a")
        assert member.got == [b"y"]


def test_a_lost_directory_leaves_everybody_where_they_sit() -> None:
    world = World()
    a, b = Member(world, "a"), Member(world, "b")
    slots = [member.part.status()["slot"] for member in (a, b)]
    world.directory.clear()
    for member in (b, a):
        asyncio.run(member.part.joined())
    assert [member.part.status()["slot"] for member in (a, b)] == slots
    b.take(a.send(b"x", ["b"])["b"], "a")
    assert b.got == [b"x"]


def test_two_in_one_seat_make_room_for_each_other() -> None:
    world = World()
    a, b = Member(world, "a"), Member(world, "b")
    world.directory.clear()
    works: list[Coroutine[Any, Any, None]] = []
    for member in (a, b):
        member.node.work = works.append  # type: ignore[method-assign]
    late = Member(world, "late")  # it takes the seat of a, of which the directory knows nothing any more
    late.node.work = works.append  # type: ignore[method-assign]
    while works:
        asyncio.run(works.pop(0))
    assert len({member.part.status()["slot"] for member in (a, b, late)}) == 3
    frames = a.send(b"x", ["b", "late"])
    for member in (b, late):
        member.take(frames[member.name], "a")
        assert member.got == [b"x"]


def test_where_access_control_is_asked_messages_stay_in_order() -> None:
    async def run() -> None:
        world = World()
        a = await asyncio.to_thread(Member, world, "a")
        b = await asyncio.to_thread(Member, world, "b")
        loop = asyncio.get_running_loop()
        gates = {payload: loop.create_future() for payload in (b"1", b"2", b"3")}

        def guarded(message: Message) -> Generator[Awaitable[Any] | None, Any, None]:
            yield gates[message.payload]
            if message.payload == b"2":
                raise RuntimeError("a plugin fails")
            b.got.append(message.payload)

        b.node.engine = SimpleNamespace(guard=object(), publish_guarded=guarded, loop=loop)  # type: ignore[assignment]
        for payload in (b"1", b"2", b"3"):
            b.take(a.send(payload, ["b"])["b"], "a")
        for payload in (b"3", b"2", b"1"):
            gates[payload].set_result(None)
            await asyncio.sleep(0)
        while len(b.got) < 2:
            await asyncio.sleep(0)
        assert b.got == [b"1", b"3"]

    asyncio.run(asyncio.wait_for(run(), 60))


def test_what_a_client_heard_follows_it_to_another_node() -> None:
    async def run() -> None:
        world = World()
        a, b, c = [await asyncio.to_thread(Member, world, name) for name in "abc"]
        c.node.engine.loop = asyncio.get_running_loop()
        c.node.members = SimpleNamespace(alive=lambda: ["a", "b"])  # type: ignore[assignment]
        heard = a.send(b"heard", ["b", "c"])
        b.take(heard["b"], "a")
        await _done(c.part.moves.follow("stranger", None))
        b.part.moves.gone("client")
        let_in = asyncio.ensure_future(_done(c.part.moves.follow("client", None)))
        for _ in range(20):
            await asyncio.sleep(0)
        assert not let_in.done(), "what it heard is not here yet"
        c.take(heard["c"], "a")
        await let_in
        assert c.got == [b"heard"]
        again = asyncio.ensure_future(_done(c.part.moves.follow("client", None)))
        await again
        b.part.moves.gone("other")
        world.now_us += 3 * LIFE_US
        assert not b.part.moves._was_here("other"), "what it heard has expired"

    asyncio.run(asyncio.wait_for(run(), 60))


async def _done(awaitable: Awaitable[None] | None) -> None:
    if awaitable is not None:
        await awaitable


def test_margins_grow_with_what_is_measured() -> None:
    world = World()
    a = Member(world, "a")
    Member(world, "b", offset_ms=-50)
    asyncio.run(a.part._measure(["b"]))
    groups: Any = a.part.status()["groups"]
    assert 100 <= groups[0]["margin_ms"] < 101
    assert groups[0]["refused"] == []


plans = st.lists(
    st.tuples(
        st.integers(0, 3),  # who publishes
        st.integers(1, 15),  # to whom, as bits
        st.lists(st.integers(0, 300_000), min_size=4, max_size=4),  # how long each copy takes
        st.integers(0, 40_000),  # until the next
    ),
    max_size=40,
)


@settings(max_examples=60, deadline=None)
@given(plans)
def test_whatever_the_delays_nodes_deliver_in_causal_order(plan: list[tuple[int, int, list[int], int]]) -> None:
    world = World()
    members = [Member(world, name) for name in "abcd"]
    past: dict[bytes, frozenset[bytes]] = {}
    arrived: dict[str, list[bytes]] = {member.name: [] for member in members}

    def act(number: int, who: int, bits: int, delays: list[int]) -> None:
        sender = members[who]
        payload = str(number).encode()
        past[payload] = frozenset().union(*(past[each] | {each} for each in sender.got))
        to = [member.name for at, member in enumerate(members) if at != who and bits >> at & 1]
        sent = world.now_us
        for name, frame in sender.send(payload, to).items():
            at = members["abcd".index(name)]
            delay = delays["abcd".index(name)]
            if delay <= LIFE_US:
                arrived[name].append(payload)
            world.at(sent + delay, lambda at=at, frame=frame: at.take(frame, sender.name))  # type: ignore[misc]

    when = world.now_us
    for number, (who, bits, delays, pause) in enumerate(plan):
        world.at(when, lambda a=(number, who, bits, delays): act(*a))  # type: ignore[misc]
        when += pause
    world.run()
    for member in members:
        own = [payload for payload in member.got if payload not in arrived[member.name]]
        assert sorted(member.got) == sorted(own + arrived[member.name]), "what comes in time is delivered"
        for place, payload in enumerate(member.got):
            assert not past[payload] & set(member.got[place + 1 :]), "in causal order"
