"""The dashboard's connection to the broker: one for all pages, made again whenever it breaks."""

from __future__ import annotations

import os
import threading
import time
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import unquote, urlparse

from paho.mqtt import client as mqtt
from paho.mqtt.enums import CallbackAPIVersion

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

PASSWORD_VARIABLE: Final = "LOCUS_PASSWORD"  # noqa: S105 - the name of a variable, not a password
OWN_FILTERS: Final = ("$SYS/#", "locus/metrics/#", "locus/fence/+")
CITY_FILTERS: Final = (
    "city/map",
    "city/vehicles/+/pos",
    "city/people/+/pos",
    "city/subscribers/#",
    "city/workers/+",
    "city/sensors/#",
    "city/alerts/+",
    "city/jobs/board",
)
"""The simulated city; not its offers, which go to the best receivers only: the dashboard would be one of them."""


class BadBrokerError(ValueError):
    """The broker's address cannot be understood; the message says which and what is expected."""


@dataclass(frozen=True, slots=True)
class Address:
    """Where a broker is, and how to come in."""

    host: str
    port: int
    tls: bool = False
    username: str | None = None
    password: str | None = None

    @property
    def shown(self) -> str:
        """The address without secrets."""
        return f"{self.host}:{self.port}"


def read_address(text: str) -> Address:
    """An address from `host`, `host:port` or `mqtt[s]://[user[:password]@]host[:port]`.

    A password that is not in it is taken from the environment variable LOCUS_PASSWORD.

    Raises:
        BadBrokerError: it is none of these.
    """
    wanted = f"{text!r} is no broker: give HOST:PORT, mqtt://HOST:PORT or mqtts://HOST:PORT"
    parsed = urlparse(text if "://" in text else f"mqtt://{text}")
    try:
        port = parsed.port
    except ValueError:
        raise BadBrokerError(wanted) from None
    if parsed.scheme not in ("mqtt", "mqtts") or not parsed.hostname or parsed.path.strip("/"):
        raise BadBrokerError(wanted)
    tls = parsed.scheme == "mqtts"
    username = unquote(parsed.username) if parsed.username else None
    password = unquote(parsed.password) if parsed.password else os.environ.get(PASSWORD_VARIABLE)
    return Address(parsed.hostname, port or (8883 if tls else 1883), tls, username, password if username else None)


@dataclass(frozen=True, slots=True)
class Link:
    """How the connection is: whether it stands, since when, and what went wrong last."""

    connected: bool
    since_s: float
    """Since when it is as it is, in seconds since 1970."""
    reason: str = ""
    connections: int = 0
    """How often it was made."""


def new_client(address: Address) -> mqtt.Client:
    """A client that is not connected yet, and will come back a second or a few after it was cut off."""
    client = mqtt.Client(CallbackAPIVersion.VERSION2)
    if address.username is not None:
        client.username_pw_set(address.username, address.password)
    if address.tls:
        client.tls_set()
    client.reconnect_delay_set(min_delay=1, max_delay=4)
    return client


class Feed:
    """Subscriptions on one broker whose messages go to one function.

    Args:
        address: the broker.
        filters: what to subscribe to; QoS 0, for a picture needs no message twice.
        take: called with topic, payload, time in seconds since 1970 and whether it was retained, in a thread.
    """

    def __init__(
        self,
        address: Address,
        filters: Sequence[str],
        take: Callable[[str, bytes, float, bool], None],
    ) -> None:
        self.address = address
        self._filters = tuple(dict.fromkeys(filters))
        self._take = take
        self._lock = threading.Lock()
        self._link = Link(connected=False, since_s=time.time(), reason="not tried yet")
        self.refused: tuple[str, ...] = ()
        """Filters that the broker did not grant."""
        self._asked: dict[int, str] = {}
        self._client = new_client(address)
        self._client.on_connect = self._on_connect
        self._client.on_connect_fail = self._on_connect_fail
        self._client.on_disconnect = self._on_disconnect
        self._client.on_subscribe = self._on_subscribe
        self._client.on_message = self._on_message

    @property
    def link(self) -> Link:
        """How the connection is."""
        with self._lock:
            return self._link

    def start(self) -> None:
        """Begin to connect, in a thread of its own."""
        self._client.connect_async(self.address.host, self.address.port, keepalive=15)
        self._client.loop_start()

    def stop(self) -> None:
        """Say goodbye to the broker."""
        self._client.disconnect()
        self._client.loop_stop()

    def publish(self, topic: str, payload: bytes, *, retain: bool = False) -> bool:
        """Publish at QoS 1; False where there is no connection, for then nobody would know what came of it."""
        if not self.link.connected:
            return False
        return self._client.publish(topic, payload, qos=1, retain=retain).rc == mqtt.MQTT_ERR_SUCCESS

    # In the thread of the client.

    def _on_connect(self, client: mqtt.Client, _userdata: Any, _flags: Any, reason: Any, _properties: Any) -> None:
        if reason.is_failure:
            self._lost(f"the broker refuses the connection: {reason}")
            return
        with self._lock:
            self._link = Link(connected=True, since_s=time.time(), connections=self._link.connections + 1)
            self.refused = ()
            self._asked.clear()
        for text in self._filters:
            _, number = client.subscribe(text, qos=0)
            if number is not None:
                self._asked[number] = text

    def _on_subscribe(self, _client: Any, _userdata: Any, number: int, codes: Any, _properties: Any) -> None:
        text = self._asked.pop(number, None)
        if text is not None and any(code.is_failure for code in codes):
            self.refused = (*self.refused, text)

    def _on_connect_fail(self, _client: Any, _userdata: Any) -> None:
        self._lost("no answer at this address")

    def _on_disconnect(self, _client: Any, _userdata: Any, _flags: Any, reason: Any, _properties: Any) -> None:
        known = reason.is_failure and str(reason) != "Unspecified error"
        self._lost(f"the connection broke ({reason})" if known else "the connection broke")

    def _lost(self, reason: str) -> None:
        with self._lock:
            since_s = time.time() if self._link.connected else self._link.since_s
            self._link = replace(self._link, connected=False, since_s=since_s, reason=reason)

    def _on_message(self, _client: Any, _userdata: Any, message: mqtt.MQTTMessage) -> None:
        self._take(message.topic, bytes(message.payload), time.time(), message.retain)
