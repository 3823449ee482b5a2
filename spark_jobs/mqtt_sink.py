"""Publishes retained topics through a connection that outlives the broker: what is shown last is shown again.

Each topic has one value that matters, the latest. While the broker is away the sink remembers it, and sends all of
them once it is back, since a broker may come back without its retained messages.
"""

from __future__ import annotations

import logging
import threading
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import urlparse

from paho.mqtt import client as mqtt
from paho.mqtt.enums import CallbackAPIVersion

if TYPE_CHECKING:
    from types import TracebackType
    from typing import Self

log = logging.getLogger(__name__)

MOST_TOPICS: Final = 100_000


class BadBrokerError(ValueError):
    """The broker's address cannot be understood; the message says which and what is expected."""


class MqttSink:
    """Retained topics on one broker.

    Args:
        url: `mqtt://[user:password@]host[:port]`, or `mqtts://` for TLS.
        client_id: under which it connects; the broker chooses one if it is empty.
        most_topics: how many topics are remembered; one more is sent but not repeated after a loss.
    """

    def __init__(self, url: str, client_id: str = "", most_topics: int = MOST_TOPICS) -> None:
        parsed = urlparse(url)
        if parsed.scheme not in ("mqtt", "mqtts") or not parsed.hostname:
            raise BadBrokerError(f"{url!r} is no broker: give mqtt://host[:port] or mqtts://host[:port]")
        self._most_topics = most_topics
        self._latest: dict[str, bytes] = {}
        self._lock = threading.Lock()
        self.connections = 0
        """How often a connection was made."""
        self.published = 0
        """Messages handed to a connection."""
        self._connected = threading.Event()
        self._client = mqtt.Client(CallbackAPIVersion.VERSION2, client_id=client_id)
        if parsed.username:
            self._client.username_pw_set(parsed.username, parsed.password)
        if parsed.scheme == "mqtts":
            self._client.tls_set()
        self._client.reconnect_delay_set(min_delay=1, max_delay=10)
        self._client.on_connect = self._on_connect
        self._client.on_disconnect = self._on_disconnect
        self._client.connect_async(parsed.hostname, parsed.port or (8883 if parsed.scheme == "mqtts" else 1883), 30)
        self._client.loop_start()  # connects, and connects again, in a thread of its own

    def publish(self, topic: str, payload: bytes) -> None:
        """Show a value from now on; an empty one removes the topic. Never waits for the network."""
        with self._lock:
            if topic in self._latest or len(self._latest) < self._most_topics:
                self._latest[topic] = payload
            if self._connected.is_set():
                self._send(topic, payload)

    def wait_connected(self, timeout_s: float) -> bool:
        """Wait until there is a connection; whether there is one."""
        return self._connected.wait(timeout_s)

    def close(self) -> None:
        """Say goodbye to the broker."""
        self._client.disconnect()
        self._client.loop_stop()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()

    def _send(self, topic: str, payload: bytes) -> None:
        # QoS 0: a value that is lost with its connection is sent again with the next one.
        if self._client.publish(topic, payload, qos=0, retain=True).rc == mqtt.MQTT_ERR_SUCCESS:
            self.published += 1
            if not payload:
                self._latest.pop(topic, None)

    def _on_connect(self, _client: Any, _userdata: Any, _flags: Any, reason: Any, _properties: Any) -> None:
        if reason.is_failure:
            log.warning("the broker refuses the connection: %s", reason)
            return
        with self._lock:
            self.connections += 1
            self._connected.set()
            for topic, payload in list(self._latest.items()):
                self._send(topic, payload)

    def _on_disconnect(self, _client: Any, _userdata: Any, _flags: Any, reason: Any, _properties: Any) -> None:
        with self._lock:
            self._connected.clear()
        if reason.is_failure:
            log.warning("lost the broker (%s); connecting again", reason)
