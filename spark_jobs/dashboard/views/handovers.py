"""Handovers as they happen: what a cluster tells live, and what telemetry brought into the lake."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from nicegui import ui

from spark_jobs.dashboard import said
from spark_jobs.dashboard.widgets import MOST_SHOWN, Rows

if TYPE_CHECKING:
    from spark_jobs.dashboard.desk import Desk
    from spark_jobs.dashboard.history import Handover

NONE_LIVE = (
    "None yet. A roaming client is handed over when it leaves the blocks of its node; start with --lake to see it."
)
NONE = "None yet. A roaming client is handed over when it leaves the blocks of its node."


class HandoverRows:
    """The latest handovers.

    Args:
        desk: what all pages share.
        most: how many are shown.
    """

    def __init__(self, desk: Desk, most: int = MOST_SHOWN) -> None:
        self._desk = desk
        self._most = most
        self._recorded: list[Handover] = []
        self._rows = Rows(NONE if desk.history is not None else NONE_LIVE, most)
        if desk.history is not None:
            ui.timer(2.0, self._read, immediate=True)

    async def _read(self) -> None:
        self._recorded = await self._desk.handovers()

    def refresh(self) -> None:
        """Show them."""
        now_s = time.time()
        with self._desk.board.lock:
            board = self._desk.board
            latest = [(at_s, f"{client}: {way}") for at_s, client, way in board.handovers]
            latest += [
                (each.at_s, f"{each.client}: {each.from_node} → {each.to_node}")
                for each in self._recorded
                if not board.told_live(each.client, each.at_s)
            ]
        shown = sorted(latest, reverse=True)[: self._most]
        self._rows.show([(what, said.ago(now_s - at_s)) for at_s, what in shown])
