"""Who is told to go where, and when: pure decisions, with a map and members that do as the test says."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import msgspec
import pytest

from broker_plugins.cluster.handover import HANDOVER, NODES, Handover
from broker_plugins.cluster.members import Members
from broker_plugins.cluster.options import ClusterCounters, ClusterOptions
from broker_plugins.cluster.wire import AskDrain, Hello
from broker_plugins.engine.codec import ConnectCode
from spatial_index import Block
from spatial_index.shapes import Box
from tests.broker_plugins.smart import Desk


class Map:
    """West of 0 belongs to `here`, east of it to `there`; who is within 1 of the border stays where he was."""

    def __init__(self) -> None:
        self.draining: set[str] = set()
        self.tree = [Block("w", Box(-180, -90, 0, 90), "here"), Block("e", Box(0, -90, 180, 90), "there")]

    def block_of(self, lon: float, _lat: float, current: str | None = None) -> Block:
        if current is not None and abs(lon) <= 1:
            return next(block for block in self.tree if block.id == current)
        return self.tree[lon >= 0]

    def owner_of(self, lon: float, lat: float, current: str | None = None) -> str:
        return self.block_of(lon, lat, current).owner


class World:
    """A node with a roaming and a plain client."""

    def __init__(self) -> None:
        self.now = 100.0
        self.desk = Desk()
        options = ClusterOptions(node="here", address="10.0.0.1:1883", handover_pause_s=5.0)
        self.node: Any = SimpleNamespace(
            name="here",
            options=options,
            counters=ClusterCounters(),
            members=Members(1e9, 1e9, lambda: self.now),
            engine=self.desk.engine,
            draining=False,
        )
        self.map = Map()
        self.handover = Handover(self.node, self.map, lambda: self.now)  # type: ignore[arg-type]
        self.handover.recovered()
        self.hear("there")
        self.roaming = self.client("roaming", roams=True)
        self.plain = self.client("plain", roams=False)

    def hear(self, name: str, draining: bool = False) -> None:
        self.node.members.heard(Hello(name, 1, 0, 0, f"10.0.0.9:{len(name)}", draining))

    def client(self, name: str, roams: bool, arrives: bool = False) -> Any:
        session = self.desk.session(name)
        if arrives:
            session.held = []
        if roams:
            self.handover.subscribed(self.desk.subscribe(session, HANDOVER))
        session.held = None
        return session

    def told(self, session: Any) -> list[dict[str, str]]:
        """What a client was told since this was asked last."""
        found = [packet for packet in session.connection.out if HANDOVER.encode() in packet]
        session.connection.out.clear()
        return [msgspec.json.decode(packet[packet.index(b"{") :]) for packet in found]

    def move(self, session: Any, lon: float) -> None:
        self.desk.geo.locate(session, lon, 10.0)
        self.handover.moved(session, lon, 10.0)


@pytest.fixture
def world():
    made = World()
    yield made
    made.desk.close()


def test_a_roaming_client_is_told_once_and_again_after_a_pause(world: World) -> None:
    world.move(world.roaming, -20)
    assert world.told(world.roaming) == []
    world.move(world.roaming, 20)
    assert world.told(world.roaming) == [{"node": "there", "address": "10.0.0.9:5", "reason": "owner"}]
    world.move(world.roaming, 30)
    world.now += 4
    world.handover.look()
    assert world.told(world.roaming) == []
    world.now += 2
    world.handover.look()
    assert len(world.told(world.roaming)) == 1
    assert world.node.counters.handovers_told == 2


def test_a_plain_client_is_told_nothing(world: World) -> None:
    world.move(world.plain, 20)
    assert world.told(world.plain) == []


def test_a_border_is_crossed_only_when_it_is_behind(world: World) -> None:
    world.move(world.roaming, -2)
    for lon in (0.5, -0.5, 0.9, -0.9):
        world.now += 60
        world.move(world.roaming, lon)
    assert world.told(world.roaming) == []
    world.move(world.roaming, 1.5)
    assert len(world.told(world.roaming)) == 1


def test_who_has_just_come_rests(world: World) -> None:
    newcomer = world.client("newcomer", roams=True, arrives=True)
    world.move(newcomer, 20)
    assert world.told(newcomer) == []
    world.now += 6
    world.move(newcomer, 20)
    assert len(world.told(newcomer)) == 1


@pytest.mark.parametrize("trouble", ["gone", "draining", "nowhere"])
def test_nobody_is_sent_to_a_node_that_takes_no_clients(world: World, trouble: str) -> None:
    if trouble == "draining":
        world.hear("there", draining=True)
    elif trouble == "gone":
        world.node.members._members["there"].gone = True
    else:
        world.node.members.heard(Hello("there", 1, 0, 0))
    world.move(world.roaming, 20)
    assert world.told(world.roaming) == []


def test_a_client_that_roams_no_more_is_left_alone(world: World) -> None:
    world.handover.unsubscribed(world.roaming.subscriptions[HANDOVER])
    world.move(world.roaming, 20)
    assert world.told(world.roaming) == []
    assert len(world.handover) == 0


def test_a_drained_node_sends_everybody_away_and_lets_nobody_in(world: World) -> None:
    stranger: Any = SimpleNamespace(connection=None)
    assert world.handover.refuses(stranger) is None
    world.move(world.roaming, -20)
    left = world.handover.drain(AskDrain())
    assert (left.draining, left.roaming, left.blocks) == (True, 1, 1)
    assert left.connected == 3, "publisher, roaming and plain"
    assert world.told(world.roaming) == [{"node": "there", "address": "10.0.0.9:5", "reason": "drain"}]
    assert world.map.draining == {"here"}
    assert world.handover.refuses(stranger) is ConnectCode.SERVER_UNAVAILABLE
    assert world.handover.drain(AskDrain(change=False)).draining
    assert not world.handover.drain(AskDrain(drain=False)).draining
    assert world.handover.refuses(stranger) is None
    assert world.map.draining == set()


def test_sessions_of_absent_clients_are_sent_away_too(world: World) -> None:
    sent: list[tuple[str, str]] = []

    async def send_away(client_id: str, to: str) -> None:
        sent.append((client_id, to))

    world.handover.send_away = send_away
    absent = world.desk.session("absent", clean=False)
    absent.detach()
    world.desk.loop.run_until_complete(world.handover.beat())
    assert sent == []
    world.handover.drain(AskDrain())
    world.desk.loop.run_until_complete(world.handover.beat())
    assert sent == [("absent", "there")]


def test_clients_learn_which_nodes_there_are(world: World) -> None:
    def listed() -> list[str]:
        return [each["node"] for each in msgspec.json.decode(world.desk.engine.retained.get(NODES).message.payload)]

    world.handover.look()
    assert listed() == ["here", "there"]
    world.hear("there", draining=True)
    world.hear("elsewhere")
    world.handover.look()
    assert listed() == ["elsewhere", "here"]
    world.node.draining = True
    world.handover.look()
    assert listed() == ["elsewhere"]
