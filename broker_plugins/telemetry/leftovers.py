"""What a broker that was killed left in its journal: the next one turns it into segments, every record once."""

from __future__ import annotations

import logging
from collections import defaultdict
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from broker_plugins.telemetry import journal, marks
from broker_plugins.telemetry.schema import TABLES, SchemaError, parse_segment
from broker_plugins.telemetry.spool import Rows, Spool

if TYPE_CHECKING:
    from pathlib import Path

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Loss:
    """Records that were made and are nowhere.

    Args:
        incarnation: in which run.
        table: their table.
        first: the sequence of the first one.
        last: the sequence of the last one.
    """

    incarnation: int
    table: str
    first: int
    last: int


@dataclass(slots=True)
class Recovered:
    """What was found."""

    records: int = 0
    segments: int = 0
    torn: int = 0
    """Journal files whose end was cut off."""
    losses: list[Loss] = field(default_factory=list)


def recover(directory: Path, node: str, incarnation: int, recovered: Recovered) -> None:
    """Turn what earlier runs of a node left into segments, then remove it.

    What a segment has already is not written again. Runs that go on are left alone, and so are files nobody can read.

    Args:
        directory: the spool.
        node: the broker's name.
        incarnation: the run that does it.
        recovered: where it is counted.

    Raises:
        OSError: a segment could not be written, or a journal not be read; what was done is done, and another call goes
            on from there.
    """
    place = directory / journal.DIRECTORY
    if not place.is_dir():
        return
    runs: defaultdict[int, list[tuple[int, Path]]] = defaultdict(list)
    for path in place.iterdir():
        name = journal.parse_name(path.name)
        run = marks.incarnation_of(path.name, node)
        if name is not None and name.node == node:
            runs[name.incarnation].append((name.number, path))
        elif run is not None:
            runs[run]  # a page without a journal
    runs.pop(incarnation, None)
    for run, files in sorted(runs.items()):
        page = place / f"{node}-{run}.marks"
        if not marks.in_use(page):
            _recover_run(Spool(directory, node, run), [path for _, path in sorted(files)], page, recovered)


def _recover_run(spool: Spool, files: list[Path], page: Path, recovered: Recovered) -> None:
    marked = marks.read(page)
    known = {name: max(marked.get(name, (0, 0))[1], last) for name, last in _in_segments(spool).items()}
    whole = True
    for path in files:
        try:
            contents = journal.read(path)
        except journal.JournalError as error:
            log.warning("telemetry of a broker that was killed is left where it is: %s", error)
            whole = False
            continue
        if contents.torn:
            recovered.torn += 1
            log.warning("the end of %s was cut off when its broker was killed; nobody had been told of it", path)
        for table, rows in _by_table(contents).items():
            _recover_rows(spool, table, [row for row in rows if row[0] > known[table]], known, recovered)
        path.unlink()
    for table, (made, _) in marked.items():
        if whole and made > known[table]:
            recovered.losses.append(Loss(spool.incarnation, table, known[table] + 1, made))
    if whole:
        page.unlink(missing_ok=True)


def _by_table(contents: journal.Contents) -> dict[str, list[list[Any]]]:
    rows: defaultdict[str, list[list[Any]]] = defaultdict(list)
    for table, some in contents.entries:
        if table in TABLES:
            rows[table] += some
    return rows


def _recover_rows(spool: Spool, table: str, rows: list[list[Any]], known: dict[str, int], recovered: Recovered) -> None:
    if not rows:
        return
    try:
        recovered.segments += len(spool.write_rows(Rows(table, rows)))
        recovered.records += len(rows)
    except (ValueError, TypeError, NotImplementedError):
        log.exception("%d records of %s cannot be written and are lost", len(rows), table)
        recovered.losses.append(Loss(spool.incarnation, table, rows[0][0], rows[-1][0]))
    for row in rows:
        if row[0] > known[table] + 1:
            recovered.losses.append(Loss(spool.incarnation, table, known[table] + 1, row[0] - 1))
        known[table] = row[0]


def _in_segments(spool: Spool) -> dict[str, int]:
    """Of every table, the sequence of the last record of a run that is in a segment."""
    last = dict.fromkeys(TABLES, 0)
    for path in spool.directory.glob(f"table=*/hour=*/{spool.node}-{spool.incarnation}-*.parquet"):
        try:
            segment = parse_segment(path.name)
        except SchemaError:
            continue
        table = path.parent.parent.name.removeprefix("table=")
        if table in last and (segment.node, segment.incarnation) == (spool.node, spool.incarnation):
            last[table] = max(last[table], segment.last)
    return last
