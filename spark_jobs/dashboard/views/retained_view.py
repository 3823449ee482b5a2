"""Retained messages: what the policy decided, how long it let wait, what that saved, and what the gate found."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from nicegui import ui

from spark_jobs.dashboard import said
from spark_jobs.dashboard.views.explain_panel import ExplainPanel
from spark_jobs.dashboard.views.shell import heading, shell
from spark_jobs.dashboard.views.traffic_view import PIPELINE
from spark_jobs.dashboard.widgets import Chart, Explain, Table, Tile, box, panel, text

if TYPE_CHECKING:
    from spark_jobs.dashboard.desk import Desk
    from spark_jobs.dashboard.history import Decisions, GateResult

MOST_ROWS = 15
NO_DECISIONS = (
    "A policy decides when somebody subscribes to a topic that is opted in under topics: of the retained plugin. Its "
    "decisions come here through telemetry and Spark:"
)


class RetainedView:
    """The view for one page."""

    def __init__(self, desk: Desk) -> None:
        self._desk = desk
        with shell(desk, "/retained"):
            with box("div", "l-head"):
                heading("Retained", "Whether an old message is worth sending, or a newer one is about to come.")
            with box("div", "l-tiles"):
                self._decisions = Tile("Decisions", "decisions")
                self._saved = Tile("Saved")
                self._bytes = Tile("Bytes saved")
                self._wait = Tile("Waited, on average")
                self._version = Tile("Policy version")
                self._gate = Tile("Gate")
            self._explain = Explain("No decision has come yet", NO_DECISIONS, PIPELINE)
            with box("div", "l-columns"):
                with panel("Decisions a window", "Ten seconds each; saved means that something newer came in time."):
                    names = {"decisions": "--s1", "saved": "--s2"}
                    self._rates = Chart("Decisions", names, "", "Comes with Spark, when somebody subscribes.")
                with panel("How long they might wait", "The longest wait that was decided, and what came of it."):
                    waits = {"saved": "--s2", "sent": "--s1"}
                    empty = "Comes from the lake." if desk.history is not None else "Start the dashboard with --lake."
                    self._waits = Chart("Waits", waits, "", empty, kind="bars")
            with box("div", "l-columns"):
                with panel("Gate", "A policy is used only if it is not worse than the renewal rule on unseen topics."):
                    self._gate_said = text("p", "", "l-none")
                    self._differences = Table(
                        "Gate",
                        {"Class": "code", "Messages a subscribe": "number", "Between": "number", "Topics": "number"},
                        "",
                    )
                with panel("Policies", "Who decided, over the latest decisions."):
                    columns = {"Version": "code", "Decisions": "number", "Saved": "share"}
                    self._versions = Table("Policies", columns, "No decision has come yet.")
            self._ask = ExplainPanel(desk)
            with panel("Latest decisions"):
                self._latest = Table(
                    "Latest decisions",
                    {"When": "when", "Topic": "code", "Might wait": "number", "Became": "text", "Policy": "code"},
                    "No decision has come yet."
                    if desk.history is not None
                    else "They are in the lake: start the dashboard with --lake.",
                )
        self._now()
        ui.timer(1.0, self._now)
        if desk.history is not None:
            ui.timer(5.0, self._again, immediate=True)

    def _now(self) -> None:
        self._ask.refresh()
        with self._desk.board.lock:
            metrics = self._desk.board.metrics
            decided = metrics.series("retained_decisions")
            saved = metrics.series("retained_saved")
            sums = {
                name: sum(value or 0.0 for _, value in metrics.series(f"retained_{name}"))
                for name in ("decisions", "saved", "bytes_saved", "waited_s")
            }
        counted = [(at_s, value or 0.0) for at_s, value in decided] if sums["decisions"] else []
        self._rates.show_points([counted, [(at_s, value or 0.0) for at_s, value in saved] if counted else []])
        if self._desk.history is None:
            self._explain.show(not sums["decisions"])
            note = "since this dashboard listens"
            self._decisions.show(said.count(sums["decisions"]), note)
            share = sums["saved"] / sums["decisions"] if sums["decisions"] else None
            self._saved.show(said.count(sums["saved"]), f"{said.share(share)} of them" if share is not None else "")
            self._bytes.show(said.size(sums["bytes_saved"]), "against sending always")
            mean_s = sums["waited_s"] / sums["decisions"] if sums["decisions"] else None
            self._wait.show(said.NOTHING if mean_s is None else said.milliseconds(mean_s * 1_000))
            self._version.show(said.NOTHING, "start with --lake")
            self._gate.show(said.NOTHING, "start with --lake")
            self._gate_said.set_text("What the gate found is in the lake: start the dashboard with --lake.")

    async def _again(self) -> None:
        history = self._desk.history
        assert history is not None
        decisions = await self._desk.read("decisions", history.decisions)
        gate = await self._desk.read("gate", history.gate)
        if decisions is not None:
            self._show_decisions(decisions)
        self._show_gate(gate)

    def _show_decisions(self, found: Decisions) -> None:
        self._explain.show(not found.count)
        if not found.count:
            return
        oldest_s = found.latest[-1].at_s
        self._decisions.show(said.count(found.count), f"since {said.clock(oldest_s)}")
        self._saved.show(said.count(found.saved), f"{said.share(found.saved / found.count)} of them")
        spared = found.bytes_saved / found.bytes_all if found.bytes_all else 0.0
        self._bytes.show(said.size(found.bytes_saved), f"{said.share(spared)} of sending always")
        self._wait.show(said.milliseconds(found.waited_s / found.count * 1_000), f"{found.deferred:,} were let wait")
        self._version.show(found.latest[0].policy_version, "decided last")
        self._waits.show_points(
            [[(name, saved) for name, saved, _ in found.waits], [(name, sent) for name, _, sent in found.waits]]
        )
        self._versions.show([[v, said.count(n), saved / n] for v, (n, saved) in found.versions.items()][:MOST_ROWS])
        now_s = time.time()
        self._latest.show(
            [
                [
                    said.ago(now_s - each.at_s),
                    each.topic,
                    "–" if each.wait_s <= 0 else said.milliseconds(each.wait_s * 1_000),
                    became(each.wait_s, each.saved),
                    each.policy_version,
                ]
                for each in found.latest[:MOST_ROWS]
            ]
        )

    def _show_gate(self, gate: GateResult | None) -> None:
        if gate is None:
            self._gate.show("none yet", "no policy was trained")
            self._gate_said.set_text(
                "No policy was trained from this lake yet; the pipeline does that if it has --policy-file FILE."
            )
            return
        self._gate.show("passed" if gate.passed else "not passed", f"trained {gate.trained_at[:16].replace('T', ' ')}")
        why = "; ".join(gate.reasons) or "it did not pass"
        self._gate_said.set_text(
            f"Policy {gate.version} was written." if gate.passed else f"The policy in use stays: {why}."
        )
        self._differences.show(
            [
                [name, f"{mean:+.4f}", f"{low:+.4f} … {high:+.4f}", said.count(topics)]
                for name, (mean, low, high, topics) in gate.differences.items()
            ]
        )


def became(wait_s: float, saved: bool) -> str:
    """What came of a decision, in words."""
    if wait_s <= 0:
        return "sent at once"
    return "saved: a newer one came" if saved else "sent after waiting"


def show(desk: Desk) -> None:
    """Build the view."""
    RetainedView(desk)
