"""The cluster: its nodes and their load, who owns which blocks, and messages that wait for those before them."""

from __future__ import annotations

import json
import time
from typing import TYPE_CHECKING, Any

from nicegui import ui

from spark_jobs.dashboard import said
from spark_jobs.dashboard.desk import SPARK_QUIET_S
from spark_jobs.dashboard.views.handovers import HandoverRows
from spark_jobs.dashboard.views.shell import heading, shell
from spark_jobs.dashboard.widgets import Chart, Explain, Table, Tile, box, panel

if TYPE_CHECKING:
    from spark_jobs.dashboard.desk import Desk
    from spark_jobs.dashboard.regions import CausalGroup, Regions
    from spark_jobs.dashboard.traffic import Node

MOST_FACTS = 60
MOST_BLOCKS = 12
NODES = {
    "Node": "code",
    "State": "state",
    "Published/s": "number",
    "Delivered/s": "number",
    "Sent on/s": "number",
    "Clients": "number",
    "Subscriptions": "number",
    "p99": "number",
    "Blocks": "number",
    "Load/s": "number",
}
CAUSAL = {
    "Group": "code",
    "Lifetime": "number",
    "Waiting now": "number",
    "Delivered": "number",
    "Had to wait": "number",
    "Mean wait": "number",
    "Dropped": "number",
}


class ClusterView:
    """The view for one page."""

    def __init__(self, desk: Desk) -> None:
        self._desk = desk
        with shell(desk, "/cluster"):
            with box("div", "l-head"):
                heading("Cluster", "Several brokers as one: who carries what.")
            with box("div", "l-tiles"):
                self._nodes = Tile("Nodes", "nodes")
                self._clients = Tile("Clients")
                self._routes = Tile("Sent on to nodes")
                self._blocks = Tile("Blocks", "blocks")
                self._waits = Tile("Causal waits")
            self._explain = Explain(
                "One node",
                "A cluster is several brokers that share what they hear; this shows one, too. Three on this machine:",
                "locus cluster up --nodes 3",
            )
            with panel("Nodes", "Rates by Spark, in the last ten seconds; blocks and load by the cluster's own map."):
                self._table = Table(
                    "Nodes", NODES, "No node has told of itself yet: the broker is away, or has no $SYS topics."
                )
            with box("div", "l-columns"):
                with panel("Sent on to other nodes", "Messages a second over all nodes."):
                    self._chart = Chart(
                        "Sent on", {"sent on": "--s4"}, "/s", "Comes with Spark and more than one node."
                    )
                with panel("Handovers", "Clients that move from node to node."):
                    self._handovers = HandoverRows(desk, 8)
            with box("div", "l-columns"):
                with panel("Busiest blocks", "What happens in a block a second, against what one may carry."):
                    columns = {"Block": "code", "Owner": "text", "Load/s": "number", "Of capacity": "share"}
                    self._busiest = Table("Busiest blocks", columns, "A single node has no blocks to share out.")
                with panel("Causal groups", "Messages that wait for those before them, as the connected node sees it."):
                    self._causal = Table(
                        "Causal groups", CAUSAL, "No causal group is configured (causal: of the cluster)."
                    )
            with panel("What else the node tells of the cluster", "Below $SYS/broker/locus/cluster/."):
                self._facts = Table("Cluster", {"Topic": "code", "Value": "code"}, "Nothing.")
        self._now()
        ui.timer(1.0, self._now)

    def _now(self) -> None:
        now_s, desk = time.time(), self._desk
        with desk.board.lock:
            board, figures = desk.board, desk.board.figures
            regions, causal = board.regions, list(board.causal)
            rows = node_rows(list(board.metrics.nodes.values()), regions, now_s)
            own = broker_row(desk.options.broker.shown, figures.values, figures.rate, figures.number)
            connected = figures.number("clients/connected")
            told = {
                **board.cluster,
                **{name: value for name, value in (regions.facts or {}).items() if name != "count"},
            }
            sent_on, series = board.metrics.total("routes_per_s"), board.metrics.series("routes_per_s")
            all_clients = board.metrics.total("connections")
            cells = board.scene.counts()["block"]
        listed = rows or ([own] if desk.feed.link.connected and own is not None else [])
        self._nodes.show(said.count(len(listed) or None), "" if rows else "by its own counters")
        self._clients.show(said.count(all_clients if all_clients is not None and len(rows) > 1 else connected))
        if sent_on is None and regions.facts is not None:
            spared = said.count(regions.facts.get("spared"))
            self._routes.show(said.count(regions.facts.get("sent")), f"by the map so far, {spared} spared")
        else:
            self._routes.show(said.rate(sent_on), "a second, to other nodes")
        if regions.count:
            self._blocks.show(said.count(regions.count), "of the cluster's map")
        else:
            self._blocks.show(said.count(cells), "cells of this broker's index")
        waiting = sum(group.waiting for group in causal)
        self._waits.show(said.count(waiting if causal else None), "waiting now" if causal else "no causal group")
        self._explain.show(len(listed) < 2 and not regions.count)
        self._table.show(listed)
        self._chart.show_points([series])
        self._handovers.refresh()
        self._busiest.show(
            [
                [block.name or "whole map", block.owner, said.rate(block.load), block.load / (regions.capacity or 1.0)]
                for block in regions.blocks[:MOST_BLOCKS]
            ]
        )
        self._causal.show([causal_row(group) for group in causal])
        self._facts.show([[name, fact_said(value)] for name, value in sorted(told.items())][:MOST_FACTS])


def node_rows(nodes: list[Node], regions: Regions, now_s: float) -> list[list[Any]]:
    """A row for each node that Spark counts or that owns blocks."""
    owners = regions.by_owner()
    known = {node.name: node for node in nodes}
    rows = []
    for name in sorted({*known, *owners}):
        node = known.get(name)
        window = node.latest() if node is not None else None
        values = {} if window is None else window.values
        fresh = node is not None and now_s - node.heard_s < SPARK_QUIET_S
        p99 = values.get("latency_p99_us")
        blocks, load = owners.get(name, (None, None))
        rows.append(
            [
                name,
                "live" if fresh or name in owners else "quiet",
                said.rate(values.get("publishes_per_s")),
                said.rate(values.get("deliveries_per_s")),
                said.rate(values.get("routes_per_s", 0.0 if values else None)),
                said.count(values.get("connections")),
                said.count(values.get("subscriptions")),
                said.milliseconds(None if p99 is None else p99 / 1_000),
                said.count(blocks),
                said.rate(load),
            ]
        )
    return rows


def broker_row(address: str, values: dict[str, str], rate: Any, number: Any) -> list[Any] | None:
    """The connected broker as a row, by its own counters; None while it has told none."""
    if not values:
        return None
    none = said.NOTHING
    return [
        address,
        "live",
        said.rate(rate("publish/messages/received")),
        said.rate(rate("publish/messages/sent")),
        none,
        said.count(number("clients/connected")),
        said.count(number("subscriptions/count")),
        none,
        none,
        none,
    ]


def causal_row(group: CausalGroup) -> list[Any]:
    """A row of the table of causal groups."""
    return [
        group.filter,
        said.milliseconds(group.lifetime_ms),
        said.count(group.waiting),
        said.count(group.delivered),
        said.count(group.waited),
        said.milliseconds(group.mean_wait_ms),
        said.count(group.dropped),
    ]


def fact_said(value: Any) -> str:
    """A fact in a line of bounded length."""
    if isinstance(value, float) and value.is_integer():
        value = int(value)
    shown = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
    return shown if len(shown) <= 300 else f"{shown[:299]}…"


def show(desk: Desk) -> None:
    """Build the view."""
    ClusterView(desk)
