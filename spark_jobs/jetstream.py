"""Segments in a NATS JetStream stream: one message a segment, its bytes those of the file.

    subject   locus.telemetry.<table>.<node>
    headers   Locus-Segment: the name of the file; Nats-Msg-Id: table and name, so that a stream keeps a double out

What is here talks to NATS and knows no Spark; `spark_jobs.ship` publishes, `spark_jobs.jetstream_source` reads.
"""

from __future__ import annotations

import asyncio
import logging
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, TypeVar

import nats
from nats import errors as nats_errors
from nats.js.errors import NoStreamResponseError, NotFoundError, ServiceUnavailableError

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable

SUBJECTS: Final = "locus.telemetry"
STREAM: Final = "locus-telemetry"
SEGMENT_HEADER: Final = "Locus-Segment"
Result = TypeVar("Result")
log = logging.getLogger(__name__)

_AWAY: Final = (
    OSError,
    TimeoutError,
    nats_errors.NoServersError,
    nats_errors.NoRespondersError,
    nats_errors.TimeoutError,
    nats_errors.StaleConnectionError,
    nats_errors.ConnectionClosedError,
    nats_errors.ConnectionReconnectingError,
    NoStreamResponseError,
    ServiceUnavailableError,
)
"""What is raised while a server is away, comes back, or has not read its streams yet: it passes."""


class NatsAwayError(ConnectionError):
    """No NATS server answers; the message says where. It may be tried again."""


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


def with_jetstream(servers: str, work: Callable[[Any, Any], Awaitable[Result]], patience_s: float = 10.0) -> Result:
    """Connect, do something with the connection and its JetStream, and leave; begin again while NATS is away.

    Args:
        servers: the NATS servers, with commas.
        work: what to do. It may be begun more than once.
        patience_s: how long to go on trying while no server answers.

    Raises:
        NatsAwayError: none did for so long.
    """
    deadline = time.monotonic() + patience_s
    said = False
    while True:
        try:
            return asyncio.run(_connected(servers, work))
        except _AWAY as error:
            if time.monotonic() >= deadline:
                raise NatsAwayError(f"NATS at {servers} does not answer: {error or type(error).__name__}") from error
            if not said:
                said = True
                log.warning("NATS at %s does not answer (%r); trying for %.0f s", servers, error, patience_s)
            time.sleep(min(0.5, max(0.0, deadline - time.monotonic())))


async def _connected(servers: str, work: Callable[[Any, Any], Awaitable[Result]]) -> Result:
    client = await nats.connect(
        servers.split(","),
        allow_reconnect=False,  # to begin again is up to the caller
        max_reconnect_attempts=1,  # counts for the first connection too, 60 times two seconds if not said
        reconnect_time_wait=0.1,
        connect_timeout=5,
        error_cb=_quiet,
    )
    try:
        return await work(client, client.jetstream(timeout=5))
    finally:
        await client.close()


async def _quiet(_error: Exception) -> None:
    """What matters is raised where it is waited for."""


@dataclass(frozen=True, slots=True)
class StreamState:
    """What a stream has.

    Args:
        first: its first sequence.
        last: its last sequence; one less than the first while it is empty.
        created: when it was made: one that was removed and made again begins anew at 1.
    """

    first: int
    last: int
    created: str


def state_of(servers: str, stream: str, patience_s: float = 10.0) -> StreamState:
    """What a stream has now.

    Raises:
        StreamMissingError: there is no such stream.
        NatsAwayError: no server answers.
    """

    async def ask(_client: Any, jetstream: Any) -> StreamState:
        try:
            info = await jetstream.stream_info(stream)
        except NotFoundError as error:
            raise StreamMissingError(
                f"there is no stream {stream!r} at {servers}: `python -m spark_jobs.ship` makes it"
            ) from error
        created = "" if info.created is None else info.created.isoformat()
        return StreamState(max(info.state.first_seq, 1), info.state.last_seq, created)

    return with_jetstream(servers, ask, patience_s)


def bounds(servers: str, stream: str) -> tuple[int, int]:
    """The first and the last sequence of a stream; the last is one less than the first while it is empty.

    Raises:
        StreamMissingError: there is no such stream.
        NatsAwayError: no server answers.
    """
    state = state_of(servers, stream)
    return state.first, state.last


def read_range(
    servers: str, stream: str, after: int, upto: int, table: str | None, patience_s: float = 10.0
) -> list[Shipped]:
    """The segments with sequences in after..upto, without after, that the stream still has; of one table, or of all.

    Raises:
        NatsAwayError: no server answers.
    """

    async def read(_client: Any, jetstream: Any) -> list[Shipped]:
        return [shipped async for shipped in _messages(jetstream, stream, after, upto, table)]

    return with_jetstream(servers, read, patience_s)


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
