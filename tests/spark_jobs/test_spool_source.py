"""Names of segments: each is handed out once, a restart goes on where the ledger says, and nothing grows."""

from __future__ import annotations

import json
import shutil
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadMaxFiles

from broker_plugins.telemetry.schema import Segment, partition
from spark_jobs.ledger import Ledger, write_ledger
from spark_jobs.spool_source import Listing, SpoolReader

if TYPE_CHECKING:
    from collections.abc import Sequence


def path_of(number: int, table: str = "publishes") -> str:
    return f"{partition(table, f'2026-01-01T{number // 5 % 24:02d}')}/{Segment('n1', 1, number, number).name}"


class Spool(RuleBasedStateMachine):
    """Segments come and go, batches are taken, and the process is killed before or after a batch counts."""

    def __init__(self) -> None:
        super().__init__()
        self.root = Path(tempfile.mkdtemp())
        self.made = self.number = 0
        self.taken: list[str] = []
        self.ledger = Ledger()
        self.offset = {"number": 0, "paths": []}
        self.restart()

    def restart(self) -> None:
        self.reader = SpoolReader(self.root / "spool", self.root / "ledger.json")

    @rule(count=st.integers(1, 4))
    def write(self, count: int) -> None:
        for _ in range(count):
            self.made += 1
            path = self.root / "spool" / path_of(self.made)
            path.parent.mkdir(parents=True, exist_ok=True)
            path.with_name(f".{path.name}").touch()
            path.with_name(f".{path.name}").rename(path)

    @rule()
    def remove_the_oldest(self) -> None:
        for number in range(1, self.made + 1):
            path = self.root / "spool" / path_of(number)
            if path.exists() and path_of(number) in self.taken:
                path.unlink()
                if not any(path.parent.iterdir()):
                    path.parent.rmdir()
                return

    def count(self, paths: Sequence[str]) -> None:
        """The batch counts: as ingestion would, the ledger first."""
        for path in paths:
            number = int(path.split("-")[-2])
            coverage = self.ledger.coverage("publishes", "n1/1")
            if coverage.uncovered(number, number):
                self.taken.append(path)
            coverage.add(number, number)
            self.ledger.covered = {"publishes": {"n1/1": coverage.intervals}}
        write_ledger(self.root / "ledger.json", self.ledger)

    @rule(most=st.integers(1, 3), killed=st.sampled_from(["", "before", "after"]))
    def batch(self, most: int, killed: str) -> None:
        offset = json.loads(json.dumps(self.reader.latestOffset(self.offset, ReadMaxFiles(most))))
        if offset == self.offset:
            return
        self.offset = offset
        if killed == "before":  # Spark has the offset in its log, and runs the batch again
            self.restart()
        (names,) = self.reader.partitions({}, offset)
        paths = [path for (path,) in self.reader.read(names)]
        assert len(paths) <= most
        assert not set(paths) & set(self.taken), "what the ledger covers is not asked for again"
        self.count(paths)
        if killed == "after":
            self.restart()

    @invariant()
    def none_is_taken_twice(self) -> None:
        assert len(self.taken) == len(set(self.taken))

    def teardown(self) -> None:
        """All are taken in the end."""
        while (offset := self.reader.latestOffset(self.offset, ReadAllAvailable())) != self.offset:
            self.offset = offset
            self.count(offset["paths"])
        shutil.rmtree(self.root)
        assert sorted(self.taken) == sorted(path_of(number + 1) for number in range(self.made))


Spool.TestCase.settings = settings(max_examples=40, stateful_step_count=20, deadline=None)
TestSpool = Spool.TestCase


def test_what_is_kept_does_not_grow_with_what_ever_was(tmp_path: Path) -> None:
    """Two thousand segments pass through a spool that keeps fifty of them."""
    reader = SpoolReader(tmp_path / "spool", tmp_path / "ledger.json")
    offset, sizes = reader.initialOffset(), []
    for number in range(1, 2_001):
        path = tmp_path / "spool" / path_of(number)
        path.parent.mkdir(parents=True, exist_ok=True)
        path.touch()
        if number > 50:
            (tmp_path / "spool" / path_of(number - 50)).unlink()
        offset = reader.latestOffset(offset, ReadMaxFiles(1_000))
        assert offset["paths"] == [path_of(number)]
        sizes.append(len(json.dumps(offset)))
        known = sum(len(each.names) for each in reader._listing._directories.values())
        assert known <= 51
    assert max(sizes) - min(sizes) <= 3, "the digits of the number"


def test_directories_that_did_not_change_are_not_listed_again(tmp_path: Path, monkeypatch) -> None:
    import os

    monkeypatch.setattr("spark_jobs.spool_source.SETTLED_NS", -1)
    for number in range(1, 101):
        path = tmp_path / path_of(number)
        path.parent.mkdir(parents=True, exist_ok=True)
        path.touch()
    for place in tmp_path.rglob("*"):
        os.utime(place, (1_000, 1_000))
    listing = Listing(tmp_path)
    assert len(listing.fresh()) == 100
    looked = listing.looked
    assert listing.fresh() == []
    assert listing.looked == looked
    (tmp_path / path_of(1)).with_name("late.parquet").touch()
    assert [name.rpartition("/")[2] for name in listing.fresh()] == ["late.parquet"]
    assert listing.looked == looked + 1


def test_what_comes_twice_while_it_runs_is_handed_out_so_that_it_is_counted(tmp_path: Path) -> None:
    ledger = Ledger(covered={"publishes": {"n1/1": [(1, 1)]}})
    write_ledger(tmp_path / "ledger.json", ledger)
    known = tmp_path / "spool" / path_of(1)
    known.parent.mkdir(parents=True)
    known.touch()
    reader = SpoolReader(tmp_path / "spool", tmp_path / "ledger.json")
    start = reader.initialOffset()
    assert reader.latestOffset(start, ReadMaxFiles(5)) == start, "taken before"
    again = tmp_path / "spool" / "table=publishes" / "hour=2026-01-09T00" / known.name
    again.parent.mkdir()
    again.touch()
    assert reader.latestOffset(start, ReadMaxFiles(5))["paths"] == [str(again.relative_to(tmp_path / "spool"))]
