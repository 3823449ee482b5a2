"""Traffic: how much flows, how fast it is delivered and what is dropped; live, and as the lake remembers it."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from nicegui import ui

from spark_jobs.dashboard import said
from spark_jobs.dashboard.traffic import SPANS, last, quantile_series, window_row
from spark_jobs.dashboard.views.shell import heading, shell
from spark_jobs.dashboard.widgets import Chart, Explain, Pick, Table, Tile, box, panel, text

if TYPE_CHECKING:
    from spark_jobs.dashboard.desk import Desk

PIPELINE = "locus pipeline --spool telemetry --lake lake"
NO_SPARK = (
    "Latencies, prefixes and history are made by Spark from the broker's telemetry, and no window of it has come. Turn "
    "the telemetry plugin on in the broker's configuration, and start the pipeline beside it:"
)
STOPPED_SPARK = "What stands below was the last that Spark told. Start the pipeline again:"
LIVE = "Live"
MOST_ROWS = 30


class TrafficView:
    """The view for one page."""

    def __init__(self, desk: Desk) -> None:
        self._desk = desk
        with shell(desk, "/traffic"):
            with box("div", "l-head"):
                heading("Traffic", "What the broker takes in, hands out and drops.")
                choices = [LIVE, *SPANS] if desk.history is not None else [LIVE]
                self._pick = Pick("Which time", choices, self._picked)
            with box("div", "l-tiles"):
                self._published = Tile("Published a second", "published-rate")
                self._delivered = Tile("Delivered a second", "delivered-rate")
                self._dropped = Tile("Dropped a second", "dropped-rate")
                self._latency = Tile("Latency, 99 %", "latency")
                self._clients = Tile("Clients connected", "clients")
                self._subscriptions = Tile("Subscriptions", "subscriptions")
            self._explain = Explain("Spark is not started", NO_SPARK, PIPELINE)
            with box("div", "l-columns"):
                with panel("Messages a second"):
                    self._about = text("p", "", "l-about")
                    names = {"published": "--s1", "delivered": "--s2", "dropped": "--s3"}
                    self._rates = Chart("Messages a second", names, "/s")
                with panel("Latency", "From arrival to the receiver's socket or queue, of the slowest node."):
                    quantiles = {"p50": "--q1", "p95": "--q2", "p99": "--q3"}
                    self._quantiles = Chart("Latency quantiles", quantiles, "ms", "Comes with Spark.")
            with panel("By topic prefix", "The first level of the topic, in the last ten seconds, the busiest first."):
                self._prefixes = Table(
                    "Traffic by topic prefix",
                    {
                        "Prefix": "code",
                        "Node": "text",
                        "Published/s": "number",
                        "Delivered/s": "number",
                        "Dropped/s": "number",
                        "p99": "number",
                    },
                    "Comes with Spark.",
                )
            with panel("The broker's own counters", "As it publishes them under $SYS/broker/."):
                self._counters = Table(
                    "Counters",
                    {"Topic": "code", "Value": "value"},
                    "None have come: the broker may run without its SysTopicsPlugin.",
                )
        self._now()
        ui.timer(1.0, self._now)
        ui.timer(10.0, self._again)

    def _now(self) -> None:
        """Show what is live."""
        board, now_s = self._desk.board, time.time()
        spark = self._desk.spark()
        with board.lock:
            figures, metrics = board.figures, board.metrics
            figures.settle(now_s)
            received = figures.number("publish/messages/received")
            sent = figures.number("publish/messages/sent")
            dropped = figures.number("publish/messages/dropped")
            rates = [figures.rates(f"publish/messages/{name}") for name in ("received", "sent", "dropped")]
            clients = figures.number("clients/connected")
            known = figures.number("clients/total")
            subscriptions = figures.number("subscriptions/count")
            counters = [[name, value] for name, value in sorted(figures.values.items())]
            quantiles = quantile_series(metrics)
            rows = [window_row(node, key, window) for node, key, window in metrics.places("prefix")[:MOST_ROWS]]
        self._published.show(said.rate(last(rates[0])), f"{said.count(received)} in all")
        self._delivered.show(said.rate(last(rates[1])), f"{said.count(sent)} in all")
        self._dropped.show(said.rate(last(rates[2])), f"{said.count(dropped)} in all")
        p50 = last(quantiles["p50"])
        self._latency.show(said.milliseconds(last(quantiles["p99"])), f"{said.milliseconds(p50)} in the middle")
        self._clients.show(said.count(clients), f"{said.count(known)} sessions")
        self._subscriptions.show(said.count(subscriptions))
        if spark == "stopped":
            self._explain.show(True, "Spark has stopped", STOPPED_SPARK, PIPELINE)
        else:
            self._explain.show(spark == "no", "Spark is not started", NO_SPARK, PIPELINE)
        self._counters.show(counters)
        self._prefixes.show([[*row[:2], *map(said.rate, row[2:5]), said.milliseconds(row[5])] for row in rows])
        if self._pick.value == LIVE:
            self._about.set_text("From the broker's own counters.")
            self._rates.say_empty("The broker's counters have come once; a rate needs two rounds of them.")
            for chart in (self._rates, self._quantiles):
                chart.span()
            self._rates.show_points(rates)
            self._quantiles.show_points([quantiles[name] for name in ("p50", "p95", "p99")])

    async def _picked(self, _name: str) -> None:
        if self._pick.value == LIVE:
            self._now()
        else:
            await self._again()

    async def _again(self) -> None:
        """Show what the lake has, where the past is looked at."""
        name, history = self._pick.value, self._desk.history
        if name == LIVE or history is None:
            return
        past = await self._desk.read(f"past {name}", lambda: history.past(SPANS[name], time.time()))
        if self._pick.value != name or past is None:
            return
        cut = " There is more than can be shown; what is oldest is left out." if past.cut else ""
        self._about.set_text(f"From the lake, in windows of {SPANS[name].width} s.{cut}")
        empty = f"The lake has nothing of the last {name.lower()}."
        for chart in (self._rates, self._quantiles):
            chart.span(time.time() - SPANS[name].seconds, time.time())
        self._rates.say_empty(empty)
        self._rates.show_points([past.series(f"{each}_per_s") for each in ("publishes", "deliveries", "drops")])
        self._quantiles.say_empty(empty)
        self._quantiles.show_points([past.series(f"latency_{q}_us", 1e-3) for q in ("p50", "p95", "p99")])


def show(desk: Desk) -> None:
    """Build the view."""
    TrafficView(desk)
