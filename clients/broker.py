"""Which broker a client belongs to, and how it comes in."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal

from paho.mqtt import client as mqtt
from paho.mqtt.enums import CallbackAPIVersion

if TYPE_CHECKING:
    import ssl

_LEAST_RECONNECT_S = 1
_MOST_RECONNECT_S = 30


@dataclass(frozen=True, slots=True)
class Broker:
    """Which broker, and how to come in.

    Attributes:
        host: Its name or address.
        port: Its port.
        client_id: Under which name; empty lets the broker choose.
        clean_session: Whether the broker forgets this client when it leaves.
        keepalive_s: After how many seconds of silence each side looks whether the other is still there.
        username: Who comes, if the broker asks.
        password: The password, never shown.
        tls: The TLS context, None for a plain connection.
        transport: TCP or WebSockets.
        websocket_path: The path of a WebSocket.
    """

    host: str = "127.0.0.1"
    port: int = 1883
    client_id: str = ""
    clean_session: bool = True
    keepalive_s: int = 60
    username: str | None = None
    password: str | None = field(default=None, repr=False)
    tls: ssl.SSLContext | None = field(default=None, repr=False)
    transport: Literal["tcp", "websockets"] = "tcp"
    websocket_path: str = "/mqtt"

    def __str__(self) -> str:
        return f"{self.host}:{self.port}"

    def client(self, *, comes_back: bool = True) -> mqtt.Client:
        """A client of paho's that speaks MQTT 3.1.1 to it; not yet connected.

        Args:
            comes_back: Whether it connects again by itself when the connection is lost.
        """
        paho = mqtt.Client(
            CallbackAPIVersion.VERSION2,
            client_id=self.client_id,
            clean_session=self.clean_session,
            protocol=mqtt.MQTTv311,
            transport=self.transport,
            reconnect_on_failure=comes_back,
        )
        if self.username is not None:
            paho.username_pw_set(self.username, self.password)
        if self.tls is not None:
            paho.tls_set_context(self.tls)
        if self.transport == "websockets":
            paho.ws_set_options(path=self.websocket_path)
        paho.reconnect_delay_set(_LEAST_RECONNECT_S, _MOST_RECONNECT_S)
        return paho
