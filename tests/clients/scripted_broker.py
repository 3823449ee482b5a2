"""A broker that says what a test tells it to, and remembers what it heard: for what a real one does too rarely."""

from __future__ import annotations

import contextlib
import socket
import struct
import threading
from typing import TYPE_CHECKING, Self

from tests.mqtt_wire import Closed, Kind, Packet, Silence, Wire, packet, publish, wait_for

if TYPE_CHECKING:
    import ssl

REFUSED = 0x80


class _Accepted(Wire):
    def __init__(self, accepted: socket.socket) -> None:
        self.socket = accepted
        self._unread = bytearray()


class ScriptedBroker:
    """Listens on a free port of 127.0.0.1 as long as the block lasts.

    Set `refuse` to filters that get SUBACK 0x80, `silent` to kinds of packets that get no answer, `connack` to the
    return code of the next CONNECTs, `session_present` to what these say of the session.
    """

    def __init__(self, tls: ssl.SSLContext | None = None) -> None:
        self._tls = tls
        self.refuse: set[str] = set()
        self.silent: set[Kind] = set()
        self.connack = 0
        self.session_present = False
        self.heard: list[Packet] = []
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._listener.getsockname()[1]
        self._wires: list[_Accepted] = []
        self._thread = threading.Thread(target=self._accept, daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        self.cut()

    def all(self, kind: Kind) -> list[Packet]:
        return [heard for heard in self.heard if heard.kind is kind]

    @property
    def published(self) -> list[tuple[str, bytes]]:
        return [(heard.topic, heard.payload) for heard in self.all(Kind.PUBLISH)]

    @property
    def subscribed(self) -> list[str]:
        return [text for heard in self.all(Kind.SUBSCRIBE) for text in filters(heard)]

    @property
    def unsubscribed(self) -> list[str]:
        return [text for heard in self.all(Kind.UNSUBSCRIBE) for text in filters(heard)]

    def wait_for(self, kind: Kind, count: int = 1) -> None:
        wait_for(lambda: len(self.all(kind)) >= count, f"{count} {kind.name}; heard {self.heard}")

    def send(self, topic: str, payload: bytes = b"", *, retain: bool = False) -> None:
        """Publish to the newest connection."""
        self._wires[-1].send(publish(topic, payload, retain=retain))

    def answer_last(self, kind: Kind) -> None:
        """Give the answer that was held back."""
        answer = self._answer(self.all(kind)[-1])
        assert answer is not None
        self._wires[-1].send(answer)

    def cut(self) -> None:
        """End all connections as a lost network would."""
        for wire in self._wires:
            with contextlib.suppress(OSError):
                wire.socket.shutdown(socket.SHUT_RDWR)
                wire.close()

    def _accept(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                accepted = self._listener.accept()[0]
                if self._tls is not None:
                    try:
                        accepted = self._tls.wrap_socket(accepted, server_side=True)
                    except OSError:  # the client does not trust us
                        accepted.close()
                        continue
                wire = _Accepted(accepted)
                self._wires.append(wire)
                threading.Thread(target=self._serve, args=(wire,), daemon=True).start()

    def _serve(self, wire: _Accepted) -> None:
        with contextlib.suppress(Closed, Silence, OSError):
            while True:
                heard = wire.read(60)
                self.heard.append(heard)
                answer = self._answer(heard)
                if answer and heard.kind not in self.silent:
                    wire.send(answer)

    def _answer(self, heard: Packet) -> bytes | None:
        match heard.kind:
            case Kind.CONNECT:
                return packet(Kind.CONNACK, 0, bytes([self.session_present and not self.connack, self.connack]))
            case Kind.SUBSCRIBE:
                codes = [REFUSED if text in self.refuse else 0 for text in filters(heard)]
                return packet(Kind.SUBACK, 0, heard.body[:2] + bytes(codes))
            case Kind.UNSUBSCRIBE:
                return packet(Kind.UNSUBACK, 0, heard.body[:2])
            case Kind.PUBLISH if heard.qos == 1:
                return packet(Kind.PUBACK, 0, struct.pack("!H", heard.packet_id))
            case Kind.PINGREQ:
                return packet(Kind.PINGRESP, 0)
            case _:
                return None


def filters(heard: Packet) -> list[str]:
    """The filters of a SUBSCRIBE or an UNSUBSCRIBE."""
    found, at = [], 2
    while at < len(heard.body):
        (length,) = struct.unpack_from("!H", heard.body, at)
        found.append(heard.body[at + 2 : at + 2 + length].decode())
        at += 2 + length + (heard.kind is Kind.SUBSCRIBE)
    return found
