"""What the dashboard reads of a lake is what Spark says is in it."""

from __future__ import annotations

import json
import random
from typing import TYPE_CHECKING

import pytest

from spark_jobs.dashboard.history import History
from spark_jobs.dashboard.traffic import Span
from spark_jobs.ingest import Ingestion
from spark_jobs.lake import Lake
from spark_jobs.metrics import Metrics, history
from tests.spark_jobs.spools import START_US, write

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import SparkSession

START_S = START_US / 1e6


@pytest.mark.xdist_group("spark")
def test_the_past_and_the_decisions_are_those_of_the_lake(spark: SparkSession, tmp_path: Path) -> None:
    dice = random.Random(3)
    spool, lake = tmp_path / "spool", Lake(tmp_path / "lake")
    ingestion, metrics = Ingestion(spark, spool, lake), Metrics(spark, lake)
    times = sorted(START_US + dice.randrange(100_000_000) for _ in range(120))
    rows = [{"at": at, "topic": "cars/1", "latency_us": dice.randrange(1, 9_000), "bytes": 5} for at in times]
    waits = [0.0, 0.5, 3.0, 20.0]
    decisions = [
        {
            "at": at,
            "topic": f"s/{n}",
            "wait_s": waits[n % 4],
            "saved": n % 4 == 2,
            "bytes": 10,
            "policy_version": f"v{n // 60}",
        }
        for n, at in enumerate(times)
    ]
    for first in (0, 60):
        tables = {"publishes": rows, "deliveries": rows, "retained_decisions": decisions}
        ingestion.take(
            [path for name, all_ in tables.items() for path in write(spool, name, all_[first : first + 60], first + 1)]
        )
    metrics.catch_up()
    looked = History(lake.root)
    past = looked.past(Span(3_600, 10), START_S + 200)
    assert not past.cut
    expected = {row.start.timestamp(): row for row in history(spark, lake, 10).where("scope = 'node'").collect()}
    assert {window.start_s for window in past.windows} == set(expected)
    for window in past.windows:
        row = expected[window.start_s]
        assert window.get("publishes") == row.publishes
        if window is not past.windows[-1]:
            assert window.get("deliveries_per_s") == row.deliveries_per_s
        assert window.get("latency_p99_us") == pytest.approx(row["latency_p99_us"], abs=0.1)
    unfinished = past.windows[-1]
    assert unfinished.seconds == times[-1] // 1_000_000 + 1 - unfinished.start_s
    assert unfinished.get("publishes_per_s") == unfinished.values["publishes"] / unfinished.seconds
    assert looked.past(Span(50, 10), START_S + 100).windows[0].start_s >= START_S + 50
    assert looked.past(Span(3_600, 10), START_S + 200, most_rows=1).cut

    found = looked.decisions()
    assert (found.count, found.deferred, found.saved) == (120, 90, 30)
    assert (found.bytes_all, found.bytes_saved) == (1_200, 300)
    assert found.versions == {"v1": (60, 15), "v0": (60, 15)}
    assert found.waits == [
        ("at once", 0, 30),
        ("≤ 1 s", 0, 30),
        ("≤ 2 s", 0, 0),
        ("≤ 5 s", 30, 0),
        ("≤ 10 s", 0, 0),
        ("> 10 s", 0, 30),
    ]
    assert [each.topic for each in found.latest[:2]] == ["s/119", "s/118"]
    assert [each.topic for each in looked.decisions(most=1).latest] == ["s/119"]


def test_a_lake_that_is_not_there_yet_is_empty(tmp_path: Path) -> None:
    looked = History(tmp_path / "lake")
    assert looked.past(Span(3_600, 10), START_S).windows == []
    assert looked.decisions().count == 0
    assert looked.gate() is None


def test_a_verdict_is_read_and_a_strange_one_is_none(tmp_path: Path) -> None:
    path = tmp_path / "training" / "retained.policy.verdict.json"
    path.parent.mkdir()
    content = {"passed": False, "version": None, "trained_at": "2026", "differences": {"all": [0.1, 0.0, 0.2, 3]}}
    path.write_text(json.dumps({**content, "reasons": ["too few topics"]}))
    gate = History(tmp_path).gate()
    assert gate is not None
    assert (gate.passed, gate.differences, gate.reasons) == (False, {"all": (0.1, 0.0, 0.2, 3)}, ("too few topics",))
    for strange in ("", "[]", "{}", json.dumps(content)):
        path.write_text(strange)
        assert History(tmp_path).gate() is None
