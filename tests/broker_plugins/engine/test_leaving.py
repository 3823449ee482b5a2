"""What plugins write down is written before anything of it leaves the broker."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import pytest

from broker_plugins.engine.codec import Connect
from broker_plugins.engine.connection import Connection
from broker_plugins.engine.engine import Engine
from broker_plugins.engine.hooks import Hooks
from broker_plugins.engine.message import Message
from broker_plugins.engine.options import EngineOptions
from tests.mqtt_wire import publish, subscribe

if TYPE_CHECKING:
    from collections.abc import Sequence

    from broker_plugins.engine.session import Session


class Scribe(Hooks):
    """Writes down what it hears of, when it is told that it is about to leave."""

    samples = True

    def __init__(self) -> None:
        self.heard: list[str] = []
        self.written: list[str] = []
        self.engine: Engine

    def start(self, engine: Engine) -> None:
        self.engine = engine
        engine.sample(1.0)

    def on_connected(self, session: Session) -> None:
        self.heard.append(f"connected {session.client_id}")
        self.engine.to_tell()

    def on_published(self, messages: Sequence[Message]) -> None:
        self.heard += [f"published {message.topic}" for message in messages]

    def on_delivered(self, deliveries: Sequence[tuple[Session, Message, int]]) -> None:
        self.heard += [f"delivered {message.topic} to {session.client_id}" for session, message, _ in deliveries]

    def on_leaving(self) -> None:
        self.written += self.heard
        self.heard = []


class Socket(asyncio.Transport):
    """Remembers what was on paper when something was sent."""

    def __init__(self, scribe: Scribe) -> None:
        super().__init__()
        self._scribe = scribe
        self.sent: list[tuple[bytes, list[str]]] = []

    def write(self, data: bytes | bytearray | memoryview) -> None:
        self.sent.append((bytes(data), list(self._scribe.written)))

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        """Nothing waits here."""

    def get_write_buffer_size(self) -> int:
        return 0

    def close(self) -> None:
        """Nothing is open."""


@pytest.mark.parametrize("gathers", [False, True], ids=["asyncio", "uvloop"])
async def test_it_is_on_paper_when_a_client_hears_of_it(gathers: bool) -> None:
    scribe = Scribe()
    engine = Engine(asyncio.get_running_loop(), EngineOptions(durability="off"))
    engine.loop_gathers_writes = gathers
    engine.start([scribe])
    sockets = {}
    for name in ("reader", "writer"):
        connection, sockets[name] = Connection(engine, "test"), Socket(scribe)
        connection.connection_made(sockets[name])
        for _ in engine.connect(connection, Connect(4, True, 0, name, None, None, None)):
            pass
        if name == "reader":
            connection.data_received(subscribe(("a/#", 1)))
        await asyncio.sleep(0)
        assert f"connected {name}" in sockets[name].sent[0][1]
    writer, reader = connection, sockets["reader"]
    for qos in (0, 1, 2):
        writer.data_received(publish(f"a/{qos}", b"x", qos=qos, packet_id=qos + 1))
        await asyncio.sleep(0)
        packet, paper = reader.sent[-1]
        assert f"a/{qos}".encode() in packet
        assert paper[-2:] == [f"published a/{qos}", f"delivered a/{qos} to reader"]
        if qos:
            assert f"published a/{qos}" in sockets["writer"].sent[-1][1], "acknowledged"
    scribe.heard.append("something else")
    engine.to_tell()
    session = engine.sessions["reader"]
    assert session.deliver(Message("direct", b""), 0)
    assert session.connection is not None
    session.connection.flush()  # in the middle of a turn
    assert "something else" in reader.sent[-1][1]
