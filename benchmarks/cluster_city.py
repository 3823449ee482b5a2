"""Paper 000's figures from running brokers: a crowd that moves over the blocks of three nodes.

The world is that of the reproduction (`benchmarks/reproduction/mobile_world.py`): half of the clients linger in slow
regions, half roam. Each is a real roaming client with a connection of its own: it reports where it is once a round,
listens around itself, and goes where `$locus/handover` sends it; not all at once, but each at its own moment of the
round. The same world runs three times: with blocks that are only split and merged by load (Q); with slow regions beside
them, as `spark_jobs.mine_regions` would propose them (Q+R); and with the slow regions alone, nothing split, and all of
the rest one block (R). The last is no R-tree of users as in the simulation: in a broker a place must be somebody's.
"""

from __future__ import annotations

import asyncio
import json
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from benchmarks.cluster_nodes import Nodes, nodes
from benchmarks.load import LoadError, packet, text
from benchmarks.reproduction.mobile_world import SIDE, MobileWorld, MobileWorldSettings
from benchmarks.reproduction.region_discovery import watched_regions

if TYPE_CHECKING:
    from collections.abc import Callable

CAPACITY = 20
"""Clients a block is meant for, as in the reproduction."""
BORDER = 15.0
LISTENS = 15
"""How far around itself a client listens."""
EVENTS, SMALLEST, LARGEST = 20, 20.0, 120.0
MOMENTS = 8
"""Moments of a round at which clients report."""
CONNECTING = 200
"""Clients that connect at once."""
SCHEMES = ("R", "Q", "Q+R")
SETTLE_S = 60.0


@dataclass(slots=True)
class City:
    """What a world cost.

    Args:
        blocks: of the map, on average after the first rounds.
        moves: blocks that got another owner.
        handovers: clients that went to another node.
        forwarded: messages between nodes.
        needed: what they would be if each event went once to each node with a client that got it.
        retransmissions: messages that came twice over a handover, and were left out.
        delivered: events that reached clients.
        published: events.
        reports: positions told.
    """

    blocks: float
    moves: float
    handovers: float
    forwarded: float
    needed: int
    retransmissions: float
    delivered: int
    published: int
    reports: int


class Walker:
    """A roaming client, as small as it can be."""

    def __init__(self, name: str, reached: set[tuple[bytes, int]]) -> None:
        self.name = name
        self.delivered = 0
        self.moving = False
        self._reached = reached
        self._transport: asyncio.Transport | None = None
        self._ready: asyncio.Future[None] | None = None

    async def go(self, port: int) -> None:
        """Connect to a node, with the session there is; the node it was on lets go of it."""
        loop = asyncio.get_running_loop()
        self._ready = loop.create_future()
        transport, _ = await loop.create_connection(lambda: Visit(self, port), "127.0.0.1", port)
        flags = b"\x04\x00\x00\x00"  # a session that is kept, no keep-alive
        transport.write(packet(0x10, text("MQTT") + flags + text(self.name)))
        await self._ready
        self._transport = transport

    async def listen(self) -> None:
        """Say what it wants."""
        filters = ("$locus/handover", f"$geo/near:{LISTENS}m/world/events")
        body = b"\x00\x01" + b"".join(text(each) + b"\x00" for each in filters)
        self._ready = asyncio.get_running_loop().create_future()
        assert self._transport is not None
        self._transport.write(packet(0x82, body))
        await self._ready

    def tell(self, x: float, y: float) -> bool:
        """Tell where it is, unless it is on its way between two nodes."""
        if self._transport is None or self._transport.is_closing():
            return False
        self.publish("locus/me/position", b'{"lon":%.2f,"lat":%.2f}' % (x, y))
        return True

    def publish(self, topic: str, payload: bytes) -> None:
        """Publish at QoS 0."""
        assert self._transport is not None
        self._transport.write(packet(0x30, text(topic) + payload))

    def answered(self) -> None:
        """CONNACK or SUBACK came."""
        if self._ready is not None and not self._ready.done():
            self._ready.set_result(None)

    def heard(self, topic: bytes, payload: bytes, port: int) -> None:
        """A message came from the node at a port."""
        if topic != b"$locus/handover":
            self.delivered += 1
            self._reached.add((payload, port))
        elif not self.moving:
            self.moving = True
            port = int(json.loads(payload)["address"].rpartition(":")[2])
            task = asyncio.get_running_loop().create_task(self.go(port))
            task.add_done_callback(self._arrived)

    def _arrived(self, task: asyncio.Task[None]) -> None:
        self.moving = False
        if not task.cancelled():
            task.exception()  # a node that did not take it tells it again


class Visit(asyncio.Protocol):
    """One connection of a walker."""

    def __init__(self, walker: Walker, port: int) -> None:
        self._walker = walker
        self._port = port
        self._rest = b""

    def data_received(self, data: bytes) -> None:
        """Cut packets out of what came."""
        data = self._rest + data
        at = 0
        while len(data) - at >= 2:
            length, shift, body = 0, 0, at + 1
            while body < len(data):
                byte = data[body]
                length |= (byte & 0x7F) << shift
                shift, body = shift + 7, body + 1
                if not byte & 0x80:
                    break
            else:
                break
            if body + length > len(data):
                break
            self._packet(data[at], data[body : body + length])
            at = body + length
        self._rest = data[at:]

    def _packet(self, first: int, body: bytes) -> None:
        if first >> 4 == 3:
            end = 2 + int.from_bytes(body[:2])
            self._walker.heard(body[2:end], body[end:], self._port)
        else:
            self._walker.answered()


@dataclass(frozen=True, slots=True)
class Settings:
    """How large a world is, and how long it is watched."""

    users: int = 5_000
    rounds: int = 15
    round_s: float = 2.0


def run(scheme: str, settings: Settings, seed: int, progress: Callable[[str], None]) -> City:
    """Let a world live on three nodes whose map follows one of the `SCHEMES`."""
    users, round_s = settings.users, settings.round_s
    with tempfile.TemporaryDirectory(prefix="locus-city-") as directory:
        world = MobileWorld(MobileWorldSettings(users=users), seed)
        proposal = Path(directory) / "regions.json"
        watched = watched_regions(world)  # for every scheme: watching moves the world
        boxes = watched if "R" in scheme else []
        proposal.write_text(json.dumps({"format": 1, "regions": [{"box": list(box)} for box in boxes]}))
        cluster = {
            # A client reports once a round: so a block is meant for as many reports a second.
            "block_capacity": CAPACITY * users / 1000 / round_s,
            "block_border": BORDER,
            "weigh_s": round_s,
            "slow_regions_file": str(proposal),
            "handover_pause_s": round_s,
        }
        if "Q" not in scheme:
            cluster |= {"block_depth": 0, "max_blocks": 1}
        with nodes(3, cluster, {"plane": [0, 0, SIDE, SIDE]}) as running:
            return asyncio.run(_live(f"{scheme}, world {seed}", world, running, settings, progress))


async def _live(
    name: str, world: MobileWorld, running: Nodes, settings: Settings, progress: Callable[[str], None]
) -> City:
    rounds, round_s = settings.rounds, settings.round_s
    ports = [broker.port for broker in running.brokers]
    users = settings.users
    reached: set[tuple[bytes, int]] = set()
    walkers = [Walker(f"walker-{number}", reached) for number in range(users)]
    for start in range(0, users, CONNECTING):
        some = walkers[start : start + CONNECTING]
        await asyncio.gather(*(each.go(ports[(start + at) % 3]) for at, each in enumerate(some)))
        await asyncio.gather(*(each.listen() for each in some))
    town = [Walker(f"town-{number}", reached) for number in range(3)]
    for number, each in enumerate(town):
        await each.go(ports[number])
    await _settle(name, world, walkers, running, round_s, progress)
    names = ("block_moves", "handovers", "forwarded", "retransmissions")
    before = {each: await asyncio.to_thread(running.counted, each) for each in names}
    heard_before = sum(each.delivered for each in walkers)
    blocks, reports = [], 0
    for number in range(rounds):
        world.step()
        events = world.events(EVENTS, SMALLEST, LARGEST)
        reports += await _report(world, walkers, round_s)
        for at, (west, south, east, north) in enumerate(events):
            topic = f"world/events/@area:{west:.2f},{south:.2f},{east:.2f},{north:.2f}"
            town[at % 3].publish(topic, b"%d" % (number * EVENTS + at))
        blocks.append(await asyncio.to_thread(running.counted, "blocks") / 3)
        if number % 10 == 0:
            progress(f"cluster city {name}: round {number} of {rounds}, {blocks[-1]:.0f} blocks")
    await asyncio.sleep(round_s)  # for what is on its way
    needed = sum(port != ports[int(event) % EVENTS % 3] for event, port in reached)
    after = {each: await asyncio.to_thread(running.counted, each) for each in names}
    return City(
        float(np.mean(blocks)),
        (after["block_moves"] - before["block_moves"]) / 3,  # every node counts each
        after["handovers"] - before["handovers"],
        after["forwarded"] - before["forwarded"],
        needed,
        after["retransmissions"] - before["retransmissions"],
        sum(each.delivered for each in walkers) - heard_before,
        rounds * EVENTS,
        reports,
    )


async def _report(world: MobileWorld, walkers: list[Walker], round_s: float) -> int:
    """Let everybody tell where it is, some at each moment of a round."""
    told, places = 0, world.places.tolist()
    for moment in range(MOMENTS):
        began = time.perf_counter()
        told += sum(walkers[at].tell(*places[at]) for at in range(moment, len(walkers), MOMENTS))
        await asyncio.sleep(max(0.0, round_s / MOMENTS - (time.perf_counter() - began)))
    return told


async def _settle(
    name: str,
    world: MobileWorld,
    walkers: list[Walker],
    running: Nodes,
    round_s: float,
    progress: Callable[[str], None],
) -> None:
    """Tell where everybody is until the map follows.

    For three rounds as many blocks, give or take a thirtieth, and hardly anybody who is sent elsewhere.
    """
    deadline = time.monotonic() + SETTLE_S + 20 * round_s
    still, last, gone = 0, -1.0, 0.0
    while still < 3:
        if time.monotonic() > deadline:
            raise LoadError(f"the map did not settle within {SETTLE_S + 20 * round_s:g} s")
        await _report(world, walkers, round_s)
        blocks = await asyncio.to_thread(running.counted, "blocks") / 3
        handovers = await asyncio.to_thread(running.counted, "handovers")
        at_rest = abs(blocks - last) <= blocks / 30 and handovers - gone <= len(walkers) / 500
        still, last, gone = (still + 1 if at_rest else 0), blocks, handovers
        progress(f"cluster city {name}: {blocks:.0f} blocks, settling")
