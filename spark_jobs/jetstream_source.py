"""`spark.readStream.format("locus")`: telemetry from a NATS JetStream stream, by sequence.

Idea: an offset is a sequence of the stream, so any micro-batch can be read again, exactly, by anyone, in parts and in
parallel; there is no consumer at the server whose state could differ. Segments come as Arrow batches.

    spark.dataSource.register(LocusSource)
    spark.readStream.format("locus").option("servers", "nats://127.0.0.1:4222").option("table", "publishes").load()

Options: `servers`; `stream` (locus-telemetry); `table`, whose records are the rows, or `segments` for the segments as
they are (`stream_sequence`, `table`, `name`, `body`), which `spark_jobs.ingest --nats` reads; `segmentsAtOnce`, how
many a micro-batch may have (200); `parallel`, in how many parts it is read (2); `failOnDataLoss` (true), whether to
stop where the stream no longer has what is to be read next.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql.datasource import DataSource, DataSourceReader, DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadLimit, ReadMaxFiles, SupportsTriggerAvailableNow

from broker_plugins.telemetry.schema import Table, parse_segment, table
from spark_jobs.jetstream import STREAM, Shipped, bounds, read_range
from spark_jobs.segments import ARROW_TYPES

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from pyspark.sql.types import StructType

log = logging.getLogger(__name__)

SEGMENTS: Final = "segments"
_SEGMENTS_DDL: Final = "stream_sequence BIGINT, `table` STRING, name STRING, body BINARY"


class BadOptionError(ValueError):
    """An option of the source cannot be used; the message says which and what it may be."""


class DataLossError(RuntimeError):
    """The stream no longer has what is to be read next; the message says what is missing and how to go on."""


@dataclass(frozen=True, slots=True)
class Options:
    """The options of the source, read."""

    servers: str
    stream: str
    table: str
    segments_at_once: int
    parallel: int
    fail_on_data_loss: bool

    @classmethod
    def of(cls, options: Any) -> Options:
        """Read them as Spark gives them.

        Raises:
            BadOptionError: one is missing or cannot be read.
        """
        for name in ("servers", "table"):
            if not options.get(name):
                raise BadOptionError(f'option {name} is missing: .option("{name}", …)')
        if options["table"] != SEGMENTS:
            table(options["table"])
        numbers = {}
        for name, default in (("segmentsAtOnce", "200"), ("parallel", "2")):
            text = options.get(name, default)
            if not text.isdigit() or int(text) < 1:
                raise BadOptionError(f"option {name} is {text!r}: give a whole number above 0")
            numbers[name] = int(text)
        fail = options.get("failOnDataLoss", "true").lower()
        if fail not in ("true", "false"):
            raise BadOptionError(f"option failOnDataLoss is {fail!r}: give true or false")
        stream = options.get("stream", STREAM)
        return cls(
            options["servers"],
            stream,
            options["table"],
            numbers["segmentsAtOnce"],
            numbers["parallel"],
            fail == "true",
        )


class Span(InputPartition):
    """A part of the stream: the sequences after..upto, without after."""

    def __init__(self, after: int, upto: int) -> None:
        super().__init__((after, upto))
        self.after = after
        self.upto = upto


def spans(after: int, upto: int, parts: int) -> list[Span]:
    """Divide sequences into parts of about equal size."""
    edges = [after + (upto - after) * part // parts for part in range(parts + 1)]
    return [Span(low, high) for low, high in pairwise(edges) if high > low]


def batches_of(shipped: Shipped, of_table: Table) -> Iterator[pa.RecordBatch]:
    """The records of a segment; a field younger than the segment is null in it.

    Raises:
        NewerSchemaError: the segment was written by a newer broker. The query stops, and goes on when it is updated.
    """
    parse_segment(shipped.name)
    records = pq.read_table(pa.BufferReader(shipped.body))
    present = set(records.column_names)
    columns = []
    for field in of_table.fields:
        kind = ARROW_TYPES[field.kind]
        columns.append(records[field.name].cast(kind) if field.name in present else pa.nulls(records.num_rows, kind))
    yield from pa.table(columns, names=[field.name for field in of_table.fields]).to_batches()


def read_span(options: Options, span: Span) -> Iterator[pa.RecordBatch]:
    """The rows of one part of the stream."""
    if options.table == SEGMENTS:
        for shipped in read_range(options.servers, options.stream, span.after, span.upto, None):
            columns = [[shipped.sequence], [shipped.table], [shipped.name], [shipped.body]]
            types = [pa.int64(), pa.string(), pa.string(), pa.binary()]
            arrays = [pa.array(column, kind) for column, kind in zip(columns, types, strict=True)]
            yield pa.RecordBatch.from_arrays(arrays, ["stream_sequence", "table", "name", "body"])
        return
    of_table = table(options.table)
    for shipped in read_range(options.servers, options.stream, span.after, span.upto, options.table):
        yield from batches_of(shipped, of_table)


class LocusSource(DataSource):
    """Telemetry in JetStream, as a stream or as a table of what is there now."""

    @classmethod
    def name(cls) -> str:
        """What stands in `format(…)`."""
        return "locus"

    def schema(self) -> str:
        """The columns of the table asked for."""
        name = Options.of(self.options).table
        return _SEGMENTS_DDL if name == SEGMENTS else table(name).ddl()

    def streamReader(self, schema: StructType) -> LocusStreamReader:  # noqa: ARG002, N802 - Spark's name and arguments
        """A stream of it."""
        return LocusStreamReader(Options.of(self.options))

    def reader(self, schema: StructType) -> LocusReader:  # noqa: ARG002 - Spark's arguments
        """What is there now."""
        return LocusReader(Options.of(self.options))


class LocusReader(DataSourceReader):
    """Reads all that the stream has."""

    def __init__(self, options: Options) -> None:
        self._options = options

    def partitions(self) -> Sequence[InputPartition]:
        """Parts of the stream as it is now."""
        first, last = bounds(self._options.servers, self._options.stream)
        return spans(first - 1, last, self._options.parallel) or [Span(0, 0)]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """The rows of one part."""
        assert isinstance(partition, Span)
        return read_span(self._options, partition)


class LocusStreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Reads the stream from offset to offset."""

    def __init__(self, options: Options) -> None:
        self._options = options
        self._target: int | None = None

    def initialOffset(self) -> dict[str, int]:  # noqa: N802 - Spark's name
        """Before the first segment that the stream still has."""
        return {"sequence": bounds(self._options.servers, self._options.stream)[0] - 1}

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802 - Spark's name
        """So many segments in a micro-batch."""
        return ReadMaxFiles(self._options.segments_at_once)

    def latestOffset(self, start: dict[str, int], limit: ReadLimit) -> dict[str, int]:  # noqa: N802 - Spark's name
        """How far to read next: what there is, within the limit.

        Raises:
            DataLossError: the stream has dropped what is next.
        """
        first, last = bounds(self._options.servers, self._options.stream)
        after = int(start["sequence"])
        if after + 1 < first:
            lost = f"the stream {self._options.stream} begins at {first}, sequences from {after + 1} on are gone"
            if self._options.fail_on_data_loss:
                raise DataLossError(f"{lost}: let it keep more, or go on without them: failOnDataLoss=false")
            log.warning("%s", lost)
        if self._target is not None:
            last = min(last, self._target)
        if isinstance(limit, ReadMaxFiles):
            last = min(last, max(after, first - 1) + limit.max_files)
        elif not isinstance(limit, ReadAllAvailable):
            last = min(last, max(after, first - 1) + self._options.segments_at_once)
        return {"sequence": max(last, after)}

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802 - Spark's name
        """Remember where the stream ends now."""
        self._target = bounds(self._options.servers, self._options.stream)[1]

    def reportLatestOffset(self) -> dict[str, int]:  # noqa: N802 - Spark's name
        """The end of the stream, for Spark's progress."""
        return {"sequence": bounds(self._options.servers, self._options.stream)[1]}

    def partitions(self, start: dict[str, int], end: dict[str, int]) -> Sequence[InputPartition]:
        """Parts of what lies between two offsets."""
        return spans(int(start["sequence"]), int(end["sequence"]), self._options.parallel)

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """The rows of one part."""
        assert isinstance(partition, Span)
        return read_span(self._options, partition)
