"""Telemetry through a real NATS server: read by sequence, killed in between, exact in the end."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadMaxFiles

from broker_plugins.telemetry.schema import VERSION, parse_segment, table
from spark_jobs.ingest import Ingestion
from spark_jobs.jetstream import (
    SEGMENT_HEADER,
    STREAM,
    NatsAwayError,
    StreamMissingError,
    bounds,
    read_range,
    with_jetstream,
)
from spark_jobs.jetstream_source import (
    BadOptionError,
    DataLossError,
    LocusSource,
    LocusStreamReader,
    Options,
    Span,
    batches_of,
    spans,
)
from spark_jobs.lake import Lake
from spark_jobs.ship import NOTE, Shipper, TooLargeError, pieces, ship
from tests.spark_jobs.clients import wait_for
from tests.spark_jobs.servers import Nats
from tests.spark_jobs.spools import publishes, write

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from pyspark.sql import SparkSession

pytestmark = pytest.mark.xdist_group("spark")


@pytest.fixture
def server(tmp_path: Path) -> Iterator[Nats]:
    running = Nats(tmp_path / "nats")
    running.start()
    yield running
    running.kill()


def test_segments_pass_through_jetstream_exactly_once(spark: SparkSession, tmp_path: Path, server: Nats) -> None:
    spool, lake = tmp_path / "spool", Lake(tmp_path / "lake")
    for first in range(1, 100, 20):
        write(spool, "publishes", publishes(20, first), first)
    write(spool, "drops", [{"topic": "a"}])
    assert ship(spool, server.url)[0] == 6
    assert ship(spool, server.url) == (0, 0), "it is noted what was shipped"
    (spool / NOTE).unlink()
    assert ship(spool, server.url)[0] == 6
    assert bounds(server.url, STREAM) == (1, 6), "the stream keeps doubles out"

    def take() -> None:
        ingestion = Ingestion(spark, lake.root / "landing", lake)
        ingestion.start_from_jetstream(server.url, STREAM, None, segments_at_once=4).awaitTermination()

    take()
    server.kill()
    server.start()
    write(spool, "publishes", publishes(20, 101), 101)
    (newer,) = write(spool, "publishes", publishes(20, 121), 121)
    newer = newer.rename(newer.with_name(newer.name.replace(f"-v{VERSION}.", f"-v{VERSION + 1}.")))
    assert ship(spool, server.url)[0] == 2
    take()
    take()
    numbers = [row.sequence for row in lake.read(spark, "publishes").collect()]
    assert sorted(numbers) == list(range(1, 121))
    counts = lake.ledger().counts
    assert (counts.rows, counts.doubled, counts.refused, counts.quarantined) == (121, 0, 1, 0)
    assert [path.name for path in (lake.root / "landing").rglob("*.parquet")] == [newer.name], (
        "what was taken is removed, what is too new waits"
    )


def test_a_table_is_read_in_parts_and_replayed_by_sequence(spark: SparkSession, tmp_path: Path, server: Nats) -> None:
    spool = tmp_path / "spool"
    for first in range(1, 100, 10):
        write(spool, "publishes", publishes(10, first), first)
    write(spool, "drops", [{"topic": "a"}])
    ship(spool, server.url)
    spark.dataSource.register(LocusSource)
    options = {"servers": server.url, "table": "publishes", "parallel": "3", "segmentsAtOnce": "4"}
    rows = spark.read.format("locus").options(**options).load().select("sequence", "topic").collect()
    assert sorted(row.sequence for row in rows) == list(range(1, 101))
    seen: list[list[int]] = []

    def note(batch: Any, _number: int) -> None:
        seen.append(sorted(row.sequence for row in batch.select("sequence").collect()))

    stream = spark.readStream.format("locus").options(**options).load()
    writer = stream.writeStream.foreachBatch(note).option("checkpointLocation", str(tmp_path / "checkpoint"))
    writer.trigger(availableNow=True).start().awaitTermination()
    assert sorted(number for batch in seen for number in batch) == list(range(1, 101))
    assert max(len(batch) for batch in seen) <= 40, "four segments of ten at most"
    parts = [read_range(server.url, STREAM, 3, 7, None) for _ in range(2)]
    assert parts[0] == parts[1]
    assert [shipped.sequence for shipped in parts[0]] == [4, 5, 6, 7]


def numbered(spool: Path, firsts: range, count: int = 10) -> None:
    for first in firsts:
        write(spool, "publishes", publishes(count, first), first)


def do(server: Nats, work: str, *arguments: Any, **options: Any) -> None:
    """Something an operator does to the stream."""

    async def run(_client: Any, jetstream: Any) -> None:
        await getattr(jetstream, work)(*arguments, **options)

    with_jetstream(server.url, run)


def test_what_the_stream_dropped_is_not_passed_over(tmp_path: Path, server: Nats) -> None:
    with pytest.raises(StreamMissingError, match=r"python -m spark_jobs\.ship"):
        bounds(server.url, STREAM)
    numbered(tmp_path / "spool", range(1, 50, 10))
    ship(tmp_path / "spool", server.url)
    options = {"servers": server.url, "table": "publishes"}
    strict = LocusStreamReader(Options.of(options))
    loose = LocusStreamReader(Options.of({**options, "failOnDataLoss": "false"}))
    created = strict.initialOffset()["created"]
    do(server, "purge_stream", STREAM, seq=4)
    with pytest.raises(DataLossError, match="begins at 4, sequences from 2 on are gone"):
        strict.latestOffset({"sequence": 1}, ReadAllAvailable())
    assert strict.initialOffset() == {"sequence": 3, "created": created}
    assert strict.latestOffset({"sequence": 3}, ReadMaxFiles(1))["sequence"] == 4
    assert loose.latestOffset({"sequence": 1}, ReadAllAvailable())["sequence"] == 5
    with pytest.raises(DataLossError, match="sequences from 2 on were dropped unread"):
        list(strict.read(Span(1, 5)))  # decided before the purge, or replayed after it
    assert sum(batch.num_rows for batch in loose.read(Span(1, 5))) == 20
    do(server, "purge_stream", STREAM)
    with pytest.raises(DataLossError, match="begins at 6, sequences from 4 on are gone"):
        strict.latestOffset({"sequence": 3, "created": created}, ReadAllAvailable())
    assert strict.latestOffset({"sequence": 5, "created": created}, ReadAllAvailable())["sequence"] == 5


def test_a_stream_that_was_made_again_is_read_from_its_beginning(
    spark: SparkSession, tmp_path: Path, server: Nats
) -> None:
    """Its sequences begin at 1 again: whoever only compares numbers would wait, and then pass segments over."""
    spool, lake = tmp_path / "spool", Lake(tmp_path / "lake")
    numbered(spool, range(1, 50, 10))
    ship(spool, server.url)

    def take() -> None:
        ingestion = Ingestion(spark, lake.root / "landing", lake)
        ingestion.start_from_jetstream(server.url, STREAM, None).awaitTermination()

    take()
    before = LocusStreamReader(Options.of({"servers": server.url, "table": "publishes"}))
    offset = before.latestOffset(before.initialOffset(), ReadAllAvailable())
    assert offset["sequence"] == 5
    do(server, "delete_stream", STREAM)
    numbered(spool, range(51, 80, 10))
    shipper = Shipper(spool, server.url)
    assert shipper.ship()[0] == 3, "what is new"
    assert shipper.ship()[0] == 5, "and, to another stream, what went to the one before"
    assert shipper.ship() == (0, 0)
    with pytest.raises(DataLossError, match="was made again"):
        before.latestOffset(offset, ReadAllAvailable())
    with pytest.raises(DataLossError, match="was made again"):
        before.latestOffset({"sequence": 50}, ReadAllAvailable())  # from a checkpoint that does not say of which stream
    take()
    numbers = [row.sequence for row in lake.read(spark, "publishes").collect()]
    assert sorted(numbers) == list(range(1, 81))
    counts = lake.ledger().counts
    assert (counts.rows, counts.doubled, counts.skipped) == (80, 50, 0)


def test_segments_beyond_the_limits_of_the_stream_are_counted(
    spark: SparkSession, tmp_path: Path, server: Nats
) -> None:
    spool, lake = tmp_path / "spool", Lake(tmp_path / "lake")
    do(server, "add_stream", name=STREAM, subjects=["locus.telemetry.>"], max_msgs=4)
    ingestion = Ingestion(spark, lake.root / "landing", lake)
    for firsts in (range(1, 40, 10), range(41, 140, 10)):
        numbered(spool, firsts)
        ship(spool, server.url)
        ingestion.start_from_jetstream(server.url, STREAM, None).awaitTermination()
    numbers = [row.sequence for row in lake.read(spark, "publishes").collect()]
    assert sorted(numbers) == [*range(1, 41), *range(101, 141)], "it goes on with what there is"
    ledger = lake.ledger()
    assert (ledger.counts.skipped, ledger.missing(), ledger.stream_sequence) == (6, 60, 14)


def test_what_is_no_segment_in_the_stream_is_put_aside(spark: SparkSession, tmp_path: Path, server: Nats) -> None:
    """Whoever may publish there says what the table and the name of a segment are."""
    spool, lake = tmp_path / "spool", Lake(tmp_path / "lake")
    numbered(spool, range(1, 20, 10))
    ship(spool, server.url)
    hostile = ["..", "../../../escaped.parquet", "x" * 300, "a\0b", "", "n1-1-000000000900-000000000901-v1.parquet"]
    for name in hostile:
        do(server, "publish", "locus.telemetry.publishes.n1", b"not Parquet", headers={SEGMENT_HEADER: name})
    do(server, "publish", "locus.telemetry.NO~table.n1", b"nor this")
    numbered(spool, range(21, 40, 10))
    ship(spool, server.url)
    ingestion = Ingestion(spark, lake.root / "landing", lake)
    ingestion.start_from_jetstream(server.url, STREAM, None, segments_at_once=3).awaitTermination()
    assert sorted(row.sequence for row in lake.read(spark, "publishes").collect()) == list(range(1, 41))
    counts = lake.ledger().counts
    assert (counts.quarantined, counts.skipped) == (len(hostile) + 1, 0)
    assert not list(tmp_path.rglob("*escaped*"))
    assert not [path for path in (lake.root / "landing").rglob("*") if path.is_file()]


def test_nats_that_is_away_is_waited_for(spark: SparkSession, tmp_path: Path, server: Nats) -> None:
    spool, lake = tmp_path / "spool", Lake(tmp_path / "lake")
    numbered(spool, range(1, 20, 10))
    shipper = Shipper(spool, server.url)
    shipper.ship()
    ingestion = Ingestion(spark, lake.root / "landing", lake)
    every = "spark.sql.streaming.noDataProgressEventInterval"
    spark.conf.set(every, "100")  # milliseconds, else one would wait for ten seconds to see that it looked
    query = ingestion.start_from_jetstream(server.url, STREAM, 0.1)
    spark.conf.unset(every)
    try:
        wait_for(lambda: lake.ledger().counts.rows == 20, "the first segments")
        reader = LocusStreamReader(Options.of({"servers": server.url, "table": "publishes"}))
        offset = reader.initialOffset()
        server.kill()
        assert reader.latestOffset(offset, ReadAllAvailable()) == offset
        assert reader.reportLatestOffset() is None
        numbered(spool, range(21, 40, 10))
        with pytest.raises(NatsAwayError, match="does not answer"):
            shipper.ship(0.0)
        said = query.lastProgress
        wait_for(lambda: query.lastProgress != said or not query.isActive, "a look at a server that is away")
        server.start()
        wait_for(lambda: _shipped(shipper), "the stream to be there again")
        wait_for(lambda: lake.ledger().counts.rows == 40 or not query.isActive, "what came meanwhile")
        assert query.isActive, query.exception()
    finally:
        query.stop()
    assert reader.latestOffset(offset, ReadAllAvailable())["created"] == offset["created"], "the same stream"
    counts = lake.ledger().counts
    assert (counts.rows, counts.doubled, counts.skipped) == (40, 0, 0)


def _shipped(shipper: Shipper) -> bool:
    try:
        return shipper.ship(0.0)[0] == 2
    except NatsAwayError:
        return False


def test_a_segment_too_large_for_a_message_is_divided(tmp_path: Path, server: Nats) -> None:
    import random

    dice = random.Random(1)
    rows = [{"topic": dice.randbytes(600).hex()} for _ in range(4_000)]
    (path,) = write(tmp_path / "spool", "drops", rows)
    assert path.stat().st_size > 2_000_000
    shipper = Shipper(tmp_path / "spool", server.url)
    assert shipper.ship() == (1, path.stat().st_size)
    found = read_range(server.url, STREAM, 0, 100, None)
    assert len(found) > 2
    records = [record for part in found for batch in batches_of(part, table("drops")) for record in batch.to_pylist()]
    assert [record["sequence"] for record in records] == list(range(1, 4_001))
    assert [record["topic"] for record in records] == [row["topic"] for row in rows]
    names = [parse_segment(part.name) for part in found]
    assert [name.first for name in names] == [1, *(name.last + 1 for name in names[:-1])]
    assert names[-1].last == 4_000
    (huge,) = write(tmp_path / "spool", "drops", [{"topic": dice.randbytes(600_000).hex()}], 4_001)
    with pytest.raises(TooLargeError, match=r"raise max_payload of the server; one record alone is too large"):
        list(pieces(huge.name, huge.read_bytes(), 100_000))
    write(tmp_path / "spool", "publishes", publishes(10))
    assert shipper.ship()[0] == 1, "the others go on"
    assert shipper.left_out == 1


def test_what_was_shipped_is_noted_by_its_numbers(tmp_path: Path, server: Nats) -> None:
    spool = tmp_path / "spool"
    numbered(spool, range(1, 5_000, 10))
    assert _ship_all(spool, server) == 500
    assert (spool / NOTE).stat().st_size < 300, "not a list of names"
    (spool / "stray.parquet").write_text("no segment")
    (spool / NOTE).write_text("table=publishes/hour=x/y.parquet\n")
    assert _ship_all(spool, server) == 500, "a note that cannot be read: all is shipped again"


def _ship_all(spool: Path, server: Nats) -> int:
    shipped = 0
    while count := ship(spool, server.url)[0]:
        shipped += count
    return shipped


def test_options_that_cannot_be_used_are_named() -> None:
    with pytest.raises(BadOptionError, match="option servers is missing"):
        Options.of({"table": "publishes"})
    with pytest.raises(BadOptionError, match="option parallel is '0'"):
        Options.of({"servers": "x", "table": "publishes", "parallel": "0"})
    with pytest.raises(ValueError, match="there is no table 'nothing'"):
        Options.of({"servers": "x", "table": "nothing"})
    assert [(span.after, span.upto) for span in spans(3, 8, 2)] == [(3, 5), (5, 8)]
    assert spans(3, 3, 2) == []
