"""Segments out of a JetStream stream become files again, below a directory that is read like a spool.

It is what a worker does: a segment goes from the stream to its file without passing through the driver. What a message
says of itself is not believed: a name that is no segment's becomes one that ingestion puts aside.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

import pyarrow as pa

from broker_plugins.telemetry.schema import NewerSchemaError, SchemaError, parse_segment
from rl_policy.whole_file import write_whole

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence
    from pathlib import Path

    from spark_jobs.ledger import Ledger

LANDED: Final = "hour=landed"
"""The directory below a table's in which segments from JetStream lie until they are in the lake."""
LANDED_DDL: Final = "stream_sequence BIGINT, path STRING"
_TABLE: Final = re.compile(r"[a-z_]{1,64}")


def landing_path(spool: Path, table: str, name: str, sequence: int) -> Path:
    """Where a segment lands, whatever it says its table and its name are."""
    try:
        parse_segment(name)
    except NewerSchemaError:
        pass  # refused by its name, and kept
    except SchemaError:
        name = f"unnamed-{sequence}.parquet"
    return spool / f"table={table if _TABLE.fullmatch(table) else 'unknown'}" / LANDED / name


def land(spool: Path, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Write segments as files; where they are."""
    for batch in batches:
        paths = []
        for row in batch.to_pylist():
            path = landing_path(spool, row["table"], row["name"], row["stream_sequence"])
            write_whole(path, row["body"])
            paths.append(str(path))
        yield pa.RecordBatch.from_pydict({"stream_sequence": batch["stream_sequence"], "path": pa.array(paths)})


def clear_landing(spool: Path, keep: Sequence[str]) -> int:
    """Remove what a process that was killed left, but for what is kept; how many files that was."""
    left = [path for path in spool.glob(f"table=*/{LANDED}/*") if str(path) not in keep]
    for path in left:
        path.unlink(missing_ok=True)
    return len(left)


def note_sequences(ledger: Ledger, sequences: Sequence[int]) -> int:
    """Note how far the stream was read, and count what it no longer had; how many segments that was.

    Where the sequences begin anew, the stream was made again, or Spark's checkpoint removed: what lies before them is
    not known.
    """
    first, last = min(sequences), max(sequences)
    before = ledger.stream_sequence if 0 < ledger.stream_sequence < first else first - 1
    skipped = last - before - len(set(sequences))
    ledger.stream_sequence = last
    ledger.counts.skipped += skipped
    return skipped
