"""`locus cluster`: a cluster of processes on this machine, and a look at any cluster."""

from __future__ import annotations

import asyncio
import contextlib
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

from broker_plugins.cluster import visiting
from broker_plugins.cluster.options import ClusterOptions
from broker_plugins.cluster.visiting import PLUGIN, options_of, servers_of
from broker_plugins.engine import EngineError

if TYPE_CHECKING:
    import argparse

    from broker_plugins.cluster.fabric import Lease

PROMETHEUS = "broker_plugins.prometheus.PrometheusPlugin"
START_S = 20.0
STOP_S = 10.0


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the options of `locus cluster`."""
    actions = parser.add_subparsers(dest="action", metavar="ACTION", required=True)
    up = actions.add_parser("up", help="start a NATS server and nodes on this machine, until Ctrl-C")
    up.add_argument("--nodes", type=int, default=3, metavar="N", help="how many (3)")
    up.add_argument("--port", type=int, default=1883, help="port of the first node; the others follow (1883)")
    up.add_argument("--nats-port", type=int, default=4222, help="port of the NATS server (4222)")
    up.add_argument("--metrics-port", type=int, default=9464, help="port of the first node's metrics (9464)")
    up.add_argument("--data-dir", type=Path, default=Path("locus-cluster"), help="where all of it is kept")
    status = actions.add_parser("status", help="show the nodes of a cluster and its map")
    visiting.add_arguments(status)
    drain = actions.add_parser("drain", help="let the clients of a node go elsewhere, so that it can be stopped")
    drain.add_argument("node", metavar="NODE", help="name of the node")
    drain.add_argument("--undo", action="store_true", help="let it take clients and blocks again")
    drain.add_argument("--timeout", type=float, default=60.0, metavar="S", help="seconds to wait at the most (60)")
    visiting.add_arguments(drain)


def run(arguments: argparse.Namespace) -> int:
    """Do what was asked."""
    try:
        if arguments.action == "drain":
            from broker_plugins.cluster.drain import run as drain

            return drain(arguments)
        return _up(arguments) if arguments.action == "up" else _status(arguments)
    except EngineError as error:
        print(f"locus cluster: {error}", file=sys.stderr)
        return 1
    except OSError as error:
        if error.filename is None:
            raise
        print(f"locus cluster: {error.filename}: {error.strerror}; see --data-dir", file=sys.stderr)
        return 1


# A cluster on this machine.


def configuration(number: int, arguments: argparse.Namespace, servers: list[str]) -> dict[str, Any]:
    """The configuration of one node: that of `locus broker`, on a port of its own, with the cluster plugin last."""
    import yaml

    from broker_plugins.configuration import DEFAULT_CONFIGURATION

    chosen: dict[str, Any] = yaml.safe_load(DEFAULT_CONFIGURATION.read_text(encoding="utf-8"))
    address = f"127.0.0.1:{arguments.port + number}"
    chosen["listeners"] = {"default": {"type": "tcp", "bind": address}}
    plugins = chosen["plugins"]
    if PROMETHEUS in plugins:
        plugins[PROMETHEUS] = {**(plugins[PROMETHEUS] or {}), "port": arguments.metrics_port + number}
    plugins[PLUGIN] = {"node": f"node-{number + 1}", "address": address, "servers": servers}
    return chosen


def _up(arguments: argparse.Namespace) -> int:
    import yaml

    from broker_plugins.cluster.server import NatsServer

    if arguments.nodes < 1:
        raise EngineError(f"--nodes: {arguments.nodes} is too few; a cluster has at least 1")
    server = NatsServer(arguments.nats_port, arguments.data_dir.resolve() / "nats")
    server.start()
    nodes: list[subprocess.Popen[bytes]] = []
    try:
        server.wait()
        for number in range(arguments.nodes):
            directory = arguments.data_dir.resolve() / f"node-{number + 1}"
            directory.mkdir(parents=True, exist_ok=True)
            path = directory / "broker.yaml"
            path.write_text(yaml.safe_dump(configuration(number, arguments, [server.url]), sort_keys=False))
            with (directory / "log").open("ab") as log:
                command = [sys.executable, "-m", "clients.cli", "broker", "-c", str(path)]
                nodes.append(subprocess.Popen(command, cwd=directory, stdout=log, stderr=subprocess.STDOUT))  # noqa: S603
        _wait_for_leases(arguments, ClusterOptions(servers=[server.url]), nodes)
        print(_table(_leases(ClusterOptions(servers=[server.url]))), flush=True)
        print(f"\nLogs and data are in {arguments.data_dir}. Ctrl-C ends it all. From another terminal:")
        print(f"    locus sub -p {arguments.port} 'hello/#' -v")
        print(f"    locus pub -p {arguments.port + arguments.nodes - 1} hello/world -m Hello", flush=True)
        _wait_until_told(nodes)
    finally:
        for node in nodes:
            if node.poll() is None:
                node.send_signal(signal.SIGINT)
        for node in nodes:
            with contextlib.suppress(subprocess.TimeoutExpired):
                node.wait(STOP_S)
            if node.poll() is None:
                node.kill()
                node.wait()
        server.stop()
    return 0


def _wait_for_leases(
    arguments: argparse.Namespace, options: ClusterOptions, nodes: list[subprocess.Popen[bytes]]
) -> None:
    deadline = time.monotonic() + START_S
    while time.monotonic() < deadline:
        for number, node in enumerate(nodes, 1):
            if node.poll() is not None:
                log = arguments.data_dir / f"node-{number}" / "log"
                raise EngineError(f"node-{number} ended; it said: {log.read_text(errors='replace')[-1000:]}")
        if len(_leases(options)) >= len(nodes):
            return
        time.sleep(0.1)
    raise EngineError(f"the nodes did not join within {START_S:g} s; see the logs in {arguments.data_dir}")


def _wait_until_told(nodes: list[subprocess.Popen[bytes]]) -> None:
    told: list[int] = []
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda got, _: told.append(got))
    while not told and any(node.poll() is None for node in nodes):
        time.sleep(0.1)


# A look at a cluster.


def _leases(options: ClusterOptions) -> list[Lease]:
    from broker_plugins.cluster.fabric import read_leases

    return asyncio.run(read_leases(options))


def _status(arguments: argparse.Namespace) -> int:
    from broker_plugins.cluster.region_map import draw, read_chart

    options = options_of(arguments)
    leases = _leases(options)
    if not leases:
        print(f"cluster {options.cluster!r} has no nodes at {', '.join(servers_of(options))}")
        return 1
    print(_table(leases))
    names = [lease.node for lease in leases]
    chart = asyncio.run(read_chart(options, names))
    if chart is not None:
        print("\n" + draw(chart, names))
    return 0


def _table(leases: list[Lease]) -> str:
    most = max((lease.clients for lease in leases), default=0) or 1
    rows = [("NODE", "ADDRESS", "CLIENTS", "SUBSCRIPTIONS", "FILTERS KNOWN", "LOAD")]
    rows += [
        (
            lease.node,
            lease.address or "-",
            str(lease.clients),
            str(lease.subscriptions),
            str(lease.filters),
            "█" * round(20 * lease.clients / most) or "·",
        )
        for lease in leases
    ]
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
    return "\n".join(
        "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in rows
    )
