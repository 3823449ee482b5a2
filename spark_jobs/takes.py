"""What a worker does for ingestion: read some segments, keep the records to take, write one file of the lake.

Knows no session: a share of the work goes in, a file and a word about it come out. It is all Arrow, from the segment's
pages to the file's, which is several times faster than rows through the JVM and back.
"""

from __future__ import annotations

import os
from dataclasses import dataclass, field
from functools import reduce
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from broker_plugins.telemetry.schema import Kind, Table
from spark_jobs.segments import ARROW_TYPES, Found, is_not_its_fault

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence
    from pathlib import Path

COMMIT: Final = pa.field("commit", pa.int64())
ROWS_PER_GROUP: Final = 500_000
ROWS_PER_FILE: Final = 2_000_000
COUNTING: Final = ("sequence", "at", "message")
REPEATED: Final = ("incarnation", "weight")
SMALL: Final = 50_000
"""Fewer records of a table are written by one core into one file."""


@dataclass(frozen=True, slots=True)
class Take:
    """A segment, and which of its records to take.

    Args:
        found: the segment.
        parts: intervals of record numbers, in order; the whole of it if that is one interval from first to last.
    """

    found: Found
    parts: tuple[tuple[int, int], ...]

    @property
    def whole(self) -> bool:
        """Whether nothing of it was taken before."""
        return self.parts == ((self.found.segment.first, self.found.segment.last),)

    @property
    def numbers(self) -> int:
        """How many record numbers are to take; there are fewer records where the broker lost some."""
        return sum(last - first + 1 for first, last in self.parts)

    def records(self) -> pa.Table:
        """The records to take; a field younger than the segment is null in it.

        Raises:
            FileNotFoundError: it is gone.
            OSError: its pages are torn, or it cannot be read for now.
        """
        with pq.ParquetFile(self.found.path) as file:
            records = file.read(use_threads=False)
        if not self.whole:
            numbers = records["sequence"]
            inside = (pc.and_(pc.greater_equal(numbers, a), pc.less_equal(numbers, b)) for a, b in self.parts)
            records = records.filter(reduce(pc.or_, inside))
        present = set(records.column_names)
        columns = [
            records[field.name] if field.name in present else pa.nulls(records.num_rows, ARROW_TYPES[field.kind])
            for field in self.found.table.fields
        ]
        return pa.table(columns, names=[field.name for field in self.found.table.fields])


@dataclass(frozen=True, slots=True)
class Share:
    """Work for one worker: segments of one table into one file.

    Args:
        takes: the segments.
        commit: the commit they are for.
        path: the file; a worker that is tried again overwrites it.
    """

    takes: tuple[Take, ...]
    commit: int
    path: Path


@dataclass(slots=True)
class Written:
    """What a worker says of its share.

    Args:
        table: the table.
        rows: records in the file.
        torn: by path, why a segment cannot be read; then the file is not to be used.
        gone: segments that are not there any more; likewise.
    """

    table: str
    rows: int = 0
    torn: dict[str, str] = field(default_factory=dict)
    gone: list[str] = field(default_factory=list)


def write_file(path: Path, of_table: Table, parts: Iterable[pa.Table]) -> int:
    """Write records as one file of the lake and flush it to disk; how many there were."""
    schema = pa.schema([*(pa.field(each.name, ARROW_TYPES[each.kind]) for each in of_table.fields), COMMIT])
    rows = 0
    names = [each.name for each in of_table.fields]
    few = {Kind.STRING, Kind.INT}
    options: dict[str, Any] = {
        "compression": "zstd",
        # The others have as many values as records, or nearly: a dictionary of them costs much and is given up.
        "use_dictionary": [each.name for each in of_table.fields if each.kind in few or each.name in REPEATED],
        # What counts up takes less time and less room as differences.
        "column_encoding": {name: "DELTA_BINARY_PACKED" for name in COUNTING if name in names},
    }
    options["use_dictionary"].append(COMMIT.name)
    waiting: list[pa.Table] = []
    with path.open("wb") as file:
        with pq.ParquetWriter(file, schema, **options) as writer:
            for part in parts:
                waiting.append(part)
                rows += part.num_rows
                if sum(each.num_rows for each in waiting) >= ROWS_PER_GROUP:
                    writer.write_table(pa.concat_tables(waiting), ROWS_PER_GROUP)
                    waiting = []
            if waiting:
                writer.write_table(pa.concat_tables(waiting), ROWS_PER_GROUP)
        file.flush()
        os.fsync(file.fileno())
    return rows


def write_share(share: Share) -> Written:
    """Do one share of the work."""
    of_table = share.takes[0].found.table
    said = Written(of_table.name)

    def parts() -> Iterator[pa.Table]:
        for take in share.takes:
            try:
                records = take.records()
            except FileNotFoundError:
                said.gone.append(str(take.found.path))
            except (pa.ArrowException, OSError) as error:
                if is_not_its_fault(error):
                    raise
                said.torn[str(take.found.path)] = f"{take.found.path.name} cannot be read, it is torn: {error}"
            else:
                yield records.append_column(COMMIT, pa.repeat(pa.scalar(share.commit, pa.int64()), records.num_rows))

    share.path.parent.mkdir(parents=True, exist_ok=True)
    said.rows = write_file(share.path, of_table, parts())
    return said


def shared(takes: Sequence[Take], workers: int) -> list[tuple[Take, ...]]:
    """Divide the segments of one table into shares, in their order: few where there is little, else for all workers."""
    rows = sum(take.found.rows for take in takes)
    most = min(max(SMALL, -(-rows // workers)), ROWS_PER_FILE)
    shares: list[list[Take]] = [[]]
    filled = 0
    for take in takes:
        if filled and filled + take.found.rows > most:
            shares.append([])
            filled = 0
        shares[-1].append(take)
        filled += take.found.rows
    return [tuple(share) for share in shares]
