"""The map of a real cluster: who owns what, and which messages need not travel."""

from __future__ import annotations

import asyncio
import json
import random
import time
from collections import Counter
from typing import TYPE_CHECKING, Any

import nats

from tests.broker_plugins.cluster.nodes import CLUSTER, Cluster, cluster
from tests.broker_plugins.cluster.test_random import Subscriber
from tests.mqtt_wire import Kind, Packet, Silence, Wire, acknowledge, connect, publish, wait_for

if TYPE_CHECKING:
    from pathlib import Path

TOPIC = "$SYS/broker/locus/cluster/blocks"
SECONDS = 60.0


def options(**chosen: object) -> dict[str, dict[str, object]]:
    return {CLUSTER: {"weigh_s": 0.4, "block_depth": 1, "granting_s": 30.0, **chosen}}


def chart(nodes: Cluster, name: str) -> dict[str, Any]:
    """The map as a node shows it."""
    with connect(nodes.port(name), f"watcher-{name}") as watcher:
        watcher.subscribe((TOPIC, 0))
        found: dict[str, Any] = json.loads(watcher.messages(1)[-1].payload)
        return found


def wait_for_map(nodes: Cluster, names: str, agreed: Any, what: str) -> dict[str, Any]:
    """Wait until some nodes show the same version of a map with some property."""
    seen: list[dict[str, Any]] = []

    def reached() -> bool:
        seen[:] = [chart(nodes, name) for name in names]
        return len({each["version"] for each in seen}) == 1 and all(map(agreed, seen))

    wait_for(reached, what, SECONDS)
    return seen[0]


def owners(found: dict[str, Any]) -> Counter[str]:
    return Counter(block["owner"] for block in found["blocks"])


def load(block: dict[str, Any]) -> float:
    return float(block["load"])


def at(topic: str, lon: float, lat: float) -> str:
    return f"{topic}/@at:{lon},{lat}"


def send(wire: Wire, topics: list[str], text: str, qos: int = 1) -> None:
    """Publish and wait until all is acknowledged."""
    for number, topic in enumerate(topics, 1):
        wire.send(publish(topic, f"{text} {number}".encode(), qos=qos, packet_id=number))
    for _ in topics if qos else ():
        wire.expect(Kind.PUBACK if qos == 1 else Kind.PUBREC, SECONDS)
    if qos == 2:
        wire.send(*(acknowledge(Kind.PUBREL, number) for number, _ in enumerate(topics, 1)))
        for _ in topics:
            wire.expect(Kind.PUBCOMP, SECONDS)


def test_blocks_are_shared_out_and_a_dead_node_s_go_to_the_others_and_come_back(tmp_path: Path) -> None:
    proposal = tmp_path / "regions.json"
    chosen = options(block_depth=2, slow_regions_file=str(proposal), weigh_s=6.0)  # so a death is seen alone
    with cluster(tmp_path, "a", "b", "c", plugins=chosen) as nodes:
        first = wait_for_map(nodes, "abc", lambda found: set(owners(found)) == set("abc"), "all to own something")
        assert len(first["blocks"]) == 16
        assert min(owners(first).values()) >= 4
        nodes.nodes["a"].kill()  # the one that proposes
        lost = wait_for_map(nodes, "bc", lambda found: set(owners(found)) == set("bc"), "its blocks to move")
        kept = {block["id"]: block["owner"] for block in first["blocks"] if block["owner"] != "a"}
        assert kept.items() <= {block["id"]: block["owner"] for block in lost["blocks"]}.items()
        nodes.start("a")
        wait_for_map(nodes, "abc", lambda found: set(owners(found)) == set("abc"), "blocks to come back")
        process = nodes.fabric.process
        assert process is not None
        process.kill()
        process.wait()
        before = chart(nodes, "b")
        nodes.start_fabric()
        after = wait_for_map(nodes, "abc", lambda found: found["version"] >= before["version"], "the map")
        assert set(owners(after)) == set("abc")
        box = [10.0, 10.0, 10.5, 10.5]
        proposal.write_text(json.dumps({"format": 1, "regions": [{"box": box, "population": 9, "residency": 1}]}))
        laid = wait_for_map(nodes, "abc", lambda found: found["count"] == 17, "a slow region")
        assert [block["box"] for block in laid["blocks"] if block["id"] == "r0"] == [box]


def test_a_message_does_not_travel_to_where_nobody_listens(tmp_path: Path) -> None:
    with cluster(tmp_path, "a", "b", "c", plugins=options()) as nodes:
        wait_for_map(nodes, "abc", lambda found: set(owners(found)) == set("abc"), "all to own something")
        for qos in (0, 1):
            travel(nodes, qos)


def is_probe(packet: Packet) -> bool:
    """Whether it is what `wait_heard` sends; one that was sent again may come late."""
    return packet.payload.startswith(b"probe")


def heard(wire: Wire, count: int) -> list[bytes]:
    """The next messages that are no probes."""
    found: list[bytes] = []
    while len(found) < count:
        found += [each.payload for each in wire.messages(1, SECONDS) if not is_probe(each)]
    return found


def travel(nodes: Cluster, qos: int) -> None:
    """Listeners at both ends of the world and one that walks, and what need not go to each."""
    with (
        connect(nodes.port("b"), "east") as east,
        connect(nodes.port("c"), "west") as west,
        connect(nodes.port("c"), "walker") as walker,
        connect(nodes.port("a"), "sender") as sender,
    ):
        east.subscribe(("$geo/bbox:90,30,110,50/v/#", 1))
        west.subscribe(("$geo/circle:-100,-40,1000m/v/#", 1))
        walker.send(publish("locus/me/position", b'{"lon": -50, "lat": -40}', qos=1))
        walker.expect(Kind.PUBACK, SECONDS)
        walker.subscribe(("$geo/near:2km/v/#", 1))
        nodes.wait_heard(east, "a", at("v/1", 100, 40))
        nodes.wait_heard(west, "a", at("v/1", -100, -40))
        nodes.wait_heard(walker, "a", at("v/1", -50, -40))

        if qos:
            count(nodes, sender, east, west, walker)

        # An area that touches two of them, and one that is the whole world.
        send(sender, ["v/2/@area:-101,-41,-40,-39", "v/2/@area:-180,-90,180,90"], "area", qos)
        assert heard(west, 2) == [b"area 1", b"area 2"]
        assert heard(walker, 2) == [b"area 1", b"area 2"]
        assert heard(east, 1) == [b"area 2"]

        # To the other end of the world and on: all nodes know where before the report is acknowledged.
        for lon in (150, 140, -150, 20):
            walker.send(publish("locus/me/position", b'{"lon": %d, "lat": 60}' % lon, qos=1))
            walker.expect(Kind.PUBACK, SECONDS)
            send(sender, [at("v/2", lon, 60), at("v/2", -50, -40)], "there", qos)
            assert heard(walker, 1) == [b"there 1"]

        # Somebody who wants it from everywhere, and somebody who wants to see things leave.
        west.subscribe(("v/2", 1))
        nodes.wait_heard(west, "a", "v/2")
        send(sender, ["v/2", at("v/2", 5, 5)], "everywhere", qos)
        assert heard(west, 2) == [b"everywhere 1", b"everywhere 2"]
        walker.subscribe(("$geo/bbox:90,30,110,50;detect=exit/v/3", 1))
        for _ in range(2):
            wait_exit(sender, walker, qos)


def count(nodes: Cluster, sender: Wire, east: Wire, west: Wire, walker: Wire) -> None:
    """What is sent and what is not, while the map stands still."""

    def figures() -> tuple[int, int, int]:
        found = chart(nodes, "a")
        return found["sent"], found["spared"], found["unsure"]

    places = [(100, 40)] * 20 + [(-100, -40)] * 10 + [(-5, 50)] * 5
    counted: tuple[int, ...] = ()
    for _ in range(20):  # while the map changes nobody is sure, and everybody gets everything
        wait_for_map(nodes, "a", lambda found: not any(map(load, found["blocks"])), "all before to be counted")
        before = figures()
        send(sender, [at("v/2", *place) for place in places], "x")
        assert heard(east, 20) == [b"x %d" % number for number in range(1, 21)]
        assert heard(west, 10) == [b"x %d" % number for number in range(21, 31)]
        for wire in (east, west, walker):
            assert not [each for each in wire.messages_until_ping(SECONDS) if not is_probe(each)]
        wait_for(lambda before=before: sum(figures()) == sum(before) + 70, "all to be counted", SECONDS)
        counted = tuple(now - then for now, then in zip(figures(), before, strict=True))
        if not counted[2]:
            break
    assert counted == (30, 40, 0)


def wait_exit(sender: Wire, watcher: Wire, qos: int) -> None:
    """Something comes and leaves, until the watcher hears of it."""

    def noticed() -> bool:
        send(sender, [at("v/3", 100, 40), at("v/3", 5, 5)], "exit", qos)
        try:
            return watcher.messages(1, 0.5)[0].payload == b"exit 2"
        except Silence:
            return False

    wait_for(noticed, "an exit", SECONDS)


class Listener(Subscriber):
    """A subscriber to an area."""

    def __init__(self, nodes: Cluster, name: str, node: str, area: tuple[int, int, int, int]) -> None:
        super().__init__(nodes, name, node)
        self.area = area
        self.hears: set[bytes] = set()

    def listen(self) -> None:
        self.connect()
        assert self.wire is not None
        area = "$geo/bbox:{},{},{},{}".format(*self.area)
        self.wire.subscribe((f"{area}/r/#", 2), (f"{area}/probe/{self.name}", 0))

    def _take(self, wire: Wire, packet: Packet) -> None:
        if packet.kind is Kind.PUBLISH and packet.topic.startswith("probe/"):
            self.hears.add(packet.payload)
        super()._take(wire, packet)

    def wants(self, lon: float, lat: float) -> bool:
        west, south, east, north = self.area
        return west <= lon <= east and south <= lat <= north


def all_hear(nodes: Cluster, listeners: list[Listener]) -> bool:
    """Whether what happens on each node reaches every listener."""
    for node in nodes.nodes:
        with connect(nodes.port(node), f"probe-{node}") as wire:
            for each in listeners:
                topic = at(f"probe/{each.name}", each.area[0] + 0.5, each.area[1] + 0.5)
                wire.send(publish(topic, node.encode()))
            wire.messages_until_ping()
    for each in listeners:
        each.read()
    return all(len(each.hears) == len(nodes.nodes) for each in listeners)


def test_everybody_hears_what_happens_around_them_once_while_blocks_split_merge_and_move(tmp_path: Path) -> None:
    """Areas within sixteen degrees, and bursts that make blocks come and go; a node is killed in the middle."""
    dice = random.Random(11)
    said: dict[tuple[str, int], tuple[float, float]] = {}
    with cluster(tmp_path, "a", "b", "c", plugins=options(block_capacity=12, max_blocks=200)) as nodes:
        listeners = []
        for number in range(9):
            west, south = dice.randrange(0, 14), dice.randrange(0, 14)
            area = (west, south, west + dice.randrange(1, 5), south + dice.randrange(1, 5))
            listeners.append(Listener(nodes, f"listener-{number}", "abc"[number % 3], area))
        for each in listeners:
            each.listen()
        wait_for(lambda: all_hear(nodes, listeners), "all to hear each other", SECONDS)

        def burst(node: str, around: tuple[int, int]) -> None:
            places = [(around[0] + dice.randrange(4) + 0.5, around[1] + dice.randrange(4) + 0.5) for _ in range(24)]
            stream = f"{node} {len(said)}"
            with connect(nodes.port(node), f"pub-{node}") as wire:
                send(wire, [at(f"r/{node}", *place) for place in places], stream, 2)
            said.update({(stream, number): place for number, place in enumerate(places, 1)})

        def bursts(names: str, count: int, around: tuple[int, int]) -> None:
            for _ in range(count):
                burst(dice.choice(names), around)
                for each in listeners:
                    each.read(0.01)

        bursts("abc", 10, (0, 0))
        wait_for_map(nodes, "abc", lambda found: found["splits"] > 0, "blocks to split")
        bursts("abc", 10, (12, 12))
        nodes.nodes["c"].kill()
        for each in listeners:
            each.read()
        bursts("ab", 6, (6, 6))
        wait_for_map(nodes, "ab", lambda found: "c" not in owners(found), "the dead node's blocks to move")
        bursts("ab", 6, (6, 6))
        nodes.start("c")
        for each in listeners:
            if each.wire is None:
                each.connect()
        bursts("abc", 10, (12, 0))
        wait_for_map(nodes, "abc", lambda found: found["merges"] > 0 or found["count"] == 4, "blocks to merge")
        bursts("abc", 4, (4, 4))
        for each in listeners:
            due = {key for key, place in said.items() if each.wants(*place)}

            def has_all(each: Listener = each, due: set[tuple[str, int]] = due) -> bool:
                each.read(0.1)
                return due <= set(each.got)

            try:
                wait_for(has_all, "all that happened there", SECONDS)
            except Silence:
                missing = sorted(due - set(each.got))
                raise AssertionError(f"{each.name} on {each.node} in {each.area} has not got {missing}") from None
        quiet = time.monotonic() + 0.5
        while time.monotonic() < quiet:
            for each in listeners:
                each.read(0.02)
        for each in listeners:
            assert Counter(each.got) == Counter(key for key, place in said.items() if each.wants(*place)), each.name
        figures = [chart(nodes, name) for name in "abc"]
        assert sum(found["spared"] for found in figures) > 0
        assert sum(found["splits"] for found in figures) > 0
        for name, node in nodes.nodes.items():
            assert "Traceback" not in node.log, f"{name}: {node.log[-3000:]}"


async def spoil(url: str) -> None:
    """Put something into the directory that is no map."""
    client = await nats.connect(url)
    directory = await client.jetstream().key_value("locus_locus_directory")
    await directory.put("blocks", b"rubbish")
    await client.close()


def test_without_a_map_that_can_be_read_messages_go_to_all_who_want_the_topic(tmp_path: Path) -> None:
    with cluster(tmp_path, "a", "b", plugins=options()) as nodes:
        asyncio.run(spoil(nodes.fabric.url))
        nodes.nodes["b"].kill()
        nodes.start("b")
        nodes.wait_joined("b")
        with connect(nodes.port("b"), "listener") as listener:
            listener.subscribe(("$geo/bbox:0,0,1,1/v/#", 0))
            nodes.wait_heard(listener, "a", at("v/1", 0.5, 0.5))
        assert "there is no map" in nodes.nodes["b"].log
        assert "Traceback" not in nodes.nodes["b"].log
