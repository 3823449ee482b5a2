"""Clusters for benchmarks: a NATS server and nodes on free ports of this machine, and what they count."""

from __future__ import annotations

import contextlib
import re
import tempfile
import time
import urllib.request
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from benchmarks.load import LoadError
from benchmarks.peers import ALLOW_ANONYMOUS, RunningBroker, free_port, locus
from broker_plugins.cluster.server import NatsServer

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

GEO = "broker_plugins.geo.plugin.GeoPlugin"
RANKED = "broker_plugins.ranked.plugin.RankedPlugin"
PROMETHEUS = "broker_plugins.prometheus.PrometheusPlugin"
CLUSTER = "broker_plugins.cluster.plugin.ClusterPlugin"
JOIN_SECONDS = 60.0


@dataclass(slots=True)
class Nodes:
    """A running cluster, or one broker without any."""

    brokers: list[RunningBroker]
    metrics: list[int]

    def counted(self, name: str) -> float:
        """A counter of the cluster plugin, over all nodes."""
        total = 0.0
        for port in self.metrics:
            with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=10) as answer:
                page = answer.read().decode()
            found = re.findall(rf"^locus_cluster_{name}(?:_total)? (\S+)$", page, re.MULTILINE)
            total += sum(float(value) for value in found)
        return total


@contextlib.contextmanager
def nodes(
    count: int, options: dict[str, object] | None = None, geo: dict[str, object] | None = None
) -> Iterator[Nodes]:
    """Nodes of a cluster with a NATS server between them; one broker without a cluster for 0."""
    with ExitStack() as stack:
        directory = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="locus-cluster-")))
        plain = {**ALLOW_ANONYMOUS, GEO: geo or {}, RANKED: {}}
        if not count:
            port = free_port()
            yield Nodes([stack.enter_context(locus(plugins={**plain, PROMETHEUS: {"port": port}}))], [port])
            return
        fabric = NatsServer(free_port(), directory / "nats")
        stack.callback(fabric.stop)
        fabric.start()
        fabric.wait()
        started, metrics = [], []
        for number in range(count):
            port, metrics_port = free_port(), free_port()
            mine = {"node": f"n{number}", "address": f"127.0.0.1:{port}", "servers": [fabric.url], **(options or {})}
            plugins = {**plain, PROMETHEUS: {"port": metrics_port}, CLUSTER: mine}
            started.append(stack.enter_context(locus(plugins=plugins, port=port)))
            metrics.append(metrics_port)
        _wait_until_joined(started)
        yield Nodes(started, metrics)


def _wait_until_joined(brokers: Sequence[RunningBroker]) -> None:
    deadline = time.monotonic() + JOIN_SECONDS
    for broker in brokers:
        others = len(brokers) - 1
        while "has joined cluster" not in broker.log or len(re.findall(r"node \S+ is there", broker.log)) < others:
            if time.monotonic() > deadline:
                raise LoadError(f"a node did not join within {JOIN_SECONDS:g} s; it said:\n{broker.log[-2000:]}")
            time.sleep(0.05)
