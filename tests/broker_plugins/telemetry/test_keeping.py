"""Records are in the journal before anything else happens; where it fails the broker goes on, and it is known."""

from __future__ import annotations

import os
import time
from typing import TYPE_CHECKING, Any

from broker_plugins.telemetry import journal, keeping, marks
from broker_plugins.telemetry.keeping import Keeping
from broker_plugins.telemetry.options import TelemetryCounters, TelemetryOptions
from broker_plugins.telemetry.recorder import Recorder

if TYPE_CHECKING:
    from pathlib import Path

    import pytest

NOON = 1_777_896_000_000_000


class Bench:
    """What is kept of positions."""

    def __init__(self, spool: Path, **options: Any) -> None:
        self.spool = spool
        self.counters = TelemetryCounters()
        self.recorder = Recorder(100, {})
        self.options = TelemetryOptions(node="n", **options)
        self.keeping = Keeping(spool, 1, self.options, self.counters)
        self.records = self.recorder.tables["positions"]

    def record(self, count: int) -> None:
        for _ in range(count):
            self.records.add(NOON, 1.0, "c", 1.0, 2.0)
        self.keeping.keep(self.recorder.room)

    def kept(self) -> list[int]:
        paths = sorted((self.spool / journal.DIRECTORY).glob("*.journal"))
        return [row[0] for path in paths for _, rows in journal.read(path).entries for row in rows]

    def marked(self) -> tuple[int, int]:
        return marks.read(self.spool / journal.DIRECTORY / "n-1.marks")["positions"]


def test_what_is_recorded_is_in_the_journal_until_it_is_in_a_segment(tmp_path: Path) -> None:
    bench = Bench(tmp_path)
    bench.record(2)
    bench.record(1)
    assert bench.kept() == [1, 2, 3]
    rows = bench.records.take()
    assert rows is not None
    bench.record(1)
    assert bench.keeping.written("positions", rows.last) == [], "the file is still written to"
    assert bench.kept() == [1, 2, 3, 4]
    assert bench.keeping.reliable
    bench.keeping.close(complete=True)
    assert list((tmp_path / journal.DIRECTORY).iterdir()) == []


def test_what_could_not_be_written_at_shutdown_stays_in_the_journal(tmp_path: Path) -> None:
    bench = Bench(tmp_path)
    bench.record(2)
    bench.keeping.close(complete=False)
    assert bench.kept() == [1, 2]
    assert not marks.in_use(tmp_path / journal.DIRECTORY / "n-1.marks")


def test_a_full_file_is_followed_by_another_and_goes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(keeping, "ROLL_BYTES", 10)
    bench = Bench(tmp_path)
    bench.record(2)
    (settled,) = bench.keeping.written("positions", 2)
    settled.unlink()
    bench.record(1)
    assert bench.kept() == [3]
    assert bench.marked() == (0, 2)


def test_a_disk_that_fails_is_said_once_and_what_was_missed_is_caught_up(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    bench = Bench(tmp_path, retry_s=1e-6)
    bench.record(1)
    write = os.write

    def full(descriptor: int, data: bytes) -> int:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "write", full)
    bench.record(1)
    bench.record(2)
    assert bench.counters.journal_failures == 2
    assert [record.levelname for record in caplog.records] == ["ERROR"]
    assert not bench.keeping.reliable
    assert bench.marked() == (4, 0)
    monkeypatch.setattr(os, "write", write)
    bench.record(1)
    assert bench.kept() == [1, 2, 3, 4, 5]
    assert bench.keeping.reliable
    assert "can be written again" in caplog.records[-1].message


def test_a_disk_that_is_slow_twice_is_left_alone_for_a_while(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    bench = Bench(tmp_path, retry_s=1e6)
    monkeypatch.setattr(keeping, "SLOW_S", -1.0)
    bench.record(1)
    assert bench.keeping.reliable
    bench.record(1)
    bench.record(1)
    assert bench.kept() == [1, 2]
    assert bench.counters.journal_failures == 1
    assert not bench.keeping.reliable
    assert bench.marked() == (3, 0)


def test_without_a_journal_only_the_marks_tell(tmp_path: Path) -> None:
    bench = Bench(tmp_path, journal="off")
    bench.record(3)
    assert bench.kept() == []
    assert bench.marked() == (3, 0)
    assert marks.in_use(tmp_path / journal.DIRECTORY / "n-1.marks")
    assert not bench.keeping.reliable
    bench.keeping.written("positions", 2)
    assert bench.marked() == (3, 2)
    bench.keeping.close(complete=True)


def test_a_spool_in_the_way_does_not_stop_anybody(tmp_path: Path) -> None:
    spool = tmp_path / "spool"
    spool.write_text("in the way")
    bench = Bench(spool, retry_s=1e-6)
    bench.record(2)
    assert bench.counters.journal_failures > 0
    assert not bench.keeping.reliable
    spool.unlink()
    deadline = time.monotonic() + 60
    while not bench.keeping.reliable and time.monotonic() < deadline:
        bench.record(1)
    assert bench.kept() == list(range(1, bench.records.made + 1))
