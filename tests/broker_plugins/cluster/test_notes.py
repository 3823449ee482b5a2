"""What the fabric remembers of persistent sessions, against a real server."""

from __future__ import annotations

import asyncio
import random
from typing import TYPE_CHECKING, Any, Self

import nats.js.errors
import pytest

from broker_plugins.cluster.fabric import Fabric
from broker_plugins.cluster.node import Node
from broker_plugins.cluster.notes import MAX_NOTE_BYTES, Notes, key_of
from broker_plugins.cluster.options import ClusterCounters, ClusterOptions
from broker_plugins.cluster.server import NatsServer
from broker_plugins.engine.engine import Engine
from broker_plugins.engine.options import EngineOptions
from broker_plugins.engine.session import Session
from tests.brokers import free_port

if TYPE_CHECKING:
    from collections.abc import Iterator

SECONDS = 60.0


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[NatsServer]:
    made = NatsServer(free_port(), tmp_path_factory.mktemp("nats"))
    made.start()
    try:
        made.wait()
        yield made
    finally:
        made.stop()


class World:
    """A node with notes."""

    def __init__(self, name: str, server: NatsServer, cluster: str) -> None:
        options = ClusterOptions(node=name, cluster=cluster, servers=[server.url], hello_s=0.1, lease_s=1.0)
        self.node = Node(options, ClusterCounters())
        self.node.engine = Engine(asyncio.get_running_loop(), EngineOptions(durability="off"))
        self.node.engine.start([])
        self.leaving: set[str] = set()
        self.notes = Notes(self.node, self.leaving.__contains__)
        self.node.fabric = Fabric(options, 1, {}, self.notes.joined)

    async def __aenter__(self) -> Self:
        self.node.work(self.node.fabric.run())
        await self.until(lambda: self.node.fabric.settled)
        return self

    async def __aexit__(self, *_: object) -> None:
        self.node.rest()
        await self.node.fabric.close()

    async def until(self, condition: Any) -> None:
        async def wait() -> None:
            while not condition():
                await asyncio.sleep(0.005)

        await asyncio.wait_for(wait(), SECONDS)

    def session(self, client_id: str, *filters: str, clean: bool = False) -> Session:
        engine = self.node.engine
        session = engine.sessions.setdefault(client_id, Session(engine, client_id, clean))
        for text in filters:
            subscription = engine.read_filter(session, text, 1)
            engine.adopt(subscription)
            self.notes.subscribed(subscription)
        return session

    async def written(self) -> None:
        done = self.notes.written(SECONDS)
        if done is not None:
            await asyncio.wait_for(done, SECONDS)

    def end(self, session: Session) -> None:
        self.node.engine.end_session(session)
        self.notes.ended(session)


async def test_a_note_says_where_a_session_is_and_what_it_wants(server: NatsServer) -> None:
    async with World("a", server, "what") as world:
        world.session("c/1 ü", "t/#", "u/+")
        world.session("clean", "t/#", clean=True)
        await world.written()
        note = await world.notes.read("c/1 ü")
        assert note is not None
        assert (note.node, note.subscriptions) == ("a", [("t/#", 1), ("u/+", 1)])
        assert await world.notes.read("clean") is None
        assert world.notes.written(SECONDS) is None
        assert world.node.counters.notes_written == 1


async def test_a_session_that_ends_is_forgotten_and_one_that_moved_is_not(server: NatsServer) -> None:
    async with World("a", server, "moves") as a, World("b", server, "moves") as b:
        ends, moves = a.session("ends", "t/#"), a.session("moves", "t/#")
        await a.written()
        b.session("moves", "t/#")
        await b.written()
        a.end(ends)
        a.end(moves)
        await a.written()
        assert await a.notes.read("ends") is None
        note = await a.notes.read("moves")
        assert note is not None
        assert note.node == "b"


async def test_a_node_that_is_back_writes_no_note_before_it_knows_what_is_elsewhere(server: NatsServer) -> None:
    async with World("a", server, "early") as a, World("b", server, "early") as b:
        b.session("fled", "t/#")
        await b.written()
        a.node.fabric.settled = False  # the fabric is there, and this node still asks what it must know
        left = a.session("fled", "t/#")
        for _ in range(3):
            await a.notes.beat()
            await asyncio.sleep(0.02)
        assert a.node.counters.notes_written == 0
        a.end(left)
        await a.notes.joined()
        a.session("stays", "t/#")
        a.node.fabric.settled = True
        await a.written()
        note, other = await a.notes.read("fled"), await a.notes.read("stays")
        assert note is not None
        assert other is not None
        assert (note.node, other.node) == ("b", "a")


async def test_a_session_on_its_way_is_left_to_the_node_it_goes_to(server: NatsServer) -> None:
    async with World("a", server, "way") as a:
        a.session("c", "t/#")
        await a.written()
        a.leaving.add("c")
        a.session("c", "u/#")
        await a.written()
        note = await a.notes.read("c")
        assert note is not None
        assert note.subscriptions == [("t/#", 1)]


async def test_a_session_that_comes_back_is_noted_here_again(server: NatsServer) -> None:
    async with World("a", server, "back") as a, World("b", server, "back") as b:
        a.session("c", "t/#")
        await a.written()
        b.session("c", "t/#")
        await b.written()
        a.session("c", "u/#")
        await a.written()
        await a.until(lambda: not a.notes._dirty and not a.notes._writing)
        note = await b.notes.read("c")
        assert note is not None
        assert (note.node, len(note.subscriptions)) == ("a", 2)


async def test_a_note_is_bounded(server: NatsServer) -> None:
    async with World("a", server, "large") as world:
        letters = random.Random(1)
        world.session("c", *(f"t/{letters.randbytes(200).hex()}" for _ in range(MAX_NOTE_BYTES // 200 + 100)))
        await world.written()
        assert await world.notes.read("c") is None
        assert world.node.counters.notes_too_large == 1


def test_any_client_has_a_key() -> None:
    assert key_of("a b/ü#") != key_of("a b/u#")
    assert len(key_of("x" * 60_000)) == 40


async def test_a_note_that_finds_no_room_is_written_when_there_is_some(
    server: NatsServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with World("a", server, "room") as world:
        bucket = world.node.fabric.notes
        assert bucket is not None
        put, refused = bucket.put, list[str]()

        async def full(key: str, note: bytes) -> int:
            if len(refused) < 3:
                refused.append(key)
                raise nats.js.errors.BadRequestError(code=400, err_code=10_077, description="maximum bytes exceeded")
            return await put(key, note)

        monkeypatch.setattr(bucket, "put", full)
        world.session("c", "t/#")
        await world.written()
        assert refused == [key_of("c")] * 3
        assert await world.notes.read("c") is not None
