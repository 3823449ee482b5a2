"""`spark.readStream.format("locus-spool")`: the names of a spool's closed segments, with no list of all that ever were.

Idea: an offset carries the names of its micro-batch, so a batch that is run again has the same ones; and which segments
have been taken is what the lake's ledger knows anyway, from the record numbers in their names. Spark's own file source
keeps every name for good and lists every directory each time; here the checkpoint is as long after a year as after a
minute, and directories that did not change are not looked at again.

Options: `spool`; `ledger`, the lake's; `segmentsAtOnce`, how many a micro-batch may have (1000).
"""

from __future__ import annotations

import os
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from pyspark.sql.datasource import DataSource, DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadLimit, ReadMaxFiles, SupportsTriggerAvailableNow

from broker_plugins.telemetry.schema import SchemaError, parse_segment
from spark_jobs.ledger import Ledger, read_ledger

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from pyspark.sql.types import StructType

AT_ONCE: Final = 1_000
SETTLED_NS: Final = 3_000_000_000
"""A directory that changed so shortly before it was listed may have changed again without its time telling so."""


@dataclass(slots=True)
class _Directory:
    """A directory as it was when it was listed last."""

    changed_ns: int = 0
    listed_ns: int = 0
    names: frozenset[str] = frozenset()
    below: tuple[str, ...] = ()


@dataclass(slots=True)
class Listing:
    """What a spool has that was not handed out before. It remembers what is in the spool now, and nothing else.

    Args:
        spool: the spool.
        looked: how many directories were listed so far.
    """

    spool: Path
    looked: int = 0
    _directories: dict[str, _Directory] = field(default_factory=dict)

    def fresh(self) -> list[str]:
        """The paths below the spool, in the order of their hours, that are there now and were not last time."""
        found: list[str] = []
        stack, known = [""], set[str]()
        while stack:
            place = stack.pop()
            known.add(place)
            directory = self._directories.setdefault(place, _Directory())
            found += self._changed(place, directory)
            stack += directory.below
        for gone in self._directories.keys() - known:
            del self._directories[gone]
        return sorted(found, key=lambda path: (path.partition(os.sep)[2], path))

    def _changed(self, place: str, directory: _Directory) -> list[str]:
        path = self.spool / place
        now_ns = time.time_ns()
        try:
            changed_ns = path.stat().st_mtime_ns
            if changed_ns == directory.changed_ns and directory.listed_ns - changed_ns > SETTLED_NS:
                return []
            with os.scandir(path) as listing:
                entries = [entry for entry in listing if entry.name[0] not in "._"]  # hidden: still being written
        except FileNotFoundError:
            directory.names, directory.below = frozenset(), ()
            return []
        self.looked += 1
        names = frozenset(entry.name for entry in entries if entry.name.endswith(".parquet"))
        fresh = names - directory.names
        directory.changed_ns, directory.listed_ns, directory.names = changed_ns, now_ns, names
        directory.below = tuple(
            os.path.join(place, entry.name)  # noqa: PTH118 - a string: there are many, and they are only compared
            for entry in entries
            if entry.name not in names and entry.is_dir()
        )
        return [os.path.join(place, name) for name in fresh]  # noqa: PTH118 - as above


def is_taken(ledger: Ledger, path: str) -> bool:
    """Whether the lake has every record that the name of a segment tells of."""
    name = path.rpartition(os.sep)[2]
    table = path.partition(os.sep)[0].removeprefix("table=")
    try:
        segment = parse_segment(name)
    except SchemaError:
        return False
    coverage = ledger.coverage(table, f"{segment.node}/{segment.incarnation}")
    return not coverage.uncovered(segment.first, segment.last)


class Names(InputPartition):
    """The names of one micro-batch."""

    def __init__(self, paths: list[str]) -> None:
        super().__init__(tuple(paths))
        self.paths = paths


class SpoolSource(DataSource):
    """The paths of closed segments below a spool, as a stream."""

    @classmethod
    def name(cls) -> str:
        """What stands in `format(…)`."""
        return "locus-spool"

    def schema(self) -> str:
        """One column: the path below the spool."""
        return "path STRING"

    def streamReader(self, schema: StructType) -> SpoolReader:  # noqa: ARG002, N802 - Spark's name and arguments
        """A stream of them."""
        at_once = int(self.options.get("segmentsAtOnce", str(AT_ONCE)))
        return SpoolReader(Path(self.options["spool"]), Path(self.options["ledger"]), at_once)


class SpoolReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Hands names out, each once while it runs; after a restart, those that the ledger does not cover.

    Args:
        spool: the spool.
        ledger: the ledger of the lake that they go to.
        at_once: how many names a micro-batch may have.
    """

    def __init__(self, spool: Path, ledger: Path, at_once: int = AT_ONCE) -> None:
        self._ledger_path = ledger
        self._at_once = at_once
        self._listing = Listing(spool)
        self._waiting: list[str] | None = None
        self._no_more = False

    def initialOffset(self) -> dict[str, Any]:  # noqa: N802 - Spark's name
        """Before the first micro-batch."""
        return {"number": 0, "paths": []}

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802 - Spark's name
        """So many segments in a micro-batch."""
        return ReadMaxFiles(self._at_once)

    def _look(self) -> list[str]:
        if self._waiting is None:
            # What a process before this one took is known by its numbers. What comes twice from now on is handed out
            # twice, so that it is counted.
            ledger = read_ledger(self._ledger_path)
            known = {*ledger.refused, *ledger.aside}
            spool = self._listing.spool
            fresh = self._listing.fresh()
            self._waiting = [path for path in fresh if not is_taken(ledger, path) and str(spool / path) not in known]
        elif not self._no_more:
            self._waiting += self._listing.fresh()
        return self._waiting

    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:  # noqa: N802 - Spark's name
        """The next micro-batch; the one before if there is nothing new."""
        # After a restart Spark runs the last batch again before it asks: its names may have been looked at before that.
        before = set(start["paths"])
        waiting = [path for path in self._look() if path not in before]
        most = limit.max_files if isinstance(limit, ReadMaxFiles) else self._at_once
        if isinstance(limit, ReadAllAvailable):
            most = len(waiting)
        self._waiting = waiting[most:]
        if not waiting:
            return start
        return {"number": int(start["number"]) + 1, "paths": waiting[:most]}

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802 - Spark's name
        """What is there now, and no more."""
        self._look()
        self._no_more = True

    def reportLatestOffset(self) -> dict[str, Any] | None:  # noqa: N802 - Spark's name
        """Nothing to compare with: how far a spool reaches is not a number."""
        return None

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> Sequence[InputPartition]:  # noqa: ARG002 - as Spark asks
        """The names that an offset carries."""
        return [Names(end["paths"])]

    def read(self, partition: InputPartition) -> Iterator[tuple[str]]:
        """The names as rows."""
        assert isinstance(partition, Names)
        return ((path,) for path in partition.paths)
