"""Connections that something else accepted, behind amqtt's reader and writer adapters."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

from amqtt.errors import NoDataError

if TYPE_CHECKING:
    from amqtt.adapters import ReaderAdapter, WriterAdapter

    from broker_plugins.engine.connection import Connection


class AdapterTransport:
    """What a connection takes for its transport: writes go to the adapter, in order, in one task."""

    def __init__(self, writer: WriterAdapter) -> None:
        self._writer = writer
        self._pending = 0
        self._wake = asyncio.Event()
        self._closing = False
        self._task = asyncio.ensure_future(self._drain())

    async def _drain(self) -> None:
        while not self._closing:
            await self._wake.wait()
            self._wake.clear()
            pending, self._pending = self._pending, 0
            if pending:
                await self._writer.drain()
        await self._writer.close()

    def write(self, data: bytes) -> None:
        """Hand bytes to the adapter."""
        self._writer.write(data)
        self._pending += len(data)
        self._wake.set()

    def close(self) -> None:
        """Close when everything is written."""
        self._closing = True
        self._wake.set()

    abort = close

    def is_closing(self) -> bool:
        """Whether it is being closed."""
        return self._closing

    def pause_reading(self) -> None:
        """The adapter is read a packet at a time: it needs no pause."""

    def resume_reading(self) -> None:
        """Likewise."""

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        """The adapter has limits of its own."""

    def get_write_buffer_size(self) -> int:
        """Bytes not yet written."""
        return self._pending

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        """What the adapter knows of its peer."""
        if name == "peername":
            return self._writer.get_peer_info()
        return self._writer.get_ssl_info() if name == "ssl_object" else default


async def serve(connection: Connection, reader: ReaderAdapter, writer: WriterAdapter) -> None:
    """Read packets from an adapter until its end; an adapter gives just as many bytes as it is asked for."""
    connection.connection_made(AdapterTransport(writer))  # type: ignore[arg-type]
    try:
        while not connection.closed:
            header = bytearray(await _read(reader, 1))
            length, shift = 0, 0
            while True:
                header += await _read(reader, 1)
                length |= (header[-1] & 0x7F) << shift
                shift += 7
                if header[-1] < 128 or shift > 21:
                    break
            connection.data_received(bytes(header))
            if length and not connection.closed:
                connection.data_received(await _read(reader, length))
    except (EOFError, NoDataError, ConnectionError, asyncio.IncompleteReadError) as error:
        connection.connection_lost(error if isinstance(error, ConnectionError) else None)


async def _read(reader: ReaderAdapter, count: int) -> bytes:
    data: bytes = await reader.read(count)
    if len(data) < count:
        raise EOFError
    return data
