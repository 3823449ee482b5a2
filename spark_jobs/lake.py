"""The lake: what ingestion writes and every other job reads. A directory, Parquet files and one ledger.

    <lake>/ledger.json                        what has been taken, and the number of the last commit
    <lake>/tables/publishes/17-17/*.parquet   the records of commit 17; a column `commit` says so in each record
    <lake>/tables/publishes/1-16/*.parquet    those of commits 1 to 16, put together
    <lake>/metrics/…, <lake>/training/…       what the jobs make of it

A directory appears by rename and never changes. A reader takes the directories that no wider one contains, and of
their records those up to the last commit: so it sees whole commits only, and none twice, whatever happens meanwhile.
"""

from __future__ import annotations

import shutil
import time
from typing import TYPE_CHECKING, Final

import psutil
from pyspark.sql import functions as F  # noqa: N812 - as everywhere in Spark's own documentation

from broker_plugins.telemetry.schema import TABLES, table
from rl_policy.whole_file import flush_directory, write_whole
from spark_jobs.ledger import Ledger, read_ledger, write_ledger
from spark_jobs.merging import FAN_IN, WIDEST, Merge, merges
from spark_jobs.ranges import live, ranges

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import DataFrame, SparkSession

GRACE_S: Final = 900.0
"""How long a directory stays after it was put together with others: a job may be reading it."""


class AlreadyIngestingError(RuntimeError):
    """Another process ingests into the lake; the message says which."""


class Lake:
    """One lake.

    Args:
        root: its directory; made when something is written.
    """

    def __init__(self, root: Path) -> None:
        self.root = root.absolute()
        self.ledger_path = self.root / "ledger.json"

    def ledger(self) -> Ledger:
        """What has been taken so far."""
        return read_ledger(self.ledger_path)

    def directory(self, name: str) -> Path:
        """Where the records of a table are."""
        return self.root / "tables" / table(name).name

    def directories(self, name: str, after: int, upto: int) -> list[Path]:
        """Where the records of some commits are, after..upto without after; there may be others beside them."""
        return [path for first, last, path in live(self.directory(name)) if first <= upto and last > after]

    # Reading.

    def read(self, spark: SparkSession, name: str, after: int = 0, upto: int | None = None) -> DataFrame:
        """The records of a table, each once, with the column `commit`.

        Args:
            spark: the session.
            name: the table.
            after: leave out commits up to this one: what a job has seen before.
            upto: leave out later commits; the last one if not said.
        """
        ledger = self.ledger()
        last = ledger.commit if upto is None else upto
        after = max(after, ledger.dropped.get(name, 0))
        schema = table(name).ddl() + ", `commit` BIGINT"
        paths = [str(path) for path in self.directories(name, after, last)]
        if not paths:
            return spark.createDataFrame([], schema)
        records = spark.read.schema(schema).parquet(*paths)
        return records.where((F.col("commit") > after) & (F.col("commit") <= last))

    # Writing: ingestion only, one process at a time.

    def claim(self, spark: SparkSession, patience_s: float = 60.0) -> None:
        """Make sure that nobody else on this machine ingests into the lake, and say that we do.

        A driver that was killed leaves its JVM behind for a moment, which goes on writing Spark's own log until it
        notices: that one is waited for.

        Raises:
            AlreadyIngestingError: another one runs on.
        """
        note = self.root / "ingesting"
        jvm = spark.sparkContext._jvm  # noqa: SLF001 - there is no public way to ask for its number
        assert jvm is not None
        own = int(jvm.java.lang.ProcessHandle.current().pid())
        deadline = time.monotonic() + patience_s
        while note.exists() and (other := int(note.read_text(encoding="utf-8"))) != own and is_java(other):
            if time.monotonic() > deadline:
                raise AlreadyIngestingError(f"process {other} ingests into {self.root}: stop it, or use another lake")
            time.sleep(0.1)
        write_whole(note, str(own).encode())

    def clear_leftovers(self, ledger: Ledger) -> None:
        """Remove what a process that was killed left: hidden directories, and those of commits never made."""
        for name in TABLES:
            directory = self.directory(name)
            for path in directory.glob(".*"):
                shutil.rmtree(path)
            for first, _, path in ranges(directory):
                if first > ledger.commit:
                    shutil.rmtree(path)

    def hidden(self, name: str, first: int, last: int) -> Path:
        """Where the files of a directory are written until it is placed."""
        return self.directory(name) / f".{first}-{last}"

    def place(self, name: str, first: int, last: int) -> None:
        """Give a directory that is whole its name."""
        hidden = self.hidden(name, first, last)
        flush_directory(hidden)
        hidden.rename(self.directory(name) / f"{first}-{last}")
        flush_directory(hidden.parent)

    def commit(self, ledger: Ledger) -> None:
        """Make a commit: from now on readers see the records of it."""
        write_ledger(self.ledger_path, ledger)

    def to_merge(self) -> list[Merge]:
        """Directories to put together next, of all tables; empty when there are none. Ask again when it was done."""
        ledger, size = self.ledger(), FAN_IN
        while size <= min(ledger.commit, WIDEST):
            found = []
            for name in TABLES:
                kept = (ledger.dropped.get(name, 0), ledger.commit)
                found += merges(self.directory(name), table(name), kept, size)
            if found:
                return found
            size *= FAN_IN
        return []

    def remove_replaced(self, now_s: float | None = None) -> int:
        """Remove directories that were put together or dropped long enough ago; returns how many."""
        now_s = time.time() if now_s is None else now_s
        removed, dropped = 0, self.ledger().dropped
        for name in TABLES:
            directory = self.directory(name)
            kept = live(directory)
            for first, last, path in ranges(directory):
                wider = [other for a, b, other in kept if a <= first and last <= b and other != path]
                over = path if last <= dropped.get(name, 0) else wider[0] if wider else None
                if over is not None and over.stat().st_mtime < now_s - GRACE_S:
                    shutil.rmtree(path)
                    removed += 1
        return removed


def is_java(pid: int) -> bool:
    """Whether a process of this number runs, and is a JVM: numbers are used again."""
    try:
        process = psutil.Process(pid)
        return process.name() == "java" and process.status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False
