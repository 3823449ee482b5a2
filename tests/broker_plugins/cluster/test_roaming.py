"""Roaming clients on three nodes: driven from owner to owner, off a node that is drained, away from one that dies."""

from __future__ import annotations

import asyncio
import itertools
import json
import random
import subprocess
import sys
import threading
from collections import defaultdict
from typing import TYPE_CHECKING, Self

import pytest

from broker_plugins.cluster.options import ClusterOptions
from broker_plugins.cluster.region_map import read_chart
from clients import ConnectError, LocusClient, Near, RoamingClient
from tests.broker_plugins.cluster.nodes import CLUSTER, Cluster, cluster
from tests.mqtt_wire import DISCONNECT, Kind, Wire, connect, connect_packet, publish, wait_for

if TYPE_CHECKING:
    from collections.abc import Iterator

    from clients import Message

pytestmark = pytest.mark.xdist_group("roaming")  # they share one cluster

NODES = ("a", "b", "c")
LONG = 90.0


@pytest.fixture(scope="module")
def nodes(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    options = {"handover_pause_s": 0.05, "block_border": 0.0, "lease_s": 3.0}
    with cluster(tmp_path_factory.mktemp("roaming"), *NODES, plugins={CLUSTER: options}) as made:
        yield made
        for name, node in made.nodes.items():
            assert "Traceback" not in node.log, f"{name}: {node.log[-3000:]}"


def places(nodes: Cluster) -> dict[str, tuple[float, float]]:
    """A place that each node owns."""
    found: dict[str, tuple[float, float]] = {}

    def all_own() -> bool:
        chart = asyncio.run(read_chart(ClusterOptions(servers=[nodes.fabric.url]), NODES))
        for block in chart.blocks if chart is not None else ():
            west, south, east, north = block.box
            found[block.owner] = ((west + east) / 2, (south + north) / 2)
        return set(NODES) <= set(found)

    wait_for(all_own, "a block for each node", LONG)
    return found


def figures(nodes: Cluster, name: str) -> dict[str, int]:
    """What a node says that moving costs."""
    with connect(nodes.port(name), f"figures-{name}") as wire:
        wire.subscribe(("$SYS/broker/locus/cluster/handovers", 0))
        found: dict[str, int] = json.loads(wire.messages(1, LONG)[0].payload)
        return found


class Publishers:
    """On each node one for each QoS, on two topics in turn, until they are stopped."""

    def __init__(self, nodes: Cluster, names: tuple[str, ...] = NODES) -> None:
        self._stop = threading.Event()
        self.said: dict[str, int] = {}
        self._threads = [
            threading.Thread(target=self._publish, args=(nodes.port(name), name, qos))
            for name in names
            for qos in (0, 1, 2)
        ]

    def _publish(self, port: int, name: str, qos: int) -> None:
        with LocusClient("127.0.0.1", port, timeout_s=LONG) as client:
            for number in itertools.count():
                topic = f"r/{name}/{qos}/{number % 2}"
                client.publish(topic, str(number // 2), qos=qos)
                self.said[topic] = number // 2
                if self._stop.wait(0.005):
                    return

    def __enter__(self) -> Self:
        for thread in self._threads:
            thread.start()
        return self

    def stop(self) -> None:
        self._stop.set()
        for thread in self._threads:
            thread.join()

    def __exit__(self, *_: object) -> None:
        self.stop()


class Listener:
    """Notes what a client gets."""

    def __init__(self) -> None:
        self.got: dict[str, list[int]] = defaultdict(list)

    def __call__(self, message: Message) -> None:
        self.got[message.topic].append(int(message.text))

    def wait_for_all(self, said: dict[str, int]) -> None:
        wait_for(lambda: all(self.got[topic][-1:] == [last] for topic, last in said.items()), "the last ones", LONG)

    def judge(self, said: dict[str, int]) -> None:
        """Everything from the first one on, once and in order."""
        for topic, last in said.items():
            assert self.got[topic] == list(range(self.got[topic][0], last + 1)), topic


def test_a_client_is_handed_over_thirty_times_without_loss_doubles_or_disorder(nodes: Cluster) -> None:
    owned = places(nodes)
    chooser = random.Random(5)
    heard = Listener()
    client = RoamingClient("127.0.0.1", nodes.port("a"), timeout_s=LONG)
    client.subscribe("r/#", heard, qos=2)
    with client, Publishers(nodes) as publishers:
        wait_for(lambda: len(heard.got) == 18, "every publisher", LONG)
        for _ in range(31):
            others = [name for name in NODES if nodes.port(name) != int(client.address.rpartition(":")[2])]
            goal = chooser.choice(others)
            client.update_position(*owned[goal])
            wait_for(
                lambda goal=goal: client.connected and client.address == f"127.0.0.1:{nodes.port(goal)}",
                f"the client to go to {goal}",
                LONG,
            )
        publishers.stop()
        heard.wait_for_all(publishers.said)
        assert client.handovers >= 30
        assert client.dropped == client.unrouted == 0
    heard.judge(publishers.said)
    wait_for(
        lambda: sum(figures(nodes, name)["handovers"] for name in NODES) >= 30, "the handovers to be counted", LONG
    )
    assert all(figures(nodes, name)["forwarded"] > 0 for name in NODES)


def test_what_is_around_a_client_moves_along(nodes: Cluster) -> None:
    """It is told to go where its place is owned, and hears what happens there on both nodes without a gap."""
    lon, lat = places(nodes)["c"]
    heard = Listener()
    stop = threading.Event()
    said: dict[str, int] = {}

    def publish_there(name: str) -> None:
        with LocusClient("127.0.0.1", nodes.port(name), timeout_s=LONG) as publisher:
            for number in itertools.count():
                publisher.publish(f"around/{name}", str(number), at=(lon, lat), qos=number % 2)
                said[f"around/{name}"] = number
                if stop.wait(0.005):
                    return

    talking = [threading.Thread(target=publish_there, args=(name,)) for name in NODES]
    with RoamingClient("127.0.0.1", nodes.port("a"), timeout_s=LONG) as client:
        client.subscribe("around/#", heard, area=Near(500), qos=1)
        client.publish("locus/me/position", {"lon": lon, "lat": lat}, qos=1)
        for thread in talking:
            thread.start()
        wait_for(lambda: client.handovers == 1, "the handover", LONG)
        before = dict(said)
        wait_for(lambda: all(heard.got[topic][-1:] > [last] for topic, last in before.items()), "to go on", LONG)
        stop.set()
        for thread in talking:
            thread.join()
        for topic, last in said.items():
            wait_for(lambda topic=topic, last=last: last in heard.got[topic], f"the last of {topic}", LONG)
    for topic, last in said.items():
        for qos in (0, 1):
            got = [number for number in heard.got[topic] if number % 2 == qos]
            assert got == list(range(got[0], last + 1, 2)), topic


def test_what_a_roaming_client_publishes_stays_in_order(nodes: Cluster) -> None:
    owned = places(nodes)
    heard = Listener()
    stop = threading.Event()
    said = {}
    with (
        LocusClient("127.0.0.1", nodes.port("b"), timeout_s=LONG) as listener,
        RoamingClient("127.0.0.1", nodes.port("a"), timeout_s=LONG) as client,
    ):
        listener.subscribe("mine/#", heard, qos=2)

        def talk() -> None:
            for number in itertools.count():
                for qos in (0, 1, 2):
                    client.publish(f"mine/{qos}", str(number), qos=qos)
                    said[f"mine/{qos}"] = number
                if stop.wait(0.005):
                    return

        talking = threading.Thread(target=talk)
        talking.start()
        for goal in ("c", "a", "c", "b", "a", "b", "c"):
            client.update_position(*owned[goal])
            wait_for(lambda goal=goal: client.address.endswith(str(nodes.port(goal))), f"{goal}", LONG)
        stop.set()
        talking.join()
        heard.wait_for_all(said)
    heard.judge(said)


def test_a_plain_client_stays_and_a_roaming_one_says_no_will(nodes: Cluster) -> None:
    owned = places(nodes)
    with (
        LocusClient("127.0.0.1", nodes.port("a"), timeout_s=LONG) as plain,
        RoamingClient("127.0.0.1", nodes.port("a"), timeout_s=LONG, nodes=["127.0.0.1:1"]) as roaming,
    ):
        for client in (plain, roaming):
            client.update_position(*owned["c"])
        wait_for(lambda: roaming.handovers == 1, "the handover", LONG)
        assert roaming.address == f"127.0.0.1:{nodes.port('c')}"
        assert plain.connected
        wait_for(lambda: len(roaming.nodes) >= 3, "the list of nodes", LONG)
        got: list[str] = []
        plain.subscribe("still/here", lambda message: got.append(message.text))
        roaming.publish("still/here", "yes", qos=1)
        wait_for(lambda: got == ["yes"], "the message", LONG)


def drain(nodes: Cluster, *arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "clients.cli", "cluster", "drain", *arguments, "--server", nodes.fabric.url]
    return subprocess.run(command, capture_output=True, text=True, check=False, timeout=LONG)


def test_a_node_is_drained_and_takes_clients_again(nodes: Cluster) -> None:
    owned = places(nodes)
    heard = Listener()
    away = connect(nodes.port("b"), "absent", clean=False)
    away.subscribe(("r/a/1/0", 1))
    away.send(DISCONNECT)
    away.wait_until_closed()
    client = RoamingClient("127.0.0.1", nodes.port("b"), timeout_s=LONG)
    client.subscribe("r/#", heard, qos=2)
    with client, Publishers(nodes, ("a", "c")) as publishers:
        wait_for(lambda: len(heard.got) == 12, "every publisher", LONG)
        client.update_position(*owned["b"])
        done = drain(nodes, "b", "--timeout", str(LONG))
        assert done.returncode == 0, done
        assert "b can be stopped" in done.stdout
        wait_for(lambda: not client.address.endswith(str(nodes.port("b"))), "the client to go", LONG)
        with pytest.raises(ConnectError, match="unavailable"):
            LocusClient("127.0.0.1", nodes.port("b")).connect()
        publishers.stop()
        heard.wait_for_all(publishers.said)
    heard.judge(publishers.said)
    wire = Wire(nodes.port("a"))
    wire.send(connect_packet("absent", clean=False))
    assert wire.expect(Kind.CONNACK).session_present
    got = [int(each.payload) for each in wire.messages(publishers.said["r/a/1/0"] + 1, LONG)]
    assert got == list(range(publishers.said["r/a/1/0"] + 1))
    wire.close()
    undone = drain(nodes, "b", "--undo")
    assert undone.returncode == 0, undone
    with connect(nodes.port("b"), "welcome") as welcome:
        welcome.send(publish("x", b""))
        welcome.messages_until_ping()
    wait_for(lambda: "b" in places(nodes), "b to own blocks again", LONG)
    nobody = drain(nodes, "nobody")
    assert nobody.returncode == 1
    assert "no node 'nobody'" in nobody.stderr


def test_a_client_goes_on_elsewhere_when_its_node_is_killed(nodes: Cluster) -> None:
    owned = places(nodes)
    heard = Listener()
    client = RoamingClient("127.0.0.1", nodes.port("b"), timeout_s=LONG)
    client.subscribe("r/#", heard, qos=2)
    with client, Publishers(nodes, ("a", "c")) as publishers:
        client.update_position(*owned["b"])
        wait_for(lambda: len(heard.got) == 12, "every publisher", LONG)
        nodes.nodes["b"].kill()
        wait_for(lambda: client.connected and not client.address.endswith(str(nodes.port("b"))), "another node", LONG)
        before = dict(publishers.said)
        wait_for(lambda: all(heard.got[topic][-1] > last for topic, last in before.items()), "messages to go on", LONG)
        publishers.stop()
        heard.wait_for_all(publishers.said)
        for topic, got in heard.got.items():
            assert got == sorted(set(got)), f"{topic}: doubled or out of order"
        nodes.start("b")
        wanted = {topic: set(range(heard.got[topic][0], last + 1)) for topic, last in publishers.said.items()}
        for topic, numbers in wanted.items():
            if "/0/" not in topic:
                wait_for(lambda topic=topic, numbers=numbers: numbers <= set(heard.got[topic]), f"all of {topic}", LONG)
        for topic, got in heard.got.items():
            if "/2/" in topic:
                assert len(got) == len(set(got)), topic
