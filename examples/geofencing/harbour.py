"""A harbour with plain MQTT clients: who sails in, who sails out, and who sails past.

    python examples/geofencing/harbour.py [HOST [PORT]]

The fence is a retained message. It is moved while a ship is at sea, and deleted at the end.
"""

from __future__ import annotations

import json
import sys
import threading
from typing import Any

from paho.mqtt.client import Client, MQTTMessage
from paho.mqtt.enums import CallbackAPIVersion

HARBOUR = [[129.03, 35.08], [129.08, 35.08], [129.08, 35.11], [129.03, 35.11], [129.03, 35.08]]


class Listener:
    """A client that keeps what it hears until the day is over."""

    def __init__(self, host: str, port: int, topic_filter: str) -> None:
        self.heard: list[str] = []
        self.over = threading.Event()
        self.client = Client(CallbackAPIVersion.VERSION2)
        granted = threading.Event()
        self.client.on_subscribe = lambda *_: granted.set()
        self.client.on_message = self.on_message
        self.client.connect(host, port)
        self.client.loop_start()
        self.client.subscribe([(topic_filter, 1), ("ships/over", 1)])
        if not granted.wait(timeout=10):
            sys.exit(f"nobody answers at {host}:{port}")

    def on_message(self, _client: Client, _data: Any, message: MQTTMessage) -> None:
        if message.topic == "ships/over":
            self.over.set()
        else:
            self.heard.append(f"{message.topic} {message.payload.decode()}")


def main() -> None:
    host = sys.argv[1] if len(sys.argv) > 1 else "127.0.0.1"
    port = int(sys.argv[2]) if len(sys.argv) > 2 else 1883
    listeners = {
        "pilot": Listener(host, port, "$geo/fence:harbour;detect=enter/ships/+/pos"),
        "customs": Listener(host, port, "$geo/fence:harbour;detect=exit/ships/+/pos"),
        "coast guard": Listener(host, port, "$geo/fence:harbour;detect=cross/ships/+/pos"),
    }
    client = Client(CallbackAPIVersion.VERSION2)
    client.connect(host, port)
    client.loop_start()

    def sail(ship: str, *way: tuple[float, float]) -> None:
        for lon, lat in way:
            client.publish(f"ships/{ship}/pos", json.dumps({"lon": lon, "lat": lat}), qos=1).wait_for_publish()

    def harbour(east_by: float) -> None:
        fence = {"type": "Polygon", "coordinates": [[[lon + east_by, lat] for lon, lat in HARBOUR]]}
        client.publish("locus/fence/harbour", json.dumps(fence), qos=1, retain=True).wait_for_publish()

    harbour(east_by=0)
    sail("aurora", (129.2, 35.1), (129.05, 35.1), (129.06, 35.1), (129.2, 35.1))
    sail("borealis", (129.0, 35.1), (129.2, 35.1))
    harbour(east_by=1)
    sail("aurora", (130.05, 35.1))
    client.publish("locus/fence/harbour", b"", qos=1, retain=True).wait_for_publish()
    sail("aurora", (129.05, 35.1), (130.05, 35.1))
    client.publish("ships/over", qos=1).wait_for_publish()
    for name, listener in listeners.items():
        listener.over.wait(timeout=10)
        print(f"{name}:", *listener.heard, sep="\n  ")
        listener.client.disconnect()
        listener.client.loop_stop()
    client.disconnect()
    client.loop_stop()


if __name__ == "__main__":
    main()
