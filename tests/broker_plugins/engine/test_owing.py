"""Acknowledgements wait for what plugins owe, and never overtake each other; plugins may wait before a session."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import pytest
from hypothesis import given
from hypothesis import strategies as st

from broker_plugins.engine import Hooks, Message
from broker_plugins.engine.codec import Connect
from broker_plugins.engine.connection import Connection
from broker_plugins.engine.engine import Engine
from broker_plugins.engine.options import EngineOptions
from broker_plugins.engine.store import Store
from tests.mqtt_wire import publish

if TYPE_CHECKING:
    from collections.abc import Awaitable
    from pathlib import Path


class Wire:
    """A transport that remembers what is written."""

    def __init__(self) -> None:
        self.written = b""

    def write(self, data: bytes) -> None:
        self.written += data

    def close(self) -> None:
        pass

    abort = pause_reading = resume_reading = close

    def get_extra_info(self, name: str) -> None:
        return None

    def get_write_buffer_size(self) -> int:
        return 0

    def set_write_buffer_limits(self, high: int) -> None:
        pass


class Creditor(Hooks):
    """Owes something for every message on a topic that begins with `far/`, once for each digit at its end."""

    def __init__(self) -> None:
        self.owed: list[Message] = []

    def on_publish(self, message: Message) -> None:
        if message.topic.startswith("far/"):
            for _ in range(int(message.topic[-1])):
                message.owe()
                self.owed.append(message)


def start(store: Store | None = None) -> tuple[Creditor, Connection, Wire]:
    creditor = Creditor()
    engine = Engine(asyncio.get_running_loop(), EngineOptions(durability="off"), store)
    engine.start([creditor])
    connection, wire = Connection(engine, "test"), Wire()
    connection.connection_made(wire)
    for _ in engine.connect(connection, Connect(4, True, 0, "c", None, None, None)):
        pass
    connection.flush()
    wire.written = b""
    return creditor, connection, wire


def acknowledged(connection: Connection, wire: Wire) -> list[int]:
    connection.flush()
    return [wire.written[at + 3] for at in range(0, len(wire.written), 4)]


async def test_an_acknowledgement_waits_and_later_ones_behind_it() -> None:
    creditor, connection, wire = start()
    connection.data_received(publish("near", qos=1, packet_id=1))
    connection.data_received(publish("far/2", qos=1, packet_id=2))
    connection.data_received(publish("near", qos=1, packet_id=3))
    connection.data_received(publish("far/1", qos=2, packet_id=4))
    assert acknowledged(connection, wire) == [1]
    creditor.owed[0].settle()
    creditor.owed[2].settle()
    assert acknowledged(connection, wire) == [1]
    creditor.owed[1].settle()
    assert acknowledged(connection, wire) == [1, 2, 3, 4]
    assert connection.acks_waiting == 0


@given(st.lists(st.integers(0, 2), max_size=12), st.randoms(use_true_random=False))
def test_whatever_is_settled_when_they_keep_their_order(debts: list[int], random) -> None:
    async def scenario() -> None:
        creditor, connection, wire = start()
        for number, count in enumerate(debts, 1):
            connection.data_received(publish(f"far/{count}" if count else "near", qos=1, packet_id=number))
        random.shuffle(creditor.owed)
        while creditor.owed:
            creditor.owed.pop().settle()
            waiting = {id(message) for message in creditor.owed}
            sent = acknowledged(connection, wire)
            assert sent == list(range(1, len(sent) + 1))
            assert len(sent) == len(debts) or waiting
        assert acknowledged(connection, wire) == list(range(1, len(debts) + 1))

    asyncio.run(scenario())


async def test_an_acknowledgement_waits_for_the_store_too(tmp_path: Path) -> None:
    store = Store(tmp_path / "locus.db", strict=False, loop=asyncio.get_running_loop())
    creditor, connection, wire = start(store)
    connection.data_received(publish("far/1", b"kept", qos=1, packet_id=1, retain=True))
    creditor.owed[0].settle()
    assert acknowledged(connection, wire) == []
    safe = asyncio.get_running_loop().create_future()
    store.when_safe(safe.set_result, None)
    await safe
    assert acknowledged(connection, wire) == [1]
    await store.close()


async def test_debts_of_a_client_that_is_gone_harm_nobody() -> None:
    creditor, connection, wire = start()
    connection.data_received(publish("far/1", qos=1, packet_id=1))
    connection.close("gone")
    creditor.owed[0].settle()
    assert wire.written == b""


async def test_what_is_retained_can_be_marked_and_left_alone() -> None:
    class Curator(Hooks):
        def on_retain(self, message: Message) -> bool | None:
            message.properties = {"mark": 1}
            return False if message.payload == b"bad" else None

    engine = Engine(asyncio.get_running_loop(), EngineOptions(durability="off"))
    engine.start([Curator()])
    for payload in (b"good", b"bad"):
        engine.publish(Message("t", payload, retain=True))
    entry = engine.retained.get("t")
    assert entry is not None
    assert entry.message.payload == b"good"
    assert entry.message.properties == {"mark": 1}


@pytest.mark.parametrize("gone", [False, True])
async def test_a_plugin_may_let_a_client_wait_for_its_session(gone: bool) -> None:
    came = asyncio.get_running_loop().create_future()

    class Porter(Hooks):
        def on_connecting(self, connect: Connect) -> Awaitable[None] | None:
            return came

    engine = Engine(asyncio.get_running_loop(), EngineOptions(durability="off"))
    engine.start([Porter()])
    connection, wire = Connection(engine, "test"), Wire()
    connection.connection_made(wire)
    work = engine.connect(connection, Connect(4, True, 0, "c", None, None, None))
    assert next(work) is came
    assert not engine.sessions
    if gone:
        connection.close("gone")
    assert list(work) == []
    assert ("c" in engine.sessions) is not gone
