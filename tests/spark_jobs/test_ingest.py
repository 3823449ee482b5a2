from __future__ import annotations

import contextlib
import errno
import random
import shutil
import time
from collections import Counter
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from broker_plugins.telemetry.schema import VERSION
from spark_jobs import segments
from spark_jobs.ingest import AHEAD_S, Ingestion
from spark_jobs.lake import FAN_IN, AlreadyIngestingError, Lake
from spark_jobs.ranges import live
from tests.spark_jobs.spools import INCARNATION, publishes, write

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import SparkSession

pytestmark = pytest.mark.xdist_group("spark")


def sequences(spark: SparkSession, lake: Lake, name: str = "publishes") -> list[tuple[str, int]]:
    rows = lake.read(spark, name).select("node", "sequence").collect()
    return sorted((row.node, row.sequence) for row in rows)


def test_late_doubled_and_overlapping_segments_bring_every_record_once(spark: SparkSession, tmp_path: Path) -> None:
    """A random order, every third segment twice under another hour, and one that overlaps two."""
    spool, dice = tmp_path / "spool", random.Random(1)
    paths = []
    for node in ("n1", "n2"):
        for first in range(1, 200, 20):
            paths += write(spool, "publishes", publishes(20, first), first, node)
    overlapping = write(spool, "publishes", publishes(35, 10), 10, "n1")
    elsewhere = spool / "table=publishes" / "hour=2026-01-02T00"
    elsewhere.mkdir()
    copies = [shutil.copy(path, elsewhere / path.name) for path in paths[::3]]
    everything = [*paths, *overlapping, *copies]
    dice.shuffle(everything)
    ingestion = Ingestion(spark, spool, Lake(tmp_path / "lake"))
    for start in range(0, len(everything), 5):
        ingestion.take(everything[start : start + 5])
    expected = [(node, n) for node in ("n1", "n2") for n in range(1, 201)]
    assert sequences(spark, ingestion.lake) == expected
    counts = ingestion.ledger.counts
    assert counts.rows == 400
    assert counts.doubled == 35 + 20 * len(copies)
    assert ingestion.ledger.covered["publishes"] == {f"{n}/{INCARNATION}": [(1, 200)] for n in ("n1", "n2")}
    assert ingestion.ledger.missing() == 0


def test_what_is_no_segment_is_put_aside_and_the_rest_is_taken(spark: SparkSession, tmp_path: Path) -> None:
    spool = tmp_path / "spool"
    (good,) = write(spool, "publishes", publishes(10))
    (torn,) = write(spool, "publishes", publishes(10, 11), 11)
    torn.write_bytes(torn.read_bytes()[:-20])
    (rotten,) = write(spool, "publishes", publishes(500, 21), 21)
    body = bytearray(rotten.read_bytes())
    body[8 : len(body) // 2] = b"\xff" * (len(body) // 2 - 8)
    rotten.write_bytes(body)
    foreign = good.parent / good.name.replace("000000000001-000000000010", "000000000600-000000000601")
    pq.write_table(pa.table({"x": [1, 2]}), foreign)
    (good.parent / "notes.parquet").write_text("hello")
    (spool / "stray.parquet").write_text("hello")
    (good.parent / ".hidden.parquet").write_text("still being written")
    lake = Lake(tmp_path / "lake")
    Ingestion(spark, spool, lake).start(None).awaitTermination()
    assert sequences(spark, lake) == [("n1", n) for n in range(1, 11)]
    assert lake.ledger().counts.quarantined == 5
    aside = {path.name for path in (lake.root / "quarantine").iterdir()}
    assert len(aside) == 5
    assert {path.name for path in spool.rglob("*.parquet")} == {good.name, ".hidden.parquet"}


def test_numbers_that_no_record_has_are_missing_wherever_they_lie(spark: SparkSession, tmp_path: Path) -> None:
    """A broker without room loses records in the middle of what becomes one segment."""
    spool, lake = tmp_path / "spool", Lake(tmp_path / "lake")
    numbers = [*range(1, 11), *range(16, 21), *range(28, 31)]
    ingestion = Ingestion(spark, spool, lake)
    ingestion.take(write(spool, "publishes", [{"sequence": number} for number in numbers]))
    assert ingestion.ledger.missing() == 12
    (again,) = write(spool, "publishes", [{"sequence": number} for number in (29, 30, 31, 35)])
    ingestion.take([again])
    assert ingestion.ledger.missing() == 12 + 3
    ingestion.take(write(spool, "publishes", publishes(5, 41), 41))
    assert ingestion.ledger.missing() == 12 + 3 + 5
    counts = lake.ledger().counts
    assert (counts.rows, counts.doubled) == (len(numbers) + 2 + 5, 2)


@pytest.mark.parametrize("number", [errno.EACCES, errno.EMFILE])
def test_a_segment_that_cannot_be_read_for_now_is_not_put_aside(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: int
) -> None:
    spool, lake = tmp_path / "spool", Lake(tmp_path / "lake")
    paths = write(spool, "publishes", publishes(5))
    ingestion = Ingestion(spark, spool, lake)

    def fail(path: Path) -> None:
        raise OSError(number, "not now", str(path))

    with monkeypatch.context() as patched:
        patched.setattr(segments.pq, "read_metadata", fail)
        with pytest.raises(OSError, match="not now"):
            ingestion.take(paths)
    assert lake.ledger().counts.quarantined == 0
    ingestion.take(paths)
    assert len(sequences(spark, lake)) == 5


def test_a_clock_that_ran_ahead_does_not_put_a_node_into_the_future(spark: SparkSession, tmp_path: Path) -> None:
    spool, lake = tmp_path / "spool", Lake(tmp_path / "lake")
    year_2100_us = 4_102_444_800_000_000
    ingestion = Ingestion(spark, spool, lake)
    ingestion.take(write(spool, "publishes", [{"at": year_2100_us}]))
    assert lake.ledger().latest_us["n1"] <= (time.time() + AHEAD_S) * 1e6
    assert len(sequences(spark, lake)) == 1, "the record itself is kept as it is"


def test_a_newer_segment_is_refused_until_the_program_knows_it(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    spool, lake = tmp_path / "spool", Lake(tmp_path / "lake")
    write(spool, "publishes", publishes(5))
    (path,) = write(spool, "publishes", publishes(5, 6), 6)
    newer = path.rename(path.with_name(path.name.replace(f"-v{VERSION}.", f"-v{VERSION + 1}.")))
    commit = Ingestion(spark, spool, lake).take(spool.rglob("*.parquet"))
    assert commit.refused == [str(newer)]
    assert f"this program reads up to {VERSION}: update it" in caplog.text
    assert len(sequences(spark, lake)) == 5
    assert newer.exists()
    monkeypatch.setattr("broker_plugins.telemetry.schema.VERSION", VERSION + 1)
    Ingestion(spark, spool, lake)
    assert len(sequences(spark, lake)) == 10
    assert lake.ledger().refused == []


def test_refused_segments_are_said_once_and_forgotten_with_their_files(
    spark: SparkSession, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    spool, lake = tmp_path / "spool", Lake(tmp_path / "lake")
    newer = []
    for first in range(1, 30, 5):
        (path,) = write(spool, "publishes", publishes(5, first), first)
        newer.append(path.rename(path.with_name(path.name.replace(f"-v{VERSION}.", f"-v{VERSION + 1}."))))
    ingestion = Ingestion(spark, spool, lake)
    ingestion.take(newer)
    assert caplog.text.count("update it") == 1
    for path in newer[:4]:
        path.unlink()  # the broker's retention
    ingestion._put_together()  # what it does every few commits
    assert lake.ledger().refused == [str(path) for path in newer[4:]]
    ingestion.take(write(spool, "publishes", publishes(5, 31), 31))
    counts = lake.ledger().counts
    assert (counts.refused, counts.vanished, counts.rows) == (6, 4, 5)


def test_an_older_segment_has_nulls_for_younger_fields(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import dataclasses

    from broker_plugins.telemetry import schema

    spool, lake = tmp_path / "spool", Lake(tmp_path / "lake")
    (path,) = write(spool, "drops", [{"topic": "a"}])
    known = schema.TABLES["drops"]
    younger = dataclasses.replace(
        known, own=(*known.own, schema.Field("colour", schema.Kind.STRING, "Of the drop.", since=VERSION + 1))
    )
    monkeypatch.setitem(schema.TABLES, "drops", younger)
    monkeypatch.setattr(schema, "VERSION", VERSION + 1)
    Ingestion(spark, spool, lake).take([path])
    (row,) = lake.read(spark, "drops").collect()
    assert (row.topic, row.colour) == ("a", None)


def test_leftovers_of_a_killed_process_are_never_seen(spark: SparkSession, tmp_path: Path) -> None:
    spool, lake = tmp_path / "spool", Lake(tmp_path / "lake")
    first = write(spool, "publishes", publishes(5))
    Ingestion(spark, spool, lake).take(first)
    second = write(spool, "publishes", publishes(5, 6), 6)
    ingestion = Ingestion(spark, spool, lake)
    ingestion._try(second, {})  # killed before the ledger was written
    assert (lake.directory("publishes") / "2-2").exists()
    assert len(sequences(spark, lake)) == 5
    Ingestion(spark, spool, lake).take(second)
    assert len(sequences(spark, lake)) == 10


def test_small_directories_are_put_together_and_readers_see_each_record_once(
    spark: SparkSession, tmp_path: Path
) -> None:
    spool, lake = tmp_path / "spool", Lake(tmp_path / "lake")
    ingestion = Ingestion(spark, spool, lake)
    for commit in range(FAN_IN + 1):
        ingestion.take(write(spool, "publishes", publishes(2, 1 + 2 * commit), 1 + 2 * commit))
    names = [path.name for _, _, path in live(lake.directory("publishes"))]
    assert names == [f"1-{FAN_IN}", f"{FAN_IN + 1}-{FAN_IN + 1}"]
    assert sequences(spark, lake) == [("n1", n) for n in range(1, 2 * FAN_IN + 3)]
    some = lake.read(spark, "publishes", after=3, upto=5).collect()
    assert Counter(row["commit"] for row in some) == {4: 2, 5: 2}
    assert lake.remove_replaced(now_s=4e9) == FAN_IN
    assert len(sequences(spark, lake)) == 2 * FAN_IN + 2


def test_every_kind_of_field_has_a_type_in_parquet() -> None:
    from broker_plugins.telemetry.schema import Kind

    assert set(segments.ARROW_TYPES) == set(Kind)


def test_two_processes_do_not_ingest_into_one_lake(spark: SparkSession, tmp_path: Path, monkeypatch) -> None:
    lake = Lake(tmp_path / "lake")
    lake.claim(spark)
    lake.claim(spark)  # it is ours
    (lake.root / "ingesting").write_text("1")
    monkeypatch.setattr("spark_jobs.lake.is_java", lambda pid: pid == 1)
    with pytest.raises(AlreadyIngestingError, match="process 1 ingests into"):
        lake.claim(spark, patience_s=0.0)
    monkeypatch.setattr("spark_jobs.lake.is_java", lambda _pid: False)
    lake.claim(spark)
    assert (lake.root / "ingesting").read_text() != "1"


def test_the_checkpoint_may_be_removed_and_nothing_is_taken_twice(spark: SparkSession, tmp_path: Path) -> None:
    spool, lake = tmp_path / "spool", Lake(tmp_path / "lake")
    for run in range(2):
        write(spool, "publishes", publishes(5, 1 + 5 * run), 1 + 5 * run)
        ingestion = Ingestion(spark, spool, lake)
        ingestion.start(None).awaitTermination()
        shutil.rmtree(ingestion.checkpoint)
    assert sequences(spark, lake) == [("n1", n) for n in range(1, 11)]
    assert lake.ledger().counts.doubled == 0, "what was taken is known by its numbers"


def test_the_checkpoint_does_not_grow(spark: SparkSession, tmp_path: Path) -> None:
    spool, lake = tmp_path / "spool", Lake(tmp_path / "lake")
    for first in range(1, 25):
        write(spool, "publishes", publishes(1, first), first)
    sizes: list[int] = []
    ingestion = Ingestion(spark, spool, lake, lambda _: sizes.append(size_of(lake.root / "checkpoint")))
    kept = spark.conf.get("spark.sql.streaming.minBatchesToRetain")
    spark.conf.set("spark.sql.streaming.minBatchesToRetain", "2")
    try:
        ingestion.start(None, files_at_once=1).awaitTermination()
    finally:
        spark.conf.set("spark.sql.streaming.minBatchesToRetain", kept)
    assert len(sizes) == 24
    assert max(sizes[12:]) < 1.5 * max(sizes[:12]), sizes


def size_of(directory: Path) -> int:
    sizes = []
    for path in directory.rglob("*"):
        with contextlib.suppress(FileNotFoundError):  # Spark removes what it no longer needs meanwhile
            sizes.append(path.stat().st_size if path.is_file() else 0)
    return sum(sizes)
