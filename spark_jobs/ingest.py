"""Takes the broker's spool into the lake: every record exactly once, whatever is killed and however often.

Idea: a streaming query over the *names* of closed segments (see `spark_jobs.spool_source`). For each micro-batch the
driver looks at names and footers, puts aside what is torn or foreign, and takes of each segment the record numbers that
the ledger does not have yet; the workers read and write those (`spark_jobs.takes`), and the ledger, written last and
whole, makes them count. Nothing is dropped for being late, since the ledger never has to forget.

Command:

    python -m spark_jobs.ingest --spool telemetry --lake lake            # follow the spool until interrupted
    python -m spark_jobs.ingest --spool telemetry --lake lake --once     # take what is there and end
    python -m spark_jobs.ingest --nats nats://127.0.0.1:4222 --lake lake    # what `spark_jobs.ship` shipped

What one sees: a line for each commit, such as `commit 12: 34,012 records of 7 tables in 1.2 s, 2.1 s behind`.
"""

from __future__ import annotations

import argparse
import json
import logging
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, TypeVar

from broker_plugins.telemetry.schema import NewerSchemaError, SchemaError, parse_segment
from spark_jobs.keep import Keep, add_keep_arguments, keep_of
from spark_jobs.lake import Lake
from spark_jobs.landing import LANDED, LANDED_DDL, clear_landing, land, note_sequences
from spark_jobs.merging import FAN_IN, merge
from spark_jobs.retention import drop
from spark_jobs.segments import NotASegmentError, inspect
from spark_jobs.session import build_session
from spark_jobs.spool_source import SpoolSource
from spark_jobs.takes import SMALL, Share, Take, shared, write_share

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

    from spark_jobs.ledger import Ledger

log = logging.getLogger(__name__)

Result = TypeVar("Result")
AHEAD_S: Final = 60.0
"""How far the clock of a broker may be ahead of this one's."""
GONE: Final = "it was removed while it was read"


@dataclass(slots=True)
class Commit:
    """What one micro-batch brought.

    Args:
        number: of the commit.
        rows: by table, the records taken.
        seconds: how long it took.
        behind_s: how far the latest record lies back.
        put_aside: by path, why files were put aside.
        refused: segments of a newer schema.
    """

    number: int
    rows: dict[str, int] = field(default_factory=dict)
    seconds: float = 0.0
    behind_s: float = 0.0
    put_aside: dict[str, str] = field(default_factory=dict)
    refused: list[str] = field(default_factory=list)

    def __str__(self) -> str:
        said = f"commit {self.number}: {sum(self.rows.values()):,} records of {len(self.rows)} tables"
        said += f" in {self.seconds:.1f} s, {self.behind_s:.1f} s behind"
        if self.put_aside:
            said += f"; {len(self.put_aside)} files put aside"
        if self.refused:
            said += f"; {len(self.refused)} segments of a newer schema refused: update this program"
        return said


class Ingestion:
    """Takes batches of paths into a lake. One process at a time may do so.

    Args:
        spark: the session.
        spool: where the segments are.
        lake: where the records go.
        on_commit: told of each commit, after it was made.
        keep: what of the lake is kept; everything if it is not said.
    """

    def __init__(
        self,
        spark: SparkSession,
        spool: Path,
        lake: Lake,
        on_commit: Callable[[Commit], None] | None = None,
        keep: Keep | None = None,
    ) -> None:
        self._spark = spark
        self.spool = spool.absolute()
        self.lake = lake
        self._on_commit = on_commit
        self._keep = keep or Keep()
        self._said_newer = False
        self.checkpoint = lake.root / "checkpoint"
        lake.claim(spark)
        self.ledger: Ledger = lake.ledger()
        lake.clear_leftovers(self.ledger)
        self._move_aside()
        self._take_refused()

    def start(self, trigger_s: float | None, files_at_once: int = 1_000) -> StreamingQuery:
        """Start the streaming query.

        Args:
            trigger_s: how often to look for segments; None takes what is there and ends.
            files_at_once: how many segments a micro-batch may have.
        """
        self.spool.mkdir(parents=True, exist_ok=True)
        self._spark.dataSource.register(SpoolSource)
        names = self._spark.readStream.format("locus-spool").option("spool", str(self.spool))
        names = names.option("ledger", str(self.lake.ledger_path)).option("segmentsAtOnce", str(files_at_once))
        return self._start(names.load(), self.batch, "spool", trigger_s)

    def start_from_jetstream(
        self, servers: str, stream: str, trigger_s: float | None, segments_at_once: int = 200
    ) -> StreamingQuery:
        """Start a query over a JetStream stream instead: segments land in the spool's directory, then they are taken.

        Where the stream has dropped segments it goes on with the next one: what was in them is counted, as `skipped`
        segments and, since records are numbered, as missing ones.

        Args:
            servers: the NATS servers, with commas.
            stream: the stream that `spark_jobs.ship` fills.
            trigger_s: how often to look for segments; None takes what is there and ends.
            segments_at_once: how many segments a micro-batch may have.
        """
        from spark_jobs.jetstream_source import LocusSource

        self._spark.dataSource.register(LocusSource)
        clear_landing(self.spool, self.ledger.refused)
        shipped = self._spark.readStream.format("locus").option("servers", servers).option("stream", stream)
        shipped = shipped.option("table", "segments").option("segmentsAtOnce", str(segments_at_once))
        shipped = shipped.option("failOnDataLoss", "false")
        return self._start(shipped.load(), self.land, "jetstream", trigger_s)

    def _start(
        self, rows: DataFrame, take: Callable[[DataFrame, int], None], source: str, trigger_s: float | None
    ) -> StreamingQuery:
        self.checkpoint = self.lake.root / "checkpoint" / source
        writer = rows.writeStream.queryName("ingest").foreachBatch(take)
        writer = writer.option("checkpointLocation", str(self.checkpoint))
        if trigger_s is None:
            return writer.trigger(availableNow=True).start()
        return writer.trigger(processingTime=f"{round(trigger_s * 1000)} milliseconds").start()

    def land(self, shipped: DataFrame, number: int) -> None:
        """One micro-batch of segments from JetStream; their files are removed once they are in the lake."""
        query = self._query()
        if query == self.ledger.query and number <= self.ledger.batch:
            return
        spool = self.spool
        landed = shipped.mapInArrow(lambda batches: land(spool, batches), LANDED_DDL).collect()
        if not landed:
            return
        sequences = [int(row.stream_sequence) for row in landed]

        def note(ledger: Ledger) -> None:
            ledger.query, ledger.batch = query, number
            skipped = note_sequences(ledger, sequences)
            if skipped:
                log.warning("%d segments were dropped by the stream before they were read: let it keep more", skipped)

        self.take([Path(row.path) for row in landed], note)
        self._remove_landed(row.path for row in landed)

    def _take_refused(self) -> None:
        """Take segments that were refused, where this program is newer than the one that refused them."""
        known = [path for path in self.ledger.refused if not _is_newer(Path(path))]
        if known:
            self.ledger.refused = [path for path in self.ledger.refused if path not in known]
            self.take([Path(path) for path in known])
            self._remove_landed(known)

    def _remove_landed(self, paths: Iterable[str]) -> None:
        for path in (Path(name) for name in paths):
            if path.parent.name == LANDED and str(path) not in self.ledger.refused:
                path.unlink(missing_ok=True)

    def _query(self) -> str:
        found: str = json.loads((self.checkpoint / "metadata").read_text(encoding="utf-8"))["id"]
        return found

    def batch(self, paths: DataFrame, number: int) -> None:
        """One micro-batch; one that was taken before the process was killed is known again."""
        query = self._query()
        if query == self.ledger.query and number <= self.ledger.batch:
            return

        def note(ledger: Ledger) -> None:
            ledger.query, ledger.batch = query, number

        self.take([self.spool / row.path for row in paths.collect()], note)

    def take(self, paths: Iterable[Path], note: Callable[[Ledger], None] | None = None) -> Commit:
        """Take files in as one commit; `note` may add to the ledger that makes it."""
        began = time.monotonic()
        ordered = sorted(set(paths), key=lambda path: path.name)
        torn: dict[Path, str] = {}
        while (tried := self._try(ordered, torn)) is None:
            pass  # some could not be read: without them, others may have to bring what they have in common
        ledger, commit = tried
        if note is not None:
            note(ledger)
        self.lake.commit(ledger)
        self.ledger = ledger
        self._move_aside()
        if ledger.commit % FAN_IN == 0:
            self._put_together()
        commit.seconds = time.monotonic() - began
        if ledger.latest_us:
            commit.behind_s = time.time() - max(ledger.latest_us.values()) / 1e6
        if self._on_commit is not None:
            self._on_commit(commit)
        return commit

    def _try(self, paths: Iterable[Path], torn: dict[Path, str]) -> tuple[Ledger, Commit] | None:
        """Decide about files and write their records; the ledger that would make them count is returned.

        Args:
            paths: the files.
            torn: files that cannot be read though they look well, and why; more of them are noted here, and then
                None is returned.
        """
        ledger = self.lake.ledger()  # a fresh copy: what fails half-way must not be remembered
        ledger.refused, ledger.aside = list(self.ledger.refused), dict(self.ledger.aside)
        ledger.commit += 1
        commit = Commit(ledger.commit)
        takes: dict[str, list[Take]] = {}
        for path in paths:
            taken = self._look(path, ledger, commit, torn.get(path))
            if taken is not None:
                takes.setdefault(taken.found.table.name, []).append(taken)
        return (ledger, commit) if self._write(takes, ledger, commit, torn) else None

    def _look(self, path: Path, ledger: Ledger, commit: Commit, torn: str | None) -> Take | None:
        """Decide about one file, and note it."""
        try:
            found = inspect(path, torn)
        except FileNotFoundError:
            ledger.counts.vanished += 1
            log.warning("%s was removed before it was read: let the spool keep segments for longer", path)
            return None
        except NewerSchemaError as error:
            ledger.counts.refused += 1
            ledger.refused.append(str(path))
            commit.refused.append(str(path))
            # A newer broker closes several each second: the line of every commit says how many, this one why.
            log.log(logging.DEBUG if self._said_newer else logging.WARNING, "segments stay where they are: %s", error)
            self._said_newer = True
            return None
        except NotASegmentError as error:
            ledger.counts.quarantined += 1
            ledger.aside[str(path)] = commit.put_aside[str(path)] = str(error)
            log.warning("file put aside: %s", error)
            return None
        coverage = ledger.coverage(found.table.name, found.run)
        first, last = found.segment.first, found.segment.last
        parts = tuple(coverage.uncovered(first, last))
        coverage.add(first, last)
        ledger.covered.setdefault(found.table.name, {})[found.run] = coverage.intervals
        ledger.counts.segments += 1
        if found.latest_us is not None:
            node = found.segment.node
            # A broker whose clock ran ahead would have been heard of in the future: no window before then was shown.
            latest_us = min(found.latest_us, int((time.time() + AHEAD_S) * 1e6))
            ledger.latest_us[node] = max(latest_us, ledger.latest_us.get(node, 0))
        if not parts:
            ledger.counts.doubled += found.rows
            return None
        return Take(found, parts)

    def _write(self, takes: dict[str, list[Take]], ledger: Ledger, commit: Commit, torn: dict[Path, str]) -> bool:
        """Have the workers write the records; False if segments turned out torn, which are noted."""
        self.lake.clear_leftovers(self.lake.ledger())
        cores = self._spark.sparkContext.defaultParallelism
        shares = [
            Share(takes_of, ledger.commit, self.lake.hidden(name, ledger.commit, ledger.commit) / f"{number}.parquet")
            for name, of_table in takes.items()
            for number, takes_of in enumerate(shared(of_table, cores))
        ]
        for said in self._spread(write_share, shares, sum(take.found.rows for each in takes.values() for take in each)):
            commit.rows[said.table] = commit.rows.get(said.table, 0) + said.rows
            torn |= {Path(path): why for path, why in said.torn.items()} | {Path(path): GONE for path in said.gone}
        if not torn.keys().isdisjoint(take.found.path for each in takes.values() for take in each):
            return False
        for name, rows in commit.rows.items():
            self.lake.place(name, ledger.commit, ledger.commit)
            ledger.tables[name] = ledger.tables.get(name, 0) + rows
            ledger.counts.rows += rows
            ledger.counts.doubled += sum(take.found.rows for take in takes[name]) - rows
            ledger.counts.lost += sum(take.numbers for take in takes[name]) - rows
        return True

    def _spread(self, work: Callable[[Any], Result], parts: Sequence[Any], rows: int) -> list[Result]:
        """Do work on all workers; a little of it in no more tasks than there are cores, since each has its start."""
        if not parts:
            return []
        context = self._spark.sparkContext
        tasks = len(parts) if rows > SMALL * len(parts) else min(len(parts), context.defaultParallelism)
        done: list[Result] = context.parallelize(parts, tasks).map(work).collect()
        return done

    def _put_together(self) -> None:
        while todo := self.lake.to_merge():
            self._spread(merge, todo, 0)
            for each in todo:
                self.lake.place(each.table.name, each.first, each.last)
        if drop(self.lake, self.ledger, self._keep, time.time()):
            self.lake.commit(self.ledger)
        self.lake.remove_replaced()
        self._forget_refused()

    def _forget_refused(self) -> None:
        """Of segments that were refused, forget those that the spool no longer has: they never come."""
        kept = [path for path in self.ledger.refused if Path(path).exists()]
        gone = len(self.ledger.refused) - len(kept)
        if gone:
            log.warning("%d segments of a newer schema were removed before this program was updated", gone)
            self.ledger.refused = kept
            self.ledger.counts.vanished += gone
            self.lake.commit(self.ledger)

    def _move_aside(self) -> None:
        """Move what was put aside out of the spool, after the ledger says so: a crash in between repeats it."""
        aside = self.lake.root / "quarantine"
        left: dict[str, str] = {}
        for name, why in self.ledger.aside.items():
            path = Path(name)
            try:
                aside.mkdir(parents=True, exist_ok=True)
                path.rename(aside / f"{path.parent.parent.name}_{path.parent.name}_{path.name}")
            except FileNotFoundError:
                continue  # moved before
            except OSError as error:
                left[name] = why
                log.warning("%s cannot be moved to %s, it stays where it is: %s", path, aside, error.strerror)
        self.ledger.aside = left


def _is_newer(path: Path) -> bool:
    try:
        parse_segment(path.name)
    except NewerSchemaError:
        return True
    except SchemaError:
        return False
    return False


def main(argv: list[str] | None = None) -> int:
    """Run the job; see the head of this module."""
    parser = argparse.ArgumentParser(description="Take the broker's telemetry spool into the lake.")
    parser.add_argument("--spool", type=Path, help="the directory the telemetry plugin writes")
    parser.add_argument("--nats", help="read from JetStream at these NATS servers instead")
    parser.add_argument("--stream", default="locus-telemetry", help="the JetStream stream (%(default)s)")
    parser.add_argument("--lake", type=Path, required=True, help="the directory the tables go to")
    parser.add_argument("--once", action="store_true", help="take what is there and end")
    parser.add_argument("--trigger-s", type=float, default=1.0, help="how often to look for segments (1)")
    parser.add_argument(
        "--files-at-once", type=int, help="segments in a micro-batch at most (1000; 200 from JetStream)"
    )
    add_keep_arguments(parser)
    parser.add_argument("--master", default="local[*]", help="Spark's master; empty leaves it to spark-submit")
    arguments = parser.parse_args(argv)
    if (arguments.spool is None) == (arguments.nats is None):
        parser.error("give --spool or --nats")
    logging.basicConfig(level=logging.WARNING, format="%(message)s")
    spark = build_session("locus ingest", arguments.master or None)
    spool = arguments.spool or arguments.lake / "landing"
    ingestion = Ingestion(
        spark, spool, Lake(arguments.lake), lambda commit: print(commit, flush=True), keep_of(arguments)
    )
    trigger_s = None if arguments.once else arguments.trigger_s
    if arguments.nats is None:
        query: StreamingQuery = ingestion.start(trigger_s, arguments.files_at_once or 1_000)
    else:
        at_once = arguments.files_at_once or 200
        query = ingestion.start_from_jetstream(arguments.nats, arguments.stream, trigger_s, at_once)
    try:
        query.awaitTermination()
    except KeyboardInterrupt:
        query.stop()
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
