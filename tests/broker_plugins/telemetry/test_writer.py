"""A disk that is full or in the way: nothing waits for it, it is said once, and all goes on when it can."""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING, Any

import pyarrow.dataset as ds

from broker_plugins.telemetry.keeping import Keeping
from broker_plugins.telemetry.options import TelemetryCounters, TelemetryOptions
from broker_plugins.telemetry.recorder import Recorder
from broker_plugins.telemetry.spool import Spool
from broker_plugins.telemetry.writer import Writer

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    import pytest

NOON = 1_777_896_000_000_000


class Bench:
    """A writer with what it needs."""

    def __init__(self, directory: Path, **options: Any) -> None:
        self.options = TelemetryOptions(node="n", retry_s=0.02, max_buffered_records=10, max_age_s=1e9, **options)
        self.counters = TelemetryCounters()
        self.recorder = Recorder(self.options.max_buffered_records, {})
        self.spool = Spool(directory, "n", 1)
        self.keeping = Keeping(directory, 1, self.options, self.counters)
        loop = asyncio.get_running_loop()
        self.writer = Writer(loop, self.spool, self.recorder, self.options, self.counters, self.keeping)

    def record(self, count: int) -> None:
        for _ in range(count):
            self.recorder.tables["positions"].add(NOON, 1.0, "c", 1.0, 2.0)
        self.keeping.keep(self.recorder.room)
        self.writer.write(self.recorder.take())

    def sequences(self) -> list[int]:
        table = ds.dataset(self.spool.directory / "table=positions", partitioning="hive").to_table()
        return sorted(table["sequence"].to_pylist())


async def until(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(10):
        while not condition():
            await asyncio.sleep(0.005)


async def test_what_is_written_frees_its_room(tmp_path: Path) -> None:
    bench = Bench(tmp_path)
    bench.record(4)
    bench.record(3)
    await bench.writer.close()
    assert bench.sequences() == [1, 2, 3, 4, 5, 6, 7]
    assert (bench.counters.records, bench.counters.segments, bench.recorder.room.used) == (7, 2, 0)


async def test_a_spool_in_the_way_is_said_once_and_recovers(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.WARNING)
    spool = tmp_path / "spool"
    spool.write_text("a file where the directory should be")
    bench = Bench(spool)
    bench.record(4)
    await until(lambda: bench.counters.write_failures >= 3)
    bench.record(4)
    bench.record(4)  # room for ten: two of these are lost
    assert bench.writer.failing
    assert bench.recorder.room.used == 10
    assert bench.recorder.room.lost == 2
    complaints = [record for record in caplog.records if "cannot be written" in record.message]
    assert len(complaints) == 1
    spool.unlink()
    await until(lambda: bench.counters.records == 10)
    assert not bench.writer.failing
    assert "can be written to" in caplog.records[-1].message
    bench.record(1)
    await bench.writer.close()
    assert bench.sequences() == [*range(1, 11), 13], "the gap is what was lost"


async def test_a_full_disk_leaves_nothing_half_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    bench = Bench(tmp_path)
    write_table, full = bench.spool._pq.write_table, True

    def limited(table: Any, path: Path, **options: Any) -> None:
        write_table(table, path, **options)
        if full:
            raise OSError(28, "No space left on device")

    monkeypatch.setattr(bench.spool._pq, "write_table", limited)
    bench.record(5)
    await until(lambda: bench.counters.write_failures >= 2)
    assert list(tmp_path.rglob("*.parquet")) == []
    full = False
    await until(lambda: bench.counters.records == 5)
    await bench.writer.close()
    assert bench.sequences() == [1, 2, 3, 4, 5]


async def test_records_that_no_segment_can_hold_do_not_block_the_others(tmp_path: Path) -> None:
    bench = Bench(tmp_path)
    bench.recorder.tables["positions"].add(NOON, 1.0, "c", "not a number", 2.0)
    bench.record(0)
    bench.record(2)
    await bench.writer.close()
    assert bench.sequences() == [2, 3]
    assert bench.recorder.room.lost == 1


async def test_closing_on_a_dead_disk_gives_up(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    spool = tmp_path / "spool"
    spool.write_text("")
    bench = Bench(spool)
    bench.record(3)
    await until(lambda: bench.counters.write_failures >= 1)
    await bench.writer.close()
    assert "3 records of telemetry are lost" in caplog.text
    assert bench.recorder.room.lost == 3
    assert bench.recorder.room.used == 0


async def test_old_segments_go(tmp_path: Path) -> None:
    first = Bench(tmp_path)
    first.record(3)
    await first.writer.close()
    second = Bench(tmp_path, max_bytes=1)
    await until(lambda: second.counters.removed_segments == 1)
    await second.writer.close()
    assert list(tmp_path.rglob("*.parquet")) == []
