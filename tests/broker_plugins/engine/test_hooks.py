"""Hooks decide and hear, in the order of the configuration; what nobody defines is never called."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import pytest

from broker_plugins.engine import Hooks, Message, Refused, Subscription
from broker_plugins.engine.codec import Connect, ConnectCode
from broker_plugins.engine.connection import Connection
from broker_plugins.engine.engine import Engine
from broker_plugins.engine.hooks import HookTable, Selection
from broker_plugins.engine.options import EngineOptions
from tests.brokers import ALLOW_ANONYMOUS, locus
from tests.mqtt_wire import connect, publish

if TYPE_CHECKING:
    from collections.abc import Sequence

    from broker_plugins.engine.session import Session


class Transport:
    """Takes what a connection writes."""

    def __init__(self) -> None:
        self.written = b""
        self.closed = False

    def write(self, data: bytes) -> None:
        self.written += data

    def close(self) -> None:
        self.closed = True

    abort = close

    def get_extra_info(self, name: str) -> Any:
        return ("test", 1) if name == "peername" else None

    def get_write_buffer_size(self) -> int:
        return 0

    def set_write_buffer_limits(self, high: int) -> None:
        pass

    def pause_reading(self) -> None:
        pass

    resume_reading = pause_reading


async def turn() -> None:
    """Let the engine finish its turn."""
    for _ in range(3):
        await asyncio.sleep(0)


def engine_with(*plugins: Hooks) -> Engine:
    engine = Engine(asyncio.get_running_loop(), EngineOptions(durability="off"))
    engine.start(plugins)
    return engine


def join(engine: Engine, name: str, *filters: tuple[str, int]) -> tuple[Session, Transport]:
    """Connect a client without a socket and subscribe it."""
    connection, transport = Connection(engine, "test"), Transport()
    connection.connection_made(transport)
    for _ in engine.connect(connection, Connect(4, True, 0, name, None, None, None)):
        pass
    session = connection.session
    if session is not None and filters:
        codes = bytearray()
        for _ in engine.subscribe(session, list(filters), codes):
            pass
        session.attributes = {"codes": bytes(codes)}
    return session, transport


def test_only_what_a_plugin_defines_is_in_the_table() -> None:
    class One(Hooks):
        def on_publish(self, message: Message) -> bool | None:
            return None

    class Two(One):
        def on_connected(self, session: Session) -> None:
            pass

    table = HookTable([Hooks(), One(), Two()])
    assert len(table.publish) == 2
    assert len(table.connected) == 1
    assert not table.select
    assert not table.delivered


async def test_on_connect_refuses() -> None:
    class Door(Hooks):
        def on_connect(self, session: Session) -> ConnectCode | None:
            return ConnectCode.NOT_AUTHORIZED if session.client_id == "mallory" else None

    engine = engine_with(Door())
    refused, transport = join(engine, "mallory")
    await turn()
    assert refused is None
    assert transport.written == b"\x20\x02\x00\x05"
    assert transport.closed
    assert "mallory" not in engine.sessions
    assert join(engine, "alice")[0] is engine.sessions["alice"]


async def test_on_subscribe_rewrites_refuses_and_claims() -> None:
    class Clerk(Hooks):
        def __init__(self) -> None:
            self.claimed: list[Subscription] = []

        def on_subscribe(self, session: Session, subscription: Subscription) -> bool | None:
            if subscription.inner == "secret":
                raise Refused("it is a secret")
            if subscription.inner.startswith("mine/"):
                self.claimed.append(subscription)
                return True
            subscription.qos = min(subscription.qos, 1)
            return None

        def on_unsubscribed(self, subscription: Subscription) -> None:
            self.claimed.remove(subscription)

        def select(self, message: Message, selection: Selection) -> None:
            for subscription in self.claimed:
                selection.add(subscription)

    clerk = Clerk()
    engine = engine_with(clerk)
    session, transport = join(engine, "c", ("a", 2), ("secret", 0), ("mine/x", 1))
    assert session.attributes["codes"] == b"\x01\x80\x01"
    assert [subscription.text for subscription in clerk.claimed] == ["mine/x"]
    await turn()
    transport.written = b""
    engine.publish(Message("elsewhere", b"m"))
    await turn()
    assert transport.written == publish("elsewhere", b"m")
    engine.end_session(session)
    assert clerk.claimed == []


async def test_on_publish_changes_consumes_and_refuses() -> None:
    class Press(Hooks):
        def concerns(self, topic: str) -> bool:
            return topic != "free"

        def on_publish(self, message: Message) -> bool | None:
            if message.topic == "forbidden":
                raise Refused("not here")
            if message.topic == "eaten":
                return False
            message.payload = b"changed"
            return None

    engine = engine_with(Press())
    _, transport = join(engine, "c", ("#", 0))
    await turn()
    transport.written = b""
    for topic in ("free", "forbidden", "eaten", "else"):
        engine.publish(Message(topic, b"m"))
    await turn()
    assert transport.written == publish("free", b"m") + publish("else", b"changed")
    assert engine.counters.refused_publishes == 1


async def test_select_orders_and_cuts() -> None:
    class Judge(Hooks):
        def select(self, message: Message, selection: Selection) -> None:
            best = sorted(selection.receivers, key=lambda session: session.client_id, reverse=True)
            selection.keep(best[:2])

    engine = engine_with(Judge())
    transports = {name: join(engine, name, ("t", 0))[1] for name in ("a", "b", "c")}
    await turn()
    for transport in transports.values():
        transport.written = b""
    engine.publish(Message("t", b"m"))
    await turn()
    assert {name for name, transport in transports.items() if transport.written} == {"b", "c"}


async def test_hearing_is_batched_and_complete() -> None:
    class Ear(Hooks):
        def __init__(self) -> None:
            self.heard: list[tuple[str, Any]] = []

        def on_connected(self, session: Session) -> None:
            self.heard.append(("connected", session.client_id))

        def on_disconnected(self, session: Session, reason: str) -> None:
            self.heard.append(("disconnected", reason))

        def on_subscribed(self, subscription: Subscription) -> None:
            self.heard.append(("subscribed", subscription.text))

        def on_unsubscribed(self, subscription: Subscription) -> None:
            self.heard.append(("unsubscribed", subscription.text))

        def on_session_ended(self, session: Session) -> None:
            self.heard.append(("ended", session.client_id))

        def on_published(self, messages: Sequence[Message]) -> None:
            self.heard.append(("published", [message.payload for message in messages]))

        def on_delivered(self, deliveries: Sequence[tuple[Session, Message, int]]) -> None:
            self.heard.append(("delivered", [(s.client_id, m.payload, qos) for s, m, qos in deliveries]))

        def on_dropped(self, drops: Sequence[tuple[Session | None, Message, str]]) -> None:
            self.heard.append(("dropped", [(m.topic, why) for _, m, why in drops]))

    ear = Ear()
    engine = engine_with(ear)
    session, _ = join(engine, "c", ("t", 1))
    await turn()
    engine.publish(Message("t", b"1", 1))
    engine.publish(Message("t", b"2"))
    engine.publish(Message("$x", b"3", sender=session))
    await turn()
    session.connection.close("cut")
    assert ear.heard == [
        ("connected", "c"),
        ("subscribed", "t"),
        ("published", [b"1", b"2"]),
        ("delivered", [("c", b"1", 1), ("c", b"2", 0)]),
        ("dropped", [("$x", "refused_publishes")]),
        ("disconnected", "cut"),
        ("ended", "c"),
        ("unsubscribed", "t"),
    ]


async def test_a_plugin_that_fails_harms_nobody() -> None:
    class Clumsy(Hooks):
        def on_publish(self, message: Message) -> bool | None:
            raise ZeroDivisionError

        def select(self, message: Message, selection: Selection) -> None:
            raise KeyError("x")

        def on_delivered(self, deliveries: Sequence[tuple[Session, Message, int]]) -> None:
            raise OSError

    engine = engine_with(Clumsy())
    _, transport = join(engine, "c", ("t", 0))
    await turn()
    transport.written = b""
    engine.publish(Message("t", b"m"))
    await turn()
    assert transport.written == publish("t", b"m")
    assert engine.counters.plugin_faults == 3


async def test_on_retained_holds_until_it_is_sent() -> None:
    class Holder(Hooks):
        def __init__(self) -> None:
            self.held: list[tuple[Subscription, str]] = []

        def on_retained(self, subscription: Subscription, message: Message) -> bool | None:
            if message.topic == "hold":
                self.held.append((subscription, message.topic))
                return True
            return None

    holder = Holder()
    engine = engine_with(holder)
    for topic in ("hold", "now"):
        engine.publish(Message(topic, b"m", retain=True))
    session, transport = join(engine, "c", ("#", 0))
    for subscription in session.subscriptions.values():
        engine.feeds.begin(subscription)
    session.pump()
    await turn()
    assert publish("now", b"m", retain=True) in transport.written
    assert b"hold" not in transport.written
    (held,) = holder.held
    assert engine.send_retained(*held)
    await turn()
    assert publish("hold", b"m", retain=True) in transport.written


@pytest.mark.parametrize("plugin", ["examples.plugin.quiet_hours.QuietHours"])
def test_the_example_plugin(plugin: str) -> None:
    with (
        locus(plugins={**ALLOW_ANONYMOUS, plugin: {}}) as broker,
        connect(broker.port, "caretaker") as caretaker,
        connect(broker.port, "guest") as guest,
    ):
        for wire in (caretaker, guest):
            wire.subscribe(("#", 0))
        guest.send(publish("alarm/fire", b"hot"), publish("weather", b"cold"))
        assert [message.payload for message in guest.messages_until_ping()] == [b"cold"]
        assert [message.payload for message in caretaker.messages(2)] == [b"HOT", b"cold"]


async def test_a_live_message_for_others_takes_nothing_from_a_feed() -> None:
    class Mine(Hooks):
        def on_subscribe(self, session: Session, subscription: Subscription) -> bool | None:
            return True  # and no `select`: nothing live ever reaches it

    engine = engine_with(Mine())
    engine.publish(Message("d/1", b"kept", retain=True))
    session, transport = join(engine, "c", ("d/#", 0))
    engine.feeds.begin(session.subscriptions["d/#"])
    engine.publish(Message("d/1", b"live"))
    session.pump()
    await turn()
    assert publish("d/1", b"kept", retain=True) in transport.written
    assert b"live" not in transport.written
