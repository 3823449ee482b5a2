"""A cluster for tests: a real NATS server and brokers in processes of their own, all on loopback."""

from __future__ import annotations

import contextlib
import itertools
from contextlib import ExitStack, contextmanager
from typing import TYPE_CHECKING

from broker_plugins.cluster.server import NatsServer
from tests.brokers import ANONYMOUS, RunningBroker, free_port, locus
from tests.mqtt_wire import Silence, Wire, connect, publish, wait_for

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

GEO = "broker_plugins.geo.plugin.GeoPlugin"
RANKED = "broker_plugins.ranked.plugin.RankedPlugin"
CLUSTER = "broker_plugins.cluster.plugin.ClusterPlugin"
_probes = itertools.count()


class Cluster:
    """Nodes `a`, `b`, `c`... and the fabric between them."""

    def __init__(self, directory: Path, stack: ExitStack, plugins: dict[str, dict[str, object]] | None = None) -> None:
        self.directory = directory
        self._stack = stack
        self._plugins = plugins or {}
        self.fabric = NatsServer(free_port(), directory / "nats")
        self.nodes: dict[str, RunningBroker] = {}
        self._ports: dict[str, int] = {}
        stack.callback(lambda: self.fabric.stop())

    def start_fabric(self) -> None:
        self.fabric.start()
        self.fabric.wait()

    def start(self, name: str) -> RunningBroker:
        """Start a node, or start it again on what it left."""
        directory = self.directory / name
        directory.mkdir(exist_ok=True)
        port = self._ports.setdefault(name, free_port())
        plugins = {path: {} for path in (GEO, RANKED)} | {ANONYMOUS: {"allow_anonymous": True}}
        options = {
            "node": name,
            "address": f"127.0.0.1:{port}",
            "servers": [self.fabric_url(name)],
            "hello_s": 0.3,
            "lease_s": 1.5,
            **self._plugins.get(CLUSTER, {}),
        }
        broker = self._stack.enter_context(
            locus(plugins={**plugins, **self._plugins, CLUSTER: options}, port=port, directory=directory)
        )
        self.nodes[name] = broker
        return broker

    def fabric_url(self, name: str) -> str:
        """Where a node finds the fabric."""
        return self.fabric.url

    def port(self, name: str) -> int:
        return self._ports[name]

    def wait_joined(self, *names: str) -> None:
        for name in names or tuple(self.nodes):
            wait_for(lambda name=name: "has joined cluster" in self.nodes[name].log, f"{name} to join", 20)

    def wait_heard(self, subscriber: Wire, sender: str, topic: str) -> None:
        """Return when what is published to a topic on a node reaches a subscriber to it."""
        token = f"probe-{next(_probes)}".encode()
        with connect(self.port(sender), f"probe-{token.decode()}") as probe:

            def heard() -> bool:
                probe.send(publish(topic, token))
                with contextlib.suppress(Silence):
                    return any(each.payload == token for each in subscriber.messages(1, 0.2))
                return False

            wait_for(heard, f"{topic} to travel from {sender}", 20)
            probe.messages_until_ping()
        with contextlib.suppress(Silence):
            while True:
                subscriber.messages(1, 0.3)


@contextmanager
def cluster(directory: Path, *names: str, plugins: dict[str, dict[str, object]] | None = None) -> Iterator[Cluster]:
    """A cluster whose nodes have joined."""
    with ExitStack() as stack:
        made = Cluster(directory, stack, plugins)
        made.start_fabric()
        for name in names:
            made.start(name)
        made.wait_joined()
        yield made
