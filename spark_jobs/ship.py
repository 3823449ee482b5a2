"""Ships a node's closed segments to a JetStream stream, for pipelines on other machines.

Idea: every closed segment becomes one message. What was shipped is noted beside the spool; a segment shipped twice
after a crash is kept out by the stream (it has the same message id) or, later, by the ledger of the lake.

Command:

    python -m spark_jobs.ship --spool telemetry --nats nats://127.0.0.1:4222

What one sees: a line now and then, such as `shipped 42 segments, 3.1 MB`.
"""

from __future__ import annotations

import argparse
import asyncio
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from nats.js.api import StreamConfig
from nats.js.errors import NotFoundError

from broker_plugins.telemetry.schema import SchemaError, check_node
from spark_jobs.jetstream import SEGMENT_HEADER, STREAM, SUBJECTS, subject_of, with_jetstream
from spark_jobs.ledger import write_whole

if TYPE_CHECKING:
    from collections.abc import Iterable

NOTE: Final = ".shipped"
AT_ONCE: Final = 200


class TooLargeError(RuntimeError):
    """A segment is larger than a message may be; the message says what to change."""


def unshipped(spool: Path) -> list[Path]:
    """The closed segments that are not noted as shipped, oldest first."""
    note = spool / NOTE
    noted = set(note.read_text(encoding="utf-8").splitlines()) if note.exists() else set()
    found = [path for path in spool.glob("table=*/hour=*/*.parquet") if not path.name.startswith(".")]
    fresh = [path for path in found if str(path.relative_to(spool)) not in noted]
    return sorted(fresh, key=lambda path: (path.parent.name, path.name))


def ship(spool: Path, servers: str, stream: str = STREAM) -> tuple[int, int]:
    """Ship what is closed; how many segments and bytes that was.

    Raises:
        TooLargeError: a segment does not fit into a message of this server.
    """
    paths = unshipped(spool)[:AT_ONCE]
    if not paths:
        return 0, 0

    async def work(client: Any, jetstream: Any) -> int:
        await _ensure(jetstream, stream)
        total = 0
        for path in paths:
            total += await _ship_one(client, jetstream, path)
        return total

    shipped = with_jetstream(servers, work)
    _note(spool, paths)
    return len(paths), shipped


async def _ensure(jetstream: Any, stream: str) -> None:
    try:
        await jetstream.stream_info(stream)
    except NotFoundError:
        await jetstream.add_stream(StreamConfig(name=stream, subjects=[f"{SUBJECTS}.>"], allow_direct=True))


async def _ship_one(client: Any, jetstream: Any, path: Path) -> int:
    try:
        body = await asyncio.to_thread(path.read_bytes)
        node = check_node(path.name.partition("-")[0])  # whatever its version: who reads it says whether it is too new
    except (FileNotFoundError, SchemaError):
        return 0  # removed meanwhile, or not a segment of ours
    if len(body) > client.max_payload - 1_000:
        raise TooLargeError(
            f"{path.name} has {len(body):,} bytes, this NATS server takes {client.max_payload:,}: raise max_payload of "
            "the server, or lower roll_records of the telemetry plugin"
        )
    table = path.parent.parent.name.removeprefix("table=")
    headers = {SEGMENT_HEADER: path.name, "Nats-Msg-Id": f"{table}/{path.name}"}
    await jetstream.publish(subject_of(table, node), body, headers=headers)
    return len(body)


def _note(spool: Path, paths: Iterable[Path]) -> None:
    """Note what was shipped, and forget what the spool no longer has."""
    note = spool / NOTE
    noted = note.read_text(encoding="utf-8").splitlines() if note.exists() else []
    kept = {name for name in noted if (spool / name).exists()} | {str(path.relative_to(spool)) for path in paths}
    write_whole(note, ("\n".join(sorted(kept)) + "\n").encode())


def main(argv: list[str] | None = None) -> int:
    """Run it; see the head of this module."""
    parser = argparse.ArgumentParser(description="Ship closed telemetry segments to JetStream.")
    parser.add_argument("--spool", type=Path, required=True, help="the directory the telemetry plugin writes")
    parser.add_argument("--nats", default="nats://127.0.0.1:4222", help="the NATS servers, with commas (%(default)s)")
    parser.add_argument("--stream", default=STREAM, help="the stream, made if it is missing (%(default)s)")
    parser.add_argument("--every-s", type=float, default=0.5, help="how often to look (0.5)")
    parser.add_argument("--once", action="store_true", help="ship what is there and end")
    arguments = parser.parse_args(argv)
    try:
        while True:
            segments, size = ship(arguments.spool, arguments.nats, arguments.stream)
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
