"""What travels between nodes for `$geo` subscriptions: copies and bytes for each copy that some node needs.

Three nodes, each with clients that listen in areas that stay (boxes, circles, fences) or around themselves while they
move. Every node publishes points and areas. A copy is needed on each node, other than the publisher's, where a client
gets the message; who must get it is reckoned apart, so a message that is missed ends the benchmark.
"""

from __future__ import annotations

import asyncio
import json
import math
import time
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from benchmarks.cluster_nodes import nodes
from benchmarks.load import LoadError, connect_packet, packet, subscribe_packet, text
from benchmarks.report import Row
from benchmarks.reproduction.mobile_world import PLANE, SIDE, MobileWorld, MobileWorldSettings
from broker_plugins.geo.zones import Zone
from spatial_index import Circle, Polygon

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from benchmarks.cluster_nodes import Nodes
    from benchmarks.report import Report
    from broker_plugins.places import Place

NODES = 3
RADIUS = 15
"""How far around itself a client listens."""
PAYLOAD_BYTES = 64
ANSWER_S = 60.0
AREAS_IN = 10
"""One message in so many is for an area, the others are at a point."""
SMALLEST, LARGEST = 10.0, 40.0
SEED = 3


class Listener(asyncio.Protocol):
    """A client that notes which messages it gets."""

    def __init__(self) -> None:
        self.got: set[int] = set()
        self._rest = b""
        self._transport: asyncio.Transport | None = None
        self._answers: asyncio.Queue[int] = asyncio.Queue()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Keep the way out."""
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport

    def data_received(self, data: bytes) -> None:
        """Cut packets out of what came."""
        data = self._rest + data
        at = 0
        while len(data) - at >= 2:
            length, body = data[at + 1], at + 2
            if length & 0x80:
                if len(data) - at < 3:
                    break
                length, body = length & 0x7F | data[at + 2] << 7, at + 3
            if body + length > len(data):
                break
            if data[at] >> 4 == 3:
                topic_end = body + 2 + int.from_bytes(data[body : body + 2])
                self.got.add(int(data[topic_end : body + length]))
            else:
                self._answers.put_nowait(data[at] >> 4)
            at = body + length
        self._rest = data[at:]

    def send(self, data: bytes) -> None:
        """Send packets without waiting."""
        assert self._transport is not None
        self._transport.write(data)

    async def ask(self, data: bytes) -> None:
        """Send a packet and wait for its answer."""
        self.send(data)
        await asyncio.wait_for(self._answers.get(), ANSWER_S)

    def close(self) -> None:
        """Leave."""
        if self._transport is not None:
            self._transport.close()


class Spent(NamedTuple):
    """What a world took.

    Args:
        needed: copies that a node needs.
        copies: copies that went.
        forwarded: their bytes.
        announced: bytes by which nodes told each other who listens where.
        messages: how many were published.
    """

    needed: int
    copies: float
    forwarded: float
    announced: float
    messages: int


class Stage:
    """A cluster with one publisher on each node, and clients that come for one world and go."""

    def __init__(self, running: Nodes) -> None:
        self.running = running
        self.random = np.random.default_rng(SEED)
        self.towns: list[Listener] = []
        self.clients: list[Listener] = []
        self._sent = 0
        self._needed = 0

    async def begin(self) -> None:
        """Let the publishers connect."""
        self.towns = [await self.client(node, f"town-{node}") for node in range(NODES)]

    async def client(self, node: int, name: str) -> Listener:
        """A client on a node."""
        loop = asyncio.get_running_loop()
        _, client = await loop.create_connection(Listener, "127.0.0.1", self.running.brokers[node].port)
        await client.ask(connect_packet(name))
        return client

    async def gather(self, world: str, wanted: Sequence[str]) -> None:
        """Let clients come, to the nodes in turn, each with a filter."""
        for number, each in enumerate(wanted):
            client = await self.client(number % NODES, f"{world}-{number}")
            await client.ask(subscribe_packet([each], 0))
            self.clients.append(client)

    def leave(self) -> None:
        """Let the clients of a world go."""
        for client in self.clients:
            client.close()
        self.clients = []

    def places(self, count: int) -> list[Place]:
        """Where messages happen: points, and now and then areas."""
        found: list[Place] = []
        for number in range(count):
            x, y = (round(float(part), 2) for part in self.random.uniform(0, SIDE, 2))
            if number % AREAS_IN:
                found.append((x, y))
            else:
                wide, high = self.random.uniform(SMALLEST, LARGEST, 2).tolist()
                found.append((x, y, round(min(x + wide + 0.01, SIDE), 2), round(min(y + high + 0.01, SIDE), 2)))
        return [place for place in found if len(place) == 2 or (place[0] < place[2] and place[1] < place[3])]

    async def publish(self, topic: str, zones: Sequence[Zone], places: Sequence[Place]) -> None:
        """Publish on all nodes in turn, and wait until everybody has got what is for it."""
        awaited: list[tuple[Listener, int]] = []
        for number, place in enumerate(places):
            self._sent += 1
            clause = "at" if len(place) == 2 else "area"
            numbers = ",".join(f"{part:.2f}" for part in place)
            payload = b"%0*d" % (PAYLOAD_BYTES, self._sent)
            here = number % NODES
            self.towns[here].send(packet(0x30, text(f"{topic}/@{clause}:{numbers}") + payload))
            getting = [at for at, zone in enumerate(zones) if zone.holds(place)]
            awaited += [(self.clients[at], self._sent) for at in getting]
            self._needed += len({at % NODES for at in getting} - {here})
        deadline = time.monotonic() + ANSWER_S
        while awaited := [(client, each) for client, each in awaited if each not in client.got]:
            if time.monotonic() > deadline:
                raise LoadError(f"{len(awaited)} messages were not delivered within {ANSWER_S:g} s")
            await asyncio.sleep(0.005)

    def counted(self) -> tuple[float, float, float]:
        """Copies, their bytes and what was announced, up to now."""
        count = self.running.counted
        return count("forwarded"), count("forwarded_bytes"), count("announced_bytes")

    async def spent(self, before: tuple[float, float, float], start: tuple[int, int]) -> Spent:
        """What was spent since."""
        after = await asyncio.to_thread(self.counted)
        copies, forwarded, announced = (now - then for now, then in zip(after, before, strict=True))
        return Spent(self._needed - start[1], copies, forwarded, announced, self._sent - start[0])

    def so_far(self) -> tuple[int, int]:
        """Messages published and copies needed, up to now."""
        return self._sent, self._needed


def measure_geo(report: Report, quick: bool, progress: Callable[[str], None]) -> None:
    """Add what `$geo` subscriptions cost between three nodes: copies and bytes for each needed copy."""
    with nodes(NODES, {}, {"plane": [0, 0, SIDE, SIDE]}) as running:
        asyncio.run(_measure(Stage(running), report, quick, progress))


async def _measure(stage: Stage, report: Report, quick: bool, progress: Callable[[str], None]) -> None:
    await stage.begin()
    progress("cluster: `$geo` areas that stay")
    clients, messages = (45, 1_500) if quick else (180, 12_000)
    _tell(report, f"{clients} boxes, circles and fences that stay", await _stay(stage, clients, messages))
    for users, rounds, published, speed in (
        (30, 10 if quick else 40, 300 if quick else 600, 0.02),
        (30, 10 if quick else 40, 300 if quick else 600, 0.2),
        (30, 10 if quick else 40, 300 if quick else 600, 2.0),
        (300, 4 if quick else 20, 300 if quick else 600, 0.2),
    ):
        progress(f"cluster: `$geo` around {users} clients that move {speed:g} and {speed * 3:g} a round")
        spent = await _move(stage, users, rounds, published, speed)
        step = speed * 2 / RADIUS  # half of the clients go three times as fast as the others
        what = f"near: around {users} clients that move {step:.1%} of its radius between {published} messages"
        _tell(report, what, spent)


def _tell(report: Report, what: str, spent: Spent) -> None:
    needed = spent.needed
    if not needed or not spent.copies:
        raise LoadError(f"no message went between nodes: {spent}")
    least = spent.forwarded / spent.copies
    counted = f"{spent.messages} messages, {needed} copies needed"
    report.rows.append(
        Row(
            f"$geo copies between nodes, {what}",
            "copies",
            spent.copies / needed,
            "least possible",
            1.0,
            target=1 / 1.1,
            less_is_better=True,
            note=counted,
        )
    )
    report.rows.append(
        Row(
            f"$geo bytes between nodes a needed copy, {what}",
            "bytes",
            (spent.forwarded + spent.announced) / needed,
            "nothing announced",
            least,
            less_is_better=True,
            note=f"{spent.announced / needed:.0f} of them announce who listens where; a copy has {least:.0f}",
        )
    )


async def _stay(stage: Stage, count: int, messages: int) -> Spent:
    """Clients that listen in areas that stay where they are."""
    random, wanted, zones, middles = stage.random, [], [], []
    before = await asyncio.to_thread(stage.counted)
    for number in range(count):
        x, y = (round(float(part), 1) for part in random.uniform(60, SIDE - 60, 2))
        wide, high = (round(float(part), 1) for part in random.uniform(20, 60, 2))
        kind = number // NODES % 3
        if kind == 0:
            wanted.append(f"$geo/bbox:{x},{y},{round(x + wide, 1)},{round(y + high, 1)}/stay/events")
            zones.append(Zone(PLANE, (x, y, round(x + wide, 1), round(y + high, 1))))
        elif kind == 1:
            wanted.append(f"$geo/circle:{x},{y},{wide / 2:.1f}m/stay/events")
            zones.append(Zone(PLANE, Circle(x, y, float(f"{wide / 2:.1f}"))))
        else:
            ring = _star(x, y, random.uniform(10, 30, 8).tolist())
            fence = json.dumps({"type": "Polygon", "coordinates": [ring]}).encode()
            stage.towns[0].send(packet(0x31, text(f"locus/fence/f{number}") + fence))
            wanted.append(f"$geo/fence:f{number}/stay/events")
            zones.append(Zone(PLANE, Polygon(ring)))
            middles.append((number, (x, y)))
    await stage.gather("stay", wanted)
    await _until_known(stage, middles)
    now = await asyncio.to_thread(stage.counted)
    start = stage.so_far()
    await stage.publish("stay/events", zones, stage.places(messages))
    spent = await stage.spent((now[0], now[1], before[2]), start)
    stage.leave()
    return spent


async def _until_known(stage: Stage, middles: Sequence[tuple[int, tuple[float, float]]]) -> None:
    """Publish in the middle of fences, on every node, until their clients hear it: then all know where they are."""
    deadline = time.monotonic() + ANSWER_S
    for at, (x, y) in middles:
        for here, town in enumerate(stage.towns):
            while -1 - here not in stage.clients[at].got:
                if time.monotonic() > deadline:
                    raise LoadError(f"a fence was not known on all nodes within {ANSWER_S:g} s")
                town.send(packet(0x30, text(f"stay/events/@at:{x:.2f},{y:.2f}") + b"%d" % (-1 - here)))
                await asyncio.sleep(0.02)


def _star(x: float, y: float, reaches: Sequence[float]) -> list[tuple[float, float]]:
    turns = [math.tau * number / len(reaches) for number in range(len(reaches))]
    ring = [
        (round(x + reach * math.cos(turn), 1), round(y + reach * math.sin(turn), 1))
        for turn, reach in zip(turns, reaches, strict=True)
    ]
    return [*ring, ring[0]]


async def _move(stage: Stage, users: int, rounds: int, messages: int, speed: float) -> Spent:
    """Clients that listen around themselves, tell where they are and then hear what happens, round after round."""
    world = MobileWorld(MobileWorldSettings(users=users, slow_speed=speed), SEED)
    topic = f"near/{users}/{speed:g}"
    before = await asyncio.to_thread(stage.counted)
    start = stage.so_far()
    await stage.gather(topic.replace("/", "-"), [f"$geo/near:{RADIUS}m/{topic}"] * users)
    for _ in range(rounds):
        world.step()
        places = [(round(x, 2), round(y, 2)) for x, y in world.places.tolist()]
        # A report is acknowledged when all nodes know where its client listens now.
        reports = [
            packet(0x32, text("locus/me/position") + b"\x00\x01" + b'{"lon":%.2f,"lat":%.2f}' % at) for at in places
        ]
        await asyncio.gather(*(client.ask(each) for client, each in zip(stage.clients, reports, strict=True)))
        zones = [Zone(PLANE, Circle(x, y, float(RADIUS))) for x, y in places]
        await stage.publish(topic, zones, stage.places(messages))
    spent = await stage.spent(before, start)
    stage.leave()
    return spent
