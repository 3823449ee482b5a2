"""The map: who is where, what happens, who gets what, and fences that one draws and watches."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any, Final

from nicegui import ui

from spark_jobs.dashboard import said
from spark_jobs.dashboard.feed import CITY_FILTERS
from spark_jobs.dashboard.views.fence_panel import FencePanel
from spark_jobs.dashboard.views.handovers import HandoverRows
from spark_jobs.dashboard.views.shell import shell
from spark_jobs.dashboard.widgets import MOST_SHOWN, MapCanvas, Rows, box, panel, text

if TYPE_CHECKING:
    from spark_jobs.dashboard.desk import Desk

FRAMES_A_S: Final = 8.0
PATIENCE_S: Final = 3.0
"""A frame that was not acknowledged for so long is taken for lost, and the next one has everything."""


class Pusher:
    """Sends frames to one page: the next one only when the last was shown."""

    def __init__(self, desk: Desk, canvas: MapCanvas) -> None:
        self._desk = desk
        self._canvas = canvas
        self._seen = 0
        self._sent: int | None = None
        self._sent_s = 0.0
        canvas.on("shown", lambda event: self._shown(event.args))

    def _shown(self, revision: Any) -> None:
        if isinstance(revision, int) and revision == self._sent:
            self._seen, self._sent = revision, None

    def push(self) -> None:
        """Send what is new, if the page is ready for it."""
        now_s = time.time()
        if self._sent is not None:
            if now_s - self._sent_s < PATIENCE_S:
                return
            self._seen = 0
        with self._desk.board.lock:
            scene = self._desk.board.scene
            scene.tidy(now_s)
            if scene.revision == self._seen:
                return
            frame = scene.frame(self._seen, now_s)
        self._sent, self._sent_s = frame["revision"], now_s
        self._canvas.run_method("frame", frame)


def show(desk: Desk) -> None:
    """Build the view."""
    with shell(desk, "/", full=True), box("div", "l-mapview"):
        text("h1", "Map", "l-hidden")
        canvas = MapCanvas()
        with box("aside", "l-side").props('aria-label="Beside the map"'):
            fences = FencePanel(desk, canvas)
            with panel("Alerts"):
                alerts = Rows("No alert in the last minute.")
            with panel("Handovers", "Clients that move from node to node."):
                handovers = HandoverRows(desk)
            with panel("Spatial index"):
                index = text("p", "", "l-none")
    filters = ", ".join(desk.options.topics)
    if desk.options.topics == CITY_FILTERS:
        canvas.explain(
            "Nothing with a position yet",
            "The map shows the simulated city until it is told otherwise. Start that, or name topics of your own "
            "with --topics; they need lon and lat in their JSON.",
            "locus city",
        )
    else:
        canvas.explain(
            "Nothing with a position yet",
            f"The map shows messages on {filters} whose JSON has lon and lat. It fits itself to what comes.",
        )
    pusher = Pusher(desk, canvas)

    def refresh() -> None:
        now_s = time.time()
        fences.refresh()
        with desk.board.lock:
            counts = desk.board.scene.counts()
            latest = desk.board.scene.alerts()[:MOST_SHOWN]
            facts = dict(desk.board.scene.index)
        canvas.label(
            f"Map with {counts['vehicle']} vehicles, {counts['person']} people, {counts['subscriber']} subscribers, "
            f"{counts['fence']} fences, {counts['alert']} alerts. Arrow keys move it, plus and minus zoom, 0 shows all."
        )
        alerts.show([(alert.text, said.ago(now_s - alert.heard_s)) for alert in latest])
        handovers.refresh()
        index.set_text(index_said(counts["block"], facts))

    refresh()
    ui.timer(1.0, refresh)
    ui.timer(1.0 / FRAMES_A_S, pusher.push)


def index_said(blocks: int, facts: dict[str, float]) -> str:
    """What the broker told of its index, in a sentence."""
    if not facts:
        return "The broker has not told of its blocks. They come from its geo plugin."
    areas = facts.get("areas", 0)
    if not facts.get("indexes"):
        return f"{areas:,.0f} areas are listened in: too few for an index, so there are no blocks."
    shown = f"{blocks:,} blocks" if facts.get("left_out", 0) == 0 else f"the first {blocks:,} blocks"
    return (
        f"{areas:,.0f} areas in {facts['indexes']:,.0f} Q+R indexes, {shown}: still ones on the R side, "
        "moving ones on the Q side."
    )
