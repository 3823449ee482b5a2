"""The side of a connection that faces the socket: when it is read, what is written, how it ends.

Writes of one turn of the event loop leave together. A client that does not take what it is sent stops being written to;
its messages then wait in its session, within bounds. While something has to be waited for (authentication, a guard that
asks elsewhere, a packet with thousands of filters) this client's next packets wait, and nobody else's.
"""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING, Any, cast

from broker_plugins.engine.errors import ProtocolViolation
from broker_plugins.engine.parser import Parser
from broker_plugins.engine.wheel import ticks_of
from broker_plugins.engine.work import begin

if TYPE_CHECKING:
    from collections import deque
    from collections.abc import Awaitable, Generator

    from broker_plugins.engine.codec import Will
    from broker_plugins.engine.connection import Acknowledgement, Connection
    from broker_plugins.engine.engine import Engine
    from broker_plugins.engine.session import Session

log = logging.getLogger(__name__)

CONTROL_BACKLOG_BYTES = 262_144
"""A client that lets this much of what it is sent lie, acknowledgements too, is not read from until it takes some."""
FAN_OUT_BUDGET = 8_000
"""Deliveries one chunk of one client may cause before others get their turn."""


class Link(asyncio.Protocol):
    """The protocol of one transport; what its packets mean is known to `Connection`.

    Args:
        engine: the engine it belongs to.
        listener: the name of the listener it came in by.
    """

    __slots__ = (
        "acks_waiting",
        "awaiting",
        "closed",
        "engine",
        "fan_out",
        "host_session",
        "keep_alive_ticks",
        "level",
        "listener",
        "out",
        "owed_acks",
        "parser",
        "reading",
        "seen",
        "session",
        "slot",
        "transport",
        "will",
        "writable",
    )

    def __init__(self, engine: Engine, listener: str) -> None:
        self.engine = engine
        self.listener = listener
        self.parser = Parser(cast("Connection", self), engine.options.max_packet_bytes)
        self.transport: asyncio.Transport | None = None
        self.session: Session | None = None
        self.level = 0
        self.will: Will | None = None
        self.out: list[bytes] = []
        self.seen = 0
        self.slot = 0
        """The tick at which the wheel looks at this connection."""
        self.keep_alive_ticks = 0
        self.acks_waiting = 0
        self.owed_acks: deque[Acknowledgement] | None = None
        """Acknowledgements from the first one on that waits for more than the store."""
        self.fan_out = 0
        self.awaiting = False
        self.reading = True
        self.writable = True
        self.closed = False
        self.host_session: Any = None
        """What the host's plugins know this client by until it has its session."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """A client connected."""
        self.transport = transport  # type: ignore[assignment]  # a stream transport
        engine = self.engine
        if not engine.admits(self.listener):
            engine.counters.connections_refused += 1
            self.closed = True
            transport.abort()  # type: ignore[attr-defined]
            return
        self.transport.set_write_buffer_limits(high=engine.options.max_write_buffer_bytes)  # type: ignore[union-attr]
        engine.counters.connections += 1
        engine.admit(self)
        self.seen = engine.wheel.now
        self.keep_alive_ticks = ticks_of(engine.options.connect_timeout_s)
        engine.wheel.watch(self, self.keep_alive_ticks)

    def data_received(self, data: bytes) -> None:
        """Bytes arrived."""
        if self.closed:
            return
        engine = self.engine
        self.seen = engine.wheel.now
        engine.counters.bytes_received += len(data)
        self.fan_out = 0
        engine.gathering = engine.loop_gathers_writes
        try:
            self.parser.feed(data)
        except ProtocolViolation as violation:
            self.violate(violation)
        if engine.gathering:
            engine.gathering = False
            engine.flush()

    def connection_lost(self, exc: Exception | None) -> None:
        """The transport is gone."""
        self.close(f"connection lost: {exc}" if exc else "connection closed without DISCONNECT")

    def eof_received(self) -> bool:
        """The client will send nothing more: that is the end of it."""
        return False

    def pause_writing(self) -> None:
        """The socket takes no more: messages wait in the session from now on."""
        self.writable = False
        if self.session is not None:
            self.session.out = None

    def resume_writing(self) -> None:
        """The socket takes more again."""
        self.writable = True
        self._read_if_free()
        if self.session is not None and self.session.connection is self:
            self.session.out = self.out
            self.session.pump()

    # Writing.

    def touch(self) -> None:
        """There is something to write at the end of this turn."""
        self.engine.touched(self)

    def send(self, packet: bytes) -> None:
        """Write a packet at the end of this turn, whether the client keeps up or not."""
        if self.closed:
            return
        if not self.out:
            self.engine.touched(self)
        self.out.append(packet)

    def flush(self) -> None:
        """Hand everything over to the socket."""
        out = self.out
        if not out or self.closed:
            return
        engine = self.engine
        if engine.unsaid:
            engine.tell()
        data = out[0] if len(out) == 1 else b"".join(out)
        out.clear()
        engine.counters.bytes_sent += len(data)
        transport = self.transport
        assert transport is not None
        transport.write(data)
        if not self.writable and transport.get_write_buffer_size() > CONTROL_BACKLOG_BYTES * 2:
            self._stop_reading()

    def _stop_reading(self) -> None:
        if self.reading and not self.closed:
            self.reading = False
            assert self.transport is not None
            self.transport.pause_reading()

    def _read_if_free(self) -> None:
        if (
            not self.reading
            and not self.closed
            and not self.awaiting
            and self.writable
            and self.acks_waiting <= self.engine.options.max_unacknowledged
        ):
            self.reading = True
            assert self.transport is not None
            self.transport.resume_reading()

    # Waiting.

    def _do(self, work: Generator[Awaitable[Any] | None, Any, None]) -> None:
        """Do something that may take several turns; the next packets of this client wait for its end."""
        self.parser.paused = True
        if begin(self.engine.loop, work, self._done):
            self.parser.paused = self.closed
        else:
            self.awaiting = True
            self._stop_reading()

    def _done(self) -> None:
        self.awaiting = False
        self._go_on()

    def _go_on(self) -> None:
        if self.closed:
            return
        self.fan_out = 0
        try:
            self.parser.resume()
        except ProtocolViolation as violation:
            self.violate(violation)
        if not self.parser.paused:
            self._read_if_free()

    def _count_fan_out(self, receivers: int) -> None:
        self.fan_out += receivers
        if self.fan_out > FAN_OUT_BUDGET and not self.parser.paused:
            self.parser.paused = True
            self.awaiting = True
            self._stop_reading()
            self.engine.loop.call_soon(self._done)

    # The end.

    @property
    def peer(self) -> tuple[str, int] | None:
        """Address and port of the client, as long as it is connected."""
        peer = self.transport.get_extra_info("peername") if self.transport is not None else None
        return (str(peer[0]), int(peer[1])) if isinstance(peer, tuple) else None

    @property
    def name(self) -> str:
        """How the log calls this connection."""
        address = self.peer
        peer = f"{address[0]}:{address[1]}" if address else "unknown peer"
        return f"client {self.session.client_id} at {peer}" if self.session is not None else peer

    def ticks_left(self, now: int) -> int:
        """In how many ticks this connection is overdue."""
        return max(0, self.seen + self.keep_alive_ticks - now)

    def overdue(self) -> None:
        """Nothing was heard for too long."""
        if self.session is None and self.level == 0:
            self.engine.counters.connect_timeouts += 1
            self.close("no CONNECT in time", abort=True)
        elif not self.awaiting:
            self.engine.counters.keep_alive_timeouts += 1
            log.info("%s: silent for 1.5 times its keep-alive, disconnected", self.name)
            self.close("keep-alive", abort=True)
        else:
            self.engine.wheel.watch(self, self.keep_alive_ticks)

    def violate(self, violation: ProtocolViolation) -> None:
        """Close because the client broke the protocol [MQTT-4.8.0-1]."""
        self.engine.counters.violations += 1
        log.warning("%s: %s; connection closed", self.name, violation)
        self.close(str(violation))

    def close(self, reason: str, abort: bool = False) -> None:
        """End the connection, now and once; `reason` is empty where the client said DISCONNECT."""
        if self.closed:
            return
        self.flush()
        self.closed = True
        self.parser.stop()
        self.host_session = None
        engine = self.engine
        engine.dismiss(self)
        engine.wheel.forget(self)
        transport = self.transport
        if transport is not None:
            if abort:
                transport.abort()
            else:
                transport.close()
                # A client that does not take the last bytes must not keep the socket open.
                if transport.get_write_buffer_size():
                    engine.loop.call_later(engine.options.connect_timeout_s, transport.abort)
        session = self.session
        if session is not None and session.connection is self:
            engine.disconnected(self, session, reason)
