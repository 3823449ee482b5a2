from __future__ import annotations

import json
import random
from collections import Counter
from datetime import datetime
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from broker_plugins.grammar.geohash import encode_geohash
from spark_jobs.cube import CELL_CHARACTERS, cell_names, cells
from spark_jobs.ingest import Ingestion
from spark_jobs.lake import FAN_IN, Lake
from spark_jobs.metrics import Metrics, cube_directory, gauges, history, read_cube
from spark_jobs.ranges import live
from spark_jobs.windows import COUNTS, QUANTILES, RATES
from tests.spark_jobs.recorded_day import (
    SECOND,
    counted,
    gauge,
    latencies,
    quantile,
    recorded_day,
    write_day,
)
from tests.spark_jobs.spools import START_US, write

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import SparkSession

    from tests.spark_jobs.recorded_day import Day, Place

pytestmark = pytest.mark.xdist_group("spark")


def take_in(spark: SparkSession, tmp_path: Path, seed: int) -> tuple[Day, Lake, dict[str, bytes]]:
    """A day in the lake, in some commits with the metrics brought up to date in between; and what was shown."""
    day, spool, lake = recorded_day(seed, 150), tmp_path / "spool", Lake(tmp_path / "lake")
    paths = write_day(spool, day, seed)
    topics: dict[str, bytes] = {}
    ingestion, metrics = Ingestion(spark, spool, lake), Metrics(spark, lake, topics.__setitem__)
    for start in range(0, len(paths), len(paths) // 4):
        ingestion.take(paths[start : start + len(paths) // 4])
        if start:
            metrics.catch_up()
    assert ingestion.ledger.counts.doubled > 0, "segments did come twice"
    assert ingestion.ledger.counts.rows == sum(map(len, day.values()))
    return day, lake, topics


def test_metrics_equal_brute_force_on_a_day_of_late_doubled_and_disordered_segments(
    spark: SparkSession, tmp_path: Path
) -> None:
    day, lake, topics = take_in(spark, tmp_path, seed=7)
    for seconds in (1, 10, 60):
        found = {
            (int(row.start.timestamp()), row.node, row.scope, row.key): row.asDict()
            for row in history(spark, lake, seconds).collect()
        }
        expected, latency = counted(day, seconds), latencies(day, seconds)
        assert {place for place, sums in expected.items() if sums.total()} <= found.keys()
        for place, row in found.items():
            _check_sums(row, expected.get(place, Counter()), seconds)
            _check_quantiles(row, latency.get(place, []))
        _check_gauges(day, seconds, gauges(read_cube(spark, lake), seconds).collect())
        _check_shown(day, seconds, topics, expected)


def _check_sums(row: dict[str, Any], sums: Counter[str], seconds: int) -> None:
    for metric in (*RATES, *COUNTS):
        assert row[metric] == pytest.approx(sums[metric], rel=1e-9), (row, metric)
    for metric in RATES:
        assert row[f"{metric}_per_s"] == pytest.approx(sums[metric] / seconds), (row, metric)
    mean = sums["match_width"] / sums["matches"] if sums["matches"] else None
    assert row["match_width_mean"] == (None if mean is None else pytest.approx(mean))


def _check_quantiles(row: dict[str, Any], values: list[tuple[int, float]]) -> None:
    for share in QUANTILES:
        found = row[f"latency_p{share * 100:g}_us"]
        assert found == (pytest.approx(quantile(values, share), rel=0.025) if values else None), row


def _check_gauges(day: Day, seconds: int, rows: list[Any]) -> None:
    assert {row.node for row in rows} == {"n1", "n2"}
    for row in rows:
        end_us = (int(row.start.timestamp()) + seconds) * SECOND
        assert row.connections == gauge(day, "sessions", row.node, end_us), row
        assert row.subscriptions == gauge(day, "subscriptions", row.node, end_us), row


def _check_shown(day: Day, seconds: int, topics: dict[str, bytes], expected: dict[Place, Counter[str]]) -> None:
    """What the topics show last: the last whole window of each node."""
    name = {1: "1s", 10: "10s", 60: "1min"}[seconds]
    for node in ("n1", "n2"):
        shown = json.loads(topics[f"locus/metrics/{node}/{name}"])
        last = max(row["at"] for (_, of, _), rows in day.items() if of == node for row in rows)
        start = last // SECOND // seconds * seconds - seconds
        assert datetime.fromisoformat(shown["from"]).timestamp() == start
        sums = expected[start, node, "node", ""]
        for metric in (*RATES, *COUNTS):
            assert shown.get(metric, 0.0) == pytest.approx(sums[metric]), (shown, metric)
        assert shown["connections"] == gauge(day, "sessions", node, (start + seconds) * SECOND)


def test_a_cell_is_the_grammars_geohash() -> None:
    dice = random.Random(3)
    places = [(dice.uniform(-180, 180), dice.uniform(-90, 90)) for _ in range(300)]
    places += [(180.0, 90.0), (-180.0, -90.0), (0.0, 0.0)]
    lon, lat = np.array(places).T
    assert cell_names(cells(lon, lat)) == [encode_geohash(*place, CELL_CHARACTERS) for place in places]
    assert cells(np.array([500.0, np.nan, 1.0]), np.array([3.0, 1.0, -90.5])).tolist() == [-1, -1, -1]


def test_a_job_that_was_killed_goes_on_where_it_was(spark: SparkSession, tmp_path: Path) -> None:
    spool, lake = tmp_path / "spool", Lake(tmp_path / "lake")
    ingestion = Ingestion(spark, spool, lake)
    for commit in range(FAN_IN + 1):
        rows = [{"at": START_US + commit * SECOND, "topic": "a"}]
        ingestion.take(write(spool, "publishes", rows, commit + 1))
        if commit in (4, 9):
            assert Metrics(spark, lake).catch_up() == 5
    topics: dict[str, bytes] = {}
    Metrics(spark, lake).catch_up()
    assert [path.name for _, _, path in live(cube_directory(lake))] == ["1-16.parquet", "17-17.parquet"]
    assert Metrics(spark, lake, topics.__setitem__).catch_up() == 0
    (row,) = history(spark, lake, 60).where("scope = 'node'").collect()
    assert row.publishes == FAN_IN + 1


def test_a_topic_that_went_quiet_while_nobody_was_there_is_removed(spark: SparkSession, tmp_path: Path) -> None:
    spool, lake = tmp_path / "spool", Lake(tmp_path / "lake")
    ingestion = Ingestion(spark, spool, lake)
    topics: dict[str, bytes] = {}
    for number, topic in enumerate(("old/x", "new/x"), 1):
        for step in range(2):
            at = START_US + (number * 3_600 + step * 2) * SECOND
            ingestion.take(write(spool, "publishes", [{"at": at, "topic": topic}], 2 * number + step))
        Metrics(spark, lake, topics.__setitem__).catch_up()  # each by a process of its own, an hour apart
    assert topics.pop("locus/metrics/n1/1s/prefix/old") == b""
    assert {topic.rpartition("/")[2] for topic, payload in topics.items() if "/prefix/" in topic and payload} == {"new"}
    Metrics(spark, lake, topics.__setitem__)
    assert set(json.loads((lake.root / "metrics" / "shown.json").read_bytes())) == {
        topic for topic, payload in topics.items() if payload
    }
