"""Looks at one file of the spool and says what it is: a segment to read, one of a newer schema, or something else.

Only the name and the footer are read, so it is cheap enough to be done for every file before Spark touches it; a file
that would make a Spark job fail never gets there.
"""

from __future__ import annotations

import errno
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa
import pyarrow.parquet as pq

from broker_plugins.telemetry.schema import Kind, NewerSchemaError, SchemaError, Segment, Table, parse_segment, table

if TYPE_CHECKING:
    from pathlib import Path

ARROW_TYPES: Final = {
    Kind.STRING: pa.string(),
    Kind.INT: pa.int32(),
    Kind.LONG: pa.int64(),
    Kind.DOUBLE: pa.float64(),
    Kind.BOOLEAN: pa.bool_(),
    Kind.TIME: pa.timestamp("us", tz="UTC"),
}
"""How the kinds of the telemetry schema are written in Parquet."""

_NOT_ITS_FAULT: Final = frozenset(
    {errno.EACCES, errno.EPERM, errno.EMFILE, errno.ENFILE, errno.ENOMEM, errno.ESTALE, errno.EINTR}
)


class NotASegmentError(ValueError):
    """A file is torn, or it is no segment; the message says why."""


@dataclass(frozen=True, slots=True)
class Found:
    """A segment that can be read.

    Args:
        path: where it is.
        table: the table of its records.
        segment: what its name tells.
        rows: how many records are in it.
        latest_us: the `at` of its latest record, in microseconds since 1970; None if the footer does not say.
    """

    path: Path
    table: Table
    segment: Segment
    rows: int
    latest_us: int | None

    @property
    def run(self) -> str:
        """The run of the node it is of."""
        return f"{self.segment.node}/{self.segment.incarnation}"


def inspect(path: Path, torn: str | None = None) -> Found:
    """Read the name and the footer of a file.

    Args:
        path: the file.
        torn: why what lies before the footer cannot be read, where somebody has tried.

    Raises:
        FileNotFoundError: it is gone.
        NewerSchemaError: it was written by a newer broker.
        NotASegmentError: it is torn, or no segment.
        OSError: it cannot be read for now, which says nothing about the file.
    """
    try:
        segment = parse_segment(path.name)
        of_table = table(_table_name(path))
    except NewerSchemaError:
        raise
    except SchemaError as error:
        raise NotASegmentError(str(error)) from error
    try:
        footer = pq.read_metadata(path)
    except FileNotFoundError:
        raise
    except (pa.ArrowException, OSError, ValueError) as error:
        if is_not_its_fault(error):
            raise
        raise NotASegmentError(f"{path.name} cannot be read, it is torn: {error}") from error
    if torn is not None:
        raise NotASegmentError(torn)
    _check_columns(path, of_table, segment, footer.schema.to_arrow_schema())
    span = segment.last - segment.first + 1
    if footer.num_rows > span:
        raise NotASegmentError(f"{path.name} holds {footer.num_rows} records, its name says {span} at most")
    low, high = bounds(footer, "sequence")
    if (low is not None and low < segment.first) or (high is not None and high > segment.last):
        raise NotASegmentError(f"{path.name} holds records {low} to {high}, not those of its name")
    latest = bounds(footer, "at")[1]
    return Found(path, of_table, segment, footer.num_rows, None if latest is None else int(latest.timestamp() * 1e6))


def is_not_its_fault(error: Exception) -> bool:
    """Whether reading failed for the machine's sake, not the file's: that is no reason to put it aside."""
    return isinstance(error, OSError) and error.errno in _NOT_ITS_FAULT


def _table_name(path: Path) -> str:
    directory = path.parent.parent.name
    if not directory.startswith("table="):
        raise SchemaError(f"{path} does not lie in <spool>/table=<name>/hour=<hour>/")
    return directory.removeprefix("table=")


def _check_columns(path: Path, of_table: Table, segment: Segment, columns: pa.Schema) -> None:
    present = {column.name: column.type for column in columns}
    for field in of_table.fields:
        found = present.pop(field.name, None)
        if found is None:
            if field.since > segment.version:
                continue  # younger than the segment: null in it
            raise NotASegmentError(f"{path.name} has no column {field.name}, which {of_table.name} has")
        if found != ARROW_TYPES[field.kind]:
            raise NotASegmentError(f"{path.name} has {field.name} as {found}, not as {ARROW_TYPES[field.kind]}")
    if present:
        raise NotASegmentError(f"{path.name} has columns that {of_table.name} has not: {', '.join(present)}")


def bounds(footer: pq.FileMetaData, column: str) -> tuple[Any, Any]:
    """The least and the largest value of a column by the footer's statistics; None where it has none."""
    lows: list[Any] = []
    highs: list[Any] = []
    names = footer.schema.names
    at = names.index(column)
    for group in range(footer.num_row_groups):
        statistics = footer.row_group(group).column(at).statistics
        if statistics is None or not statistics.has_min_max:
            return None, None
        lows.append(statistics.min)
        highs.append(statistics.max)
    return min(lows, default=None), max(highs, default=None)
