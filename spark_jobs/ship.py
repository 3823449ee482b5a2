"""Ships a node's closed segments to a JetStream stream, for pipelines on other machines.

Idea: every closed segment becomes one message, or several where it is too large for one. Which record numbers were
shipped is noted beside the spool, as the lake's ledger does: a few intervals. What is shipped twice after a crash is
kept out by the stream (it has the same message id) or, later, by the ledger of the lake. Where the stream was removed
and made again, everything the spool has is shipped again.

Command:

    python -m spark_jobs.ship --spool telemetry --nats nats://127.0.0.1:4222

What one sees: a line now and then, such as `shipped 42 segments, 3.1 MB`; and one where NATS is away, which is waited
for.
"""

from __future__ import annotations

import argparse
import asyncio
import io
import logging
import re
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import msgspec
import pyarrow as pa
import pyarrow.parquet as pq
from nats.js.api import StreamConfig
from nats.js.errors import APIError, NotFoundError

from broker_plugins.telemetry.schema import NewerSchemaError, SchemaError, Segment, node_of, parse_segment
from rl_policy.whole_file import write_whole
from spark_jobs.jetstream import SEGMENT_HEADER, STREAM, SUBJECTS, NatsAwayError, subject_of, with_jetstream
from spark_jobs.ledger import Coverage
from spark_jobs.spool_source import Listing

if TYPE_CHECKING:
    from collections.abc import Iterator

log = logging.getLogger(__name__)

NOTE: Final = ".shipped"
AT_ONCE: Final = 200
ROOM: Final = 1_000
"""Bytes of a message that are left for subject and headers."""
MAX_AGE_S: Final = 86_400.0
MAX_BYTES: Final = 1_073_741_824
_PLACE: Final = re.compile(r"table=[a-z_]{1,64}/hour=[0-9T-]{1,32}")


class TooLargeError(RuntimeError):
    """A segment is larger than a message may be and cannot be divided; the message says what to change."""


class _Note(msgspec.Struct):
    """What was shipped.

    Args:
        created: when the stream it went to was made.
        covered: by table, then by `node/incarnation`, intervals of record numbers.
    """

    created: str = ""
    covered: dict[str, dict[str, list[tuple[int, int]]]] = {}


class Shipper:
    """Ships what a spool has, again and again.

    Args:
        spool: the directory the telemetry plugin writes.
        servers: the NATS servers, with commas.
        stream: the stream; made if it is missing.
        max_age_s: how long a stream that is made here keeps segments.
        max_bytes: how many bytes of them.
    """

    def __init__(
        self,
        spool: Path,
        servers: str,
        stream: str = STREAM,
        max_age_s: float = MAX_AGE_S,
        max_bytes: int = MAX_BYTES,
    ) -> None:
        self.spool = spool
        self._servers = servers
        self._config = StreamConfig(
            name=stream, subjects=[f"{SUBJECTS}.>"], allow_direct=True, max_age=max_age_s, max_bytes=max_bytes
        )
        self._listing = Listing(spool)
        self._waiting: list[str] = []
        self._note = _read_note(spool / NOTE)
        self.left_out = 0
        """Segments that cannot be shipped."""

    def ship(self, patience_s: float = 10.0) -> tuple[int, int]:
        """Ship what is closed; how many segments and bytes that was.

        Raises:
            NatsAwayError: no server answers for so long.
            APIError: the stream cannot be made, or takes nothing more.
        """
        self._waiting += self._listing.fresh()
        while self._waiting:
            batch = [path for path in self._waiting[:AT_ONCE] if self._is_to_ship(path)]
            if not batch:
                del self._waiting[:AT_ONCE]
            elif sizes := self._ship_batch(batch, patience_s):
                return len(sizes), sum(sizes.values())
        return 0, 0

    def _ship_batch(self, batch: list[str], patience_s: float) -> dict[str, int]:
        """Ship some segments and note it; the bytes of each that was shipped."""
        created, sizes = with_jetstream(self._servers, lambda client, js: self._ship(client, js, batch), patience_s)
        if created == self._note.created:
            del self._waiting[:AT_ONCE]
        else:
            # Another stream than before: it has nothing of what was noted.
            self._note = _Note(created)
            self._listing = Listing(self.spool)
            self._waiting = [path for path in self._listing.fresh() if path not in batch]
        self._shipped(sizes)
        return sizes

    async def _ship(self, client: Any, jetstream: Any, batch: list[str]) -> tuple[str, dict[str, int]]:
        try:
            info = await jetstream.stream_info(self._config.name)
        except NotFoundError:
            info = await jetstream.add_stream(self._config)
        sizes = {}
        for path in batch:
            try:
                size = await _ship_one(client, jetstream, self.spool / path)
            except TooLargeError as error:
                self.left_out += 1
                log.warning("left out: %s", error)
                continue
            if size:
                sizes[path] = size
        return "" if info.created is None else info.created.isoformat(), sizes

    def _is_to_ship(self, path: str) -> bool:
        """Whether it is a segment, of whatever version, and was not shipped: who reads it says if it is too new."""
        directory, _, name = path.rpartition("/")
        if not _PLACE.fullmatch(directory):
            return False
        try:
            segment = parse_segment(name)
        except NewerSchemaError:
            return True
        except SchemaError:
            return False
        runs = self._note.covered.get(_table_of(path), {})
        return bool(Coverage(runs.get(_run_of(segment))).uncovered(segment.first, segment.last))

    def _shipped(self, paths: dict[str, int]) -> None:
        for path in paths:
            try:
                segment = parse_segment(Path(path).name)
            except SchemaError:
                continue  # a newer one is shipped again after a restart, and kept out by its message id
            runs = self._note.covered.setdefault(_table_of(path), {})
            coverage = Coverage(runs.get(_run_of(segment)))
            coverage.add(segment.first, segment.last)
            runs[_run_of(segment)] = coverage.intervals
        write_whole(self.spool / NOTE, msgspec.json.encode(self._note))


def ship(spool: Path, servers: str, stream: str = STREAM) -> tuple[int, int]:
    """Ship what is closed and was not shipped, once; how many segments and bytes that was.

    Raises:
        NatsAwayError: no server answers.
    """
    return Shipper(spool, servers, stream).ship()


def _read_note(path: Path) -> _Note:
    try:
        return msgspec.json.decode(path.read_bytes(), type=_Note)
    except FileNotFoundError:
        return _Note()
    except msgspec.DecodeError as error:
        log.warning("%s cannot be read (%s): all that the spool has is shipped again", path, error)
        return _Note()


def _table_of(path: str) -> str:
    return path.partition("/")[0].removeprefix("table=")


def _run_of(segment: Segment) -> str:
    return f"{segment.node}/{segment.incarnation}"


async def _ship_one(client: Any, jetstream: Any, path: Path) -> int:
    """Ship one segment; its bytes, 0 if it was removed meanwhile."""
    try:
        body = await asyncio.to_thread(path.read_bytes)
    except FileNotFoundError:
        return 0
    node = node_of(path.name)
    table = path.parent.parent.name.removeprefix("table=")
    most = client.max_payload - ROOM
    for name, part in [(path.name, body)] if len(body) <= most else list(pieces(path.name, body, most)):
        headers = {SEGMENT_HEADER: name, "Nats-Msg-Id": f"{table}/{name}"}
        await jetstream.publish(subject_of(table, node), part, headers=headers)
    return len(body)


def pieces(name: str, body: bytes, most: int) -> Iterator[tuple[str, bytes]]:
    """Divide a segment into smaller ones of at most so many bytes, each under the name that its records give it.

    Raises:
        TooLargeError: one record is larger than that, or it is no segment that could be divided.
    """
    remedy = f"{name} has {len(body):,} bytes, a message of this NATS server {most:,}: raise max_payload of the server"
    try:
        segment = parse_segment(name)
        records = pq.read_table(pa.BufferReader(body))
    except NewerSchemaError as error:
        raise TooLargeError(f"{remedy}, or update this program") from error
    except (SchemaError, pa.ArrowException, OSError) as error:
        raise TooLargeError(f"{remedy}; it cannot be divided: {error}") from error
    yield from _divided(segment, records, most, remedy)


def _divided(segment: Segment, records: pa.Table, most: int, remedy: str) -> Iterator[tuple[str, bytes]]:
    if records.num_rows < 2:
        raise TooLargeError(f"{remedy}; one record alone is too large")
    middle = records.num_rows // 2
    # Numbers between the two halves that are in neither were lost in the broker: they belong to the first one.
    border = records["sequence"][middle].as_py()
    for part, first, last in (
        (records.slice(0, middle), segment.first, border - 1),
        (records.slice(middle), border, segment.last),
    ):
        half = Segment(segment.node, segment.incarnation, first, last, segment.version)
        sink = io.BytesIO()
        pq.write_table(part, sink, compression="zstd")
        if sink.tell() <= most:
            yield half.name, sink.getvalue()
        else:
            yield from _divided(half, part, most, remedy)


def main(argv: list[str] | None = None) -> int:
    """Run it; see the head of this module."""
    parser = argparse.ArgumentParser(description="Ship closed telemetry segments to JetStream.")
    parser.add_argument("--spool", type=Path, required=True, help="the directory the telemetry plugin writes")
    parser.add_argument("--nats", default="nats://127.0.0.1:4222", help="the NATS servers, with commas (%(default)s)")
    parser.add_argument("--stream", default=STREAM, help="the stream, made if it is missing (%(default)s)")
    parser.add_argument(
        "--max-age-s", type=float, default=MAX_AGE_S, help="how long a stream that is made here keeps segments (a day)"
    )
    parser.add_argument("--max-bytes", type=int, default=MAX_BYTES, help="how many bytes of them (1 GiB)")
    parser.add_argument("--every-s", type=float, default=0.5, help="how often to look (0.5)")
    parser.add_argument("--once", action="store_true", help="ship what is there and end")
    arguments = parser.parse_args(argv)
    logging.basicConfig(level=logging.WARNING, format="%(message)s")
    shipper = Shipper(arguments.spool, arguments.nats, arguments.stream, arguments.max_age_s, arguments.max_bytes)
    away = False
    try:
        while True:
            try:
                segments, size = shipper.ship(10.0 if arguments.once else 0.0)
            except (NatsAwayError, APIError) as error:
                if arguments.once:
                    print(error, flush=True)
                    return 1
                if not away:
                    print(f"nothing can be shipped, trying on: {error}", flush=True)
                away = True
                time.sleep(max(arguments.every_s, 0.5))
                continue
            if away:
                print("shipping goes on", flush=True)
            away = False
            if segments:
                print(f"shipped {segments} segments, {size / 1e6:.1f} MB", flush=True)
            elif arguments.once:
                return 0
            else:
                time.sleep(arguments.every_s)
    except KeyboardInterrupt:
        return 0


if __name__ == "__main__":
    raise SystemExit(main())
