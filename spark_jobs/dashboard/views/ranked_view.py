"""Ranked messages: who the latest went to, best first, and how accurate the matches are."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from nicegui import ui

from spark_jobs.dashboard import said
from spark_jobs.dashboard.views.shell import heading, shell
from spark_jobs.dashboard.widgets import Chart, Explain, Table, Tile, box, panel

if TYPE_CHECKING:
    from spark_jobs.dashboard.desk import Desk

MOST_RECEIPTS = 12


def show(desk: Desk) -> None:
    """Build the view."""
    topic = desk.options.receipts_topic
    with shell(desk, "/ranked"):
        with box("div", "l-head"):
            heading("Ranked", "Messages that go to their best matches: the narrower a filter, the better it matches.")
        with box("div", "l-tiles"):
            receipts = Tile("Messages ranked", "receipts")
            pace = Tile("A minute")
            accuracy = Tile("Best match, mean width")
            unmatched = Tile("Matched nobody")
            by_spark = Tile("Matches a second")
        explain = Explain(
            "No receipt has come yet",
            f"A message with @top:3;reply:{topic} goes to its three best matches, and the broker tells there who they "
            "were. The simulated city offers jobs that way:",
            "locus city",
        )
        with box("div", "l-columns"):
            with panel("Width of the best match", "Each receipt as it came; 0 is a filter for exactly this message."):
                best = Chart("Width of the best match", {"best match": "--s1"}, "", "Comes with receipts.", kind="dots")
            with panel("Width of all matches", "The mean of ten seconds, by Spark from telemetry."):
                widths = Chart("Mean width", {"mean width": "--s4"}, "", "Comes with Spark.")
        with panel("Latest matches", "Newest first."):
            columns = {
                "When": "when",
                "Topic": "code",
                "Numbers": "text",
                "Rank": "number",
                "Receiver": "text",
                "Width": "share",
            }
            table = Table("Latest matches", {**columns, "Its filter": "code"}, f"Nothing has come on {topic}.")

    def refresh() -> None:
        now_s = time.time()
        with desk.board.lock:
            matches, metrics = desk.board.matches, desk.board.metrics
            latest = matches.latest(MOST_RECEIPTS)
            mean = matches.mean_accuracy()
            total, nobody, rate = matches.total, matches.unmatched, matches.rate(now_s)
            points = matches.accuracies()
            spark = metrics.mean("match_width_mean", "matches")
            per_10s = metrics.total("matches")
            wishes = {r.name: matches.wish_of(r.name) for receipt in latest for r in receipt.receivers}
        explain.show(not total)
        receipts.show(said.count(total), "since this dashboard listens")
        pace.show(said.rate(rate * 60), "over the last minute")
        accuracy.show(said.share(mean), "of all that could be asked for")
        unmatched.show(said.count(nobody), said.share(nobody / total) if total else "")
        by_spark.show(said.rate(None if per_10s is None else per_10s / 10), "by Spark, all nodes")
        best.show_points([points])
        widths.show_points([spark])
        rows: list[list[object]] = []
        for receipt in latest:
            when = said.ago(now_s - receipt.heard_s)
            if not receipt.receivers:
                rows.append([when, receipt.topic, receipt.numbers, None, "nobody matched", None, None])
            for i, each in enumerate(receipt.receivers[:3]):
                first = [when, receipt.topic, receipt.numbers] if i == 0 else ["", "", ""]
                rows.append([*first, each.rank, each.name or "not named", each.accuracy, wishes.get(each.name, "")])
        table.show(rows)

    refresh()
    ui.timer(1.0, refresh)
