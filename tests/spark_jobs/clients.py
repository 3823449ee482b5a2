"""Real MQTT clients for tests of the pipeline: they wait for the broker's answers, and count what they were told."""

from __future__ import annotations

import threading
import time
from collections import Counter
from typing import TYPE_CHECKING, Any

from paho.mqtt import client as mqtt
from paho.mqtt.enums import CallbackAPIVersion

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from typing import Self

PATIENCE_S = 180.0
"""A bound, not a measure: machines that run tests may have much else to do."""


def wait_for(condition: Callable[[], bool], what: str | Callable[[], str], within_s: float = PATIENCE_S) -> None:
    """Wait until something holds."""
    deadline = time.monotonic() + within_s
    while not condition():
        assert time.monotonic() < deadline, what if isinstance(what, str) else what()
        time.sleep(0.05)


class Person:
    """One client, connected in `with`; every call returns when the broker has answered it."""

    def __init__(self, port: int, client_id: str = "") -> None:
        self.received: Counter[tuple[str, bool]] = Counter()
        """Messages by topic, and by whether they came because they were retained."""
        self._answered: set[int] = set()
        self._ready = threading.Event()
        self.client = mqtt.Client(CallbackAPIVersion.VERSION2, client_id=client_id)
        self.client.on_connect = lambda *_: self._ready.set()
        self.client.on_subscribe = self._on_subscribe
        self.client.on_message = self._on_message
        self.client.connect("127.0.0.1", port)

    def __enter__(self) -> Self:
        self.client.loop_start()
        assert self._ready.wait(PATIENCE_S)
        return self

    def __exit__(self, *_: object) -> None:
        self.leave()

    def leave(self) -> None:
        """Say goodbye."""
        self.client.disconnect()
        self.client.loop_stop()

    def _on_subscribe(self, _client: Any, _data: Any, number: int, _reasons: Any, _properties: Any) -> None:
        self._answered.add(number)

    def _on_message(self, _client: Any, _data: Any, message: mqtt.MQTTMessage) -> None:
        self.received[message.topic, message.retain] += 1

    def subscribe(self, topics: Iterable[str], qos: int = 1) -> None:
        """Subscribe to all of them with one packet."""
        number = self.client.subscribe([(topic, qos) for topic in topics])[1]
        assert number is not None
        wait_for(lambda: number in self._answered, "an answer to SUBSCRIBE")

    def publish(self, topics: Iterable[str], payload: bytes, *, retain: bool = False) -> None:
        """Publish to each of them with QoS 1."""
        for sent in [self.client.publish(topic, payload, qos=1, retain=retain) for topic in topics]:
            sent.wait_for_publish(PATIENCE_S)
            assert sent.is_published()
