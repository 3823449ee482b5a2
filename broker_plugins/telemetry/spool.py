"""The spool: a directory of Parquet segments that only ever grows by renaming and shrinks by whole files.

Knows no broker and no event loop: columns go in, files come out. Whoever calls it does so from a thread of its own.
"""

from __future__ import annotations

import errno
import logging
import re
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from broker_plugins.telemetry.schema import (
    COMMON,
    VERSION,
    Field,
    Kind,
    SchemaError,
    Segment,
    hour_of,
    node_of,
    parse_segment,
    table,
)

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence
    from pathlib import Path

    Columns = Mapping[str, Sequence[Any]]

log = logging.getLogger(__name__)

HOUR_US: Final = 3_600_000_000
TEMPORARY_AGE_S: Final = 3_600.0
"""A hidden file this old belongs to nobody any more: segments are written in one go."""
VALUES_AT_ONCE: Final = 1_000
BREATH_S: Final = 0.000_1
WORTH_SQUEEZING: Final = 2_000
"""Records from which zstd saves more than it costs: for few, setting it up takes a third of the whole work."""
NO_PYARROW: Final = "telemetry writes Parquet and needs pyarrow: pip install 'locus-mqtt[telemetry]'"

_HOUR = re.compile(r"hour=\d{4}-\d\d-\d\dT\d\d")


class SpoolError(RuntimeError):
    """The spool cannot be used as it is configured; the message says why."""


@dataclass(frozen=True, slots=True)
class Batch:
    """Records of one table, in columns and in the order of their sequences.

    Args:
        table: their table.
        columns: every field of the table but `node` and `incarnation`, all equally long; `at` in microseconds.
    """

    table: str
    columns: Columns

    def __len__(self) -> int:
        return len(self.columns["sequence"])


@dataclass(frozen=True, slots=True)
class Rows:
    """Records of one table as they were made, in the order of their sequences.

    Args:
        table: their table.
        rows: the values of each, in the order of the schema from `sequence` on; fewer where an older broker made them.
    """

    table: str
    rows: Sequence[Sequence[Any]]

    def __len__(self) -> int:
        return len(self.rows)

    @property
    def last(self) -> int:
        """The sequence of the last one."""
        return int(self.rows[-1][0])


def by_hour(at_us: Sequence[int]) -> Iterator[tuple[int, int]]:
    """Cut times into runs that lie in one hour each: `start, end` of every run."""
    if at_us and min(at_us) // HOUR_US == max(at_us) // HOUR_US:
        yield 0, len(at_us)
        return
    start = 0
    for number in range(1, len(at_us) + 1):
        if number == len(at_us) or at_us[number] // HOUR_US != at_us[start] // HOUR_US:
            yield start, number
            start = number


class Spool:
    """One broker's segments.

    Args:
        directory: where they go; made when the first one is written.
        node: the broker's name.
        incarnation: which run of it this is.

    Raises:
        SpoolError: pyarrow is not installed.
    """

    def __init__(self, directory: Path, node: str, incarnation: int) -> None:
        try:
            import pyarrow as pa
            import pyarrow.parquet as pq
        except ImportError as error:
            raise SpoolError(NO_PYARROW) from error
        self.directory = directory
        self.node = node
        self.incarnation = incarnation
        self._pa, self._pq = pa, pq
        self._types = {
            Kind.STRING: pa.string(),
            Kind.INT: pa.int32(),
            Kind.LONG: pa.int64(),
            Kind.DOUBLE: pa.float64(),
            Kind.BOOLEAN: pa.bool_(),
            Kind.TIME: pa.timestamp("us", tz="UTC"),
        }

    def warm_up(self) -> None:
        """Let pyarrow load what it loads when it is first used, which takes a tenth of a second: now, not later."""
        self._pa.array([""])

    def write(self, batch: Batch) -> list[Path]:
        """Write records as segments, one for each hour they lie in; returns their paths.

        Raises:
            OSError: they could not be written. Hours before the failure are there, the others leave nothing behind.
        """
        return [self._write(batch, start, end) for start, end in by_hour(batch.columns["at"])]

    def write_rows(self, rows: Rows) -> list[Path]:
        """The same for records that are not in columns yet."""
        names = [field.name for field in table(rows.table).fields[2:]]
        columns: list[list[Any]] = [[] for _ in rows.rows[0]]
        for at in range(0, len(rows), VALUES_AT_ONCE):
            for column, values in zip(columns, zip(*rows.rows[at : at + VALUES_AT_ONCE], strict=True), strict=True):
                column.extend(values)
            if at:
                time.sleep(BREATH_S)
        return self.write(Batch(rows.table, dict(zip(names, columns, strict=False))))

    def _write(self, batch: Batch, start: int, end: int) -> Path:
        pa = self._pa
        columns = batch.columns
        sequences = columns["sequence"]
        segment = Segment(self.node, self.incarnation, sequences[start], sequences[end - 1])
        directory = self.directory / f"table={batch.table}" / f"hour={hour_of(columns['at'][start])}"
        directory.mkdir(parents=True, exist_ok=True)
        arrays = [pa.repeat(pa.scalar(self.node), end - start), pa.repeat(pa.scalar(self.incarnation), end - start)]
        fields = [self._field(field, field.name in columns) for field in table(batch.table).fields]
        for field in fields[2:]:
            values = columns.get(field.name)
            arrays.append(
                pa.nulls(end - start, field.type) if values is None else self._array(values, start, end, field.type)
            )
        metadata = {
            "locus.schema": str(VERSION),
            "locus.table": batch.table,
            "locus.node": self.node,
            "locus.incarnation": str(self.incarnation),
            "locus.first": str(segment.first),
            "locus.last": str(segment.last),
        }
        path = directory / segment.name
        temporary = directory / f".{segment.name}"
        try:
            records = pa.table(arrays, schema=pa.schema(fields, metadata=metadata))
            self._pq.write_table(
                records,
                temporary,
                compression="zstd" if end - start >= WORTH_SQUEEZING else "snappy",
                use_dictionary=[field.name for field in table(batch.table).fields if field.kind is Kind.STRING],
                write_statistics=["sequence", "at"],
            )
            temporary.rename(path)
        except BaseException:
            temporary.unlink(missing_ok=True)
            raise
        return path

    def _array(self, values: Sequence[Any], start: int, end: int, kind: Any) -> Any:
        """A column, made some values at a time: the interpreter is the broker's again in between."""
        parts = []
        for at in range(start, end, VALUES_AT_ONCE):
            parts.append(self._pa.array(values[at : min(at + VALUES_AT_ONCE, end)], type=kind))
            if at + VALUES_AT_ONCE < end:
                time.sleep(BREATH_S)
        return self._pa.chunked_array(parts, type=kind)

    def _field(self, field: Field, known: bool) -> Any:
        """A column; one that an older broker did not know yet is null."""
        constant = field.name in ("node", "incarnation")
        return self._pa.field(field.name, self._types[field.kind], nullable=field.nullable or not (known or constant))

    def segments(self) -> list[tuple[float, int, Path]]:
        """Every segment of this node, oldest first, with when it was closed and its bytes."""
        found: list[tuple[float, int, Path]] = []
        for path in self.directory.glob("table=*/hour=*/*.parquet"):
            try:
                if parse_segment(path.name).node != self.node:
                    continue
                stat = path.stat()
            except (SchemaError, FileNotFoundError):
                continue  # not ours, or somebody else removed it
            found.append((stat.st_mtime, stat.st_size, path))
        found.sort()
        return found

    def retain(self, now_s: float, max_age_s: float, max_bytes: int) -> tuple[int, int]:
        """Remove this node's segments that are too old, then the oldest while all take too many bytes.

        Returns:
            How many were removed, and how many bytes are left.
        """
        segments = self.segments()
        left = sum(size for _, size, _ in segments)
        removed = 0
        for closed, size, path in segments:
            if closed > now_s - max_age_s and left <= max_bytes:
                break
            path.unlink(missing_ok=True)
            removed += 1
            left -= size
        self._tidy(now_s)
        return removed, left

    def _tidy(self, now_s: float) -> None:
        """Remove what a broker that was killed left half written, and hours that are empty and over."""
        this_hour = f"hour={hour_of(int(now_s * 1e6))}"
        for directory in self.directory.glob("table=*/hour=*"):
            for path in directory.glob(f".{self.node}-*.parquet"):
                try:
                    if node_of(path.name[1:]) != self.node:
                        continue
                    if path.stat().st_mtime < now_s - TEMPORARY_AGE_S:
                        path.unlink()
                except (FileNotFoundError, SchemaError):
                    continue
            if _HOUR.fullmatch(directory.name) and directory.name < this_hour:
                try:
                    directory.rmdir()
                except OSError as error:
                    if error.errno not in (errno.ENOTEMPTY, errno.EEXIST, errno.ENOENT):
                        raise


assert [field.name for field in COMMON[:2]] == ["node", "incarnation"], "both are written as constants"
