"""Segments in a NATS JetStream stream: one message a segment, its bytes those of the file.

    subject   locus.telemetry.<table>.<node>
    headers   Locus-Segment: the name of the file; Nats-Msg-Id: table and name, so that a stream keeps a double out

What is here talks to NATS and knows no Spark; `spark_jobs.ship` publishes, `spark_jobs.jetstream_source` reads.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, TypeVar

import nats
from nats.js.errors import NotFoundError

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable

SUBJECTS: Final = "locus.telemetry"
STREAM: Final = "locus-telemetry"
SEGMENT_HEADER: Final = "Locus-Segment"
Result = TypeVar("Result")


class StreamMissingError(RuntimeError):
    """There is no such stream; the message says how to make it."""


@dataclass(frozen=True, slots=True)
class Shipped:
    """A segment as it lies in the stream.

    Args:
        sequence: its number in the stream.
        table: the table of its records.
        name: the name of its file.
        body: the bytes of it.
    """

    sequence: int
    table: str
    name: str
    body: bytes


def subject_of(table: str, node: str) -> str:
    """The subject of a node's segments of one table."""
    return f"{SUBJECTS}.{table}.{node}"


def with_jetstream(servers: str, work: Callable[[Any, Any], Awaitable[Result]]) -> Result:
    """Connect, do something with the connection and its JetStream, and leave."""

    async def connected() -> Result:
        client = await nats.connect(servers.split(","), max_reconnect_attempts=20, reconnect_time_wait=0.5)
        try:
            return await work(client, client.jetstream(timeout=15))
        finally:
            await client.close()

    return asyncio.run(connected())


def bounds(servers: str, stream: str) -> tuple[int, int]:
    """The first and the last sequence of a stream; the last is one less than the first while it is empty.

    Raises:
        StreamMissingError: there is no such stream.
    """

    async def ask(_client: Any, jetstream: Any) -> tuple[int, int]:
        try:
            state = (await jetstream.stream_info(stream)).state
        except NotFoundError as error:
            raise StreamMissingError(
                f"there is no stream {stream!r} at {servers}: `python -m spark_jobs.ship` makes it"
            ) from error
        return max(state.first_seq, 1), state.last_seq

    return with_jetstream(servers, ask)


def read_range(servers: str, stream: str, after: int, upto: int, table: str | None) -> list[Shipped]:
    """The segments with sequences in after..upto, without after; of one table, or of all."""

    async def read(_client: Any, jetstream: Any) -> list[Shipped]:
        return [shipped async for shipped in _messages(jetstream, stream, after, upto, table)]

    return with_jetstream(servers, read)


async def _messages(jetstream: Any, stream: str, after: int, upto: int, table: str | None) -> AsyncIterator[Shipped]:
    subject = f"{SUBJECTS}.{table or '*'}.>"
    sequence = after + 1
    while sequence <= upto:
        try:
            # Without a consumer: there is no state at the server that could differ from Spark's.
            message = await jetstream.get_msg(stream, seq=sequence, subject=subject, next=True)
        except NotFoundError:
            return
        if message.seq > upto:
            return
        name = (message.headers or {}).get(SEGMENT_HEADER, "")
        yield Shipped(message.seq, message.subject.split(".")[2], name, message.data)
        sequence = message.seq + 1
