"""A cluster under random trouble, judged by an oracle.

Persistent subscribers, to everything and to what happens in an area, and publishers on three nodes, while blocks of the
map split, merge and move; between bursts of QoS 1 and 2 messages a node is killed and
started again, paused for longer than its lease, the fabric is killed and started again, a subscriber goes and comes
back, moves to another node, or flees from one that is killed. At the end everybody must have every acknowledged
message: QoS 2 once, and all in the order of their publisher and topic, but for what a killed node had taken for a
subscriber that fled, which comes when the node is back. `LOCUS_CLUSTER_SEED` and `LOCUS_CLUSTER_STEPS` replay a run or
make a longer one.
"""

from __future__ import annotations

import contextlib
import os
import random
import signal
import time
from collections import defaultdict
from typing import TYPE_CHECKING

from tests.broker_plugins.cluster.nodes import CLUSTER, Cluster, cluster
from tests.mqtt_wire import DISCONNECT, Closed, Kind, Packet, Silence, Wire, acknowledge, connect, publish, wait_for

if TYPE_CHECKING:
    from pathlib import Path

NODES = ("a", "b", "c")
Said = tuple[str, int]
"""A publisher with its topic, and the number of the message, which tells where it happens."""
AREA = "$geo/bbox:-10,-10,10,10"


def is_inside(said: Said) -> bool:
    """Whether a message happens in the area."""
    return said[1] % 3 == 0


def topic_of(node: str, qos: int, number: int) -> str:
    return f"r/{node}/{qos}/@at:{0 if is_inside((node, number)) else 20 + number % 100},{number % 10}"


class Subscriber:
    """A client with a persistent session that notes what it gets."""

    def __init__(self, nodes: Cluster, name: str, node: str, around: str = "") -> None:
        self.nodes = nodes
        self.name = name
        self.node = node
        self.around = around
        self.wire: Wire | None = None
        self.got: list[Said] = []
        self.unreleased: set[int] = set()
        self.fled: list[dict[str, int]] = []
        """What had been published of each stream when it fled from a node."""

    def wants(self, said: Said) -> bool:
        return not self.around or is_inside(said)

    def connect(self) -> None:
        self.wire = connect(self.nodes.port(self.node), self.name, clean=False)

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

    def __init__(self, nodes: Cluster, seed: int) -> None:
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
        for subscriber in self.subscribers:
            due = set(filter(subscriber.wants, self.acknowledged))

            def has_all(subscriber: Subscriber = subscriber, due: set[Said] = due) -> bool:
                subscriber.read(0.1)
                return due <= set(subscriber.got)

            try:
                wait_for(has_all, "all that was acknowledged", 20)
            except Silence:
                missing = sorted(due - set(subscriber.got))
                raise AssertionError(f"{subscriber.name} on {subscriber.node} has not got {missing}") from None
        while sum(subscriber.read(0.1) for subscriber in self.subscribers):
            pass

    def judge(self) -> None:
        for subscriber in self.subscribers:
            assert all(map(subscriber.wants, subscriber.got)), f"{subscriber.name} got what happened elsewhere"
            twice = {said for said in subscriber.got if "q2" in said[0] and subscriber.got.count(said) > 1}
            assert not twice, f"{subscriber.name} got twice: {sorted(twice)}"
            newest: dict[str, int] = defaultdict(int)
            for stream, number in dict.fromkeys(subscriber.got):
                late = any(number <= then.get(stream, 0) for then in subscriber.fled)
                assert late or number > newest[stream], f"{subscriber.name}: {stream} {number} after {newest[stream]}"
                newest[stream] = max(number, newest[stream])


def test_random_trouble(tmp_path: Path) -> None:
    seed = int(os.environ.get("LOCUS_CLUSTER_SEED", "7"))
    steps = int(os.environ.get("LOCUS_CLUSTER_STEPS", "6"))
    options = {CLUSTER: {"weigh_s": 0.4, "block_capacity": 20, "granting_s": 30.0}}
    with cluster(tmp_path, *NODES, plugins=options) as nodes:
        run = Run(nodes, seed)
        whole = [run.kill_node, run.pause_node, run.kill_fabric, run.come_and_go, run.move, run.flee]
        for step in range(steps):
            run.burst()
            trouble = whole[step % len(whole)] if step < len(whole) else run.random.choice(whole)
            trouble()
            run.settle()
        run.judge()
        assert len(run.acknowledged) > 50
        for node in NODES:
            assert "Traceback" not in nodes.nodes[node].log, nodes.nodes[node].log[-3000:]
