from __future__ import annotations

import threading
from typing import TYPE_CHECKING

import pytest
from paho.mqtt import client as mqtt

from spark_jobs.mqtt_sink import BadBrokerError, MqttSink
from tests.brokers import free_port, locus
from tests.spark_jobs.clients import PATIENCE_S

if TYPE_CHECKING:
    from collections.abc import Callable


def retained(port: int, enough: Callable[[dict[str, bytes]], bool]) -> dict[str, bytes]:
    """What a new subscriber is shown, once it is enough."""
    seen: dict[str, bytes] = {}
    done = threading.Event()

    def on_message(_client: object, _data: object, message: mqtt.MQTTMessage) -> None:
        seen[message.topic] = message.payload
        if enough(seen):
            done.set()

    client = mqtt.Client(mqtt.CallbackAPIVersion.VERSION2)
    client.on_message = on_message
    client.on_connect = lambda *_: client.subscribe("locus/metrics/#")
    client.connect("127.0.0.1", port)
    client.loop_start()
    try:
        assert done.wait(PATIENCE_S), seen
    finally:
        client.disconnect()
        client.loop_stop()
    return seen


def test_what_is_shown_survives_a_broker_that_forgets(tmp_path) -> None:
    port = free_port()
    (tmp_path / "a").mkdir()
    (tmp_path / "b").mkdir()
    with MqttSink(f"mqtt://127.0.0.1:{port}") as sink:
        sink.publish("locus/metrics/n1/1s", b"before the broker was there")
        with locus(port=port, directory=tmp_path / "a"):
            assert sink.wait_connected(PATIENCE_S)
            assert retained(port, lambda seen: len(seen) == 1) == {
                "locus/metrics/n1/1s": b"before the broker was there"
            }
            sink.publish("locus/metrics/n1/1s", b"new")
            sink.publish("locus/metrics/n1/10s", b"another")
            sink.publish("locus/metrics/n1/1min", b"gone")
            sink.publish("locus/metrics/n1/1min", b"")
            retained(port, lambda seen: seen.get("locus/metrics/n1/10s") == b"another")
        with locus(port=port, directory=tmp_path / "b"):  # another directory: nothing is retained in it
            shown = retained(port, lambda seen: len(seen) == 2)
            assert shown == {"locus/metrics/n1/1s": b"new", "locus/metrics/n1/10s": b"another"}
        assert sink.connections == 2


def test_an_address_that_is_none_is_named() -> None:
    with pytest.raises(BadBrokerError, match="'localhost:1883' is no broker"):
        MqttSink("localhost:1883")
