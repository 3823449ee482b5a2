"""Couriers say what they carry, and each order goes to the one or two whom it suits best: plain MQTT clients.

locus broker -c examples/best-matches/broker.yaml
python examples/best-matches/couriers.py [HOST [PORT]]
"""

from __future__ import annotations

import json
import sys
import threading
from typing import Any

from paho.mqtt.client import Client, MQTTMessage
from paho.mqtt.enums import CallbackAPIVersion

COURIERS = {
    "van": "$where/weight<=50/orders/new",
    "cargo-bike": "$where/weight<=20,distance<=10/orders/new",
    "bicycle": "$where/weight<=5,distance<=5/orders/new",
}

UNNAMED = "somebody (the broker names nobody: start it with examples/best-matches/broker.yaml)"


def client(name: str, host: str, port: int, subscription: str) -> Client:
    """A connected client whose subscription is granted."""
    granted = threading.Event()
    made = Client(CallbackAPIVersion.VERSION2, client_id=name)
    made.on_subscribe = lambda *_: granted.set()
    made.connect(host, port)
    made.loop_start()
    made.subscribe(subscription, qos=1)
    if not granted.wait(timeout=10):
        sys.exit(f"{name}: nobody answers at {host}:{port}")
    return made


def main() -> None:
    host = sys.argv[1] if len(sys.argv) > 1 else "127.0.0.1"
    port = int(sys.argv[2]) if len(sys.argv) > 2 else 1883
    couriers = [client(name, host, port, subscription) for name, subscription in COURIERS.items()]
    told = threading.Semaphore(0)

    def on_receipt(_client: Client, _data: Any, message: MQTTMessage) -> None:
        receipt = json.loads(message.payload)
        best = [f"{each.get('client', UNNAMED)} ({each['accuracy']:g})" for each in receipt["receivers"]]
        print(message.topic.removeprefix("shop/receipts/"), "->", ", ".join(best) or "nobody", flush=True)
        told.release()

    shop = client("shop", host, port, "shop/receipts/#")
    shop.on_message = on_receipt
    orders = {"letter": (0.1, 3), "cake": (4, 8), "sofa": (45, 12), "piano": (180, 2)}
    for name, (weight, distance) in orders.items():
        order = json.dumps({"weight": weight, "distance": distance})
        shop.publish(f"orders/new/@top:2;reply:shop/receipts/{name}", order, qos=1)
        told.acquire(timeout=10)
    couriers[2].disconnect()
    couriers[2].loop_stop()
    shop.publish("orders/new/@top:2;reply:shop/receipts/letter", '{"weight": 0.1, "distance": 3}', qos=1)
    told.acquire(timeout=10)
    for each in (*couriers, shop):
        each.disconnect()
        each.loop_stop()


if __name__ == "__main__":
    main()
