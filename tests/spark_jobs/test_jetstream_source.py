"""Telemetry through a real NATS server: read by sequence, killed in between, exact in the end."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from broker_plugins.telemetry.schema import VERSION
from spark_jobs.ingest import Ingestion
from spark_jobs.jetstream import STREAM, StreamMissingError, bounds, read_range, with_jetstream
from spark_jobs.jetstream_source import BadOptionError, LocusSource, LocusStreamReader, Options, spans
from spark_jobs.lake import Lake
from spark_jobs.ship import NOTE, TooLargeError, ship
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


def test_what_the_stream_dropped_is_not_passed_over(tmp_path: Path, server: Nats) -> None:
    from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadMaxFiles

    from spark_jobs.jetstream_source import DataLossError

    with pytest.raises(StreamMissingError, match=r"python -m spark_jobs\.ship"):
        bounds(server.url, STREAM)
    for first in range(1, 50, 10):
        write(tmp_path / "spool", "publishes", publishes(10, first), first)
    ship(tmp_path / "spool", server.url)

    async def purge(_client: Any, jetstream: Any) -> None:
        await jetstream.purge_stream(STREAM, seq=4)

    with_jetstream(server.url, purge)
    strict = LocusStreamReader(Options.of({"servers": server.url, "table": "publishes"}))
    with pytest.raises(DataLossError, match="begins at 4, sequences from 2 on are gone"):
        strict.latestOffset({"sequence": 1}, ReadAllAvailable())
    assert strict.initialOffset() == {"sequence": 3}
    assert strict.latestOffset({"sequence": 3}, ReadMaxFiles(1)) == {"sequence": 4}
    loose = LocusStreamReader(Options.of({"servers": server.url, "table": "publishes", "failOnDataLoss": "false"}))
    assert loose.latestOffset({"sequence": 1}, ReadAllAvailable()) == {"sequence": 5}


def test_a_segment_too_large_for_the_server_is_named(tmp_path: Path, server: Nats) -> None:
    import random

    dice = random.Random(1)
    rows = [{"topic": dice.randbytes(600).hex()} for _ in range(2_000)]
    write(tmp_path / "spool", "drops", rows)
    with pytest.raises(TooLargeError, match="raise max_payload"):
        ship(tmp_path / "spool", server.url)


def test_options_that_cannot_be_used_are_named() -> None:
    with pytest.raises(BadOptionError, match="option servers is missing"):
        Options.of({"table": "publishes"})
    with pytest.raises(BadOptionError, match="option parallel is '0'"):
        Options.of({"servers": "x", "table": "publishes", "parallel": "0"})
    with pytest.raises(ValueError, match="there is no table 'nothing'"):
        Options.of({"servers": "x", "table": "nothing"})
    assert [(span.after, span.upto) for span in spans(3, 8, 2)] == [(3, 5), (5, 8)]
    assert spans(3, 3, 2) == []
