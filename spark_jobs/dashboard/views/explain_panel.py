"""Ask the broker why a topic's retained message is sent at once, or let wait."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Final

from spark_jobs.dashboard import said
from spark_jobs.dashboard.explained import BadTopicError
from spark_jobs.dashboard.widgets import Table, box, field, panel, text

if TYPE_CHECKING:
    from spark_jobs.dashboard.desk import Desk

PATIENCE_S: Final = 6.0
COLUMNS: Final = {"When": "when", "Might wait": "number", "Because": "text", "Policy": "code", "Became": "text"}


class ExplainPanel:
    """A form, and the broker's answer."""

    def __init__(self, desk: Desk) -> None:
        self._desk = desk
        self._asked = ""
        self._asked_s: float | None = None
        with panel("Ask about a topic", "The broker answers at once, with or without Spark."):
            with box("div", "l-ask"):
                self._topic = field("Topic", "city/sensors/s1/temperature")
                button = text("button", "Ask", "l-button l-primary").props("type=button data-mark=ask")
                button.on("click", lambda _: self._ask())
            self._said = text("p", "", "l-said").props("role=status data-mark=explained")
            self._table = Table("Its last decisions", COLUMNS, "")

    def _ask(self) -> None:
        topic = self._topic.value.strip()
        self._asked_s = None
        try:
            sent = self._desk.ask(topic)
        except BadTopicError as error:
            self._show(str(error), wrong=True)
            return
        if not sent:
            self._show("The broker is away: nobody can be asked.", wrong=True)
            return
        self._asked, self._asked_s = topic, time.monotonic()
        self._show("Asking…")

    def _show(self, what: str, *, wrong: bool = False) -> None:
        self._said.set_text(what)
        self._said.classes(add="l-wrong") if wrong else self._said.classes(remove="l-wrong")
        self._table.show([])

    def refresh(self) -> None:
        """Show the answer when it has come."""
        if self._asked_s is None:
            return
        with self._desk.board.lock:
            found = self._desk.board.explained.get(self._asked)
        if found is None:
            if time.monotonic() - self._asked_s > PATIENCE_S:
                self._asked_s = None
                self._show("No answer: the broker runs without its retained plugin, or may not tell.", wrong=True)
            return
        self._asked_s = None
        self._show(" ".join(found.lines))
        now_s = time.time()
        self._table.show(
            [
                [said.ago(now_s - at_s), said.milliseconds(wait_s * 1_000) if wait_s > 0 else "–", why, policy, became]
                for at_s, wait_s, why, policy, became in found.decisions
            ]
        )
