"""Paper 000's figures from running brokers: a crowd that moves over the blocks of three nodes.

The world is that of the reproduction (`benchmarks/reproduction/mobile_world.py`): half of the clients linger in slow
regions, half roam. Each is a real roaming client with a connection of its own: it reports where it is once a round,
listens around itself, and goes where `$locus/handover` sends it. The same world runs with blocks that are only split
and merged by load (Q), and with slow regions kept whole (Q+R), as `spark_jobs.mine_regions` would propose them.
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
ROUND_S = 2.0
CONNECTING = 200
"""Clients that connect at once."""
SEED = 1
SETTLE_S = 60.0


@dataclass(slots=True)
class City:
    """What a world cost.

    Args:
        blocks: of the map, on average after the first rounds.
        moves: blocks that got another owner.
        handovers: clients that went to another node.
        forwarded: messages between nodes.
        retransmissions: messages that came twice over a handover, and were left out.
        delivered: events that reached clients.
        published: events.
        reports: positions told.
    """

    blocks: float
    moves: float
    handovers: float
    forwarded: float
    retransmissions: float
    delivered: int
    published: int
    reports: int


class Walker:
    """A roaming client, as small as it can be."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.delivered = 0
        self.moving = False
        self._transport: asyncio.Transport | None = None
        self._ready: asyncio.Future[None] | None = None

    async def go(self, port: int) -> None:
        """Connect to a node, with the session there is; the node it was on lets go of it."""
        loop = asyncio.get_running_loop()
        self._ready = loop.create_future()
        transport, _ = await loop.create_connection(lambda: Visit(self), "127.0.0.1", port)
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

    def heard(self, topic: bytes, payload: bytes) -> None:
        """A message came."""
        if topic != b"$locus/handover":
            self.delivered += 1
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

    def __init__(self, walker: Walker) -> None:
        self._walker = walker
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
            self._walker.heard(body[2:end], body[end:])
        else:
            self._walker.answered()


def run(users: int, rounds: int, *, with_regions: bool, progress: Callable[[str], None]) -> City:
    """Let a world live on three nodes."""
    name = "Q+R" if with_regions else "Q"
    with tempfile.TemporaryDirectory(prefix="locus-city-") as directory:
        world = MobileWorld(MobileWorldSettings(users=users), SEED)
        boxes = watched_regions(world)
        proposal = Path(directory) / "regions.json"
        chosen = boxes if with_regions else []
        proposal.write_text(json.dumps({"format": 1, "regions": [{"box": list(box)} for box in chosen]}))
        cluster = {
            # A client reports once a round: so a block is meant for as many reports a second.
            "block_capacity": CAPACITY * users / 1000 / ROUND_S,
            "block_border": BORDER,
            "weigh_s": ROUND_S,
            "slow_regions_file": str(proposal),
            "handover_pause_s": ROUND_S,
        }
        with nodes(3, cluster, {"plane": [0, 0, SIDE, SIDE]}) as running:
            return asyncio.run(_live(name, world, running, rounds, progress))


async def _live(name: str, world: MobileWorld, running: Nodes, rounds: int, progress: Callable[[str], None]) -> City:
    ports = [broker.port for broker in running.brokers]
    users = world.settings.users
    walkers = [Walker(f"walker-{number}") for number in range(users)]
    for start in range(0, users, CONNECTING):
        some = walkers[start : start + CONNECTING]
        await asyncio.gather(*(each.go(ports[(start + at) % 3]) for at, each in enumerate(some)))
        await asyncio.gather(*(each.listen() for each in some))
    town = [Walker(f"town-{number}") for number in range(3)]
    for number, each in enumerate(town):
        await each.go(ports[number])
    await _settle(name, world, walkers, running, progress)
    names = ("block_moves", "handovers", "forwarded", "retransmissions")
    before = {each: await asyncio.to_thread(running.counted, each) for each in names}
    heard_before = sum(each.delivered for each in walkers)
    blocks, reports = [], 0
    for number in range(rounds):
        began = time.perf_counter()
        world.step()
        reports += _report(world, walkers)
        for at, (west, south, east, north) in enumerate(world.events(EVENTS, SMALLEST, LARGEST)):
            topic = f"world/events/@area:{west:.2f},{south:.2f},{east:.2f},{north:.2f}"
            town[at % 3].publish(topic, b"event")
        blocks.append(await asyncio.to_thread(running.counted, "blocks") / 3)
        if number % 10 == 0:
            progress(f"cluster city {name}: round {number} of {rounds}, {blocks[-1]:.0f} blocks")
        await asyncio.sleep(max(0.0, ROUND_S - (time.perf_counter() - began)))
    await asyncio.sleep(ROUND_S)  # for what is on its way
    after = {each: await asyncio.to_thread(running.counted, each) for each in names}
    return City(
        float(np.mean(blocks)),
        (after["block_moves"] - before["block_moves"]) / 3,  # every node counts each
        after["handovers"] - before["handovers"],
        after["forwarded"] - before["forwarded"],
        after["retransmissions"] - before["retransmissions"],
        sum(each.delivered for each in walkers) - heard_before,
        rounds * EVENTS,
        reports,
    )


def _report(world: MobileWorld, walkers: list[Walker]) -> int:
    return sum(each.tell(*place) for each, place in zip(walkers, world.places.tolist(), strict=True))


async def _settle(
    name: str, world: MobileWorld, walkers: list[Walker], running: Nodes, progress: Callable[[str], None]
) -> None:
    """Tell where everybody is until the map follows: for three rounds as many blocks, give or take a thirtieth."""
    deadline = time.monotonic() + SETTLE_S + 20 * ROUND_S
    still, last = 0, -1.0
    while still < 3:
        if time.monotonic() > deadline:
            raise LoadError(f"the map did not settle within {SETTLE_S + 20 * ROUND_S:g} s")
        _report(world, walkers)
        await asyncio.sleep(ROUND_S)
        blocks = await asyncio.to_thread(running.counted, "blocks") / 3
        still, last = (still + 1 if abs(blocks - last) <= blocks / 30 else 0), blocks
        progress(f"cluster city {name}: {blocks:.0f} blocks, settling")
