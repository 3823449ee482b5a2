"""The cluster: its nodes and their load, who owns which blocks, and messages that wait for those before them."""

from __future__ import annotations

import json
import time
from typing import TYPE_CHECKING, Any

from nicegui import ui

from spark_jobs.dashboard import said
from spark_jobs.dashboard.desk import SPARK_QUIET_S
from spark_jobs.dashboard.views.map_view import described
from spark_jobs.dashboard.views.shell import heading, shell
from spark_jobs.dashboard.widgets import Chart, Explain, Rows, Table, Tile, box, panel

if TYPE_CHECKING:
    from spark_jobs.dashboard.desk import Desk
    from spark_jobs.dashboard.traffic import Node

MOST_FACTS = 60


def show(desk: Desk) -> None:
    """Build the view."""
    with shell(desk, "/cluster"):
        with box("div", "l-head"):
            heading("Cluster", "Several brokers as one: who carries what.")
        with box("div", "l-tiles"):
            nodes_tile = Tile("Nodes", "nodes")
            clients = Tile("Clients")
            routes = Tile("Sent on a second")
            blocks = Tile("Blocks")
            waits = Tile("Causal waits")
        explain = Explain(
            "One node",
            "A cluster is several brokers that share what they hear; this shows one as well. Three on this machine:",
            "locus cluster up --nodes 3",
        )
        with panel("Nodes", "As Spark counted them in the last ten seconds; the connected broker by its own counters."):
            table = Table(
                "Nodes",
                {
                    "Node": "code",
                    "State": "state",
                    "Published/s": "number",
                    "Delivered/s": "number",
                    "Sent on/s": "number",
                    "Clients": "number",
                    "Subscriptions": "number",
                    "p99": "number",
                },
                "No node has told of itself yet: the broker is away, or has no $SYS topics.",
            )
        with box("div", "l-columns"):
            with panel("Sent on to other nodes", "Messages a second over all nodes."):
                chart = Chart("Sent on", {"sent on": "--s4"}, "/s", "Comes with Spark and more than one node.")
            with panel("Handovers", "Clients and blocks that move from node to node, as it happens."):
                handovers = Rows("None: they come from a cluster whose clients roam.", 10)
        with panel("What the nodes tell of the cluster", "Everything under $SYS/broker/locus/cluster/, as it comes."):
            facts = Table("Cluster", {"Topic": "code", "Value": "code"}, "Nothing: no cluster plugin told of itself.")

    def refresh() -> None:
        now_s = time.time()
        with desk.board.lock:
            board = desk.board
            known = list(board.metrics.nodes.values())
            rows = [node_row(node, now_s) for node in sorted(known, key=lambda node: node.name)]
            figures = board.figures
            own = broker_row(desk.options.broker.shown, figures.values, figures.rate, figures.number)
            connected = figures.number("clients/connected")
            told = dict(board.cluster)
            moved = list(reversed(board.handovers))[:10]
            sent_on, series = board.metrics.total("routes_per_s"), board.metrics.series("routes_per_s")
            all_clients = board.metrics.total("connections")
            block_count = board.scene.counts()["block"]
            waiting = board.metrics.total("causal_waits")
            causal = figures.number("locus/causal/waiting")
        linked = desk.feed.link.connected
        listed = rows or ([own] if linked and own is not None else [])
        nodes_tile.show(said.count(len(listed) or None), "by their metrics" if rows else "by its own counters")
        clients.show(said.count(all_clients if all_clients is not None and len(rows) > 1 else connected))
        routes.show(said.rate(sent_on), "to other nodes")
        blocks.show(said.count(block_count), "cells of the spatial index here")
        held = causal if causal is not None else waiting
        waits.show(said.count(held), "messages held back now" if held is not None else "no causal group told of any")
        explain.show(len(listed) < 2 and not told)
        table.show(listed)
        chart.show_points([series])
        handovers.show([(described(each), said.ago(now_s - at_s)) for at_s, each in moved])
        facts.show([[name, fact_said(value)] for name, value in sorted(told.items())][:MOST_FACTS])

    refresh()
    ui.timer(1.0, refresh)


def node_row(node: Node, now_s: float) -> list[Any]:
    """A row of the table of nodes, by a node's last window."""
    window = node.latest()
    values = {} if window is None else window.values
    state = "live" if now_s - node.heard_s < SPARK_QUIET_S else "quiet"
    p99 = values.get("latency_p99_us")
    return [
        node.name,
        state,
        said.rate(values.get("publishes_per_s")),
        said.rate(values.get("deliveries_per_s")),
        said.rate(values.get("routes_per_s", 0.0)),
        said.count(values.get("connections")),
        said.count(values.get("subscriptions")),
        said.milliseconds(None if p99 is None else p99 / 1_000),
    ]


def broker_row(address: str, values: dict[str, str], rate: Any, number: Any) -> list[Any] | None:
    """The connected broker as a row, by its own counters; None while it has told none."""
    if not values:
        return None
    return [
        address,
        "live",
        said.rate(rate("publish/messages/received")),
        said.rate(rate("publish/messages/sent")),
        said.NOTHING,
        said.count(number("clients/connected")),
        said.count(number("subscriptions/count")),
        said.NOTHING,
    ]


def fact_said(value: Any) -> str:
    """A fact in a line of bounded length."""
    shown = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
    return shown if len(shown) <= 300 else f"{shown[:299]}…"
