"""A plain MQTT client, paho-mqtt, that knows nothing of Locus and hears only what happens near it.

    python examples/plain-python/near_me.py [HOST [PORT]]

It tells the broker where it is, asks for offers within 500 m, and prints the two that are; the one across the
river never leaves the broker.
"""

from __future__ import annotations

import json
import sys
from typing import Any

from paho.mqtt.client import Client, MQTTMessage
from paho.mqtt.enums import CallbackAPIVersion


def on_connect(client: Client, _data: Any, _flags: Any, _reason: Any, _more: Any) -> None:
    client.publish("locus/me/position", json.dumps({"lon": 126.9779, "lat": 37.5663}))
    client.subscribe("$geo/near:500m/offers/#")


def on_subscribe(client: Client, _data: Any, _packet_id: int, reasons: list[Any], _more: Any) -> None:
    if reasons[0].is_failure:
        sys.exit("the broker refused the filter; its log says why")
    # Where a message happens stands in its payload, or behind its topic, so that any payload will do.
    client.publish("offers/bakery", json.dumps({"lon": 126.9770, "lat": 37.5650, "text": "Fresh bread"}))
    client.publish("offers/cinema/@at:126.9244,37.5260", "Two for one")
    client.publish("offers/museum/@at:126.9800,37.5680", "Open until nine")


def on_message(client: Client, _data: Any, message: MQTTMessage) -> None:
    print(message.topic, message.payload.decode(), flush=True)
    if message.topic == "offers/museum":
        client.disconnect()


def main() -> None:
    host = sys.argv[1] if len(sys.argv) > 1 else "127.0.0.1"
    port = int(sys.argv[2]) if len(sys.argv) > 2 else 1883
    client = Client(CallbackAPIVersion.VERSION2)
    client.on_connect, client.on_subscribe, client.on_message = on_connect, on_subscribe, on_message
    client.connect(host, port)
    client.loop_forever()


if __name__ == "__main__":
    main()
