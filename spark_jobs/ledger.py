"""What has been ingested: which records of which run of which node, and up to which commit.

Records are numbered without a gap within table, node and incarnation, so what was read is a few intervals of numbers
however long a broker runs: one, unless something is missing. That is what makes ingestion exact without keeping a key
for each record: a segment that comes twice, or overlaps another, brings only the numbers not yet covered.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from typing import TYPE_CHECKING

import msgspec

from rl_policy.whole_file import write_whole

if TYPE_CHECKING:
    from pathlib import Path


class LedgerError(ValueError):
    """The ledger cannot be read; the message says which file and what to do."""


class Coverage:
    """A set of whole numbers, kept as sorted intervals that neither overlap nor touch.

    Args:
        intervals: pairs of first and last number, in any order.
    """

    __slots__ = ("_firsts", "_lasts")

    def __init__(self, intervals: list[tuple[int, int]] | None = None) -> None:
        self._firsts: list[int] = []
        self._lasts: list[int] = []
        for first, last in intervals or []:
            self.add(first, last)

    @property
    def intervals(self) -> list[tuple[int, int]]:
        """The intervals, in order."""
        return list(zip(self._firsts, self._lasts, strict=True))

    @property
    def size(self) -> int:
        """How many numbers are covered."""
        return sum(self._lasts) - sum(self._firsts) + len(self._firsts)

    def missing(self) -> int:
        """How many numbers below the largest one are not covered, counted from 1."""
        return self._lasts[-1] - self.size if self._lasts else 0

    def uncovered(self, first: int, last: int) -> list[tuple[int, int]]:
        """The parts of first..last that are not covered yet, in order."""
        parts: list[tuple[int, int]] = []
        start = first
        for at in range(bisect_left(self._lasts, first), len(self._firsts)):
            if self._firsts[at] > last:
                break
            if self._firsts[at] > start:
                parts.append((start, self._firsts[at] - 1))
            start = max(start, self._lasts[at] + 1)
        if start <= last:
            parts.append((start, last))
        return parts

    def add(self, first: int, last: int) -> None:
        """Cover first..last."""
        low = bisect_left(self._lasts, first - 1)
        high = bisect_right(self._firsts, last + 1)
        if low < high:
            first, last = min(first, self._firsts[low]), max(last, self._lasts[high - 1])
        self._firsts[low:high] = [first]
        self._lasts[low:high] = [last]


class Counts(msgspec.Struct):
    """What ingestion did since the lake was made.

    Args:
        rows: records taken.
        segments: segments they came from.
        doubled: records left out because they had been taken before.
        quarantined: files put aside because they are torn, or no segments.
        refused: segments of a newer schema, left where they are until the program is updated.
        vanished: segments that were gone before they could be read; what was in them is missing.
        skipped: likewise, segments that the JetStream stream had dropped.
        lost: numbers within segments that no record has: the broker had no room for it.
    """

    rows: int = 0
    segments: int = 0
    doubled: int = 0
    quarantined: int = 0
    refused: int = 0
    vanished: int = 0
    skipped: int = 0
    lost: int = 0


class Ledger(msgspec.Struct):
    """The state of ingestion; written whole after the records it speaks of, so a crash leaves the one before.

    Args:
        commit: number of the last commit; tables may hold leftovers of a later one, which nobody reads.
        query: the streaming query that wrote it, and its last micro-batch: one that is replayed is known again.
        batch: see `query`.
        covered: by table, then by `node/incarnation`, the intervals of records taken.
        latest_us: by node, the latest `at` seen, in microseconds since 1970.
        refused: paths of segments of a newer schema, tried again when the job starts.
        aside: by path, why a file was put aside; kept until it has been moved away.
        counts: what was done so far.
        tables: by table, records taken.
        dropped: by table, the commit up to which its records were dropped for being too old or too many.
        stream_sequence: how far the JetStream stream was read, where there is one.
    """

    commit: int = 0
    query: str = ""
    batch: int = -1
    covered: dict[str, dict[str, list[tuple[int, int]]]] = {}
    latest_us: dict[str, int] = {}
    refused: list[str] = []
    aside: dict[str, str] = {}
    counts: Counts = msgspec.field(default_factory=Counts)
    tables: dict[str, int] = {}
    dropped: dict[str, int] = {}
    stream_sequence: int = 0

    @property
    def watermark_us(self) -> int | None:
        """Up to which time every node has been heard of; None before the first record."""
        return min(self.latest_us.values(), default=None)

    def coverage(self, table: str, run: str) -> Coverage:
        """What was taken of one run (`node/incarnation`) of one table."""
        return Coverage(self.covered.get(table, {}).get(run))

    def missing(self) -> int:
        """How many records are missing below the latest of each run: lost, or not here yet."""
        return self.counts.lost + sum(
            Coverage(parts).missing() for runs in self.covered.values() for parts in runs.values()
        )


def read_ledger(path: Path) -> Ledger:
    """The ledger of a lake; a new one where there is none yet.

    Raises:
        LedgerError: there is a file and it is no ledger.
    """
    try:
        return msgspec.json.decode(path.read_bytes(), type=Ledger)
    except FileNotFoundError:
        return Ledger()
    except msgspec.DecodeError as error:
        raise LedgerError(f"{path} is no ledger: {error}; restore it, or ingest into an empty directory") from error


def write_ledger(path: Path, ledger: Ledger) -> None:
    """Put a ledger in its place, whole or not at all."""
    write_whole(path, msgspec.json.encode(ledger))
