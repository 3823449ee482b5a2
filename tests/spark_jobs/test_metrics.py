from __future__ import annotations

import json
import random
from collections import Counter, defaultdict
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from broker_plugins.grammar.geohash import encode_geohash
from spark_jobs.cube import CELL_CHARACTERS, cell_name, cells
from spark_jobs.ingest import Ingestion
from spark_jobs.lake import FAN_IN, Lake
from spark_jobs.metrics import Metrics, cube_directory, gauges, history, read_cube
from spark_jobs.ranges import live
from tests.spark_jobs.spools import START_US, write

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import SparkSession

pytestmark = pytest.mark.xdist_group("spark")
SECOND = 1_000_000


def day(dice: random.Random, count: int) -> dict[str, list[dict[str, Any]]]:
    """Records of three minutes, in the order in which they happened."""
    times = sorted(START_US + dice.randrange(180 * SECOND) for _ in range(count))
    topics = ["cars/1/pos", "cars/2/pos", "jobs", "locus/metrics/n1/1s"]
    found: dict[str, list[dict[str, Any]]] = defaultdict(list)
    for at in times:
        base = {"at": at, "topic": dice.choice(topics), "bytes": dice.randrange(100), "weight": dice.choice([1.0, 4.0])}
        place = {"lon": dice.uniform(126, 128), "lat": dice.uniform(37, 38)} if dice.random() < 0.5 else {}
        found["publishes"].append({**base, **place})
        found["deliveries"].append({**base, "latency_us": dice.choice([None, 1, int(dice.lognormvariate(7, 1))])})
        if dice.random() < 0.1:
            found["drops"].append({**base, "reason": "dropped_qos0"})
        if dice.random() < 0.1:
            found["matches"].append({**base, "accuracy": dice.random()})
        if dice.random() < 0.1:
            found["retained_decisions"].append({**base, "saved": dice.random() < 0.5, "wait_s": 1.0})
        if dice.random() < 0.2:
            found["subscriptions"].append(
                {"at": at, "event": "subscribed" if dice.random() < 0.6 else "unsubscribed", "client": "c"}
            )
    return found


def brute_force(records: dict[str, list[dict[str, Any]]], seconds: int) -> dict[Any, Counter[str]]:
    """Counts by window, scope and key, one record at a time."""
    found: dict[Any, Counter[str]] = defaultdict(Counter)
    for name, rows in records.items():
        for row in rows:
            if name == "subscriptions" or row["topic"].startswith("locus/metrics/"):
                continue
            start = (row["at"] - START_US) // SECOND // seconds * seconds
            places = [("node", ""), ("prefix", row["topic"].split("/")[0])]
            if name == "publishes" and "lon" in row:
                places.append(("cell", encode_geohash(row["lon"], row["lat"], CELL_CHARACTERS)))
            for scope, key in places:
                sums = found[start, scope, key]
                sums[name] += row["weight"]
                if name == "publishes":
                    sums["published_bytes"] += row["weight"] * row["bytes"]
                if name == "retained_decisions" and row["saved"]:
                    sums["retained_bytes_saved"] += row["weight"] * row["bytes"]
    return found


def test_metrics_equal_brute_force_on_late_doubled_and_disordered_segments(spark: SparkSession, tmp_path: Path) -> None:
    dice = random.Random(7)
    records, spool, lake = day(dice, 400), tmp_path / "spool", Lake(tmp_path / "lake")
    paths = []
    for name, rows in records.items():
        for first in range(0, len(rows), 100):
            paths += write(spool, name, rows[first : first + 100], first + 1)
            if dice.random() < 0.4 and first:  # once more, and the half before
                paths += write(spool, name, rows[first - 50 : first + 100], first - 49)
    dice.shuffle(paths)
    topics: dict[str, bytes] = {}
    ingestion, metrics = Ingestion(spark, spool, lake), Metrics(spark, lake, topics.__setitem__)
    for start in range(0, len(paths), 20):
        ingestion.take(paths[start : start + 20])
        if start == 20:
            metrics.catch_up()
    metrics.catch_up()
    for seconds in (1, 10, 60):
        rows = history(spark, lake, seconds).collect()
        expected = brute_force(records, seconds)
        compared = set()
        for row in rows:
            sums = expected[int(row.start.timestamp()) - START_US // SECOND, row.scope, row.key]
            compared.add((int(row.start.timestamp()) - START_US // SECOND, row.scope, row.key))
            for metric in ("publishes", "published_bytes", "deliveries", "drops", "matches", "retained_bytes_saved"):
                assert row[metric] == sums[metric], (row, metric)
            assert row.publishes_per_s == sums["publishes"] / seconds
        assert {place for place, sums in expected.items() if sums} <= compared
    _check_quantiles(records, history(spark, lake, 60).collect())
    _check_gauges(records, gauges(read_cube(spark, lake), 60).collect())
    shown = json.loads(topics["locus/metrics/n1/1min"])
    assert shown["publishes"] == brute_force(records, 60)[60, "node", ""]["publishes"], "the last whole minute"


def _check_quantiles(records: dict[str, list[dict[str, Any]]], rows: list[Any]) -> None:
    for row in rows:
        if row.scope != "node":
            continue
        weighed = sorted(
            (record["latency_us"], record["weight"])
            for record in records["deliveries"]
            if record["latency_us"] is not None
            and not record["topic"].startswith("locus/metrics/")
            and (record["at"] - START_US) // SECOND // 60 * 60 == int(row.start.timestamp()) - START_US // SECOND
        )
        for share, found in ((0.5, row.latency_p50_us), (0.99, row.latency_p99_us)):
            below, whole = 0.0, sum(weight for _, weight in weighed)
            exact = next(latency for latency, weight in weighed if (below := below + weight) >= share * whole)
            assert found == pytest.approx(exact, rel=0.025)


def _check_gauges(records: dict[str, list[dict[str, Any]]], rows: list[Any]) -> None:
    assert rows
    for row in rows:
        end = row.start.timestamp() * SECOND + 60 * SECOND
        past = [record["event"] for record in records["subscriptions"] if record["at"] < end]
        assert row.subscriptions == 2 * past.count("subscribed") - len(past)


def test_a_cell_is_the_grammars_geohash() -> None:
    dice = random.Random(3)
    places = [(dice.uniform(-180, 180), dice.uniform(-90, 90)) for _ in range(300)]
    places += [(180.0, 90.0), (-180.0, -90.0), (0.0, 0.0)]
    lon, lat = np.array(places).T
    assert [cell_name(cell) for cell in cells(lon, lat).tolist()] == [
        encode_geohash(*place, CELL_CHARACTERS) for place in places
    ]
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
