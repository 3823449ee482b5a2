"""A cluster under random trouble, judged by an oracle.

Persistent subscribers, to everything and to what happens in an area, and publishers on three nodes, while blocks of the
map split, merge and move; between bursts of QoS 1 and 2 messages a node is killed and started again, paused for longer
than its lease, the fabric is killed and started again, a subscriber goes and comes back, moves to another node, or
flees from one that is killed. At the end everybody must have every acknowledged message: QoS 2 once, and all in the
order of their publisher and topic, but for what a killed node had taken for a subscriber that fled, which comes when
the node is back.

`LOCUS_CLUSTER_SEED` and `LOCUS_CLUSTER_STEPS` replay a run or make a long one, which says with `-s` what it did. In a
long one there is a roaming client too, which is led to other nodes and finds one when its own dies, nodes are cut off
from the fabric, with and without noticing it, subscribers flee from one that is, and the fabric dies together with a
node. Who left a node that had not died may get messages of that time late and twice, as docs/cluster.md says.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import random
import signal
import time
from collections import Counter, defaultdict
from contextlib import ExitStack
from typing import TYPE_CHECKING

import pytest

from broker_plugins.cluster.options import ClusterOptions
from broker_plugins.cluster.region_map import read_chart
from clients import RoamingClient
from tests.broker_plugins.cluster.nodes import CLUSTER, Cluster
from tests.broker_plugins.cluster.proxies import SlowNetwork
from tests.mqtt_wire import (
    DISCONNECT,
    Closed,
    Kind,
    Packet,
    Silence,
    Wire,
    acknowledge,
    connect,
    connect_packet,
    publish,
    wait_for,
)

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from clients import Message

SEED = int(os.environ.get("LOCUS_CLUSTER_SEED", "7"))
STEPS = int(os.environ.get("LOCUS_CLUSTER_STEPS", "6"))
IS_LONG = "LOCUS_CLUSTER_STEPS" in os.environ
NODES = ("a", "b", "c")
LONG = 120.0
LEASE_S = 1.5
Said = tuple[str, int]
"""A publisher with its topic, and the number of the message, which tells where it happens."""
AREA = "$geo/bbox:-10,-10,10,10"


def is_inside(said: Said) -> bool:
    """Whether a message happens in the area."""
    return said[1] % 3 == 0


def topic_of(node: str, qos: int, number: int) -> str:
    return f"r/{node}/{qos}/@at:{0 if is_inside((node, number)) else 20 + number % 100},{number % 10}"


class Ways(Cluster):
    """A cluster each of whose nodes has a way of its own to the fabric, which can be cut."""

    def __init__(self, directory: Path, stack: ExitStack, plugins: dict[str, dict[str, object]]) -> None:
        super().__init__(directory, stack, plugins)
        self.network = stack.enter_context(SlowNetwork())
        self._ways = {name: self.network.proxy(self.fabric.port) for name in NODES}

    def fabric_url(self, name: str) -> str:
        return f"nats://127.0.0.1:{self._ways[name]}"

    def cut(self, name: str, *, silently: bool) -> None:
        self.network.cut(self._ways[name], silently=silently)

    def mend(self, name: str) -> None:
        self.network.mend(self._ways[name])


class Listener:
    """Who notes what it gets, and what it may get late or twice."""

    def __init__(self, name: str, around: str = "") -> None:
        self.name = name
        self.around = around
        self.got: list[Said] = []
        self.fled: list[dict[str, int]] = []
        """What had been published of each stream when it fled from a node."""
        self.unsure: list[dict[str, int]] = []
        """The same, for nodes that had not died, when they were back: until there messages may come twice."""

    def wants(self, said: Said) -> bool:
        return not self.around or is_inside(said)

    def read(self, seconds: float = 0.05) -> bool:
        """Take what is there; True if there was something."""
        raise NotImplementedError

    def judge(self) -> None:
        assert all(map(self.wants, self.got)), f"{self.name} got what happened elsewhere"
        counts = Counter(self.got)
        twice = {
            (stream, number)
            for (stream, number), count in counts.items()
            if "q2" in stream and count > 1 and not any(number <= then.get(stream, 0) for then in self.unsure)
        }
        assert not twice, f"{self.name} got twice: {sorted(twice)}"
        newest: dict[str, int] = defaultdict(int)
        for stream, number in dict.fromkeys(self.got):
            late = any(number <= then.get(stream, 0) for then in (*self.fled, *self.unsure))
            assert late or number > newest[stream], f"{self.name}: {stream} {number} after {newest[stream]}"
            newest[stream] = max(number, newest[stream])


class Roamer(Listener):
    """A roaming client."""

    def __init__(self, nodes: Cluster) -> None:
        super().__init__("roamer")
        self.moves = 0
        self._seen = 0
        others = [f"127.0.0.1:{nodes.port(node)}" for node in NODES[1:]]
        self.client = RoamingClient(
            "127.0.0.1", nodes.port(NODES[0]), nodes=others, client_id=self.name, timeout_s=LONG, on_moved=self._moved
        )
        self.client.subscribe("r/#", self._take, qos=2)

    def _moved(self, _address: str) -> None:
        self.moves += 1

    def _take(self, message: Message) -> None:
        stream, _, number = message.text.rpartition(" ")
        self.got.append((stream, int(number)))

    def read(self, seconds: float = 0.05) -> bool:
        if len(self.got) == self._seen:
            time.sleep(seconds)
        found, self._seen = len(self.got) > self._seen, len(self.got)
        return found


class Subscriber(Listener):
    """A client with a persistent session."""

    def __init__(self, nodes: Cluster, name: str, node: str, around: str = "") -> None:
        super().__init__(name, around)
        self.nodes = nodes
        self.node = node
        self.wire: Wire | None = None
        self.unreleased: set[int] = set()

    def connect(self) -> None:
        self.wire = Wire(self.nodes.port(self.node))
        self.wire.send(connect_packet(self.name, clean=False))
        self.wire.expect(Kind.CONNACK, LONG)

    def read(self, seconds: float = 0.05) -> bool:
        """Take what is there; True if there was something."""
        if self.wire is None:
            return False
        found = False
        try:
            while True:
                self._take(self.wire, self.wire.read(seconds))
                found = True
        except Silence:
            return found
        except (Closed, OSError):
            self.wire = None
            return found

    def _take(self, wire: Wire, packet: Packet) -> None:
        """Note a message; one with a packet identifier that is not released yet is the same as before."""
        if packet.kind is Kind.PUBREL:
            self.unreleased.discard(packet.packet_id)
            wire.send(acknowledge(Kind.PUBCOMP, packet.packet_id))
        if packet.kind is not Kind.PUBLISH:
            return
        if packet.topic.startswith("r/") and not (packet.qos == 2 and packet.packet_id in self.unreleased):
            stream, _, number = packet.payload.decode().rpartition(" ")
            self.got.append((stream, int(number)))
        if packet.qos == 2:
            self.unreleased.add(packet.packet_id)
        if packet.qos:
            wire.send(acknowledge(Kind.PUBACK if packet.qos == 1 else Kind.PUBREC, packet.packet_id))

    def leave(self) -> None:
        if self.wire is not None:
            self.read()
        if self.wire is not None:
            self.wire.send(DISCONNECT)
            self.wire.wait_until_closed()
            self.wire = None


class Run:
    """One random run."""

    def __init__(self, nodes: Ways, seed: int) -> None:
        self.nodes = nodes
        self.random = random.Random(seed)
        self.said: dict[str, int] = defaultdict(int)
        self.acknowledged: set[Said] = set()
        self.subscribers = [Subscriber(nodes, f"sub-{node}", node) for node in NODES]
        for subscriber in self.subscribers:
            subscriber.connect()
            assert subscriber.wire is not None
            subscriber.wire.subscribe(("r/#", 2), ("probe/#", 0))
        for subscriber in self.subscribers:
            for node in NODES:
                assert subscriber.wire is not None
                nodes.wait_heard(subscriber.wire, node, "probe/x")
        # From here on nodes know each other: what is granted is known everywhere.
        local = [Subscriber(nodes, f"local-{node}", node, AREA) for node in NODES]
        for subscriber in local:
            subscriber.connect()
            assert subscriber.wire is not None
            subscriber.wire.subscribe((f"{AREA}/r/#", 2))
        self.subscribers += local
        for subscriber in self.subscribers:
            subscriber.read()
        self.roamer = Roamer(nodes) if IS_LONG else None
        self.done: Counter[str] = Counter()

    @property
    def listeners(self) -> list[Listener]:
        return [*self.subscribers, *([self.roamer] if self.roamer else [])]

    def burst(self) -> None:
        node, qos = self.random.choice(NODES), self.random.choice((1, 2))
        stream = f"{node} q{qos}"
        numbers = range(self.said[stream] + 1, self.said[stream] + 1 + self.random.randint(1, 30))
        self.said[stream] = numbers[-1]
        with contextlib.suppress(Closed, Silence, OSError), connect(self.nodes.port(node), f"pub-{node}") as wire:
            packets = [
                publish(topic_of(node, qos, number), f"{stream} {number}".encode(), qos=qos, packet_id=at)
                for at, number in enumerate(numbers, 1)
            ]
            wire.send(*packets)
            for number in numbers:
                wire.expect(Kind.PUBACK if qos == 1 else Kind.PUBREC)
                self.acknowledged.add((stream, number))
            if qos == 2:
                wire.send(*(acknowledge(Kind.PUBREL, at) for at, _ in enumerate(numbers, 1)))
                for _ in numbers:
                    wire.expect(Kind.PUBCOMP)

    def kill_node(self) -> None:
        node = self.random.choice(NODES)
        self.nodes.nodes[node].kill()
        for subscriber in self.subscribers:
            if subscriber.node == node:
                subscriber.read()
        for other in NODES:
            if other != node and self.random.random() < 0.7:
                self.burst_on(other)
        self.nodes.start(node)
        self.back()

    def burst_on(self, node: str) -> None:
        state = self.random.choice
        self.random.choice = lambda options: node if options is NODES else state(options)  # type: ignore[method-assign]
        try:
            self.burst()
        finally:
            self.random.choice = state  # type: ignore[method-assign]

    def pause_node(self) -> None:
        node = self.random.choice(NODES)
        process = self.nodes.nodes[node].process
        process.send_signal(signal.SIGSTOP)
        try:
            other = self.random.choice([each for each in NODES if each != node])
            until = time.monotonic() + 2.0
            self.burst_on(other)
            wait_for(lambda: time.monotonic() > until, "longer than a lease")
        finally:
            process.send_signal(signal.SIGCONT)

    def kill_fabric(self) -> None:
        process = self.nodes.fabric.process
        assert process is not None
        process.kill()
        process.wait()
        for _ in range(2):
            self.burst()
        self.nodes.start_fabric()

    def kill_fabric_and_node(self) -> None:
        """A node dies with what it keeps for the fabric, which comes back before it or after it."""
        process = self.nodes.fabric.process
        assert process is not None
        process.kill()
        process.wait()
        node = self.random.choice(NODES)
        self.burst_on(node)
        self.nodes.nodes[node].kill()
        self.burst()
        starts = [self.nodes.start_fabric, lambda: self.nodes.start(node)]
        self.random.shuffle(starts)
        for start in starts:
            start()
        self.back()

    def cut_off(self) -> None:
        """A node does not reach the fabric for longer than its lease, and at times it dies meanwhile."""
        node = self.random.choice(NODES)
        other = self.random.choice([each for each in NODES if each != node])
        dies = self.random.random() < 0.4
        self.nodes.cut(node, silently=self.random.random() < 0.5)
        try:
            until = time.monotonic() + LEASE_S + 0.5
            self.burst_on(node)
            self.burst_on(other)
            wait_for(lambda: time.monotonic() > until, "longer than a lease")
            self.burst_on(node)
            if dies:  # when it is back, without the fabric, it does not know who wants what: nobody publishes there
                self.nodes.nodes[node].kill()
                self.nodes.start(node)
        finally:
            self.nodes.mend(node)
        self.back()

    def flee_from_cut_off(self) -> None:
        """Subscribers of a node that does not reach the fabric go on elsewhere; it does not know until it is back."""
        node = self.random.choice(NODES)
        self.nodes.cut(node, silently=self.random.random() < 0.5)
        fleeing = [subscriber for subscriber in self.subscribers if subscriber.node == node]
        olds = []
        try:
            self.burst_on(node)
            for subscriber in fleeing:
                subscriber.read()
                olds.append(subscriber.wire)
                subscriber.node = self.random.choice([other for other in NODES if other != node])
                subscriber.connect()
            for each in NODES:
                self.burst_on(each)
        finally:
            self.nodes.mend(node)
        for old in olds:
            if old is not None:
                old.close()
        for subscriber in fleeing:
            subscriber.unsure.append(dict(self.said))
        self.back()

    def roam(self) -> None:
        """The roaming client is led to the owners of places, under traffic."""
        assert self.roamer is not None
        chart = asyncio.run(read_chart(ClusterOptions(servers=[self.nodes.fabric.url]), NODES))
        assert chart is not None
        for _ in range(2):
            self.burst()
            west, south, east, north = self.random.choice(chart.blocks).box
            self.roamer.client.update_position((west + east) / 2, (south + north) / 2)
            self.burst()

    def come_and_go(self) -> None:
        subscriber = self.random.choice(self.subscribers)
        subscriber.leave()
        self.burst()
        subscriber.connect()

    def move(self) -> None:
        subscriber = self.random.choice(self.subscribers)
        subscriber.read()
        old = subscriber.wire
        subscriber.node = self.random.choice([node for node in NODES if node != subscriber.node])
        subscriber.connect()
        if old is not None:
            old.close()

    def flee(self) -> None:
        """Subscribers of a node that is killed go on elsewhere, and what it had taken for them follows."""
        node = self.random.choice(NODES)
        self.burst()
        self.nodes.nodes[node].kill()
        for subscriber in self.subscribers:
            if subscriber.node == node:
                subscriber.read()
                subscriber.fled.append(dict(self.said))
                subscriber.node = self.random.choice([other for other in NODES if other != node])
                subscriber.connect()
        for other in NODES:
            if other != node:
                self.burst_on(other)
        self.nodes.start(node)
        self.back()

    def back(self) -> None:
        """Whoever lost its connection connects again."""
        for subscriber in self.subscribers:
            subscriber.read(0.01)
            if subscriber.wire is None:
                subscriber.connect()

    def settle(self) -> None:
        """All is whole again: wait until everybody has what was acknowledged."""
        self.back()
        for listener in self.listeners:
            due = set(filter(listener.wants, self.acknowledged))

            def has_all(listener: Listener = listener, due: set[Said] = due) -> bool:
                listener.read(0.1)
                return due <= set(listener.got)

            try:
                wait_for(has_all, "all that was acknowledged", LONG)
            except Silence:
                missing = sorted(due - set(listener.got))
                raise AssertionError(f"{listener.name} has not got {missing}") from None
        while sum(listener.read(0.1) for listener in self.listeners):
            pass

    def step(self, trouble: Callable[[], None]) -> None:
        """Some trouble, and all is whole again."""
        moves = self.roamer.moves if self.roamer else 0
        self.burst()
        trouble()
        self.settle()
        self.done[trouble.__name__] += 1
        if self.roamer and self.roamer.moves > moves and trouble != self.roam:
            self.roamer.unsure.append(dict(self.said))  # by itself, it may have left a node that was not dead
        for listener in self.listeners:
            listener.judge()

    def tell(self) -> None:
        """What this run was, for who wants to know."""
        print(f"seed {SEED}: {STEPS} steps,", ", ".join(f"{name} {count}" for name, count in sorted(self.done.items())))
        print(
            f"{sum(self.said.values())} messages published, {len(self.acknowledged)} acknowledged,"
            f" {sum(len(set(each.got)) for each in self.listeners)} deliveries judged,"
            f" {self.roamer.moves if self.roamer else 0} moves of the roaming client"
        )


@pytest.mark.timeout(180 + 60 * STEPS)
def test_random_trouble(tmp_path: Path) -> None:
    options = {
        CLUSTER: {
            "weigh_s": 0.4,
            "block_capacity": 20,
            "granting_s": 30.0,
            "handover_pause_s": 0.05,
            "block_border": 0.0,
        }
    }
    with ExitStack() as stack:
        nodes = Ways(tmp_path, stack, options)
        nodes.start_fabric()
        for node in NODES:
            nodes.start(node)
        nodes.wait_joined()
        run = Run(nodes, SEED)
        if run.roamer:
            stack.enter_context(run.roamer.client)
        whole = [run.kill_node, run.pause_node, run.kill_fabric, run.come_and_go, run.move, run.flee]
        if IS_LONG:
            whole += [run.cut_off, run.roam, run.flee_from_cut_off, run.kill_fabric_and_node]
        for number in range(STEPS):
            run.step(whole[number] if number < len(whole) else run.random.choice(whole))
        run.tell()
        assert len(run.acknowledged) > 50
        for node in NODES:
            assert "Traceback" not in nodes.nodes[node].log, nodes.nodes[node].log[-3000:]
