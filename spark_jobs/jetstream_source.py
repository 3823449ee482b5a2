"""`spark.readStream.format("locus")`: telemetry from a NATS JetStream stream, by sequence.

Idea: an offset is a sequence of the stream, so any micro-batch can be read again, exactly, by anyone, in parts and in
parallel; there is no consumer at the server whose state could differ. Segments come as Arrow batches.

    spark.dataSource.register(LocusSource)
    spark.readStream.format("locus").option("servers", "nats://127.0.0.1:4222").option("table", "publishes").load()

Options: `servers`; `stream` (locus-telemetry); `table`, whose records are the rows, or `segments` for the segments as
they are (`stream_sequence`, `table`, `name`, `body`), which `spark_jobs.ingest --nats` reads; `segmentsAtOnce`, how
many a micro-batch may have (200); `parallel`, in how many parts it is read (2); `patienceS`, how long a micro-batch
that has begun waits for a NATS that is away (600): between two of them it is waited for as long as it takes;
`failOnDataLoss` (true), whether to stop where the stream no longer has what is to be read next: it was purged, reached
its limits, or was removed and made again. If false, that is logged, and reading goes on with what there is.
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
from spark_jobs.jetstream import STREAM, NatsAwayError, Shipped, StreamState, bounds, read_range, state_of
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
    patience_s: float = 600.0

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
        for name, default in (("segmentsAtOnce", "200"), ("parallel", "2"), ("patienceS", "600")):
            text = options.get(name, default)
            if not text.isdigit() or int(text) < 1:
                raise BadOptionError(f"option {name} is {text!r}: give a whole number above 0")
            numbers[name] = int(text)
        fail = options.get("failOnDataLoss", "true").lower()
        if fail not in ("true", "false"):
            raise BadOptionError(f"option failOnDataLoss is {fail!r}: give true or false")
        return cls(
            options["servers"],
            options.get("stream", STREAM),
            options["table"],
            numbers["segmentsAtOnce"],
            numbers["parallel"],
            fail == "true",
            numbers["patienceS"],
        )

    def lost(self, what: str) -> None:
        """Something that is to be read is gone.

        Raises:
            DataLossError: the query is to stop then.
        """
        if self.fail_on_data_loss:
            raise DataLossError(f"{what}: let it keep more, or go on without them: failOnDataLoss=false")
        log.warning("%s", what)


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
    """The rows of one part of the stream.

    Raises:
        DataLossError: the stream dropped some of it since it was decided to read it.
    """
    wanted = None if options.table == SEGMENTS else options.table
    found = read_range(options.servers, options.stream, span.after, span.upto, wanted, options.patience_s)
    if span.upto > span.after:
        # Asked afterwards: what the stream had then, it had while it was read.
        now = state_of(options.servers, options.stream, options.patience_s)
        if now.first > span.after + 1:
            options.lost(f"of the stream {options.stream}, sequences from {span.after + 1} on were dropped unread")
    if options.table == SEGMENTS:
        for shipped in found:
            columns = [[shipped.sequence], [shipped.table], [shipped.name], [shipped.body]]
            types = [pa.int64(), pa.string(), pa.string(), pa.binary()]
            arrays = [pa.array(column, kind) for column, kind in zip(columns, types, strict=True)]
            yield pa.RecordBatch.from_arrays(arrays, ["stream_sequence", "table", "name", "body"])
        return
    of_table = table(options.table)
    for shipped in found:
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
    """Reads the stream from offset to offset. An offset says how far, and in which stream: one may be made again."""

    def __init__(self, options: Options) -> None:
        self._options = options
        self._target: int | None = None
        self._away = False

    def _state(self) -> StreamState:
        return state_of(self._options.servers, self._options.stream, self._options.patience_s)

    def initialOffset(self) -> dict[str, Any]:  # noqa: N802 - Spark's name
        """Before the first segment that the stream still has."""
        state = self._state()
        return {"sequence": state.first - 1, "created": state.created}

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802 - Spark's name
        """So many segments in a micro-batch."""
        return ReadMaxFiles(self._options.segments_at_once)

    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:  # noqa: N802 - Spark's name
        """How far to read next: what there is, within the limit; nothing more while NATS is away.

        Raises:
            DataLossError: the stream has dropped what is next.
        """
        options = self._options
        try:
            state = state_of(options.servers, options.stream, 0.0)
        except NatsAwayError as error:
            if not self._away:
                self._away = True
                log.warning("%s; what it has is read when it is back", error)
            return start
        self._away = False
        after = int(start["sequence"])
        if _made_again(start, state):
            options.lost(
                f"the stream {options.stream} was made again at {state.created}, of the one before sequences from "
                f"{after + 1} on were not read"
            )
            after = state.first - 1
        elif after + 1 < state.first:
            options.lost(f"the stream {options.stream} begins at {state.first}, sequences from {after + 1} on are gone")
        last = state.last if self._target is None else min(state.last, self._target)
        if not isinstance(limit, ReadAllAvailable):
            most = limit.max_files if isinstance(limit, ReadMaxFiles) else options.segments_at_once
            last = min(last, max(after, state.first - 1) + most)
        return {"sequence": max(last, after), "created": state.created}

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802 - Spark's name
        """Remember where the stream ends now."""
        self._target = self._state().last

    def reportLatestOffset(self) -> dict[str, Any] | None:  # noqa: N802 - Spark's name
        """The end of the stream, for Spark's progress; unknown while NATS is away."""
        try:
            state = state_of(self._options.servers, self._options.stream, 0.0)
        except NatsAwayError:
            return None
        return {"sequence": state.last, "created": state.created}

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> Sequence[InputPartition]:
        """Parts of what lies between two offsets."""
        after, upto = int(start["sequence"]), int(end["sequence"])
        if start.get("created") != end.get("created") and (start.get("created") or after > upto):
            after = 0  # another stream: from its beginning
        return spans(after, upto, self._options.parallel)

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """The rows of one part."""
        assert isinstance(partition, Span)
        return read_span(self._options, partition)


def _made_again(start: dict[str, Any], state: StreamState) -> bool:
    """Whether an offset is of another stream than there is now; an old offset does not say, but may lie beyond it."""
    created = start.get("created")
    return (bool(created) and created != state.created) or int(start["sequence"]) > state.last
