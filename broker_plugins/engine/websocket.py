"""MQTT over WebSocket: the same connection behind another transport (MQTT 3.1.1, section 6).

The WebSocket protocol is the sans-I/O core of the `websockets` library; this module moves bytes between it, the
socket and the connection, without a task.
"""

from __future__ import annotations

import asyncio
import contextlib
from typing import TYPE_CHECKING, Any

from websockets.exceptions import ProtocolError
from websockets.frames import Frame, Opcode
from websockets.http11 import Request
from websockets.protocol import OPEN
from websockets.server import ServerProtocol
from websockets.typing import Subprotocol

from broker_plugins.engine.errors import ProtocolViolation

if TYPE_CHECKING:
    from broker_plugins.engine.connection import Connection


class WebSocketTransport:
    """What a connection takes for its transport."""

    __slots__ = ("_protocol", "_socket")

    def __init__(self, socket: asyncio.Transport, protocol: WebSocketProtocol) -> None:
        self._socket = socket
        self._protocol = protocol

    def write(self, data: bytes) -> None:
        """Send bytes as one binary frame [MQTT-6.0.0-1]."""
        self._protocol.send(data)

    def close(self) -> None:
        """Say goodbye and close."""
        self._protocol.finish()

    def __getattr__(self, name: str) -> Any:
        # abort, pause_reading, resume_reading, get_extra_info, set_write_buffer_limits, get_write_buffer_size
        return getattr(self._socket, name)


class WebSocketProtocol(asyncio.Protocol):
    """One WebSocket client.

    Args:
        connection: the MQTT connection in it.
    """

    __slots__ = ("_connection", "_text", "_transport", "_ws")

    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        self._transport: asyncio.Transport | None = None
        self._text = False
        # A frame may carry many packets or a part of one [MQTT-6.0.0-2].
        limit = max(connection.engine.options.max_packet_bytes, 1_048_576)
        self._ws = ServerProtocol(subprotocols=[Subprotocol("mqtt")], max_size=limit)  # [MQTT-6.0.0-4]

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """A client connected."""
        self._transport = transport  # type: ignore[assignment]  # a stream transport
        self._connection.connection_made(WebSocketTransport(self._transport, self))  # type: ignore[arg-type]

    def data_received(self, data: bytes) -> None:
        """Bytes arrived."""
        if self._connection.closed:
            return
        self._ws.receive_data(data)
        for event in self._ws.events_received():
            if isinstance(event, Request):
                self._ws.send_response(self._ws.accept(event))
            elif isinstance(event, Frame):
                self._take(event)
            if self._connection.closed:
                return
        self._flush()
        if self._ws.close_expected():
            self._connection.close("WebSocket closed without DISCONNECT")

    def _take(self, frame: Frame) -> None:
        if frame.opcode in (Opcode.BINARY, Opcode.TEXT):
            self._text = frame.opcode is Opcode.TEXT
        if frame.opcode not in (Opcode.BINARY, Opcode.TEXT, Opcode.CONT):
            return
        if self._text:
            self._connection.violate(ProtocolViolation("MQTT-6.0.0-1", "a text frame instead of a binary one"))
        else:
            self._connection.data_received(bytes(frame.data))

    def _flush(self) -> None:
        if self._transport is None or self._transport.is_closing():
            return
        for data in self._ws.data_to_send():
            if data:
                self._transport.write(data)
            else:
                self._transport.close()

    def send(self, data: bytes) -> None:
        """Send bytes as one binary frame."""
        if self._ws.state is OPEN:
            self._ws.send_binary(data)
            self._flush()

    def finish(self) -> None:
        """Close the WebSocket and the socket under it."""
        if self._ws.state is OPEN:
            with contextlib.suppress(ProtocolError):  # it is being closed from the other side
                self._ws.send_close(1000)
            self._flush()
        if self._transport is not None:
            self._transport.close()

    def connection_lost(self, exc: Exception | None) -> None:
        """The socket is gone."""
        self._connection.connection_lost(exc)

    def eof_received(self) -> bool:
        """The client will send nothing more."""
        return False

    def pause_writing(self) -> None:
        """The socket takes no more."""
        self._connection.pause_writing()

    def resume_writing(self) -> None:
        """The socket takes more again."""
        self._connection.resume_writing()
