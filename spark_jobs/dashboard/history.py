"""What the lake remembers: windows of the metrics, decisions on retained messages, and what the gate found.

Reads Parquet with pyarrow, no Spark, and never more than a bounded number of rows, the newest first. It reads the disk:
to be called from a thread where an event loop runs.
"""

from __future__ import annotations

import json
from collections import defaultdict
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as ds

from spark_jobs.buckets import GAUGES
from spark_jobs.dashboard.traffic import Span, Window
from spark_jobs.ledger import LedgerError, read_ledger
from spark_jobs.ranges import live
from spark_jobs.windows import summary

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

MOST_ROWS: Final = 20_000_000
"""Rows of the cube that are summed for one picture; what is older is left out, and the picture says so."""
MOST_DECISIONS: Final = 5_000
WAITS_S: Final = (0.0, 1.0, 2.0, 5.0, 10.0)
UNREADABLE: Final = (OSError, pa.ArrowException)
"""What reading a lake may raise that is damaged, or that one may not read."""
_DECISION_COLUMNS: Final = ("at", "topic", "wait_s", "residual_s", "policy_version", "bytes", "saved", "commit")


@dataclass(slots=True)
class Past:
    """Windows of the past, in order, of all nodes together."""

    windows: list[Window] = field(default_factory=list)
    cut: bool = False
    """Whether there was more than may be read."""

    def series(self, value: str, factor: float = 1.0) -> list[tuple[float, float | None]]:
        """A value over time."""
        found = [(window.start_s, window.get(value)) for window in self.windows]
        return [(at_s, None if each is None else each * factor) for at_s, each in found]


@dataclass(frozen=True, slots=True)
class Decision:
    """One decision on a retained message, and what came of it."""

    at_s: float
    topic: str
    wait_s: float
    saved: bool
    bytes: int
    policy_version: str


@dataclass(slots=True)
class Decisions:
    """The latest decisions, summed up."""

    latest: list[Decision] = field(default_factory=list)
    count: int = 0
    deferred: int = 0
    saved: int = 0
    bytes_all: int = 0
    """What sending always would have cost."""
    bytes_saved: int = 0
    waited_s: float = 0.0
    versions: dict[str, tuple[int, int]] = field(default_factory=dict)
    """Decisions and savings by version of the policy, the latest first."""
    waits: list[tuple[str, int, int]] = field(default_factory=list)
    """For each class of waits: its name, how many were saved, how many were not."""


@dataclass(frozen=True, slots=True)
class Handover:
    """A client whose session moved from one node to another."""

    at_s: float
    client: str
    from_node: str
    to_node: str


@dataclass(frozen=True, slots=True)
class GateResult:
    """What the gate found when a policy was trained last."""

    passed: bool
    version: str | None
    trained_at: str
    differences: dict[str, tuple[float, float, float, int]]
    reasons: tuple[str, ...]


class History:
    """A lake, looked at from outside.

    Args:
        root: its directory; it need not be there yet.
    """

    def __init__(self, root: Path) -> None:
        self.root = root

    def past(self, span: Span, now_s: float, most_rows: int = MOST_ROWS) -> Past:
        """The windows of a stretch of time up to now."""
        since_s = int(now_s - span.seconds) // span.width * span.width
        sums: dict[int, dict[tuple[str, int], float]] = defaultdict(lambda: defaultdict(float))
        left = most_rows
        heard_s = 0
        for batch in self._cube(since_s):
            if left <= 0:
                break
            left -= len(batch)
            if len(batch):
                heard_s = max(heard_s, int(pc.max(batch["second"]).as_py().timestamp()))
            for start, metric, bucket, value in _summed(batch, span.width):
                sums[start][metric, bucket] += value
        windows = []
        for start in sorted(sums):
            seconds = min(span.width, heard_s + 1 - start)  # the last one is not over: its rates are those so far
            windows.append(Window(float(start), seconds, summary(sums[start], seconds)))
        return Past(windows, cut=left <= 0)

    def _cube(self, since_s: int) -> Iterator[pa.Table]:
        """The rows of nodes since a time, the newest files first, a batch at a time."""
        since = pa.scalar(since_s * 1_000_000, pa.timestamp("us", tz="UTC"))
        wanted = (pc.field("second") >= since) & (pc.field("scope") == "node") & ~pc.field("metric").isin(list(GAUGES))
        columns = ["second", "metric", "bucket", "value"]
        for _, _, path in reversed(live(self.root / "metrics" / "cube")):
            try:
                for batch in ds.dataset(path, format="parquet").to_batches(columns=columns, filter=wanted):
                    yield pa.Table.from_batches([batch])
            except FileNotFoundError:
                continue  # it was put together with others meanwhile; the next look finds that file

    def decisions(self, most: int = MOST_DECISIONS) -> Decisions:
        """The latest decisions on retained messages."""
        return _decided(self._latest("retained_decisions", _DECISION_COLUMNS, most))

    def handovers(self, most: int = 20) -> list[Handover]:
        """The latest handovers, newest first."""
        rows = self._latest("handovers", ("at", "client", "from_node", "to_node", "commit"), most)
        return [Handover(row["at"].timestamp(), row["client"], row["from_node"], row["to_node"]) for row in rows]

    def _latest(self, table: str, columns: tuple[str, ...], most: int) -> list[dict[str, Any]]:
        """The last records of a table, newest first; whole commits only."""
        rows: list[dict[str, Any]] = []
        commit = self._commit()
        for first, _, path in reversed(live(self.root / "tables" / table)):
            if len(rows) >= most:
                break
            if first > commit:
                continue
            try:
                found = ds.dataset(path, format="parquet").to_table(
                    columns=list(columns), filter=pc.field("commit") <= commit
                )
            except FileNotFoundError:
                continue
            if len(found):
                order = pc.sort_indices(found, sort_keys=[("at", "descending")])
                rows += found.take(order[: most - len(rows)]).to_pylist()
        return sorted(rows, key=lambda row: row["at"], reverse=True)

    def _commit(self) -> int:
        try:
            return read_ledger(self.root / "ledger.json").commit
        except LedgerError:
            return 0

    def gate(self) -> GateResult | None:
        """What the gate found last; None where no policy was trained."""
        found = sorted((self.root / "training").glob("*.verdict.json"), key=lambda path: path.stat().st_mtime)
        if not found:
            return None
        try:
            content = json.loads(found[-1].read_text(encoding="utf-8"))
            return GateResult(
                bool(content["passed"]),
                content["version"],
                str(content["trained_at"]),
                {str(k): (float(v[0]), float(v[1]), float(v[2]), int(v[3])) for k, v in content["differences"].items()},
                tuple(map(str, content["reasons"])),
            )
        except (OSError, ValueError, KeyError, TypeError, AttributeError, IndexError):
            return None  # written by another version


def _summed(rows: pa.Table, width: int) -> Iterator[tuple[int, str, int, float]]:
    seconds = pc.divide(rows["second"].cast(pa.int64()), 1_000_000)
    start = pc.multiply(pc.divide(seconds, width), width)
    table = pa.table({"start": start, "metric": rows["metric"], "bucket": rows["bucket"], "value": rows["value"]})
    summed = table.group_by(["start", "metric", "bucket"]).aggregate([("value", "sum")])
    columns = (summed[name].to_pylist() for name in ("start", "metric", "bucket", "value_sum"))
    yield from zip(*columns, strict=True)


def _decided(rows: list[dict[str, Any]]) -> Decisions:
    found = Decisions()
    versions: dict[str, list[int]] = {}
    names = ["at once", *(f"≤ {wait:g} s" for wait in WAITS_S[1:]), f"> {WAITS_S[-1]:g} s"]
    saved_in, sent_in = [0] * len(names), [0] * len(names)
    for row in rows:
        wait_s, saved, size = float(row["wait_s"] or 0.0), bool(row["saved"]), int(row["bytes"] or 0)
        version = str(row["policy_version"])
        found.latest.append(Decision(row["at"].timestamp(), row["topic"], wait_s, saved, size, version))
        found.deferred += wait_s > 0
        found.saved += saved
        found.bytes_all += size
        found.bytes_saved += size if saved else 0
        residual = row["residual_s"]
        found.waited_s += wait_s if residual is None else min(wait_s, float(residual))
        counts = versions.setdefault(version, [0, 0])
        counts[0] += 1
        counts[1] += saved
        at = next((i for i, most in enumerate(WAITS_S) if wait_s <= most), len(WAITS_S))
        saved_in[at] += saved
        sent_in[at] += not saved
    found.count = len(rows)
    found.versions = {version: (counts[0], counts[1]) for version, counts in versions.items()}
    found.waits = list(zip(names, saved_in, sent_in, strict=True))
    return found
