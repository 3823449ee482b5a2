from __future__ import annotations

import random
import time
from typing import TYPE_CHECKING

import pyarrow.parquet as pq
import pytest

from spark_jobs.ingest import Ingestion
from spark_jobs.keep import Keep
from spark_jobs.lake import Lake
from spark_jobs.merging import FAN_IN, LARGE, merge
from spark_jobs.metrics import Metrics, cube_directory, gauges, history, read_cube
from spark_jobs.ranges import live
from spark_jobs.retention import drop
from tests.spark_jobs.spools import START_US, publishes, write

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import SparkSession

pytestmark = pytest.mark.xdist_group("spark")
SECOND = 1_000_000
START_S = START_US / SECOND


def test_what_is_too_old_or_too_much_goes_and_readers_are_not_harmed(spark: SparkSession, tmp_path: Path) -> None:
    spool, lake, dice = tmp_path / "spool", Lake(tmp_path / "lake"), random.Random(5)
    ingestion = Ingestion(spark, spool, lake)
    paths = []
    for commit in range(6):
        first = 1 + 10 * commit
        rows = [{"at": START_US + commit * 60 * SECOND, "topic": dice.randbytes(50).hex()} for _ in range(10)]
        paths += [*write(spool, "publishes", rows, first), *write(spool, "drops", rows, first)]
        ingestion.take(paths[-2:])
    begun = lake.read(spark, "publishes")
    ledger = lake.ledger()
    assert drop(lake, ledger, Keep(), START_S + 1e6) == 0
    assert drop(lake, ledger, Keep(max_age_s=100.0), START_S + 250.0) == 2 * 3, "of minutes 0, 1 and 2"
    lake.commit(ledger)
    assert sorted(row.sequence for row in lake.read(spark, "publishes").collect()) == list(range(31, 61))
    assert lake.remove_replaced() == 0, "not yet: somebody may be reading"
    assert begun.count() == 60
    sizes = [path.stat().st_size for name in ("publishes", "drops") for path in lake.directory(name).glob("6-6/*")]
    assert drop(lake, ledger, Keep(max_bytes=sum(sizes)), START_S) == 2 * 2
    lake.commit(ledger)
    assert {row.sequence for row in lake.read(spark, "drops").collect()} == set(range(51, 61))
    assert lake.remove_replaced(now_s=time.time() + 1e6) == 2 * 5
    assert [path.name for _, _, path in live(lake.directory("publishes"))] == ["6-6"]
    again = Ingestion(spark, spool, lake).take(paths)
    assert sum(again.rows.values()) == 0, "what was dropped is not taken again"
    assert lake.read(spark, "publishes").count() == 10


def test_large_files_are_linked_and_small_ones_written_together(spark: SparkSession, tmp_path: Path) -> None:
    spool, lake = tmp_path / "spool", Lake(tmp_path / "lake")
    ingestion = Ingestion(spark, spool, lake)
    first = 1
    for commit in range(FAN_IN - 1):
        count = LARGE if commit == 3 else 5
        ingestion.take(write(spool, "publishes", publishes(count, first, step_us=1), first))
        first += count
    (large,) = lake.directory("publishes").glob("4-4/*.parquet")
    ingestion.take(write(spool, "publishes", publishes(5, first), first))
    assert [path.name for _, _, path in live(lake.directory("publishes"))] == [f"1-{FAN_IN}"]
    files = sorted(lake.directory("publishes").glob(f"1-{FAN_IN}/*.parquet"))
    assert [pq.read_metadata(path).num_rows for path in files] == [LARGE, 5 * (FAN_IN - 1)]
    assert files[0].samefile(large)
    found = [row.sequence for row in lake.read(spark, "publishes").select("sequence").collect()]
    assert sorted(found) == list(range(1, first + 5))
    assert lake.to_merge() == []


def test_a_merge_that_was_cut_off_is_done_again(spark: SparkSession, tmp_path: Path) -> None:
    spool, lake = tmp_path / "spool", Lake(tmp_path / "lake")
    ingestion = Ingestion(spark, spool, lake)
    ingestion._put_together = lambda: None  # type: ignore[method-assign]  # killed before it
    for commit in range(FAN_IN):
        ingestion.take(write(spool, "publishes", publishes(5, 1 + 5 * commit), 1 + 5 * commit))
    (work,) = lake.to_merge()
    merge(work)  # killed before it was placed
    assert lake.read(spark, "publishes").count() == 5 * FAN_IN
    Ingestion(spark, spool, lake)._put_together()
    assert [path.name for _, _, path in live(lake.directory("publishes"))] == [f"1-{FAN_IN}"]
    assert lake.read(spark, "publishes").count() == 5 * FAN_IN


def test_old_windows_are_forgotten_and_gauges_are_not(spark: SparkSession, tmp_path: Path) -> None:
    spool, lake = tmp_path / "spool", Lake(tmp_path / "lake")
    ingestion, metrics = Ingestion(spark, spool, lake), Metrics(spark, lake)
    for commit in range(4):
        at = START_US + commit * 60 * SECOND
        paths = write(spool, "publishes", [{"at": at, "topic": "a"}], commit + 1)
        ingestion.take([*paths, *write(spool, "sessions", [{"at": at, "event": "connected"}], commit + 1)])
        metrics.catch_up()
    assert metrics.forget(START_S) == 0
    assert metrics.forget(START_S + 119.0) > 0
    assert metrics.forget(START_S + 119.0) == 0
    assert [path.name for _, _, path in live(cube_directory(lake))] == ["1-2.parquet", "3-3.parquet", "4-4.parquet"]
    rows = history(spark, lake, 60).where("scope = 'node'").collect()
    assert sorted(row.publishes for row in rows) == [0.0, 0.0, 1.0, 1.0]
    assert max(row.connections for row in gauges(read_cube(spark, lake), 60).collect()) == 4
