"""A connection of the simulated city: a plain MQTT client that comes back by itself and never piles up messages."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any, Final

import msgspec
from paho.mqtt import client as mqtt

from clients.broker import Broker

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

log = logging.getLogger(__name__)

KEEP_ALIVE_S: Final = 30
LEAST_RECONNECT_S: Final = 1
MOST_RECONNECT_S: Final = 2
MOST_UNSENT: Final = 2_000
"""Messages that may wait for the socket; one more is skipped, for a position that is late is worth nothing."""

Publication = tuple[str, Any, bool]
"""A topic, what is to be said in JSON, and whether it is retained."""


class Connection:
    """A client of the city.

    Args:
        host: the broker.
        port: its port.
        name: the client's identifier.
        filters: what it subscribes to whenever it connects.
        on_message: called with topic and payload of what comes, in the connection's own thread.
        greeting: what is said whenever it connects, before it subscribes.
        will: a topic, and what the broker says there when the connection breaks.
    """

    def __init__(
        self,
        host: str,
        port: int,
        name: str,
        *,
        filters: Sequence[str] = (),
        on_message: Callable[[str, bytes], None] | None = None,
        greeting: Callable[[], Iterable[Publication]] = tuple,
        will: tuple[str, Any] | None = None,
    ) -> None:
        self.name = name
        self.filters = tuple(filters)
        self.refused: set[str] = set()
        """Filters that the broker does not serve."""
        self.published = 0
        """Messages handed to the socket or waiting for it."""
        self.skipped = 0
        """Messages not sent because too many were waiting."""
        self._heard = on_message
        self._greeting = greeting
        self._up = False
        self._unsent = 0
        self._subscribing: dict[int, tuple[str, ...]] = {}
        self._paho = Broker(host, port, name, keepalive_s=KEEP_ALIVE_S).client()
        self._paho.reconnect_delay_set(LEAST_RECONNECT_S, MOST_RECONNECT_S)
        if will is not None:
            self._paho.will_set(will[0], msgspec.json.encode(will[1]))
        self._paho.on_connect = self._on_connect
        self._paho.on_disconnect = self._on_disconnect
        self._paho.on_publish = self._on_publish
        self._paho.on_subscribe = self._on_subscribe
        if on_message is not None:
            self._paho.on_message = self._on_message
        self._paho.connect_async(host, port, KEEP_ALIVE_S)
        self._paho.loop_start()  # connects, and connects again, in a thread of its own

    @property
    def up(self) -> bool:
        """Whether there is a connection at the moment."""
        return self._up

    def publish(self, topic: str, said: Any, *, retain: bool = False) -> bool:
        """Say something in JSON, if there is a connection and room; whether it was."""
        if not self._up:
            return False
        if self._unsent >= MOST_UNSENT and not retain:
            self.skipped += 1
            return False
        self._unsent += 1
        if self._paho.publish(topic, msgspec.json.encode(said), retain=retain).rc != mqtt.MQTT_ERR_SUCCESS:
            return False
        self.published += 1
        return True

    def leave(self) -> None:
        """Say goodbye, and return at once."""
        self._up = False
        self._paho.disconnect()

    def close(self) -> None:
        """End the connection's thread; quick if it has left before."""
        self.leave()
        self._paho.loop_stop()

    # What paho calls, in its own thread.

    def _on_connect(self, _client: Any, _data: Any, _flags: Any, reason: Any, _more: Any) -> None:
        if reason.is_failure:
            log.warning("%s: the broker refuses the connection: %s", self.name, reason)
            return
        self._unsent = 0
        self._up = True
        for topic, said, retain in self._greeting():
            self.publish(topic, said, retain=retain)
        if self.filters:
            code, packet = self._paho.subscribe([(text, 0) for text in self.filters])
            if code == mqtt.MQTT_ERR_SUCCESS and packet is not None:
                self._subscribing[packet] = self.filters

    def _on_disconnect(self, _client: Any, _data: Any, _flags: Any, _reason: Any, _more: Any) -> None:
        self._up = False

    def _on_publish(self, _client: Any, _data: Any, _packet: int, _reason: Any, _more: Any) -> None:
        self._unsent = max(self._unsent - 1, 0)

    def _on_subscribe(self, _client: Any, _data: Any, packet: int, reasons: list[Any], _more: Any) -> None:
        for text, reason in zip(self._subscribing.pop(packet, ()), reasons, strict=False):
            if reason.is_failure and text not in self.refused:
                self.refused.add(text)
                log.warning("%s: the broker refuses %s", self.name, text)

    def _on_message(self, _client: Any, _data: Any, arrived: mqtt.MQTTMessage) -> None:
        assert self._heard is not None
        try:
            self._heard(arrived.topic, bytes(arrived.payload))
        except (UnicodeDecodeError, msgspec.DecodeError, ValueError, TypeError) as error:
            # Anybody may publish to the city's topics; what is not the city's own must not end the connection.
            log.warning("%s: ignored a message it cannot read: %s", self.name, error)
