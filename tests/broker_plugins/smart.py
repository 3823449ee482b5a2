"""What the tests of smart subscriptions share: brokers with the plugins, and an engine without any socket."""

from __future__ import annotations

import asyncio
import json
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

from broker_plugins.engine.engine import Engine
from broker_plugins.engine.hooks import Refused
from broker_plugins.engine.message import Message
from broker_plugins.engine.options import EngineOptions
from broker_plugins.engine.session import Session
from broker_plugins.geo import GeoOptions, GeoPlugin
from broker_plugins.grammar import parse_topic
from broker_plugins.ranked import RankedOptions, RankedPlugin
from tests.brokers import ALLOW_ANONYMOUS

if TYPE_CHECKING:
    from broker_plugins.engine.subscription import Subscription
    from tests.mqtt_wire import Packet, Wire

GEO = "broker_plugins.geo.plugin.GeoPlugin"
RANKED = "broker_plugins.ranked.plugin.RankedPlugin"
PLUGINS = {**ALLOW_ANONYMOUS, GEO: {}, RANKED: {}}


def plugins(geo: dict[str, Any] | None = None, ranked: dict[str, Any] | None = None) -> dict[str, dict[str, Any]]:
    return {**ALLOW_ANONYMOUS, RANKED: ranked or {}, GEO: geo or {}}


def heard(publisher: Wire, *listeners: Wire) -> list[list[str]]:
    """The payloads that listeners have got when all that the publisher sent has been dealt with."""
    assert publisher.messages_until_ping() == []
    return [[each.payload.decode() for each in listener.messages_until_ping()] for listener in listeners]


def topics_heard(publisher: Wire, listener: Wire) -> list[str]:
    publisher.messages_until_ping()
    return [each.topic for each in listener.messages_until_ping()]


def payloads(packets: list[Packet]) -> list[str]:
    return [each.payload.decode() for each in packets]


def polygon(*corners: tuple[float, float], holes: tuple[tuple[tuple[float, float], ...], ...] = ()) -> bytes:
    """A closed GeoJSON polygon."""
    rings = [[*ring, ring[0]] for ring in (corners, *holes)]
    return json.dumps({"type": "Polygon", "coordinates": rings}).encode()


SQUARE = polygon((0, 0), (1, 0), (1, 1), (0, 1))


class NoSocket:
    """As much of a connection as a session needs to be connected."""

    def __init__(self) -> None:
        self.out: list[bytes] = []

    def touch(self) -> None:
        pass


class Desk:
    """An engine with both plugins, and sessions that keep what they are sent."""

    def __init__(self, geo: GeoOptions | None = None, ranked: RankedOptions | None = None) -> None:
        self.loop = asyncio.new_event_loop()
        self.engine = Engine(self.loop, EngineOptions())
        self.geo = GeoPlugin(SimpleNamespace(config=geo or GeoOptions()))
        self.ranked = RankedPlugin(SimpleNamespace(config=ranked or RankedOptions()))
        self.engine.start([self.ranked, self.geo])
        self.turn()
        self.publisher = self.session("publisher")

    def close(self) -> None:
        assert self.engine.counters.plugin_faults == 0
        self.turn()
        self.loop.close()

    def turn(self) -> None:
        """Let the event loop do what waits."""
        self.loop.call_soon(self.loop.stop)
        self.loop.run_forever()

    def session(self, client_id: str, clean: bool = True) -> Session:
        session = Session(self.engine, client_id, clean)
        self.engine.sessions[client_id] = session
        self.connect(session)
        return session

    def connect(self, session: Session) -> None:
        session.attach(NoSocket())

    def subscribe(self, session: Session, text: str, qos: int = 0) -> Subscription:
        subscription = self.engine.read_filter(session, text, qos)
        self.engine.adopt(subscription)
        return subscription

    def refusal(self, session: Session, text: str) -> str:
        try:
            self.subscribe(session, text)
        except Refused as refused:
            return str(refused)
        raise AssertionError(f"{text} was not refused")

    def unsubscribe(self, session: Session, text: str) -> None:
        for _ in self.engine.unsubscribe(session, [text]):
            pass

    def end(self, session: Session) -> None:
        session.detach()
        self.engine.end_session(session)

    def publish(
        self, topic: str, payload: bytes = b"{}", *, qos: int = 0, retain: bool = False, sender: Session | None = None
    ) -> list[str]:
        """Publish, and return the identifiers of the clients it went to, in order."""
        bare, clauses = parse_topic(topic, self.engine.space)
        message = Message(bare, payload, qos, retain, sender or self.publisher)
        message.clauses = clauses if "/@" in topic else None
        received: list[str] = []
        original = Session.deliver

        def deliver(session: Session, *arguments: Any, **options: Any) -> bool:
            received.append(session.client_id)
            return original(session, *arguments, **options)

        Session.deliver = deliver  # type: ignore[method-assign]
        try:
            self.engine.publish(message)
        finally:
            Session.deliver = original  # type: ignore[method-assign]
        return received
